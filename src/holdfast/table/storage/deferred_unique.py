"""Unique constraints added after records existed: enforced from a version on, and not before.

Before that version several records may have had one value, so the owners of values are not kept for that time: a scan
as of then does not use the constraint, and a rebuild assigns the values to the records that have them at that version.
"""

from collections.abc import Collection, Mapping
from copy import copy
from itertools import islice

from holdfast.table.storage.row_codec import Event, EventKind, decode_row
from holdfast.table.storage.table_state import TableState, after

__all__ = ["LateUnique", "only_uniques", "without_uniques"]

_BATCH = 1000


class LateUnique:
    """The fields of a view that are not unique yet, while it follows the log.

    The view ignores them until the log reaches the version since which they are unique.
    """

    def __init__(self, view: TableState, since: Mapping[int, int], version: int) -> None:
        """`version` is the last one that the view's state has."""
        self._view = view
        self._uniques = view.uniques
        self._since = {number: start for number, start in since.items() if start > version}
        if self._since:
            view.uniques = without_uniques(view, self._since).uniques

    def due(self, version: int) -> int | None:
        """Return the lowest version, up to this one, since which some of them are unique."""
        return min((start for start in self._since.values() if start <= version), default=None)

    def kept(self, version: int) -> int:
        """Return the version to save with the state: at it, after a crash, these fields do not count as unique yet."""
        return min([version, *(start - 1 for start in self._since.values())])

    def start(self, since: int) -> None:
        """Assign the values of fields that are unique since this version to the records that have them now.

        Idempotent, should it be interrupted.
        """
        numbers = {number for number, start in self._since.items() if start == since}
        self._since = {number: start for number, start in self._since.items() if start != since}
        self._view.uniques = self._uniques
        owning = only_uniques(self._view, numbers)
        state, prefix = owning.state, owning.prefix
        place = prefix
        while rows := list(islice(state.scan("table", place, after(prefix)), _BATCH)):
            batch = state.transaction()
            for name, raw in rows:
                row, key = decode_row(raw), name[len(prefix) :]
                record = owning.images.decode(key, row.image)
                event = Event(EventKind.ADD, row.version, row.created, row.deleted, (), row.image)
                owning.update_entries(batch, key, event, None, None, record, owning.unique_keys(record))
            batch.commit(sync=False)
            place = rows[-1][0] + b"\0"
        self._view.uniques = without_uniques(self._view, self._since).uniques


def only_uniques(view: TableState, numbers: Collection[int] | None = None) -> TableState:
    """Return the view reduced to the unique values of these fields, or of all, without indexes."""
    alone = copy(view)
    alone.set_indexes(())
    if numbers is not None:
        alone.uniques = [(field, prefix) for field, prefix in view.uniques if field.number in numbers]
    return alone


def without_uniques(view: TableState, numbers: Collection[int] | None = None) -> TableState:
    """Return the view without the unique values of these fields, or of all."""
    left = copy(view)
    left.uniques = [(one, prefix) for one, prefix in view.uniques if numbers is not None and one.number not in numbers]
    return left
