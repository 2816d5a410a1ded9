"""Empty, read-only state, for readers of a store that has none."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.base.errors import Closed, ReadOnly
from holdfast.state.column_families import check_family
from holdfast.state.state import Layer, Reads, Transaction, check_reads

__all__ = ["EmptyState"]


class EmptyState:
    """A read-only state without rows, for error messages with the `path` of the missing one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._closed = False

    def get(self, family: str, key: bytes) -> bytes | None:
        """As `State.get`: None."""
        self._check_open()
        check_family(family)
        return None

    @property
    def commits(self) -> int:
        """As `State.commits`: 0."""
        return 0

    def first(self, family: str, start: bytes, stop: bytes, *, since: int = 0) -> tuple[bytes, bytes] | None:
        """As `State.first`: None."""
        return None

    def scan(
        self, family: str, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """As `State.scan`: nothing."""
        self._check_open()
        check_family(family)
        return iter(())

    def transaction(self) -> Transaction:
        """As `State.transaction`; a commit with changes raises `ReadOnly`."""
        self._check_open()
        return Transaction(self)

    @property
    def stopped(self) -> str:
        """As `State.stopped`: always empty."""
        return ""

    @property
    def generation(self) -> int:
        """As `State.generation`."""
        return 0

    def recover(self) -> None:
        """As `State.recover`: there is nothing to do."""

    def close(self) -> None:
        """As `State.close`."""
        self._closed = True

    def apply(self, reads: Reads, layers: Sequence[Layer], sync: bool) -> None:
        """As `State.apply`."""
        self._check_open()
        check_reads(reads, self.get)
        if layers:
            raise ReadOnly(
                f"the state in {str(self._path)!r} is open read-only: open the store without read_only=True to write"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the state in {str(self._path)!r} is closed: open the store again")
