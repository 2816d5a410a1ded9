"""Uploads of parts of segments, on threads: those of a round, and those that run while the next manifest is put."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from holdfast.base.bucket import Bucket
from holdfast.base.checksum import crc32c
from holdfast.base.clock import Clock
from holdfast.base.errors import HoldfastError, ReplicaUnavailable, StorageError
from holdfast.base.files import Files
from holdfast.replica.manifest import Part
from holdfast.replica.owner import Ownership
from holdfast.replica.source import SegmentCut

__all__ = ["Progress", "SegmentDropped", "SegmentKey", "Upload", "Uploader"]

Progress = Callable[[int, int], None]
"""Called with the uploaded bytes and the total bytes of a moment."""
SegmentKey = tuple[str, str, str]
"""Folder and id of a log, and id of a segment."""
_Result = Callable[[], Part]
"""Returns the part when it is in the bucket, or raises the error of its upload."""


class SegmentDropped(StorageError):
    """A segment was deleted between the cut and its upload: another cut does not have it."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A part that is to be uploaded."""

    key: str
    segment: SegmentKey
    cut: SegmentCut | None
    """Where the bytes are; None if they are in `content`."""
    start: int
    stop: int
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class _Background:
    """Uploads that replace the end of a segment's parts."""

    kept: tuple[Part, ...]
    uploads: Sequence[Upload]
    results: list[_Result]
    futures: list[Future[Part]]


class Uploader:
    """Puts parts into the bucket. For one thread, which begins uploads; with `workers`, that many more run them.

    Invariant: `pending` has each key whose upload was begun and that no manifest names yet.
    """

    def __init__(self, bucket: Bucket, files: Files, clock: Clock, ownership: Ownership, workers: int) -> None:
        self.deadline = float("inf")
        """When no further upload is begun, by the monotonic clock."""
        self._bucket = bucket
        self._files = files
        self._clock = clock
        self._ownership = ownership
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="holdfast-replica-put") if workers else None
        self._keys: set[str] = set()
        """The keys of parts whose upload was begun since the last manifest."""
        self._background: dict[SegmentKey, _Background] = {}

    def run(self, uploads: Sequence[Upload], progress: Progress | None) -> Iterator[tuple[Upload, Part]]:
        """Upload parts in parallel; yield them in order, up to the first that failed, whose error is raised."""
        self._keys.update(one.key for one in uploads)
        done, total = 0, sum(one.stop - one.start for one in uploads)
        results, futures = self._begin(uploads)
        try:
            for one, result in zip(uploads, results, strict=True):
                part = result()
                yield one, part
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

    def begin(self, segment: SegmentKey, kept: tuple[Part, ...], uploads: Sequence[Upload]) -> None:
        """Begin to upload the parts of a segment behind `kept`, for `finished`. Without threads they are done then."""
        if self._clock.monotonic() < self.deadline == float("inf"):
            results, futures = self._begin(uploads, always=True)
            self._background[segment] = _Background(kept, uploads, results, futures)

    def is_begun(self, segment: SegmentKey) -> bool:
        """Return whether uploads of this segment were begun that `finished` has not returned."""
        return segment in self._background

    def finished(self) -> Iterator[tuple[SegmentKey, tuple[Part, ...]]]:
        """Yield the segments whose uploads have ended, with all of their parts.

        Those that failed are left out: the manifests still have their bytes, and they are begun again.
        """
        for segment, one in list(self._background.items()):
            if all(future.done() for future in one.futures):
                yield from self.finish(segment)

    def finish(self, segment: SegmentKey) -> Iterator[tuple[SegmentKey, tuple[Part, ...]]]:
        """As `finished`, for this segment only, if uploads of it were begun: wait for them."""
        if (one := self._background.pop(segment, None)) is not None:
            self._keys.update(upload.key for upload in one.uploads)
            with contextlib.suppress(HoldfastError, CancelledError):
                yield segment, (*one.kept, *[result() for result in one.results])

    def named(self) -> set[str]:
        """Return the keys of uploads that have ended, and forget them: a manifest names them, or none will."""
        keys, self._keys = self._keys, set()
        return keys

    def pending(self) -> set[str]:
        """Return the keys of parts that may be in the bucket, and that no manifest names yet."""
        return self._keys.union(*({upload.key for upload in one.uploads} for one in self._background.values()))

    def start(self, work: Callable[[], None]) -> "Future[None]":
        """Run something on a thread of the uploads, or here if there are none. Raises `RuntimeError` after `close`."""
        if self._pool is not None:
            return self._pool.submit(work)
        work()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def close(self, *, wait: bool) -> None:
        """End the threads. Without `wait` those that wait for the bucket end later."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)

    def read(self, cut: SegmentCut, start: int, stop: int) -> bytes:
        """Return bytes of a segment. Raises `SegmentDropped`, and `StorageError` if the file is too short."""
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

    def _begin(self, uploads: Sequence[Upload], *, always: bool = False) -> tuple[list[_Result], list[Future[Part]]]:
        """Begin uploads on the threads; what is not begun is uploaded when its result is asked for.

        A single one is not begun, unless `always`: with 256 threads in the process, handing it over costs as much as
        the request.
        """
        futures: list[Future[Part]] = []
        if self._pool is not None and (always or len(uploads) > 1):
            with contextlib.suppress(RuntimeError):  # while the interpreter ends no thread begins: one by one, then
                futures.extend(self._pool.submit(self._put, one) for one in uploads)
        results: list[_Result] = [future.result for future in futures]
        return [*results, *(partial(self._put, one) for one in uploads[len(futures) :])], futures

    def _put(self, one: Upload) -> Part:
        """Upload a part. It may be repeated: its key belongs to these bytes and to this epoch."""
        self._ownership.check()
        if self._clock.monotonic() >= self.deadline:
            raise ReplicaUnavailable(f"{self._bucket.url}: the store was closed before all was shipped")
        content = one.content if one.cut is None else self.read(one.cut, one.start, one.stop)
        self._bucket.put(one.key, content)
        return Part(one.start, one.stop, crc32c(content), self._ownership.epoch)
