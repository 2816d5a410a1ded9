"""Selections of records for updates and watchers, with their order: by keys, by a scan, or by last change."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from holdfast.base.errors import InvalidArgument
from holdfast.table.live.watch_window import Rank
from holdfast.table.model.field_path import parse_path
from holdfast.table.model.indexes import compile_index, paths_of
from holdfast.table.model.model import Model, ModelSpec
from holdfast.table.query.filters import Test, compile_filter
from holdfast.table.query.planner import Order, Plan, order_key
from holdfast.table.query.scanner import Scanner, cursor_text
from holdfast.table.record import Record
from holdfast.table.storage.order_preserving_encoding import complement
from holdfast.table.storage.table_state import after, inverted, version_in

__all__ = ["NEWEST_FIRST", "KeysScope", "NewestScope", "ScanScope", "WatchScope", "scope_of"]

M = TypeVar("M", bound=Model)


class _NewestFirst:
    """Marker of the order by last change, which no field gives."""

    def __repr__(self) -> str:
        return "NEWEST_FIRST"


NEWEST_FIRST: Any = _NewestFirst()
"""As `order`: the last changed record comes first. For tables with `update_history`."""


class WatchScope(Protocol[M]):
    """Some records of a table, in an order."""

    def rank(self, record: Record[M]) -> Rank | None:
        """Return the rank of a record; None if it does not belong to the scope."""
        ...

    def records(self, behind: Rank | None = None) -> Iterator[Record[M]]:
        """Return the records in the state, all or those behind a rank."""
        ...

    def moved_by(self, fields: Sequence[int]) -> bool:
        """Return whether a change of these fields can change a record's rank."""
        ...


def scope_of(
    scanner: Scanner[M],
    keys: Sequence[bytes] | None,
    where: Any,
    order: Order | None,
    start: bytes | None,
    include_start: bool,
    version: int | None,
    allow_table_scan: bool,
) -> WatchScope[M]:
    """Return the scope for a caller's arguments."""
    if start is not None and not isinstance(start, bytes):
        raise InvalidArgument(f"start must be the key of a record, as bytes, not {type(start).__name__}")
    if keys is not None:
        if order is not None or start is not None:
            raise InvalidArgument("give either keys, or an order and a start: the order of the keys is used")
        return KeysScope(scanner, keys, where, version)
    if order is NEWEST_FIRST:
        if start is not None or version is not None:
            raise InvalidArgument("NEWEST_FIRST takes neither a start nor to_version: leave them out")
        return NewestScope(scanner, where)
    return ScanScope(scanner, where, order, start, include_start, version, allow_table_scan)


class KeysScope(Generic[M]):
    """Records by their keys, in the order of these."""

    def __init__(self, scanner: Scanner[M], keys: Sequence[bytes], where: Any, version: int | None) -> None:
        self._get = scanner.reader.get
        self._version = version
        self._places = {key: place.to_bytes(8, "big") for place, key in enumerate(dict.fromkeys(keys))}
        self._test: Test = compile_filter(where, scanner.fetcher(version))

    def rank(self, record: Record[M]) -> Rank | None:
        """As `WatchScope.rank`."""
        place = self._places.get(record.key)
        return None if place is None or not self._test(record.value) else (place, record.key)

    def records(self, behind: Rank | None = None) -> Iterator[Record[M]]:
        """As `WatchScope.records`."""
        for key, place in self._places.items():
            if behind is None or (place, key) > behind:
                record = self._get(key, as_of=self._version)
                if record is not None and self._test(record.value):
                    yield record

    def moved_by(self, fields: Sequence[int]) -> bool:
        """As `WatchScope.moved_by`: never."""
        return False


class NewestScope(Generic[M]):
    """Records by their last change, the newest first."""

    def __init__(self, scanner: Scanner[M], where: Any) -> None:
        if not scanner.schema.settings.update_history:
            raise InvalidArgument(
                f"the table {scanner.schema.name!r} has no update history: open it with keep_all_versions=True and "
                "update_history=True for NEWEST_FIRST"
            )
        self._state = scanner.state
        self._reader = scanner.reader
        self._test: Test = compile_filter(where, scanner.fetcher(None))

    def rank(self, record: Record[M]) -> Rank | None:
        """As `WatchScope.rank`."""
        return (inverted(record.version), record.key) if self._test(record.value) else None

    def records(self, behind: Rank | None = None) -> Iterator[Record[M]]:
        """As `WatchScope.records`."""
        self._reader.catch_up()
        prefix = self._state.view.prefix
        start = prefix if behind is None else prefix + behind[0] + behind[1] + b"\0"
        for name, _ in self._state.store.scan("update_history", start, after(prefix)):
            place = name[len(prefix) :]
            record = self._reader.get(place[8:])
            # Each record once: by its last change.
            if record is not None and record.version == version_in(place[:8]) and self._test(record.value):
                yield record

    def moved_by(self, fields: Sequence[int]) -> bool:
        """As `WatchScope.moved_by`: always."""
        return True


class ScanScope(Generic[M]):
    """The records that a scan finds, in its order."""

    def __init__(
        self,
        scanner: Scanner[M],
        where: Any,
        order: Order | None,
        start: bytes | None,
        include_start: bool,
        version: int | None,
        allow_table_scan: bool,
    ) -> None:
        self._scanner = scanner
        self._get = scanner.reader.get
        self._where = where
        self._options: dict[str, Any] = {"order": order, "as_of": version, "allow_table_scan": allow_table_scan}
        self._plan: Plan = scanner.scan(where, **self._options).plan
        self._test: Test = compile_filter(where, scanner.fetcher(version))
        self._place = _places(scanner.schema.spec, self._plan)
        self._numbers = {scanner.schema.spec.fields[name].number for name in _fields(self._plan)}
        self._begin: Rank | None = None
        self._include_start = include_start
        if start is not None:
            self._begin = self._begin_at(start, version)

    def rank(self, record: Record[M]) -> Rank | None:
        """As `WatchScope.rank`."""
        rank = self._rank(record) if self._test(record.value) else None
        if rank is None or self._begin is None:
            return rank
        return rank if rank > self._begin or (rank == self._begin and self._include_start) else None

    def records(self, behind: Rank | None = None) -> Iterator[Record[M]]:
        """As `WatchScope.records`."""
        options = self._options
        if behind is None and self._begin is not None:
            if self._include_start:
                record = self._get(self._begin[1], as_of=options["as_of"])
                if record is not None and self.rank(record) == self._begin:
                    yield record
            behind = self._begin
        if behind is not None:
            options = {**options, "cursor": cursor_text(self._turned(behind[0]), behind[1], self._plan)}
        yield from self._scanner.scan(self._where, **options)

    def moved_by(self, fields: Sequence[int]) -> bool:
        """As `WatchScope.moved_by`."""
        return not self._numbers.isdisjoint(fields)

    def _rank(self, record: Record[M]) -> Rank | None:
        place = self._place(record)
        return None if place is None else (self._turned(place), record.key)

    def _turned(self, place: bytes) -> bytes:
        """Convert a position to bytes that sort in scan order, and back."""
        backwards = self._plan.reverse and self._plan.kind != "key"  # given keys are in the wanted order already
        return complement(place) if backwards and not self._plan.sort else place

    def _begin_at(self, start: bytes, version: int | None) -> Rank:
        if self._plan.kind == "table" and not self._plan.sort:
            return self._turned(start), start
        record = self._get(start, as_of=version, include_deleted=True)
        if record is None:
            raise InvalidArgument("there is no record with the start key: give the key of an existing record")
        rank = self._rank(record)
        if rank is None and self._plan.kind == "index" and not self._plan.sort:
            # The filter excludes this record, but the records after it are in the scope.
            place = _places(self._scanner.schema.spec, self._plan, anywhere=True)(record)
            rank = None if place is None else (self._turned(place), start)
        if rank is None:
            raise InvalidArgument("the start record has no position in this order: give the key of another record")
        return rank


def _places(spec: ModelSpec, plan: Plan, *, anywhere: bool = False) -> Callable[[Record[Any]], bytes | None]:
    """Return the function that gives the position of a record in a scan, or `anywhere` in its index; None if none."""
    if plan.sort:
        sort_key = order_key(spec, plan.sort)
        return lambda record: sort_key(record.value, record.key)
    if plan.kind == "key":
        places = {key: place.to_bytes(8, "big") for place, key in enumerate(plan.keys)}
        return lambda record: places.get(record.key)
    if plan.kind == "unique":
        return lambda record: bytes(8)
    if plan.index is None:
        return lambda record: record.key if _within(plan, record.key) else None
    entries = compile_index(spec, plan.index)
    first = max if plan.reverse else min

    def place_of(record: Record[Any]) -> bytes | None:
        places = [value + record.key for value in entries(record.value)]
        return first([place for place in places if anywhere or _within(plan, place)], default=None)

    return place_of


def _within(plan: Plan, place: bytes) -> bool:
    return any(low <= place and (high is None or place < high) for low, high in plan.ranges)


def _fields(plan: Plan) -> set[str]:
    """Return the fields that decide a record's rank."""
    found = set()
    for part in plan.sort or (plan.index.parts if plan.index is not None else ()):
        for path in paths_of(part):
            if path != "$key":
                found.add(str(parse_path(path)[0]))
    return found
