"""Rewriting of records by a migration: a change like any other, except that final fields may change."""

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.base.hlc import Fenced
from holdfast.table.model.fields import FieldSpec
from holdfast.table.model.model import Model, copy_of
from holdfast.table.model.object_access import same
from holdfast.table.storage.commit_pipeline import Core
from holdfast.table.storage.row_codec import EventKind
from holdfast.table.storage.staging import Staging
from holdfast.table.storage.table_state import Images

__all__ = ["rewrite"]


class _Rewriting(Staging):
    """A request that replaces whole records."""

    def replace(self, key: bytes, record: Any, gone: Sequence[int], sealed: Collection[int] = ()) -> None:
        """Stage the replacement of a record, or add it if there is none. An unchanged one is skipped.

        `gone` are the numbers of fields that were removed, `sealed` of those that are to be sealed now, or no longer:
        they count as changed, also where their values stay.
        """
        row, before = self._record_state(key)
        if row is None:
            self._check_uniques(key, record)
            self._step(key, EventKind.ADD, self.version, False, (), copy_of(record))
            return
        changed = tuple(
            field.number
            for name, field in self._view.spec.fields.items()
            if not same(field.type, getattr(record, name), getattr(before, name))
            or (field.number in sealed and getattr(record, name) is not None)
        )
        if not changed and self._view.images.encode(key, record) == row.image:
            return
        if not row.deleted:
            self._check_uniques(key, record)
        self._step(key, EventKind.CHANGE, row.created, row.deleted, (*changed, *gone), copy_of(record))


def rewrite(table: Core[Any], old: type[Model], old_images: Images, puts: Sequence[tuple[bytes, Any]]) -> int:
    """Replace or add records in one request; return how many changed. If one is invalid, raise and write nothing."""
    table._check_writable()
    removed = [field for field in old.__spec__.fields.values() if field.number not in table.spec.numbers]
    sealed = [
        number
        for number, field in table.spec.numbers.items()
        if (known := old.__spec__.numbers.get(number)) is not None and known.sensitive != field.sensitive
    ]
    while True:
        try:
            return _rewrite(table, old_images, puts, removed, sealed)
        except Fenced:
            table.wait_for_transaction()


def _rewrite(
    table: Core[Any],
    old_images: Images,
    puts: Sequence[tuple[bytes, Any]],
    removed: Sequence[FieldSpec],
    sealed: Collection[int],
) -> int:
    with table.writing():
        staging = table.staging(_Rewriting, table._versions.next())
        for key, record in puts:
            gone: list[int] = []
            if removed and (row := table.view.row(key)) is not None:
                was = old_images.decode(key, row.image)
                gone = [field.number for field in removed if getattr(was, field.name) is not None]
            staging.replace(key, record, gone, sealed)
        if not staging.steps:
            return 0
        try:
            pending_commit = table.submit(staging)
            batch = table.view.state.transaction()
            table.add_to_batch(batch, [pending_commit])
            batch.commit(sync=False)
        except BaseException as error:  # otherwise the pending request would never end
            table.stop(f"a write of a migration may be in the log and not in the state ({error!r})")
            raise
        table.mark_applied([pending_commit])
        return len(staging.steps)
