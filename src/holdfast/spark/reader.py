"""How does Spark read a batch? The filters narrow what is planned; each task reads its share of the bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.base.errors import InvalidArgument
from holdfast.spark.options import EARLIEST, ReadOptions
from holdfast.spark.schemas import arrow_schema, ddl
from holdfast.spark.telling import in_one_line
from holdfast.spark.tracks import Stretch, Wanted, plan, read_stretches
from holdfast.spark.views import View, Work, view_schema
from holdfast.spark.worker import settle

__all__ = ["Reader", "Share", "read_share", "wanted_columns"]


@dataclass
class Share(InputPartition):
    """What one task reads."""

    work: list[Work]


@dataclass
class _Bounds:
    """What the filters of a query leave of a track."""

    first: int = 0
    end: int = 1 << 63
    since: int | None = None
    """Nanoseconds: nothing earlier is wanted."""
    before: int | None = None
    """Nothing from here on is wanted."""
    keys: frozenset[bytes] | None = None
    events: frozenset[str] | None = None


class Reader(DataSourceReader):
    """Reads a batch: the filters narrow what is planned, and Spark checks them again on what comes."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = ReadOptions.of(options)
        full = view_schema(self.options)
        self.columns = wanted_columns(full, schema)
        # A table's first column is the key, by whatever name; its other columns may have any name.
        self._key = full.names[0] if self.options.table is not None and self.options.view != "log" else None
        self.bounds = _Bounds(keys=self.options.keys)
        self.pushFilters = _PushDown(self._push)  # type: ignore[method-assign]

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            if self._key is None:
                _narrow(self.bounds, one)
            else:
                _narrow_table(self.bounds, one, self._key)
        return filters

    @in_one_line
    def partitions(self) -> Sequence[Share]:
        """A share of the bytes for each task."""
        view = View(self.options)
        try:
            stretches: list[Stretch] = []
            bounds = self.bounds
            for track in view.tracks():
                picture = track.look(durable=False)
                start, stop = view.start(track, picture, EARLIEST), view.end(track, picture)
                if bounds.events is not None and (
                    (track.kind == "put" and "put" not in bounds.events)
                    or (track.kind == "journal" and bounds.events == {"put"})
                ):
                    continue
                if track.kind != "journal":
                    start, stop = max(start, bounds.first), min(stop, bounds.end)
                if bounds.since is not None:
                    start = max(start, track.log.sequence_at(bounds.since, past_damage=False))
                if bounds.before is not None and track.kind != "journal":
                    # A record of the journal may hold events that are older than itself, none that are younger.
                    stop = min(stop, track.log.sequence_at(bounds.before))
                if start >= stop:
                    continue
                stretches += plan(picture.segments, start, stop, track.label)
            return [Share(work) for work in view.shares(stretches, self.columns, bounds.keys)]
        finally:
            view.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task."""
        return read_share(self.options, partition, self.bounds.keys)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to the tasks."""
        return {name: value for name, value in vars(self).items() if name != "pushFilters"}


class _PushDown:
    """`pushFilters` where Spark's setting allows it. Where it does not, Spark refuses a reader that overrides the
    method; so this is no override, and without the setting the reader works without pushdown."""

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


@in_one_line
def wanted_columns(full: pa.Schema, given: StructType) -> list[str]:
    """The columns that the user's schema asks for, or an error that names one that is not there."""
    asked = to_arrow_schema(given, timezone="UTC")
    for field in asked:
        if field.name not in full.names:
            raise InvalidArgument(f"this view has no column {field.name!r}; there are: {', '.join(full.names)}")
        if field.type != full.field(field.name).type:
            wanted = ddl(arrow_schema(full, [field.name]))
            raise InvalidArgument(f"the column {field.name!r} has another type in this view: {wanted}")
    return list(asked.names)


def read_share(
    options: ReadOptions, partition: InputPartition, keys: frozenset[bytes] | None
) -> Iterator[pa.RecordBatch]:
    """The batches of one task. A function, so that nothing is opened before Spark asks for the first one."""
    if not isinstance(partition, Share):  # Spark's own, for a plan without any
        return iter(())
    settle()
    wanted = Wanted(
        skip_damage=options.skip_damage,
        damage_report=options.damage_report,
        fail_on_data_loss=options.fail_on_data_loss,
        keys=keys,
    )
    return _batches(partition, wanted)


def _batches(share: Share, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    for rows, stretches in share.work:
        part = getattr(rows, "part", None)
        wanted.touches = None if part is None else part.touches
        batches = rows.gather(read_stretches(stretches, wanted))
        step = in_one_line(lambda: next(batches, None))  # noqa: B023 - used up before the next one
        while (batch := step()) is not None:
            if batch.num_rows:
                yield batch
    wanted.finish()


def _narrow(bounds: _Bounds, one: Filter) -> None:
    """Take a filter into account. Whatever is not understood changes nothing: Spark filters again."""
    match one:
        case EqualTo((column,), value) | EqualNullSafe((column,), value):
            _narrow_to(bounds, column, [value])
        case In((column,), values):
            _narrow_to(bounds, column, list(values))
        case GreaterThan((column,), value):
            _from(bounds, column, value, 1)
        case GreaterThanOrEqual((column,), value):
            _from(bounds, column, value, 0)
        case LessThan((column,), value):
            _upto(bounds, column, value, 0)
        case LessThanOrEqual((column,), value):
            _upto(bounds, column, value, 1)


def _narrow_table(bounds: _Bounds, one: Filter, key: str) -> None:
    """Take a filter on the key of a table's records into account."""
    match one:
        case EqualTo((column,), value) | EqualNullSafe((column,), value) if column == key:
            _narrow_to(bounds, "key", [value])
        case In((column,), values) if column == key:
            _narrow_to(bounds, "key", list(values))


def _narrow_to(bounds: _Bounds, column: str, values: list[Any]) -> None:
    present = [value for value in values if value is not None]
    if not present:
        return
    if column == "key":
        wanted = frozenset(bytes(value) for value in present)
        bounds.keys = wanted if bounds.keys is None else bounds.keys & wanted
    elif column == "event":
        bounds.events = frozenset(present) if bounds.events is None else bounds.events & frozenset(present)
    elif column in ("offset", "message", "timestamp", "time"):
        _from(bounds, column, min(present), 0)
        _upto(bounds, column, max(present), 1)


def _from(bounds: _Bounds, column: str, value: Any, more: int) -> None:
    if column in ("offset", "message"):
        bounds.first = max(bounds.first, value + more)
    elif column in ("timestamp", "time"):
        bounds.since = max(bounds.since or 0, (_micros(value) + more) * 1000)


def _upto(bounds: _Bounds, column: str, value: Any, more: int) -> None:
    if column in ("offset", "message"):
        bounds.end = min(bounds.end, value + more)
    elif column in ("timestamp", "time"):
        before = (_micros(value) + more) * 1000
        bounds.before = before if bounds.before is None else min(bounds.before, before)


def _micros(value: datetime) -> int:
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
