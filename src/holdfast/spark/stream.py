"""Streaming reads: monotonic offsets, bounded batches, and a committed position that holds retention back."""

import logging
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

from holdfast.base.errors import Closed, InvalidArgument, ReplicaUnavailable
from holdfast.base.names import abbreviate
from holdfast.log.consumer_offsets import Position
from holdfast.remote.errors import Unreachable
from holdfast.spark.errors import in_one_line
from holdfast.spark.lag import reported
from holdfast.spark.options import LATEST, ReadOptions
from holdfast.spark.partitions import DataLoss, Picture, Stretch, plan, sequence_near, shares
from holdfast.spark.reader import Share, read_share, wanted_columns
from holdfast.spark.sources import Track, View, view_schema, with_kept_schema

__all__ = ["PLACE", "StreamReader"]

logger = logging.getLogger("holdfast.spark")

PLACE = "spark:"
"""The names of streams among the readers of a log begin with this."""
Offsets = dict[str, dict[str, Any]]
"""For each track `{"0": next sequence, "id": id of the log}`: Kafka's form, and the id reveals a recreated log."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches of durable records.

    Invariant: a batch between two offsets always has the same rows, unless `failOnDataLoss=false` or `onDamage=skip`
    lets it leave some out.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = with_kept_schema(ReadOptions.of(options))
        self._given = dict(options)
        self.columns = wanted_columns(view_schema(self.options), schema)
        self._opened: View | None = None
        self._target: Offsets | None = None
        self._last_batch = time.monotonic()
        self._placed: dict[str, int] = {}
        """The position that was committed for each track."""
        self._planned: dict[str, int] = {}
        """Where the last planned batch ends in each track."""

    @in_one_line
    def initialOffset(self) -> Offsets:
        """Return where a stream without a checkpoint begins.

        A batch passes the session's time zone to its tasks, and they leave out what is too early. A stream cannot do
        so: a restart with another time, or in another zone, would leave out records that its checkpoint says are to
        come.
        """
        if self.options.local_start is not None:
            raise InvalidArgument(
                f"the option 'startingTimestamp' of a stream needs a time zone, as in "
                f"{self.options.local_start.isoformat()}Z for UTC: Spark does not pass the session's zone to a stream"
            )
        self._view.refresh()
        return {
            track.label: _offset(track, self._view.start(track, track.look(durable=True), LATEST))
            for track in self._view.tracks()
        }

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the first limit of a batch among the options. `latestOffset` applies all of them."""
        if self.options.max_records is not None:
            return ReadMaxRows(self.options.max_records)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        if self.options.min_records is not None:
            return ReadMinRows(self.options.min_records)
        return ReadAllAvailable()

    @in_one_line
    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return where the next batch ends: within the limits, never before it starts.

        Returns `start` while too few records for a batch are there. Also commits `start` as the position of this
        stream: all before it is processed.
        """
        self._view.refresh()
        tracks = self._available(start)
        self._keep_place({label: begin for label, (_, begin, _) in tracks.items()})
        begins = {label: begin for label, (_, begin, _) in tracks.items()}
        ends = {label: end for label, (_, _, end) in tracks.items()}
        total = sum(ends[label] - begins[label] for label in ends)
        if not isinstance(limit, ReadAllAvailable):
            waited = time.monotonic() - self._last_batch
            least = self.options.min_records
            if self._target is None and least is not None and total < least and waited < self.options.max_delay:
                return start
            if self.options.max_records is not None:
                ends = _within(begins, ends, self.options.max_records)
            if self.options.max_bytes is not None:
                ends = _within_bytes(
                    {label: picture for label, (picture, _, _) in tracks.items()}, begins, ends, self.options.max_bytes
                )
        if total:
            self._last_batch = time.monotonic()
        self._planned = ends
        found = {track.label: _offset(track, ends[track.label]) for track in self._in(ends)}
        for label, offset in found.items():
            if label not in start:
                offset["from"] = begins[label]
        # An unchanged offset must have the same text: Spark takes any difference for new data.
        return {
            label: start[label] if label in start and start[label]["0"] == offset["0"] else offset
            for label, offset in found.items()
        }

    @in_one_line
    def reportLatestOffset(self) -> Offsets:
        """Return the end of the logs, and how many records each has behind the batch that was planned last.

        Spark only reports this, as `latestOffset` of the source in the progress of the query.
        """
        return reported(self.options, self._latest(), self._planned)

    @in_one_line
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the stream at the present end of its logs."""
        self._target = {track.label: _offset(track, picture.end) for track, picture in self._latest()}

    @in_one_line
    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the work of each task of a batch."""
        stretches: list[Stretch] = []
        self._view.refresh()
        for track in self._in(end):
            _check_same(track, end)
            picture = track.look(durable=True)
            first, stop = self._begin(track, picture, start, end), int(end[track.label]["0"])
            if first >= stop:
                continue
            first = self._view.check_kept(track, picture, first)
            if picture.end < stop:
                self._check_reached(track, stop)
                raise DataLoss(
                    f"the log {track.log.name!r} ends at {picture.end}, before {stop}, where a batch of this query "
                    "ends: it may have been restored from a backup. Start the query again with a new checkpoint"
                )
            stretches += self._view.stretches(track, picture, first, stop)
        parts = shares(stretches, self.options.min_partitions, self.options.partition_records)
        return [Share(self._view.share(part, self.columns, self.options.keys)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task."""
        return read_share(self.options, partition, self.options.keys, whole=True)

    @in_one_line
    def commit(self, end: Offsets) -> None:
        """With the option `name`, commit `end` as the position of this stream: retention may drop what is before it."""
        self._keep_place({label: int(offset["0"]) for label, offset in end.items()})

    def stop(self) -> None:
        """Close the store after the query has ended."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for the tasks, without open files."""
        return {**vars(self), "_opened": None}

    @property
    def _view(self) -> View:
        if self._opened is None:
            # Here and not in the constructor: if that fails, Spark 4.3 reports an error of its own first.
            ReadOptions.of(self._given, streaming=True)
            view = View(self.options)
            if not view.grows:
                view.close()
                raise InvalidArgument(
                    f"{self.options.place!r} is a copy of a store, which does not grow: a stream needs the store's "
                    "folder, its replica or its server"
                )
            self._opened = view
        return self._opened

    def _latest(self) -> list[tuple[Track, Picture]]:
        self._view.refresh()
        return [(track, track.look(durable=True)) for track in self._view.tracks()]

    def _in(self, offsets: Mapping[str, object]) -> list[Track]:
        tracks = {track.label: track for track in self._view.tracks()}
        for label in offsets:
            if label not in tracks:
                raise DataLoss(
                    f"the log {label!r}, which this query has read from, no longer exists in {self.options.place}"
                )
        return [track for label, track in tracks.items() if label in offsets]

    def _begin(self, track: Track, picture: Picture, start: Offsets, end: Offsets | None = None) -> int:
        """Return where a batch begins; in a log that is new to the query, at its start as it was then."""
        if track.label not in start:
            return picture.start if end is None else int(end[track.label].get("from", 0))
        _check_same(track, start)
        return int(start[track.label]["0"])

    def _check_reached(self, track: Track, stop: int) -> None:
        """Raise `ReplicaUnavailable` if records may only be missing because the server does not answer."""
        if self._view.is_behind:
            raise ReplicaUnavailable(
                f"records of {track.log.name!r} before {stop} are not in {self.options.place} yet, and "
                f"{self.options.live} does not answer: start the query again when it does, or when they are shipped"
            )

    def _available(self, start: Offsets) -> dict[str, tuple[Picture, int, int]]:
        """Return for each track its picture, where the next batch begins, and how far it could reach."""
        self._in(start)
        found = {}
        for track in self._view.tracks():
            if self._target is not None and track.label not in self._target and track.label not in start:
                continue  # it was created after the end was set
            picture = track.look(durable=True)
            begin, end = self._begin(track, picture, start), picture.end
            if end < begin and self._view.is_behind:
                end = begin  # it has read what the bucket has not yet
            if end < begin:
                raise DataLoss(
                    f"the log {track.log.name!r} ends at {end}, but this query has read up to {begin}: it may have "
                    "been restored from a backup. Start the query again with a new checkpoint"
                )
            if self._target is not None and track.label in self._target:
                end = min(end, int(self._target[track.label]["0"]))
            found[track.label] = (picture, begin, max(begin, end))
        return found

    def _keep_place(self, begins: dict[str, int]) -> None:
        """Commit the position of this stream: retention waits for it, and its lag is counted from it.

        Does nothing without the option `name`. This reader moves the position only forward after it has set it once.

        Spark asks for the end of a batch when the one before it is processed and noted, so that all before its begin is
        processed. It says so in `commit` only when there is a next batch: after the last one that would be too late.
        """
        if self.options.name is None:
            return
        for track in self._in(begins):
            position = begins[track.label]
            if track.label not in self._placed or position > self._placed[track.label]:
                try:
                    self._place(track, position)
                except (Unreachable, Closed) as error:  # retention keeps too much until the server is back
                    logger.warning("position not committed: log=%s error=%s", track.log.name, error)
                else:
                    self._placed[track.label] = position

    def _place(self, track: Track, position: int) -> None:
        name = PLACE + abbreviate(self.options.name or "", 200)
        if self.options.access.server:
            self.options.access.keep_position(track.log.name, name, position)
            return
        track.log.positions.set(Position(name, position, time.time_ns()))


def _offset(track: Track, sequence: int) -> dict[str, Any]:
    return {"0": sequence, "id": track.log.id.hex()}


def _check_same(track: Track, offsets: Offsets) -> None:
    known = offsets[track.label].get("id")
    if known is None:
        raise InvalidArgument(
            f"the checkpoint has offsets of another source for {track.label!r}: start the query with another checkpoint"
        )
    if known != track.log.id.hex():
        raise DataLoss(
            f"the log {track.log.name!r} was deleted and recreated since this query read from it: "
            "start the query again with a new checkpoint"
        )


def _within(begins: dict[str, int], ends: dict[str, int], limit: int) -> dict[str, int]:
    """Return ends with at most `limit` records in all, shared in proportion, so that no log starves another."""
    left, rest = limit, sum(ends[label] - begins[label] for label in ends)
    if rest <= limit:
        return ends
    # Rounded up one log after the other, so that a limit of 1 still makes progress.
    found = {}
    for label, end in ends.items():
        count = end - begins[label]
        share = min(count, -(-left * count // rest)) if rest else 0
        found[label] = begins[label] + share
        left, rest = left - share, rest - count
    return found


def _within_bytes(
    pictures: dict[str, Picture], begins: dict[str, int], ends: dict[str, int], limit: int
) -> dict[str, int]:
    """Return ends such that about `limit` bytes are read; at least a block, so that every stream progresses."""
    sizes = {
        label: sum(stretch.bytes for stretch in plan(pictures[label], begins[label], end))
        for label, end in ends.items()
    }
    total = sum(sizes.values())
    if total <= limit:
        return ends
    return {
        label: sequence_near(pictures[label], begins[label], end, sizes[label] * limit // total)
        for label, end in ends.items()
    }
