"""Reading of records by key, now or as of a version: the present by one lookup, the past by one seek."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from holdfast.base.errors import InvalidArgument
from holdfast.base.hlc import VERSION_MAX, version_before
from holdfast.table.model.field_edits import steps_of, value_at
from holdfast.table.model.model import Model, ModelSpec
from holdfast.table.record import Record
from holdfast.table.storage.applied_state import AppliedState
from holdfast.table.storage.row_codec import Row, image_of, versions_of
from holdfast.table.storage.table_access import TableAccess
from holdfast.table.storage.table_schema import TableSchema
from holdfast.table.storage.table_state import after

__all__ = ["Point", "RecordReader", "selected"]

M = TypeVar("M", bound=Model)

Point = int | datetime
"""A point in a table's past: a version, or an aware datetime, which means the last version of its millisecond."""
_PROGRESS_EVERY = 10_000


class RecordReader(Generic[M]):
    """Reads records of one table by key, from the cache or the state. Threads: any."""

    def __init__(
        self, schema: TableSchema[M], state: AppliedState, access: TableAccess, catch_up: Callable[[], None]
    ) -> None:
        """`catch_up` makes the state current before a read, and raises if the table cannot be read."""
        self.catch_up = catch_up
        self._schema = schema
        self._state = state
        self._access = access
        self._cache = state.cache
        self._keeps_past = schema.settings.keep_all_versions
        self._counted: tuple[int, tuple[int, int]] | None = None
        """The version at which records were last counted, and the counts."""
        self.bind()

    def bind(self) -> None:
        """Use the codec that the state has now."""
        self._decode = self._state.view.images.decode

    def get(
        self,
        key: bytes,
        *,
        as_of: Point | None = None,
        include_deleted: bool = False,
        select: Sequence[Any] | None = None,
    ) -> Record[M] | None:
        """Return the record with this key; None if there is none, or it is deleted.

        With `as_of`, the record as it was then; raises `InvalidArgument` without `keep_all_versions`. With `select`,
        its value is a dict of these paths.
        """
        access = self._access
        if access.closed or access.gate is not None or access.before_read is not None:
            self.catch_up()
        cache = self._cache
        then = 0
        was: tuple[int, int, bytes | None] | None = None
        if as_of is not None:
            if not isinstance(key, bytes):
                raise _no_key(key)
            then = (
                as_of
                if type(as_of) is int and 0 <= as_of < VERSION_MAX and self._keeps_past
                else self.version_of(as_of)
            )
            was = cache.past.get(key)
        if was is not None and was[0] <= then < was[1]:
            raw = was[2]
        else:
            try:
                raw = cache.present.get(key)
                if raw is None:
                    raw = self._look_up(key)
            except TypeError:
                raise _no_key(key) from None
            if as_of is not None:
                raw = self._look_back(key, raw, then)
        if raw is None:
            return None
        flags, created, version, image = image_of(raw)
        if flags and not include_deleted:
            return None
        if select:
            return selected(
                self._schema.spec, Record(key, self._decode(key, image), version, created, flags > 0), select
            )
        return Record(key, self._decode(key, image), version, created, flags > 0)

    def get_many(
        self,
        keys: Iterable[bytes],
        *,
        as_of: Point | None = None,
        include_deleted: bool = False,
        select: Sequence[Any] | None = None,
    ) -> list[Record[M]]:
        """Return the records with these keys, in their order; missing ones are left out."""
        found = (self.get(key, as_of=as_of, include_deleted=include_deleted, select=select) for key in keys)
        return [record for record in found if record is not None]

    def counts(self, progress: Callable[[int], None] | None = None) -> tuple[int, int]:
        """Return how many live records and how many soft-deleted ones there are.

        All rows are read, and not decoded, unless nothing has changed since the last call. `progress` is called with
        the count so far after every 10,000 rows.
        """
        self.catch_up()
        known = self._counted
        last = self._state.last_version
        if known is not None and known[0] == last:
            return known[1]
        prefix = self._state.view.prefix
        count = deleted = 0
        for _, raw in self._state.store.scan("table", prefix, after(prefix)):
            count += 1
            deleted += bool(image_of(raw)[0])
            if progress is not None and count % _PROGRESS_EVERY == 0:
                progress(count)
        self._counted = last, (count - deleted, deleted)
        return self._counted[1]

    def _look_up(self, key: bytes) -> bytes | None:
        state, cache = self._state, self._cache
        turn = cache.turn
        raw = state.store.get("table", state.view.prefix + key)
        if raw is not None:
            cache.keep(turn, key, raw)
        return raw

    def _look_back(self, key: bytes, raw: bytes | None, version: int) -> bytes | None:
        """Return the row that a record had at a version, given its present one."""
        if raw is None:
            return None
        created, last = versions_of(raw)
        if last <= version:
            return raw
        if created > version:
            return None
        turn = self._cache.turn
        found = self._state.view.past_row(key, version)
        if found is None:
            return None
        first, stop, raw = found
        self._cache.keep_past(turn, key, first, stop, raw)
        return raw

    def record(self, key: bytes, row: Row) -> Record[M]:
        """Return the record of a row."""
        return Record(key, self._decode(key, row.image), row.version, row.created, row.deleted)

    def version_of(self, as_of: Point) -> int:
        """Return the version that `as_of` means, after checking that it can be read."""
        version = version_before(as_of, "as_of")
        assert version is not None
        if not self._keeps_past:
            raise InvalidArgument(
                f"the table {self._schema.name!r} keeps no past versions: open it with keep_all_versions=True to read "
                "as of one"
            )
        return version


def selected(spec: ModelSpec, record: Record[M], select: Sequence[Any]) -> Record[M]:
    """Return a record with only some of its values: a dict by the text of the path, of those that exist."""
    picked = {str(path): value_at(record.value, steps_of(spec, path)) for path in select}
    values: Any = {path: value for path, value in picked.items() if value is not None}
    return Record(record.key, values, record.version, record.created, record.deleted)


def _no_key(key: object) -> InvalidArgument:
    return InvalidArgument(f"the key of a record must be bytes, not {type(key).__name__}")
