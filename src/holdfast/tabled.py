"""The table methods of a store: open, list and delete tables, and change several in one transaction."""

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from holdfast.base.errors import ReadOnly
from holdfast.log.settings import LogSettings
from holdfast.options import TableOptions
from holdfast.tables import HOW, Tables
from holdfast.transactions import Transaction, Transactions

if TYPE_CHECKING:
    from holdfast.table import Model, Table
    from holdfast.table.migrating import Migrations

    M = TypeVar("M", bound=Model)

__all__ = ["TabledStore"]


class TabledStore:
    """The part of a store that manages tables."""

    read_only: bool
    _guard: threading.RLock
    _tables: Tables
    _transactions: Transactions
    _wake: Callable[[], None]

    def _check_open(self) -> None:
        raise NotImplementedError

    def table(self, model: "type[M] | str", **settings: Unpack[TableOptions]) -> "Table[M]":
        """The table of a model's records, made if there is none; one that is there can be opened by its name, too.

        What is chosen is kept with the table: where a setting is not given, what was chosen last counts. By default its
        log syncs each request, and the past is not kept for reading.
        """
        with self._guard:
            self._check_open()
            log_settings = {key: value for key, value in settings.items() if key in LogSettings.__dataclass_fields__}
            how: dict[str, Any] = {key: value for key, value in settings.items() if key in HOW}
            chosen = {key: value for key, value in settings.items() if key not in {*log_settings, *how}}
            table = self._tables.table(model, chosen, log_settings, **how)
            self._wake()
            return table

    def migrations(self) -> "Migrations":
        """The migrations of the tables: iterate for the status of each; `wait`, `pause`, `resume`, `cancel`."""
        self._check_open()
        return self._tables.migrations

    def tables(self) -> list[str]:
        """The names of all tables in the store, sorted."""
        self._check_open()
        return self._tables.names()

    def delete_table(self, name: str) -> None:
        """Delete a table with all its records, their past and the log of its changes.

        A crash leaves all of it or, once the store is open again, no trace.
        """
        with self._transactions.alone(), self._guard:
            self._check_open()
            if self.read_only:
                raise ReadOnly("only the process that owns the store can delete a table")
            self._tables.delete(name)

    def transaction(self) -> contextlib.AbstractContextManager[Transaction]:
        """Apply the changes inside, to tables and with `put`, together at the end, or not at all.

        `with store.transaction(): accounts.add(...); orders.put(...)`. After an error inside, none is applied; after a
        crash, all or none. Other threads write to the same tables when it has ended; there is one transaction at a
        time.
        """
        self._check_open()
        if self.read_only:
            raise ReadOnly("the store was opened read-only: open it without read_only=True to change anything")
        return self._transactions.begin()
