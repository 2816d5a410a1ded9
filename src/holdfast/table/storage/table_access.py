"""Checks whether a table may be read or written: closed, read-only, being migrated."""

from collections.abc import Callable
from typing import Protocol

from holdfast.base.errors import Closed, ReadOnly

__all__ = ["Gate", "TableAccess"]


class Gate(Protocol):
    """Access check that `holdfast.table.migration` puts before a table."""

    def check(self) -> None:
        """Raise, unless the caller may pass."""
        ...


class TableAccess:
    """Whether an open table may be used. Threads set its attributes by plain assignments, and need no lock."""

    __slots__ = ("before_read", "closed", "gate", "name", "read_only")

    def __init__(self, name: str, *, read_only: bool) -> None:
        self.name = name
        self.read_only = read_only
        self.closed = False
        self.gate: Gate | None = None
        """The access check while the table is migrated."""
        self.before_read: Callable[[], None] | None = None
        """Called before a read. While a transaction of the store is running, it reserves the table if that transaction
        reads it; in a store that was opened read-only, it applies the changes of the owner."""

    def check_open(self) -> None:
        """Raise, unless the table may be read."""
        if self.closed:
            raise Closed(f"the table {self.name!r} is closed: open the store again")
        if self.gate is not None:
            self.gate.check()

    def check_writable(self) -> None:
        """Raise, unless the table may be written."""
        self.check_open()
        if self.read_only:
            raise ReadOnly("the store was opened read-only: open it without read_only=True to change a table")
