"""Shipping of a store's moments: parts of all logs that moved, in parallel, then the manifest that names them."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checksum import crc32c
from holdfast.base.clock import Clock
from holdfast.base.errors import ReplicaError, ReplicaUnavailable, StorageError
from holdfast.base.files import Files
from holdfast.replica.garbage import Collector
from holdfast.replica.manifest import LogEntry, Manifest, Moment, Part, SegmentEntry
from holdfast.replica.owner import Ownership
from holdfast.replica.parts import block_end, plan_parts
from holdfast.replica.source import Cut, LogCut, ReplicaSource, SegmentCut
from holdfast.replica.tiering import check_remote, parts_of

__all__ = ["Progress", "SegmentDropped", "Shipped", "Shipper"]

logger = logging.getLogger("holdfast.replica")

Progress = Callable[[int, int], None]
"""Called with the uploaded bytes and the total bytes of a moment."""
_INLINE_LOG = 32 << 10
"""Bytes of a log up to which new ones are put into the manifest while calls wait for it: one request, and not two one
after the other. Each following manifest has them again, until there are more: then they become a part of their own."""
_INLINE_ALL = 128 << 10
"""The same for all logs together."""
_Key = tuple[str, str, str]
"""Folder and id of a log, and id of a segment."""


class SegmentDropped(StorageError):
    """A segment was deleted between the cut and its upload: another cut does not have it."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """What a round has done."""

    time: int
    """The moment of the cut, in nanoseconds since 1970: all that was written before is in the bucket."""
    monotonic: float
    bytes: int
    moment: Moment | None
    """The moment that was added; None if nothing had changed."""


@dataclass(slots=True)
class _Upload:
    """A part that is to be uploaded."""

    key: str
    segment: _Key
    cut: SegmentCut | None
    """Where the bytes are; None if they are in `content`."""
    start: int
    stop: int
    content: bytes = b""


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
        self._clock = clock
        self._source = source
        self._ownership = ownership
        self._collector = collector
        self._store = store
        self._version = version
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="holdfast-replica-put") if workers else None
        self.known: dict[str, LogEntry] = {}
        """The logs of the last manifest, by folder."""
        self.lost_records = 0
        """Records that were dropped from full disks before they were shipped."""
        self._loose: Mapping[str, str] = {}
        self._mode = ""
        self._uploaded: dict[_Key, tuple[Part, ...]] = {}
        """Segments with parts that are in the bucket and in no manifest yet: all of their parts."""
        self.deadline = float("inf")
        """When no further upload is begun, by the monotonic clock."""
        self._spilled: set[str] = set()
        """Folders of logs that have not moved and whose inline part becomes an object in this round."""
        self._put_keys: set[str] = set()
        """The keys of all parts whose upload was begun since the last manifest."""
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
        cut = self._source.take(self.known)
        dropped = self._source.dropped(self.known, cut)
        self._spilled.clear()
        inline = self._inline(cut) if is_urgent else {}
        uploads = [one for log in cut.logs if log.segments is not None for one in self._plan(log, inline)]
        if self._inlined(cut) > _INLINE_ALL // 2:
            uploads += self._spill(cut)
        self._upload(uploads, progress)
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

    def pending(self) -> set[str]:
        """Return the keys of parts that may be in the bucket, and that no manifest names yet."""
        return set(self._put_keys)

    def start(self, work: Callable[[], None]) -> "Future[None]":
        """Run something on a thread of the uploads, or here if there are none. Raises `RuntimeError` after `close`."""
        if self._pool is not None:
            return self._pool.submit(work)
        work()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def close(self, *, wait: bool = True) -> None:
        """End the threads. Without `wait` those that wait for the bucket end later."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)

    def _inline(self, cut: Cut) -> dict[_Key, Part]:
        """Return the parts that the next manifest itself has: the ends of logs that have moved by little."""
        found: dict[_Key, Part] = {}
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
                content = self._read(last, start, last.size)
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

    def _spill(self, cut: Cut) -> Iterator[_Upload]:
        """Yield an upload for each inline part of a log that has not moved: the manifests get too large."""
        for log in cut.logs:
            if log.segments is not None or (known := self.known.get(log.folder)) is None:
                continue
            for segment in known.segments:
                last = segment.parts[-1] if segment.parts else None
                if last is not None and last.inline is not None:
                    key = (known.folder, known.id, segment.id)
                    self._spilled.add(known.folder)
                    self._uploaded[key] = segment.parts[:-1]
                    name = known.key(segment, Part(last.start, last.stop, 0, self._ownership.epoch))
                    yield _Upload(name, key, None, last.start, last.stop, last.inline)

    def _shipped_parts(self, log: LogCut) -> dict[str, tuple[Part, ...]]:
        """Return the parts of the last manifest, by the segment's id."""
        known = self.known.get(log.folder)
        return {one.id: one.parts for one in known.segments} if known is not None and known.id == log.id else {}

    def _objects(self, key: _Key, shipped: Mapping[str, tuple[Part, ...]]) -> tuple[Part, ...]:
        """Return the parts of a segment that are objects in the bucket."""
        parts = self._uploaded.get(key, shipped.get(key[2], ()))
        return parts[:-1] if parts and parts[-1].inline is not None else parts

    def _plan(self, log: LogCut, inline: Mapping[_Key, Part]) -> Iterator[_Upload]:
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
            plan = plan_parts(parts, cut.size, partial(block_end, cut.segment))
            self._uploaded[key] = parts[: plan.kept]
            segment = SegmentEntry(cut.name, cut.id, 0, 0, ())
            for start, stop in plan.ranges:
                name = of_log.key(segment, Part(start, stop, 0, self._ownership.epoch))
                yield _Upload(name, key, cut, start, stop)

    def _upload(self, uploads: Sequence[_Upload], progress: Progress | None) -> None:
        """Upload parts, and add them to their segments in order, up to the first that failed."""
        self._put_keys.update(one.key for one in uploads)
        done, total = 0, sum(one.stop - one.start for one in uploads)
        futures: list[Future[Part]] = []
        if self._pool is not None:
            with contextlib.suppress(RuntimeError):  # while the interpreter ends no thread begins: one by one, then
                futures.extend(self._pool.submit(self._put, one) for one in uploads)
        results: list[tuple[_Upload, Callable[[], Part]]] = [
            (one, future.result) for one, future in zip(uploads, futures, strict=False)
        ]
        results += [(one, partial(self._put, one)) for one in uploads[len(futures) :]]
        try:
            for one, result in results:
                part = result()
                self._uploaded[one.segment] = (*self._uploaded[one.segment], part)
                done += part.size
                if progress is not None:
                    progress(done, total)
        except BaseException:
            for future in futures:
                future.cancel()
            for future in futures:  # before the next round, which may upload the same range
                with contextlib.suppress(BaseException):
                    future.result()
            raise

    def _put(self, one: _Upload) -> Part:
        """Upload a part. It may be repeated: its key belongs to these bytes and to this epoch."""
        self._ownership.check()
        if self._clock.monotonic() >= self.deadline:
            raise ReplicaUnavailable(f"{self._bucket.url}: the store was closed before all was shipped")
        content = one.content if one.cut is None else self._read(one.cut, one.start, one.stop)
        self._bucket.put(one.key, content)
        return Part(one.start, one.stop, crc32c(content), self._ownership.epoch)

    def _read(self, cut: SegmentCut, start: int, stop: int) -> bytes:
        path = cut.segment.path
        try:
            with contextlib.closing(self._files.open(path, "r")) as file:
                content = file.read(stop - start, start)
        except FileNotFoundError as error:
            raise SegmentDropped(
                f"{str(path)!r} was deleted before it was shipped: the next moment does without it"
            ) from error
        if len(content) < stop - start:
            raise StorageError(f"{str(path)!r} has {start + len(content)} bytes, but had {stop}: verify the store")
        return content

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
        self.known = {log.folder: log for log in logs}
        self._loose, self._mode, self._is_first = cut.files, cut.mode, False
        self._uploaded.clear()
        self._collector.note_orphans(self._put_keys)
        self._put_keys.clear()
        self._ownership.last = moment.key
        return moment

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
