"""The table methods of a store: open, list and delete tables, and change several in one transaction."""

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from holdfast.base.errors import InvalidArgument, ReadOnly
from holdfast.log.settings import LogSettings
from holdfast.table_registry import HOW, TableRegistry
from holdfast.transactions import Transaction, TransactionCoordinator
from holdfast.typed_options import TableOptions

if TYPE_CHECKING:
    from holdfast.table import Model, Table
    from holdfast.table.migration import Migrations

    M = TypeVar("M", bound=Model)

__all__ = ["TabledStore"]


class TabledStore:
    """The part of a store that manages tables."""

    read_only: bool
    _guard: threading.RLock
    _tables: TableRegistry
    _transactions: TransactionCoordinator
    _wake: Callable[[], None]

    def _check_open(self) -> None:
        raise NotImplementedError

    def table(self, model: "type[M] | str", **settings: Unpack[TableOptions]) -> "Table[M]":
        """Open the table of a model, and create it if there is none. An existing one can be opened by its name, too.

        Settings are saved with the table: one that is not given has its last value. The options `keyring`, `migration`,
        `migration_budget` and `on_version_change` are not saved. By default the log syncs each request, and past
        versions cannot be read.
        """
        with self._guard:
            self._check_open()
            log_settings = {key: value for key, value in settings.items() if key in LogSettings.__dataclass_fields__}
            how: dict[str, Any] = {key: value for key, value in settings.items() if key in HOW}
            chosen = {key: value for key, value in settings.items() if key not in {*log_settings, *how}}
            if unknown := chosen.keys() - TableOptions.__annotations__.keys():
                known = ", ".join(sorted(TableOptions.__annotations__))
                raise InvalidArgument(f"a table has no setting {min(unknown)!r}; there are: {known}")
            table = self._tables.table(model, chosen, log_settings, **how)
            self._wake()
            return table

    def migrations(self) -> "Migrations":
        """Return the migrations of the tables: iterate for the status of each; `wait`, `pause`, `resume`, `cancel`."""
        self._check_open()
        return self._tables.migrations

    def tables(self) -> list[str]:
        """Return the names of all tables in the store, sorted."""
        self._check_open()
        return self._tables.names()

    def delete_table(self, name: str) -> None:
        """Delete a table with its records, their history and its log. Raises `NotFound`.

        Waits for a running transaction. After a crash the table is complete, or it is deleted; its files may then
        remain until a table is next opened or deleted.
        """
        with self._transactions.alone(), self._guard:
            self._check_open()
            if self.read_only:
                raise ReadOnly("only the process that owns the store can delete a table")
            self._tables.delete(name)

    def transaction(self) -> contextlib.AbstractContextManager[Transaction]:
        """Apply the changes inside, to tables and with `put`, together at the end, or not at all.

        `with store.transaction(): accounts.add(...); orders.put(...)`. After an error inside, none is applied; after a
        crash, all or none. Other threads that write to the same tables wait for its end. A store runs one transaction
        at a time.
        """
        self._check_open()
        if self.read_only:
            raise ReadOnly("the store was opened read-only: open it without read_only=True to write")
        return self._transactions.begin()
