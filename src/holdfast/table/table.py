"""The public `Table`: typed, versioned records of one model in a store."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from holdfast.base.errors import HoldfastError
from holdfast.table.live.replicator import Replication
from holdfast.table.model.model import Model
from holdfast.table.operations import Add, Change, Delete, Done, Outcome, Undelete

__all__ = ["Table"]

M = TypeVar("M", bound=Model)


class Table(Replication[M]):
    """The records of one model; made by `Store.table`.

    Files: the log of its changes in `tables/<name>/`, its view in `table-state/`. Threads: all methods may be called
    from any.
    """

    def add(self, record: M | Mapping[str, Any], *, key: bytes | None = None) -> Done:
        """Add a record; raises `ValidationFailed` with all violations, or `AlreadyExists`, even if soft-deleted."""
        return _only(self.write([Add(record, key)]))

    def add_many(self, records: Iterable[M | Mapping[str, Any]]) -> list[Outcome]:
        """Add records in one request; the outcome of each is its result or its error."""
        return self.write([Add(record) for record in records])

    def change(
        self,
        key: bytes,
        changes: Mapping[Any, Any],
        *,
        check: Mapping[Any, Any] | None = None,
        if_version: int | None = None,
    ) -> Done:
        """Change fields of a record: by path the new value, None to remove one, or a `ListEdit`, `SetEdit`, `DictEdit`.

        Raises `ValidationFailed` if a value that `check` gives by path is not there, if the record does not have
        `if_version`, or if a new value breaks a rule; `NoRecord` if there is no record. If the record has all the
        values already, nothing is written, and `.changed` is False. A soft-deleted record can be changed too.
        """
        return _only(self.write([Change(key, changes, check or {}, if_version)]))

    def delete(self, key: bytes, *, hard: bool = False, if_version: int | None = None) -> Done:
        """Soft-delete a record and free its unique values; with `hard`, delete it and its history from the state.

        Its earlier events stay in the log. Raises `NoRecord`, and `ValidationFailed` if it does not have `if_version`.
        """
        return _only(self.write([Delete(key, hard, if_version)]))

    def undelete(self, key: bytes) -> Done:
        """Restore a soft-deleted record; raises `ValidationFailed` if another has its unique values, or `NoRecord`."""
        return _only(self.write([Undelete(key)]))


def _only(outcomes: list[Outcome]) -> Done:
    (outcome,) = outcomes
    if isinstance(outcome, HoldfastError):
        raise outcome
    return outcome
