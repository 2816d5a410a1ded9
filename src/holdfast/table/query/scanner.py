"""Scans: reading records along the planned keys or index, now or in the past, with the filter tested on each row."""

import base64
import heapq
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.table.model.indexes import compile_index
from holdfast.table.model.model import Model
from holdfast.table.query.aggregations import Aggregation
from holdfast.table.query.expressions import Expression
from holdfast.table.query.filters import compile_filter
from holdfast.table.query.planner import Order, Plan, order_key, plan
from holdfast.table.query.record_reader import Point, RecordReader, selected
from holdfast.table.record import Record
from holdfast.table.storage.applied_state import AppliedState
from holdfast.table.storage.row_codec import decode_row
from holdfast.table.storage.schema_history import plannable_at
from holdfast.table.storage.table_schema import TableSchema
from holdfast.table.storage.table_state import BEHIND, TableState, added_in, after, key_in, released, stamp

__all__ = ["ENTRIES_A_RECORD", "LONG_PAST", "Scan", "Scanner", "check_limit", "cursor_text"]

M = TypeVar("M", bound=Model)
_PASSED_MOST = 8
"""Past versions of one index entry that are read one by one, before the one needed is sought directly."""
LONG_PAST = 1000
"""Past index entries after which a scan of the past first checks whether reading the records would be cheaper."""
ENTRIES_A_RECORD = 10
"""Entries that cost as much to read as one past record costs to read and sort."""


class _RecordsAreFewer(Exception):
    """An index has so many past entries that reading the records themselves is cheaper."""


def check_limit(limit: Any) -> None:
    """Raise `InvalidArgument`, unless this is None or an int from 0 up."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidArgument(f"limit must be an int from 0 up, not {limit!r}")


class _Found(NamedTuple):
    """A position in a scan, and the key of the record there."""

    place: bytes
    key: bytes
    raw: bytes | None = None
    """The row, if the scan reads the rows themselves."""


class _Cursor(NamedTuple):
    """Where a page ended: the position, and its record, which is skipped wherever it is now."""

    place: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class _ScanRequest:
    """Arguments of a scan."""

    plan: Plan
    limit: int | None
    start: bytes | None
    include_start: bool
    cursor: _Cursor | None
    version: int | None
    include_deleted: bool
    select: tuple[Any, ...]


class Scanner(Generic[M]):
    """Scans the records of one table. Threads: any; it takes no lock."""

    def __init__(
        self,
        schema: TableSchema[M],
        state: AppliedState,
        reader: RecordReader[M],
        check_open: Callable[[], None],
        tables: Callable[[str], Any],
    ) -> None:
        """`tables` finds other open tables by name, for references; None if one is not open."""
        self.schema = schema
        self.state = state
        self.reader = reader
        self._check_open = check_open
        self._tables = tables

    def scan(
        self,
        where: Any = None,
        *,
        order: Order | None = None,
        limit: int | None = None,
        start: bytes | None = None,
        include_start: bool = True,
        cursor: str | None = None,
        as_of: Point | None = None,
        include_deleted: bool = False,
        select: Sequence[Any] | None = None,
        allow_table_scan: bool = False,
    ) -> "Scan[M]":
        """Return the records that match `where`, in an order. They are read while the result is iterated.

        The result's `.explain()` describes the plan. A plan that reads the whole table to find or sort records raises
        `TableScanRefused`, unless `allow_table_scan`. `start` is the key of a record to begin with, `cursor` the
        `.cursor` of an earlier result. With `select`, a record's value is a dict of these paths. `as_of` needs
        `keep_all_versions`.
        """
        self._check_open()
        if where is not None and not isinstance(where, Expression):
            raise InvalidArgument(
                f"where must be an expression such as {self.schema.name}.field == value, not {type(where).__name__}"
            )
        check_limit(limit)
        if start is not None and not isinstance(start, bytes):
            raise InvalidArgument(f"start must be the key of a record, as bytes, not {type(start).__name__}")
        if start is not None and cursor is not None:
            raise InvalidArgument("give a start or a cursor, not both")
        version = None if as_of is None else self.reader.version_of(as_of)
        way = plan(plannable_at(self.schema.plannable, self.schema.past, version), where, order, allow_table_scan)
        request = _ScanRequest(
            way,
            limit,
            start,
            include_start,
            None if cursor is None else _parse_cursor(cursor, way),
            version,
            include_deleted,
            tuple(select or ()),
        )
        return Scan(self, request)

    def count(self, where: Any = None, **options: Any) -> int:
        """Return how many records match `where`; the options are those of `scan`.

        The records are read. Without `where`, `allow_table_scan` is True by default.
        """
        options.setdefault("allow_table_scan", where is None)
        return sum(1 for _ in self.scan(where, **options))

    def aggregate(
        self,
        where: Any = None,
        *,
        as_of: Point | None = None,
        include_deleted: bool = False,
        allow_table_scan: bool | None = None,
        **wanted: Any,
    ) -> Any:
        """Return aggregates of the records that match `where`: `count=True`, `sum="amount"`, `by="name"`, ...

        See `Aggregation`. Without `where`, `allow_table_scan` is True by default.
        """
        total = Aggregation(**wanted, spec=self.schema.spec)
        whole = where is None if allow_table_scan is None else allow_table_scan
        for record in self.scan(where, as_of=as_of, include_deleted=include_deleted, allow_table_scan=whole):
            total.feed(record.value)
        return total.result()

    def fetcher(self, version: int | None) -> Callable[[str, bytes], Any]:
        """Return the function that finds the value of a referenced record, by table and key, for `compile_filter`."""

        def fetch(name: str, key: bytes) -> Any:
            table = self.reader if name == self.schema.name else self._tables(name)
            if table is None:
                raise InvalidArgument(
                    f"the table {name!r} is not open: open it, so that references to it can be followed"
                )
            found = table.get(key, as_of=version)
            return None if found is None else found.value

        return fetch


class Scan(Generic[M]):
    """The result of a scan. It may be iterated more than once; each time it is read again."""

    def __init__(self, scanner: Scanner[M], request: _ScanRequest) -> None:
        self._scanner = scanner
        self._reader = scanner.reader
        self._request = request
        self.plan = request.plan
        self.cursor: str | None = None
        """After a complete iteration with a limit: the cursor of the next page; None if there is none."""

    def explain(self) -> str:
        """Return the plan as a sentence."""
        return self.plan.explain()

    def __iter__(self) -> Iterator[Record[M]]:
        request, self.cursor = self._request, None
        self._reader.catch_up()
        if request.limit == 0:
            return
        last: _Cursor | None = None
        for count, (place, record) in enumerate(self._matching()):
            if count == request.limit:  # one more than wanted: there is a next page
                assert last is not None
                self.cursor = cursor_text(last.place, last.key, request.plan)
                return
            last = _Cursor(place, record.key)
            yield self._selected(record)

    def first(self) -> Record[M] | None:
        """Return the first record, None if there is none."""
        return next(iter(self), None)

    def _selected(self, record: Record[M]) -> Record[M]:
        return selected(self._scanner.schema.spec, record, self._request.select) if self._request.select else record

    def _matching(self) -> Iterator[tuple[bytes, Record[M]]]:
        """Return positions and records, in order."""
        request = self._request
        test = compile_filter(request.plan.filter, self._scanner.fetcher(request.version))
        if request.plan.sort:
            yield from self._sorted(test)
            return
        passed = None if request.cursor is None else request.cursor.key
        for found in self._access_path().found():
            if found.key == passed:
                continue
            record = self._record(found)
            if record is not None and test(record.value) and self._is_first(found, record):
                yield found.place, record

    def _sorted(self, test: Callable[[Any], bool]) -> Iterator[tuple[bytes, Record[M]]]:
        """Return records in an order that no index gives, by sorting all that match."""
        request = self._request
        place_of = order_key(self._scanner.schema.spec, request.plan.sort)
        begin, begins_with = b"", True
        if request.cursor is not None:
            begin, begins_with = request.cursor.place, False
        elif request.start is not None:
            begin, begins_with = place_of(self._start_record().value, request.start), request.include_start
        found: dict[bytes, tuple[bytes, Record[M]]] = {}  # by key: a record can have several positions in an index
        for one in self._access_path().found():
            record = None if one.key in found else self._record(one)
            if record is not None and test(record.value):
                place = place_of(record.value, record.key)
                if (place >= begin if begins_with else place > begin) and not (
                    request.cursor is not None and record.key == request.cursor.key
                ):
                    found[record.key] = (place, record)
        if request.limit is None:
            yield from sorted(found.values(), key=lambda entry: entry[0])
        else:
            yield from heapq.nsmallest(request.limit + 1, found.values(), key=lambda entry: entry[0])

    def _record(self, found: _Found) -> Record[M] | None:
        request = self._request
        if found.raw is None:
            return self._reader.get(found.key, as_of=request.version, include_deleted=request.include_deleted)
        row = decode_row(found.raw)
        return None if row.deleted and not request.include_deleted else self._reader.record(found.key, row)

    def _is_first(self, found: _Found, record: Record[M]) -> bool:
        """Return whether this is the record's first position, where it can have several: only that one counts."""
        if not self.plan.distinct:
            return True
        return found.place == self._place_of(record)

    def _place_of(self, record: Record[M], *, anywhere: bool = False) -> bytes | None:
        """Return the first position of a record in the planned ranges, or `anywhere` in the index; None if none."""
        assert self.plan.index is not None
        entries = compile_index(self._scanner.schema.spec, self.plan.index)(record.value)
        places = [
            value + record.key
            for value in entries
            if anywhere
            or any(
                low <= value + record.key and (high is None or value + record.key < high)
                for low, high in self.plan.ranges
            )
        ]
        return (max if self.plan.reverse else min)(places, default=None)

    def _start_record(self) -> Record[M]:
        request = self._request
        assert request.start is not None
        record = self._reader.get(request.start, as_of=request.version, include_deleted=True)
        if record is None:
            raise InvalidArgument("there is no record with the start key: give the key of an existing record")
        return record

    def _access_path(self) -> "_AccessPath":
        request = self._request
        begin: bytes | None = None
        includes = False
        if request.plan.sort:
            pass
        elif request.cursor is not None:
            begin = request.cursor.place
        elif request.start is not None:
            begin, includes = request.start, request.include_start
            if request.plan.kind == "index":
                record = self._start_record()
                # The filter may exclude this record, but the records after it are read.
                begin = self._place_of(record) or self._place_of(record, anywhere=True)
                if begin is None:
                    raise InvalidArgument(
                        "the start record has no position in this order: give the key of another record"
                    )
        return _AccessPath(self._scanner.state.view, request, begin, includes)


class _AccessPath:
    """Iterates over the ranges of a plan, from a position on."""

    def __init__(self, view: TableState, request: _ScanRequest, begin: bytes | None, includes: bool) -> None:
        self._view = view
        self._state = view.state
        self._plan = request.plan
        self._version = request.version
        self._include_deleted = request.include_deleted
        self._begin = begin
        self._includes = includes
        self._starts = request.start is not None
        """Whether the caller gave a start key, and not a cursor."""

    def found(self) -> Iterator[_Found]:
        match self._plan.kind:
            case "key":
                yield from self._keys(self._plan.keys)
            case "unique":
                yield from self._keys(sorted(self._owners()))
            case "index":
                assert self._plan.index is not None
                prefix = self._view.prefix + self._plan.index.id
                for start, stop in self._ranges():
                    yield from self._index(prefix, start, stop)
            case "table":
                for start, stop in self._ranges():
                    yield from self._rows(start, stop)

    def _keys(self, keys: Sequence[bytes]) -> Iterator[_Found]:
        """Return keys one by one, with their index among the keys as the position."""
        for place, key in enumerate(keys):
            mark = place.to_bytes(8, "big")
            if self._begin is None or self._is_behind(mark, key, self._begin):
                yield _Found(mark, key)

    def _is_behind(self, mark: bytes, key: bytes, begin: bytes) -> bool:
        """Return whether one of several keys comes after the end of a page, or after the start key."""
        if not self._starts:
            return mark > begin
        if key == begin:
            return self._includes
        return (key < begin) if self._plan.reverse else (key > begin)

    def _owners(self) -> set[bytes]:
        view, version = self._view, self._version
        spec = view.spec.fields[self._plan.field]
        name = next(prefix for field, prefix in view.uniques if field is spec) + view.images.unique(
            spec, self._plan.value
        )
        owner = view.owner_of(name) if version is None else view.owner_at(name, version)
        owners = set() if owner is None else {owner}
        if self._include_deleted:
            owners.update(found.key for found in self._index(released(name), b"", None))
        return owners

    def _ranges(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Return the rest of the plan's ranges from the start position on, in reading order."""
        plan, begin = self._plan, self._begin
        for start, stop in reversed(plan.ranges) if plan.reverse else plan.ranges:
            low, high = start, stop
            if begin is not None and plan.reverse:
                bound = begin + BEHIND if self._includes else begin
                high = bound if high is None else min(high, bound)
            elif begin is not None:
                low = max(low, begin if self._includes else begin + BEHIND)
            if high is None or low < high:
                yield low, high

    def _index(self, prefix: bytes, start: bytes, stop: bytes | None) -> Iterator[_Found]:
        low, high = prefix + start, after(prefix) if stop is None else prefix + stop
        entries = self._state.scan("index", low, high, reverse=self._plan.reverse)
        if self._version is not None:
            there = ((name, value) for name, value in entries if added_in(value) <= self._version)
            gone = self._gone(low, high, self._version)
            entries = heapq.merge(there, gone, key=lambda entry: entry[0], reverse=self._plan.reverse)
        last = b""
        try:
            for name, value in entries:
                if name != last:  # an entry that ends during the scan can be found in both
                    yield _Found(name[len(prefix) :], key_in(value))
                last = name
        except _RecordsAreFewer:
            if last:
                low, high = (low, last) if self._plan.reverse else (last + b"\0", high)
            yield from self._sorted_in(prefix, low, high)

    def _sorted_in(self, prefix: bytes, low: bytes, high: bytes) -> Iterator[_Found]:
        """Return the index entries between two keys as of the version, computed from the past records."""
        assert self._plan.index is not None
        entries = compile_index(self._view.spec, self._plan.index)
        found = []
        for row in self._rows(b"", None):
            assert row.raw is not None
            record = self._view.images.decode(row.key, decode_row(row.raw).image)
            places = (entry + row.key for entry in entries(record))
            found += [_Found(place, row.key, row.raw) for place in places if low <= prefix + place < high]
        found.sort(key=lambda one: one.place, reverse=self._plan.reverse)
        yield from found

    def _gone(self, low: bytes, high: bytes, version: int) -> Iterator[tuple[bytes, bytes]]:
        """Return past entries that existed at a version: for each name, the one that ended after it."""
        reverse = self._plan.reverse
        looked, ask_at = 0, LONG_PAST
        while low < high:
            name, passed = b"", 0
            for entry, value in self._state.scan("historic_index", low, high, reverse=reverse):
                looked += 1
                if looked == ask_at:
                    self._ask_for_fewer(looked)
                    ask_at *= 2
                if entry[:-8] != name:
                    name, passed = entry[:-8], 0
                if added_in(entry) > version >= added_in(value):
                    yield name, value
                passed += 1
                if passed > _PASSED_MOST:
                    break
            else:
                return
            # A name with many past entries: seek the right one, and skip the rest.
            behind = name + BEHIND
            if not reverse:
                at = max(entry + b"\0", name + stamp(version + 1))
                found = self._state.first("historic_index", at, behind, since=self._state.commits)
            else:
                at = name + stamp(version + 1)
                found = (
                    self._state.first("historic_index", at, entry, since=self._state.commits) if at < entry else None
                )
            if found is not None and added_in(found[1]) <= version:
                yield name, found[1]
            low, high = (low, name) if reverse else (behind, high)

    def _ask_for_fewer(self, entries: int) -> None:
        """Raise `_RecordsAreFewer` if the table has less than a tenth as many records as past entries were read."""
        if self._plan.kind != "index":
            return
        prefix, most = self._view.prefix, int(entries / ENTRIES_A_RECORD)
        if sum(1 for _ in islice(self._state.scan("table", prefix, after(prefix)), most)) < most:
            raise _RecordsAreFewer

    def _rows(self, start: bytes, stop: bytes | None) -> Iterator[_Found]:
        prefix, version = self._view.prefix, self._version
        low, high = prefix + start, after(prefix) if stop is None else prefix + stop
        for name, present in self._state.scan("table", low, high, reverse=self._plan.reverse):
            key = name[len(prefix) :]
            raw: bytes | None = present
            if version is not None:
                raw = self._view.raw_at(key, present, version)
            if raw is not None:
                yield _Found(key, key, raw)


def cursor_text(place: bytes, key: bytes, way: Plan) -> str:
    """Return the end of a page of this plan as text: the position, and the key of the record there."""
    raw = msgspec.msgpack.encode((place, key, _mark_of(way)))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _parse_cursor(text: str, way: Plan) -> _Cursor:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        place, key, mark = msgspec.msgpack.decode(raw, type=tuple[bytes, bytes, int])
    except (HoldfastError, ValueError, TypeError, msgspec.MsgspecError) as error:
        raise InvalidArgument("this is not the cursor of a scan: begin without a cursor") from error
    if mark != _mark_of(way):
        raise InvalidArgument("this cursor belongs to a scan with another order or index: begin without a cursor")
    return _Cursor(place, key)


def _mark_of(way: Plan) -> int:
    """Return a checksum that distinguishes plans whose positions have different meanings."""
    index = b"" if way.index is None else way.index.id
    parts = (way.kind, index, way.reverse, [str(part) for part in way.sort], way.keys)
    return zlib.crc32(msgspec.msgpack.encode(parts))
