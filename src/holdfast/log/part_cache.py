"""A bounded cache on the local disk of the parts of segments that are only in the bucket of a replica."""

import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.bucket import ObjectMissing, ObjectReader
from holdfast.base.checksum import crc32c
from holdfast.base.critical_section import Condition
from holdfast.base.errors import Corrupt, InvalidArgument, storage_error
from holdfast.base.files import Files, write_all
from holdfast.log.index import Checkpoint
from holdfast.log.layout import HEADER_SIZE, parse_block_header
from holdfast.log.remote_segments import NO_CHECKSUM, RemotePart

__all__ = ["CACHE", "CACHE_BYTES", "PartCache"]

logger = logging.getLogger("holdfast.log")

CACHE = "cache"
"""The folder of the cache in a store."""
CACHE_BYTES = 256 << 20
_FETCHES_MAX = 8
"""How many parts are in memory between the bucket and the disk at once: at most so many times 8 MiB."""
_BEGINS_MAX = 100_000
_WAIT_S = 0.1
_WAITS_MAX = 600
"""After so many waits for space a part is fetched beyond the limit: a thread that was interrupted may have left a pin.
"""


@dataclass(eq=False, slots=True)
class _Entry:
    """A part in the cache, or one that is being fetched."""

    path: Path
    size: int
    pins: int = 1
    """How many readers use it now; it is not deleted meanwhile. Also the thread that fetches it."""
    is_ready: bool = False


class PartCache:
    """Parts of remote segments, fetched when they are first read; the least recently used ones are deleted.

    Files: the folder `cache/`, which is emptied at the first use: its contents are not needed again after the process.
    A file has its part at the offset of the segment, and nothing before it: a sparse file, so that readers find blocks
    at their own offsets. Readers pin a part only while they copy blocks out of it; so waiting for space ends.

    Threads: any. `_guard` protects the list of entries; it is not held during requests, and files are written without
    it. Invariant: `bytes` is the size of all entries, also of those that are being fetched, and at most `limit`, except
    if one part alone is larger.
    """

    def __init__(
        self,
        files: Files,
        folder: Callable[[], Path],
        open_bucket: Callable[[str], ObjectReader],
        limit: int = CACHE_BYTES,
    ) -> None:
        """Make an empty cache. `folder` is called at the first use; `open_bucket` returns the bucket at a URL."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidArgument(f"remote_cache must be a whole number of bytes, at least 1, not {limit!r}")
        self.limit = limit
        self.bytes = 0
        """The size of all parts in the cache."""
        self.hits = 0
        self.misses = 0
        self.fetched_bytes = 0
        self._files = files
        self._find_folder = folder
        self._folder: Path | None = None
        self._open_bucket = open_bucket
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """By address, the least recently used first."""
        self._begins: dict[str, Checkpoint | None] = {}
        """By address: where the records of a part begin, for parts that were not fetched."""
        self._number = 0
        self._fetching = 0
        self._guard = threading.RLock()
        self._changed = Condition(self._guard)

    @contextlib.contextmanager
    def pinned(self, url: str, key: str, part: RemotePart) -> Iterator[memoryview]:
        """As `PartSource.pinned`."""
        entry = self._acquire(url, key, part)
        try:
            try:
                with contextlib.closing(self._files.open(entry.path, "r")) as file:
                    memory = file.map(part.stop)
            except OSError as error:
                raise storage_error(error, "reading the cache", entry.path) from error
            yield memory
        finally:
            self._release(entry)

    def first_block(self, url: str, key: str, part: RemotePart) -> Checkpoint | None:
        """As `PartSource.first_block`."""
        address = f"{url}/{key}"
        if address not in self._begins:
            if len(self._begins) >= _BEGINS_MAX:
                self._begins.clear()
            bucket = self._open_bucket(url)
            try:
                raw = bucket.get_range(key, 0, HEADER_SIZE)
            except ObjectMissing as error:
                where = f"{bucket.url}/{key}"
                raise Corrupt(f"{where} is missing: somebody has deleted it", where, part.start) from error
            is_whole = len(raw) == HEADER_SIZE
            header = parse_block_header(raw, 0, part.start, part.stop) if is_whole else None
            found = None if header is None else Checkpoint(header.sequence, part.start, header.timestamp)
            self._begins[address] = found
        return self._begins[address]

    def clear(self) -> None:
        """Delete all parts that nobody reads."""
        with self._guard:
            for address, entry in list(self._entries.items()):
                if not entry.pins:
                    self._forget(address, entry)

    def detach_after_fork(self) -> None:
        """Forget everything, in a forked child: the files are the parent's."""
        self._guard = threading.RLock()
        self._changed = Condition(self._guard)
        self._entries.clear()
        self._begins.clear()
        self._folder, self.bytes, self._fetching = None, 0, 0

    def _acquire(self, url: str, key: str, part: RemotePart) -> _Entry:
        """Return a part that is on the disk, pinned; fetch it, unless another thread does so already."""
        address = f"{url}/{key}"
        waits = 0
        with self._guard:
            while True:
                entry = self._entries.get(address)
                if entry is not None and entry.is_ready:
                    entry.pins += 1
                    self.hits += 1
                    self._entries.move_to_end(address)
                    return entry
                if entry is None and (self._makes_space(part.size) or waits >= _WAITS_MAX):
                    break
                self._changed.wait(_WAIT_S)
                waits += 1
            self._number += 1
            entry = self._entries[address] = _Entry(self._place() / f"{self._number}.part", part.size)
            self.bytes += part.size
            self.misses += 1
            self._fetching += 1
        try:
            self._fetch(url, key, part, entry.path)
        except BaseException:
            with self._guard:
                self._fetching -= 1
                self._forget(address, entry)
            raise
        with self._guard:
            self._fetching -= 1
            entry.is_ready = True
            self.fetched_bytes += part.size
            self._changed.notify_all()
        return entry

    def _release(self, entry: _Entry) -> None:
        with self._guard:
            entry.pins -= 1
            if not entry.pins:
                self._changed.notify_all()

    def _makes_space(self, size: int) -> bool:
        """Delete parts that nobody reads until so many bytes fit; return whether they do. Called with `_guard` held."""
        if self._fetching >= _FETCHES_MAX:
            return False
        for address, entry in list(self._entries.items()):
            if self.bytes + size <= self.limit:
                break
            if not entry.pins:
                self._forget(address, entry)
        return self.bytes + size <= self.limit or not self.bytes

    def _forget(self, address: str, entry: _Entry) -> None:
        """Remove an entry and its file. Called with `_guard` held."""
        if self._entries.get(address) is entry:
            del self._entries[address]
            self.bytes -= entry.size
            self._changed.notify_all()
        with contextlib.suppress(OSError):  # it was never made, or somebody has emptied the folder
            self._files.remove(entry.path)

    def _place(self) -> Path:
        """Return the folder, emptied of what an earlier process left there."""
        if self._folder is None:
            folder = self._find_folder()
            try:
                self._files.make_dirs(folder)
                for name in self._files.list(folder):
                    self._files.remove(folder / name)
            except OSError as error:
                raise storage_error(error, "emptying the cache", folder) from error
            self._folder = folder
        return self._folder

    def _fetch(self, url: str, key: str, part: RemotePart, path: Path) -> None:
        content = _checked(self._open_bucket(url), key, part)
        try:
            with contextlib.closing(self._files.open(path, "x")) as file:
                write_all(file, content, part.start)
        except OSError as error:
            raise storage_error(error, "writing to the cache", path) from error


def _checked(bucket: ObjectReader, key: str, part: RemotePart) -> bytes:
    """Return the bytes of a part. Raises `Corrupt` if they are not what was shipped."""
    where = f"{bucket.url}/{key}"
    try:
        content = bucket.get(key).content
    except ObjectMissing as error:
        raise Corrupt(f"{where} is missing: somebody has deleted it", where, part.start) from error
    if len(content) != part.size:
        raise Corrupt(f"{where} has {len(content)} bytes instead of {part.size}", where, part.start)
    if part.checksum != NO_CHECKSUM and crc32c(content) != part.checksum:
        raise Corrupt(f"{where} is damaged: its checksum does not match", where, part.start)
    return content
