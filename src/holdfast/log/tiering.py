"""Local retention: sealed segments that are whole in the bucket of the replica are deleted from the local disk."""

import contextlib
import logging
from collections.abc import Callable, Sequence

from holdfast.base.errors import StorageError
from holdfast.log.appender import Appender
from holdfast.log.consumer_offsets import QUEUE, OffsetStore
from holdfast.log.layout import HEADER_SIZE, parse_block_header
from holdfast.log.policy import Retention
from holdfast.log.remote_segments import PartSource, RemoteEntry, RemotePart
from holdfast.log.retention import Freed, LogRetention, droppable
from holdfast.log.segment import Segment
from holdfast.log.writer import SegmentWriter

__all__ = ["LogTiering", "ShippedPart"]

logger = logging.getLogger("holdfast.log")

ShippedPart = tuple[int, int, int]
"""Where a part of a segment ends, its CRC-32C, and the epoch of its owner: as in a manifest."""


class LogTiering:
    """Bounds what a log that this process writes has on the local disk, apart from its retention.

    The last segment stays. So does what a queue has not acknowledged: its messages are delivered from the local disk,
    however many there are. Named tailers hold nothing back, since they can read what is in the bucket. Nothing is
    deleted while a backup has pinned the log. Threads: one at a time, that of the replica.
    """

    __slots__ = ("_appender", "_parts", "_positions", "_retention", "policy")

    def __init__(
        self,
        appender: Appender,
        positions: OffsetStore,
        retention: LogRetention,
        policy: Retention | None,
        parts: PartSource | None,
    ) -> None:
        self._appender = appender
        self._positions = positions
        self._retention = retention
        self._parts = parts
        self.policy = policy
        """What stays on the local disk; None: everything."""

    def due(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return which of the log's segments should leave the local disk, the oldest first. Reads no segment."""
        if self.policy is None:
            return []
        local = [segment for segment in segments if segment.remote is None]
        # A look without the positions first, which are files: mostly nothing is due.
        now = self._appender.clock.time_ns()
        if not (count := droppable(local, self.policy, now, None)):
            return []
        return local[: min(count, droppable(local, self.policy, now, self._floor()))]

    def evict(self, shipped: Callable[[Segment], Sequence[ShippedPart] | None], url: str, log_id: str) -> Freed:
        """Delete the files of segments that are due; return what that freed.

        `shipped` returns the parts of a segment that is named by a manifest in the bucket; only if they are the whole
        segment, and so are those before it, it is deleted.
        """
        if self._appender.closed or self._appender.is_read_only:
            return Freed()
        with self._appender.translate_errors("deleting old segments of"):
            segments = self._appender.exclusively(_settled)
        entries: list[tuple[Segment, RemoteEntry]] = []
        for segment in self.due(segments):
            parts = shipped(segment)
            limit, end = segment.extent
            if parts is None or not parts or parts[-1][0] != limit or end is None:
                break
            try:
                entries.append((segment, _entry(segment, parts, end)))
            except FileNotFoundError:  # dropped by retention meanwhile
                break
        if not entries:
            return Freed()
        with self._appender.translate_errors("moving old segments to the replica of"):
            freed = self._appender.exclusively(lambda writer: self._move(writer, entries, url, log_id))
        if freed:
            logger.info(
                "segments left the local disk: log=%s segments=%d bytes=%d",
                self._appender.name,
                freed.segments,
                freed.bytes,
                extra={"log": self._appender.name, "segments": freed.segments, "bytes": freed.bytes},
            )
        return freed

    def _move(self, writer: SegmentWriter, entries: list[tuple[Segment, RemoteEntry]], url: str, log_id: str) -> Freed:
        if self._retention.pinned or self._appender.closed:
            return Freed()
        kept = set(writer.segments[:-1])
        chosen = [(segment, entry) for segment, entry in entries if segment in kept and segment is not writer.active]
        remote = writer.remote.with_entries(url, log_id, [entry for _, entry in chosen])
        sources = [(segment, remote.source_of(entry, self._appender.folder, self._parts)) for segment, entry in chosen]
        if sources:
            writer.evict(remote, sources)
        return Freed(len(sources), sum(segment.limit for segment, _ in sources))

    def _floor(self) -> int | None:
        """Return the oldest message that a queue has not acknowledged, by its saved position; None without queues."""
        with contextlib.suppress(StorageError):
            queues = [one.position for one in self._positions.all() if one.name.startswith(QUEUE)]
            return min(queues, default=None)
        return 0


def _settled(writer: SegmentWriter) -> tuple[Segment, ...]:
    """Return the segments, after the files of those that left the disk are deleted."""
    writer.delete_evicted()
    return writer.segments


def _entry(segment: Segment, parts: Sequence[ShippedPart], end: int) -> RemoteEntry:
    """Return what is needed to read a segment from the bucket. Raises FileNotFoundError."""
    limit = segment.limit
    memory = segment.memory(limit)
    found, start = [], 0
    for stop, checksum, epoch in parts:
        first = start or HEADER_SIZE
        header = parse_block_header(memory, first, first, limit)
        sequence, timestamp = (-1, segment.created) if start else (segment.base, segment.created)
        if header is not None and header.segment_id == segment.segment_id:
            sequence, timestamp = header.sequence, header.timestamp
        found.append(RemotePart(start, stop, checksum, epoch, sequence, timestamp))
        start = stop
    return RemoteEntry(segment.name, segment.segment_id, segment.base, end, segment.created, tuple(found))
