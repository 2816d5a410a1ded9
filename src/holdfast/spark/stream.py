"""How does Spark follow logs? Offsets that only move forward, batches within limits, and a place that is kept."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from holdfast.log.positions import Position
from holdfast.spark.options import LATEST, ReadOptions
from holdfast.spark.reader import Share, read_share, wanted_columns
from holdfast.spark.telling import in_one_line
from holdfast.spark.tracks import DataLoss, plan, sequence_near, shares
from holdfast.spark.views import Track, View, view_schema

__all__ = ["PLACE", "StreamReader"]

PLACE = "spark:"
"""The names of streams among the readers of a log begin with this."""
Offsets = dict[str, dict[str, Any]]
"""For each track `{"0": next sequence, "id": which log it is}`: Kafka's form, and a log made anew is noticed."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches of what is durable. Invariant: a batch from one offset to another is always the same rows."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = ReadOptions.of(options, streaming=True)
        self.columns = wanted_columns(view_schema(self.options), schema)
        self._opened: View | None = None
        self._target: Offsets | None = None
        self._last_batch = time.monotonic()
        self._placed = False

    @in_one_line
    def initialOffset(self) -> Offsets:
        """Where a stream without a checkpoint begins."""
        starts = self._view.starts(LATEST, durable=True)
        return {track.label: _offset(track, starts[track.label]) for track in self._view.tracks()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """What bounds a batch, where anything does."""
        if self.options.max_records is not None:
            return ReadMaxRows(self.options.max_records)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        if self.options.min_records is not None:
            return ReadMinRows(self.options.min_records)
        return ReadAllAvailable()

    @in_one_line
    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Where the next batch ends: within the limits, never before it starts."""
        self._keep_place(start)
        begins, ends = self._begins(start), self._ends(start)
        available = {label: max(0, ends[label] - begins[label]) for label in ends}
        total = sum(available.values())
        if not isinstance(limit, ReadAllAvailable):
            waited = time.monotonic() - self._last_batch
            least = self.options.min_records
            if self._target is None and least is not None and total < least and waited < self.options.max_delay:
                return start
            if self.options.max_records is not None:
                ends = _within(begins, available, self.options.max_records)
            if self.options.max_bytes is not None:
                ends = self._within_bytes(begins, ends, self.options.max_bytes)
        if total:
            self._last_batch = time.monotonic()
        return {track.label: _offset(track, max(begins[track.label], ends[track.label])) for track in self._in(ends)}

    @in_one_line
    def reportLatestOffset(self) -> Offsets:
        """How far there is to go; Spark shows the lag."""
        return {track.label: _offset(track, track.end(durable=True)) for track in self._view.tracks()}

    @in_one_line
    def prepareForTriggerAvailableNow(self) -> None:
        """From here on the stream ends where it ends now."""
        self._target = self.reportLatestOffset()

    @in_one_line
    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """What each task of a batch reads."""
        found = []
        for track in self._in(end):
            _check_same(track, end)
            first = self._view.check_kept(track, self._begin(track, start))
            stop = int(end[track.label]["0"])
            if track.end(durable=True) < stop:
                raise DataLoss(
                    f"the log {track.log.name!r} ends at {track.end(durable=True)}, before {stop}, where a batch of "
                    "this query ends: was it restored from a backup? Start the query anew with another checkpoint"
                )
            for part in shares(
                plan(track.log, first, stop), self.options.min_partitions, self.options.partition_records
            ):
                rows = self._view.rows(track, self.columns, self.options.keys, part[0].start, part[-1].stop)
                found.append(Share(rows, part))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task."""
        return read_share(self.options, partition, self.options.keys)

    @in_one_line
    def commit(self, end: Offsets) -> None:
        """All before `end` is done: retention may take it."""
        if self.options.name is not None:
            for track in self._in(end):
                self._place(track, int(end[track.label]["0"]))

    def stop(self) -> None:
        """The query ended."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        """What travels to the tasks: no open files."""
        return {**vars(self), "_opened": None}

    @property
    def _view(self) -> View:
        if self._opened is None:
            self._opened = View(self.options)
        return self._opened

    def _in(self, offsets: Mapping[str, object]) -> list[Track]:
        tracks = {track.label: track for track in self._view.tracks()}
        for label in offsets:
            if label not in tracks:
                raise DataLoss(f"the log {label!r}, which this query has read from, is gone from {self.options.path}")
        return [track for label, track in tracks.items() if label in offsets]

    def _begin(self, track: Track, start: Offsets) -> int:
        """Where a batch begins; in a log that the query did not know yet, at its start."""
        if track.label not in start:
            return track.log.start
        _check_same(track, start)
        return int(start[track.label]["0"])

    def _begins(self, start: Offsets) -> dict[str, int]:
        self._in(start)
        return {track.label: self._begin(track, start) for track in self._view.tracks()}

    def _ends(self, start: Offsets) -> dict[str, int]:
        found = {}
        for track in self._view.tracks():
            end = track.end(durable=True)
            if self._target is not None:
                if track.label not in self._target and track.label not in start:
                    continue  # it came after the end was set
                end = min(end, int(self._target[track.label]["0"])) if track.label in self._target else end
            begin = self._begin(track, start)
            if end < begin and self._target is None:
                raise DataLoss(
                    f"the log {track.log.name!r} ends at {end}, but this query has read up to {begin}: was it restored "
                    "from a backup? Start the query anew with another checkpoint"
                )
            found[track.label] = end
        return found

    def _within_bytes(self, begins: dict[str, int], ends: dict[str, int], limit: int) -> dict[str, int]:
        """Ends at which about this many bytes are read; at least a block, so that every stream gets on."""
        sizes = {}
        for track in self._in(ends):
            sizes[track.label] = sum(s.bytes for s in plan(track.log, begins[track.label], ends[track.label]))
        total = sum(sizes.values())
        if total <= limit:
            return ends
        return {
            track.label: sequence_near(
                track.log, begins[track.label], ends[track.label], sizes[track.label] * limit // total
            )
            for track in self._in(ends)
        }

    def _keep_place(self, start: Offsets) -> None:
        """On starting: retention waits for this stream from here on."""
        if self.options.name is None or self._placed:
            return
        for track in self._in(start):
            self._place(track, self._begin(track, start))
        self._placed = True

    def _place(self, track: Track, position: int) -> None:
        name = PLACE + (self.options.name or "")
        track.log.positions.set(Position(name, position, time.time_ns()))


def _offset(track: Track, sequence: int) -> dict[str, Any]:
    return {"0": sequence, "id": track.log.id.hex()}


def _check_same(track: Track, offsets: Offsets) -> None:
    if offsets[track.label]["id"] != track.log.id.hex():
        raise DataLoss(
            f"the log {track.log.name!r} was deleted and made anew since this query read from it: "
            "start the query anew with another checkpoint"
        )


def _within(begins: dict[str, int], available: dict[str, int], limit: int) -> dict[str, int]:
    """Ends with at most `limit` records in all, shared out by what there is, so that no log starves another."""
    total = sum(available.values())
    if total <= limit:
        return {label: begins[label] + count for label, count in available.items()}
    # Rounded up one log after the other, so that a limit of 1 still gets on.
    ends, left, rest = {}, limit, total
    for label, count in available.items():
        share = min(count, -(-left * count // rest)) if rest else 0
        ends[label] = begins[label] + share
        left, rest = left - share, rest - count
    return ends
