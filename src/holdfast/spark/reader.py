"""Batch reads: planned from the options of the read, and carried out by tasks, each with a share of the work."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.base.clock import Clock, instant_ns
from holdfast.base.errors import InvalidArgument
from holdfast.base.hlc import version_before
from holdfast.spark.errors import in_one_line
from holdfast.spark.gc_tuning import settle
from holdfast.spark.options import EARLIEST, ReadOptions
from holdfast.spark.partitions import Stretch, Wanted, read_between, read_stretches
from holdfast.spark.payloads import PayloadRows
from holdfast.spark.queue_messages import MessageRows
from holdfast.spark.schemas import arrow_schema, ddl
from holdfast.spark.sources import View, Work, view_schema, with_kept_schema
from holdfast.spark.time_zones import task_moment

__all__ = ["Reader", "Share", "read_share", "wanted_columns"]


@dataclass
class Share(InputPartition):
    """The work of one task."""

    work: list[Work]


class Reader(DataSourceReader):
    """Reads a batch. Only the options of the read narrow the plan.

    `pushFilters` is not overridden: Spark 4.3 plans a scan once for all queries on a DataFrame, so that a plan narrowed
    by the filter of one query lacks the rows of the next. Spark evaluates all filters on the rows of the scan.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, clock: Clock | None = None) -> None:
        """Read with these options; `clock` tells, for the view `messages`, which messages are delayed."""
        self.options = with_kept_schema(ReadOptions.of(options))
        self.clock = clock
        self.columns = wanted_columns(view_schema(self.options), schema)

    @in_one_line
    def partitions(self) -> Sequence[Share]:
        """Return the work of each task: a share of the bytes or, for a table's `now` and `history`, of the keys."""
        view = View(self.options, self.clock)
        try:
            stretches: list[Stretch] = []
            for track in view.tracks():
                picture = track.look(durable=False)
                start, stop = view.start(track, picture, EARLIEST), view.end(track, picture)
                if start < stop:
                    stretches += view.stretches(track, picture, start, stop)
            return [Share(work) for work in view.shares(stretches, self.columns, self.options.keys)]
        finally:
            view.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task."""
        return read_share(self.options, partition, self.options.keys)


@in_one_line
def wanted_columns(full: pa.Schema, given: StructType) -> list[str]:
    """Return the columns that the user's schema asks for, or raise an error that names an unknown one."""
    asked = to_arrow_schema(given, timezone="UTC")
    for field in asked:
        if field.name not in full.names:
            raise InvalidArgument(f"this view has no column {field.name!r}; there are: {', '.join(full.names)}")
        if field.type != full.field(field.name).type:
            wanted = ddl(arrow_schema(full, [field.name]))
            raise InvalidArgument(f"the column {field.name!r} has another type in this view: {wanted}")
    return list(asked.names)


def read_share(
    options: ReadOptions, partition: InputPartition, keys: frozenset[bytes] | None, *, whole: bool = False
) -> Iterator[pa.RecordBatch]:
    """Return an iterator over the batches of one task; no file is opened before its first step.

    Called in the task. With `whole`, all records between the offsets of the share are read, and the times without a
    zone in the options are ignored: for a stream.
    """
    if not isinstance(partition, Share):  # Spark's own, for a plan without partitions
        return iter(())
    settle()
    options.access.remember_token()
    wanted = Wanted(
        skip_damage=options.skip_damage,
        damage_report=options.damage_report,
        fail_on_data_loss=options.fail_on_data_loss,
        keys=keys,
        since=None if whole else _ns(options.local_start),
        until=None if whole else _ns(options.local_end),
    )
    return _batches(partition, wanted, options.local_as_of)


def _ns(local: datetime | None) -> int | None:
    return None if local is None else instant_ns(task_moment(local), "time")


def _batches(share: Share, wanted: Wanted, local_as_of: datetime | None) -> Iterator[pa.RecordBatch]:
    for rows, stretches in share.work:
        of_journal: Wanted | None = None
        inner = rows.rows if isinstance(rows, PayloadRows) else rows
        if isinstance(inner, MessageRows):
            of_journal = wanted.of_journal(report=inner.messages.is_first)
            journal = read_between(inner.messages.moment.journal, of_journal)
            inner.use(journal, fail_on_data_loss=wanted.fail_on_data_loss)
        look_back = getattr(rows, "look_back", None)
        if look_back is not None and local_as_of is not None:
            look_back(version_before(task_moment(local_as_of), "asOf"))
        part = getattr(rows, "part", None)
        wanted.touches = None if part is None else part.touches
        batches = rows.gather(read_stretches(stretches, wanted))
        step = in_one_line(lambda: next(batches, None))  # noqa: B023 - exhausted before the next one
        while (batch := step()) is not None:
            if batch.num_rows:
                yield batch
        if of_journal is not None:
            of_journal.finish()
    wanted.finish()
