"""Shipping of a store's moments: parts of all logs that moved, in parallel, then the manifest that names them."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checksum import crc32c
from holdfast.base.clock import Clock
from holdfast.base.errors import ReplicaError, ReplicaUnavailable
from holdfast.base.files import Files
from holdfast.replica.garbage import Collector
from holdfast.replica.manifest import LogEntry, Manifest, Moment, Part, SegmentEntry
from holdfast.replica.owner import Ownership
from holdfast.replica.parts import block_end, plan_parts
from holdfast.replica.source import Cut, LogCut, ReplicaSource, SegmentCut
from holdfast.replica.tiering import check_remote, parts_of
from holdfast.replica.uploads import Progress, SegmentKey, Upload, Uploader

__all__ = ["Shipped", "Shipper"]

logger = logging.getLogger("holdfast.replica")

_INLINE_LOG = 1 << 20
"""The most new bytes of a log that are put into the manifest itself while calls wait for it: one request, and not two
one after the other. What a manifest repeats becomes a part of its own, which is uploaded while others are put."""
_INLINE_ALL = 4 << 20
"""The same for all logs together."""
_REPEATED_LOG = 32 << 10
"""Bytes of a log that manifests may repeat, or as many as are new in each."""
_REPEATED_ALL = 64 << 10
"""Bytes that manifests may repeat of all logs that do not move."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """What a round has done."""

    time: int
    """The moment of the cut, in nanoseconds since 1970: all that was written before is in the bucket."""
    monotonic: float
    bytes: int
    moment: Moment | None
    """The moment that was added; None if nothing had changed."""


class Shipper:
    """Ships one moment after another. For one thread; with `workers`, that many more upload parts.

    Invariant: a manifest is put only after every part that it names; what is uploaded is durable in the store.
    """

    def __init__(
        self,
        bucket: Bucket,
        files: Files,
        clock: Clock,
        source: ReplicaSource,
        ownership: Ownership,
        collector: Collector,
        *,
        store: str,
        version: str,
        workers: int,
    ) -> None:
        self._bucket = bucket
        self._files = files
        self._source = source
        self._ownership = ownership
        self._collector = collector
        self._store = store
        self._version = version
        self.uploader = Uploader(bucket, files, clock, ownership, workers)
        self.known: dict[str, LogEntry] = {}
        """The logs of the last manifest, by folder."""
        self.lost_records = 0
        """Records that were dropped from full disks before they were shipped."""
        self._loose: Mapping[str, str] = {}
        self._mode = ""
        self._uploaded: dict[SegmentKey, tuple[Part, ...]] = {}
        """Segments with parts that are in the bucket and in no manifest yet: all of their parts."""
        self._spilled: set[str] = set()
        """Folders of logs whose inline part has become an object since the last manifest."""
        self._grown: dict[SegmentKey, SegmentCut] = {}
        """The last segments of the logs that have moved, at the cut of the last manifest."""
        self._sizes: dict[SegmentKey, int] = {}
        """How far the manifest before it had them."""
        self._number = 0
        self._is_first = True
        """Whether this owner has put no manifest yet: its first one shows its epoch."""
        self._is_behind = True
        """Whether there was news that is not in the bucket yet: it is noticed once, and a round may fail."""

    def check(self, last: Manifest | None) -> None:
        """Raise `ReplicaError` if a manifest of this store has records that the store lacks."""
        entries = {log.folder: log for log in last.logs} if last is not None and last.store == self._store else {}
        logs = self._source.take({}).logs if entries or self._source.has_remote() else []
        for log in logs:
            if (entry := entries.get(log.folder)) is not None:
                self._check_contains(log, entry)
        check_remote(self._bucket, logs, entries)

    def resume(self, last: Manifest | None) -> None:
        """Continue behind this manifest, which was checked."""
        if last is not None:
            self.known = {log.folder: log for log in last.logs}
            self._collector.resume(last)
            self._loose, self._mode, self._number = last.files, last.mode, last.moment.number
        self._source.hold(self.known)

    def ship(self, progress: Progress | None = None, *, is_urgent: bool = False) -> Shipped:
        """Put all that is new into the bucket. Raises `ReplicaFenced`, `ReplicaError` or `StorageError`.

        What was uploaded before an error is not uploaded again. With `is_urgent`, because calls wait for it, there are
        as few requests one after the other as possible.
        """
        self._ownership.check()
        self._is_behind = self._is_behind or is_urgent or self._source.has_news(self.known)
        if not self._is_behind:
            return Shipped(*self._source.looked_at, 0, None)
        cut = self._source.take(self.known, is_urgent=is_urgent)
        dropped = self._source.dropped(self.known, cut)
        self._take_spilled(self.uploader.finished())
        inline = self._inline(cut) if is_urgent else {}
        uploads = [one for log in cut.logs if log.segments is not None for one in self._plan(log, inline)]
        for one, part in self.uploader.run(uploads, progress):
            self._uploaded[one.segment] = (*self._uploaded[one.segment], part)
        logs = tuple(map(self._entry, cut.logs))
        size = sum(one.stop - one.start for one in uploads)
        is_changed = self._is_first or cut.files != self._loose or cut.mode != self._mode
        if is_changed or len(logs) != len(self.known) or any(self.known.get(log.folder) is not log for log in logs):
            moment = self._publish(cut, logs)
            self._note_dropped(dropped)
            self._source.hold(self.known)
            self._is_behind = False
            return Shipped(cut.time, cut.monotonic, size, moment)
        self._is_behind = False
        return Shipped(cut.time, cut.monotonic, size, None)

    def publish_again(self) -> None:
        """Let the next round put a manifest, also if nothing has changed: the last one was deleted by somebody."""
        self._is_first = self._is_behind = True

    def spill(self) -> None:
        """Begin to upload what the next manifests would repeat, after calls were answered that waited for the last.

        Each is a part of its own in the first manifest after its upload. So no call waits for two requests.
        """
        quiet: list[tuple[LogEntry, SegmentEntry]] = []
        for log in self.known.values():
            segment = log.segments[-1] if log.segments else None
            part = segment.parts[-1] if segment is not None and segment.parts else None
            if segment is None or part is None or part.inline is None:
                continue
            key = (log.folder, log.id, segment.id)
            if self.uploader.is_begun(key) or key in self._uploaded:
                continue
            if (cut := self._grown.get(key)) is None:
                quiet.append((log, segment))
            elif part.size > max(_REPEATED_LOG, part.stop - self._sizes[key]):
                kept, uploads = self._parts(cut, segment.parts[:-1], log)
                self.uploader.begin(key, kept, uploads)
        if sum(segment.parts[-1].size for _, segment in quiet) > _REPEATED_ALL:
            for log, segment in quiet:
                last, key = segment.parts[-1], (log.folder, log.id, segment.id)
                name = log.key(segment, Part(last.start, last.stop, 0, self._ownership.epoch))
                upload = Upload(name, key, None, last.start, last.stop, last.inline or b"")
                self.uploader.begin(key, segment.parts[:-1], [upload])

    def _inline(self, cut: Cut) -> dict[SegmentKey, Part]:
        """Return the parts that the next manifest itself has: the ends of logs that have moved by little."""
        found: dict[SegmentKey, Part] = {}
        left = _INLINE_ALL - self._inlined(cut)
        for log in cut.logs:
            if not log.segments:
                continue
            last = log.segments[-1]
            key = (log.folder, log.id, last.id)
            objects = self._objects(key, self._shipped_parts(log))
            start = objects[-1].stop if objects else 0
            size = last.size - start
            if 0 < size <= min(left, _INLINE_LOG):
                content = self.uploader.read(last, start, last.size)
                found[key] = Part(start, last.size, crc32c(content), self._ownership.epoch, content)
                left -= size
        return found

    def _inlined(self, cut: Cut) -> int:
        """Return the bytes of inline parts of logs that have not moved."""
        return sum(
            len(content)
            for log in cut.logs
            if log.segments is None and (known := self.known.get(log.folder)) is not None
            for content in known.inlined
        )

    def _take_spilled(self, finished: Iterable[tuple[SegmentKey, tuple[Part, ...]]]) -> None:
        """Replace inline parts by these, which are in the bucket; what was added to them meanwhile stays inline."""
        for key, parts in finished:
            log, end = self.known.get(key[0]), parts[-1].stop
            segment = next((one for one in log.segments if one.id == key[2]), None) if log is not None else None
            last = segment.parts[-1] if segment is not None and segment.parts else None
            if log is None or log.id != key[1] or last is None or last.inline is None or last.start >= end:
                continue  # the log was deleted or cleared
            if end < last.stop:
                rest = last.inline[end - last.start :]
                parts = (*parts, Part(end, last.stop, crc32c(rest), self._ownership.epoch, rest))
            self._uploaded[key] = parts
            self._spilled.add(key[0])

    def _shipped_parts(self, log: LogCut) -> dict[str, tuple[Part, ...]]:
        """Return the parts of the last manifest, by the segment's id."""
        known = self.known.get(log.folder)
        return {one.id: one.parts for one in known.segments} if known is not None and known.id == log.id else {}

    def _objects(self, key: SegmentKey, shipped: Mapping[str, tuple[Part, ...]]) -> tuple[Part, ...]:
        """Return the parts of a segment that are objects in the bucket."""
        parts = self._uploaded.get(key, shipped.get(key[2], ()))
        return parts[:-1] if parts and parts[-1].inline is not None else parts

    def _plan(self, log: LogCut, inline: Mapping[SegmentKey, Part]) -> Iterator[Upload]:
        """Yield the parts to upload for a log, and drop parts that are replaced."""
        of_log, shipped = LogEntry(log.folder, log.id, 0, 0, 0, ()), self._shipped_parts(log)
        for cut in log.segments or ():
            key = (log.folder, log.id, cut.id)
            if cut.segment.remote is not None:  # whatever the last manifest that could be read says
                self._uploaded[key] = parts_of(cut.segment.remote)
                continue
            parts = self._objects(key, shipped)
            if key in inline:
                self._uploaded[key] = (*parts, inline[key])
                continue
            if self.uploader.is_begun(key):  # of the same bytes
                self._take_spilled(self.uploader.finish(key))
                parts = self._objects(key, shipped)
            self._uploaded[key], uploads = self._parts(cut, parts, of_log)
            yield from uploads

    def _parts(self, cut: SegmentCut, parts: tuple[Part, ...], log: LogEntry) -> tuple[tuple[Part, ...], list[Upload]]:
        """Return which of the parts of a segment stay, and the uploads of those behind them."""
        plan = plan_parts(parts, cut.size, partial(block_end, cut.segment))
        segment = SegmentEntry(cut.name, cut.id, 0, 0, ())
        key, epoch = (log.folder, log.id, cut.id), self._ownership.epoch
        uploads = [
            Upload(log.key(segment, Part(start, stop, 0, epoch)), key, cut, start, stop) for start, stop in plan.ranges
        ]
        return parts[: plan.kept], uploads

    def _entry(self, log: LogCut) -> LogEntry:
        """Return the entry of a log, which is the known one if nothing has changed."""
        known = self.known.get(log.folder)
        if log.segments is None:
            assert known is not None
            if log.folder in self._spilled:
                spilled = (
                    replace(one, parts=self._uploaded.get((known.folder, known.id, one.id), one.parts))
                    for one in known.segments
                )
                return replace(known, files=log.files, segments=tuple(spilled))
            return known if known.files == log.files else replace(known, files=log.files)
        segments = tuple(
            SegmentEntry(
                cut.name, cut.id, cut.segment.base, cut.segment.created, self._uploaded[log.folder, log.id, cut.id]
            )
            for cut in log.segments
        )
        entry = LogEntry(log.folder, log.id, log.start, log.end, log.last_timestamp, segments, log.files)
        return known if known == entry and known is not None else entry

    def _publish(self, cut: Cut, logs: tuple[LogEntry, ...]) -> Moment:
        """Put the manifest, last. After a lost answer it may or may not be there: its number is not used again."""
        self._ownership.check()
        self._number += 1
        moment = Moment(self._ownership.epoch, self._number, cut.time)
        manifest = Manifest(self._store, moment, self._version, cut.mode, logs, cut.files)
        content = manifest.encode()
        self._collector.note(moment, self.known, logs)  # before it is put: also if its answer is lost, it may be there
        try:
            done = self._bucket.put_if_absent(moment.key, content)
        except ReplicaUnavailable:
            done = None
        if done is None and self._found(moment) != content:
            raise ReplicaUnavailable(
                f"{self._bucket.url}/{moment.key}: the manifest was not written. It is tried again"
            )
        self._note_grown(cut)
        self.known = {log.folder: log for log in logs}
        self._loose, self._mode, self._is_first = cut.files, cut.mode, False
        self._uploaded.clear()
        self._spilled.clear()
        self._collector.note_orphans(self.uploader.named())
        self._ownership.last = moment.key
        return moment

    def _note_grown(self, cut: Cut) -> None:
        self._grown.clear()
        self._sizes.clear()
        for log in cut.logs:
            if log.segments:
                key, known = (log.folder, log.id, log.segments[-1].id), self.known.get(log.folder)
                last = known.segments[-1] if known is not None and known.segments else None
                self._grown[key] = log.segments[-1]
                self._sizes[key] = last.size if last is not None and last.id == key[2] else 0

    def _found(self, moment: Moment) -> bytes | None:
        try:
            return self._bucket.get(moment.key).content
        except ObjectMissing:
            return None

    def _note_dropped(self, records: int) -> None:
        if records:
            logger.warning("records dropped before they were shipped: url=%s records=%d", self._bucket.url, records)
            self.lost_records += records

    def _check_contains(self, log: LogCut, entry: LogEntry) -> None:
        """Raise unless a log of the store has all that the bucket has of it."""
        if log.id != entry.id or log.segments is None:
            return  # it was deleted, and created again
        last = entry.segments[-1] if entry.segments else None
        ours = next((one for one in log.segments if last is not None and one.id == last.id), None)
        lacks = log.end < entry.end
        if ours is None and last is not None and last.base < entry.end:  # dropped by retention, or never ours
            lacks = lacks or log.start <= last.base
        is_here = ours is not None and ours.segment.remote is None  # otherwise `check_remote` has compared the parts
        if ours is not None and is_here and last is not None and last.parts and not lacks:
            part = last.parts[-1]
            with contextlib.closing(self._files.open(ours.segment.path, "r")) as file:
                lacks = ours.size < part.stop or crc32c(file.read(part.size, part.start)) != part.checksum
        if lacks:
            raise ReplicaError(
                f"{self._bucket.url} has records of {log.folder} up to {entry.end} that this store lacks: it has "
                f"others, up to {log.end}. It is an older copy, or was used after another process had taken the "
                "replica. Restore the newest moment into a new folder and use that; or ship this store to another "
                "prefix, without its file replica.json"
            )
