"""Rewriting of records by a migration: a change like any other, except that final fields may change."""

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.table.engine import TableEngine
from holdfast.table.model.model import Model, copy_of
from holdfast.table.model.object_access import same
from holdfast.table.storage.row_codec import EventKind, Images
from holdfast.table.storage.staging import Staging
from holdfast.table.storage.table_state import TableState

__all__ = ["rewrite"]


def rewrite(engine: TableEngine[Any], old: type[Model], old_images: Images, puts: Sequence[tuple[bytes, Any]]) -> int:
    """Replace or add records in one request; return how many changed. If one is invalid, raise and write nothing."""
    spec, view = engine.schema.spec, engine.state.view
    removed = [field for field in old.__spec__.fields.values() if field.number not in spec.numbers]
    sealed = [
        number
        for number, field in spec.numbers.items()
        if (known := old.__spec__.numbers.get(number)) is not None and known.sensitive != field.sensitive
    ]

    def stage(staging: Staging) -> None:
        for key, record in puts:
            gone: list[int] = []
            if removed and (row := view.row(key)) is not None:
                was = old_images.decode(key, row.image)
                gone = [field.number for field in removed if getattr(was, field.name) is not None]
            _replace(staging, view, key, record, gone, sealed)

    return engine.commits.rewrite(stage)


def _replace(
    staging: Staging, view: TableState, key: bytes, record: Any, gone: Sequence[int], sealed: Collection[int]
) -> None:
    """Stage the replacement of a record, or add it if there is none. An unchanged one is skipped.

    `gone` are the numbers of fields that were removed, `sealed` of those that are to be sealed now, or no longer: they
    count as changed, also where their values stay.
    """
    row, before = staging.record_state(key)
    if row is None:
        staging.check_uniques(key, record)
        staging.stage(key, EventKind.ADD, staging.version, False, (), copy_of(record))
        return
    changed = tuple(
        field.number
        for name, field in view.spec.fields.items()
        if not same(field.type, getattr(record, name), getattr(before, name))
        or (field.number in sealed and getattr(record, name) is not None)
    )
    if not changed and view.images.encode(key, record) == row.image:
        return
    if not row.deleted:
        staging.check_uniques(key, record)
    staging.stage(key, EventKind.CHANGE, row.created, row.deleted, (*changed, *gone), copy_of(record))
