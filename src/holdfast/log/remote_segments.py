"""Segments of a log that are only in the bucket of the store's replica: `remote.json`, and where their parts are."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from holdfast.base.checked_json import read_checked, replace_checked
from holdfast.base.errors import Corrupt, NewerFormat, raised_by_handler
from holdfast.base.files import Files
from holdfast.log.index import Checkpoint, SparseIndex
from holdfast.log.layout import SegmentHeader
from holdfast.log.segment_files import SegmentName

__all__ = [
    "NO_CHECKSUM",
    "REMOTE",
    "UNKNOWN",
    "ListsRemote",
    "PartSource",
    "RemoteEntry",
    "RemoteLog",
    "RemotePart",
    "RemoteSource",
    "part_key",
    "read_remote",
    "write_remote",
]

REMOTE = "remote.json"
"""The file in the folder of a log that names its segments in the bucket. A segment that is on disk too is read there.
"""
_FORMAT = 1
NO_CHECKSUM = -1
UNKNOWN = -1
"""The sequence of a part whose first block was not read, or is damaged."""


class RemotePart(NamedTuple):
    """Bytes of a segment that are one object: whole blocks, at the same offsets as in the segment."""

    start: int
    stop: int
    checksum: int
    """CRC-32C; -1 if only the blocks in it have checksums."""
    epoch: int
    """The epoch of the owner that wrote the object."""
    sequence: int
    """The first record in it; -1 if its first bytes are damaged, or were not read yet."""
    timestamp: int
    """The time of that record: no earlier record is later."""

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """A whole segment in the bucket. Its parts follow each other from the first byte to the last."""

    name: SegmentName
    id: int
    base: int
    end: int
    created: int
    parts: tuple[RemotePart, ...]

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.parts[-1].stop

    def index(self) -> SparseIndex:
        """Return a sparse index with one entry for each part, so that a search fetches one part."""
        index = SparseIndex(SegmentHeader(self.id, bytes(16), self.base, self.created))
        for part in self.parts:
            if part.start and part.sequence != UNKNOWN:
                index.add(Checkpoint(part.sequence, part.start, part.timestamp))
        return index

    @property
    def is_unread(self) -> bool:
        """Whether it is not known of any part where its records begin, as in a manifest."""
        return len(self.parts) > 1 and all(part.sequence == UNKNOWN for part in self.parts)

    def encode(self) -> list[Any]:
        """Return the entry as JSON."""
        parts = [[part.stop, part.checksum, part.epoch, part.sequence, part.timestamp] for part in self.parts]
        return [self.name.stem, f"{self.id:016x}", self.base, self.end, self.created, parts]

    @classmethod
    def decode(cls, content: Sequence[Any]) -> "RemoteEntry":
        """Return the entry of a `remote.json`. Raises ValueError, KeyError or TypeError."""
        stem, segment_id, base, end, created, parts = content
        name = SegmentName.of_stem(stem)
        found, start = [], 0
        for stop, checksum, epoch, sequence, timestamp in parts:
            found.append(RemotePart(start, stop, checksum, epoch, sequence, timestamp))
            start = stop
        if not found:
            raise ValueError(f"the segment {stem} has no parts")
        return cls(name, int(segment_id, 16), base, end, created, tuple(found))


class PartSource(Protocol):
    """Where the parts of remote segments come from: a cache on the local disk, in front of a bucket. Threads: any."""

    def pinned(self, url: str, key: str, part: RemotePart) -> AbstractContextManager[memoryview]:
        """Return memory that has the bytes of a part at their offsets in the segment, until the context ends.

        The context must be short, and its thread must not enter another one meanwhile. Raises `Corrupt` if the object
        is missing or damaged, `ReplicaUnavailable` if the bucket does not answer, and `ReplicaError` if it cannot be
        used.
        """
        ...

    def first_block(self, url: str, key: str, part: RemotePart) -> Checkpoint | None:
        """Return where the records of a part begin, from the header of its first block; None if that is damaged.

        Fetches some bytes and not the part. Raises as `pinned` does.
        """
        ...


@runtime_checkable
class ListsRemote(Protocol):
    """Files that know the remote segments of a log without a `remote.json`: those of a manifest."""

    def remote_log(self, log: Path) -> "RemoteLog":
        """Return the remote segments of the log in a folder; the same object as long as nothing has changed."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteSource:
    """A remote segment, for the reader of that segment."""

    entry: RemoteEntry
    url: str
    prefix: str
    """The log in the bucket: its folder in the store, and its id."""
    source: PartSource | None

    def key(self, part: RemotePart) -> str:
        """Return the key of the object."""
        return part_key(self.prefix, self.entry.name.stem, f"{self.entry.id:016x}", part.start, part.stop, part.epoch)

    def where(self, part: RemotePart) -> str:
        """Return the address of the object, for messages."""
        return f"{self.url}/{self.key(part)}"

    def pinned(self, part: RemotePart) -> AbstractContextManager[memoryview]:
        """As `PartSource.pinned`."""
        assert self.source is not None, "a remote segment is read by someone who only wanted to know about it"
        return self.source.pinned(self.url, self.key(part), part)

    def index(self) -> SparseIndex:
        """Return a sparse index with one entry for each part; what is not known of a part is read when it is needed."""
        entry = self.entry
        if self.source is None or not entry.is_unread:
            return entry.index()
        parts = {part.start: part for part in entry.parts if part.start}
        return SparseIndex.of_offsets(
            SegmentHeader(entry.id, bytes(16), entry.base, entry.created), parts, lambda at: self._first_of(parts[at])
        )

    def first_of(self, part: RemotePart) -> int | None:
        """Return the sequence of the first record in a part; None if it is damaged."""
        if part.sequence != UNKNOWN:
            return part.sequence
        found = self._first_of(part)
        return None if found is None else found.sequence

    def _first_of(self, part: RemotePart) -> Checkpoint | None:
        assert self.source is not None
        return self.source.first_block(self.url, self.key(part), part)

    def part_at(self, offset: int) -> RemotePart:
        """Return the part that holds this byte, or the last one."""
        return next((part for part in self.entry.parts if offset < part.stop), self.entry.parts[-1])


@dataclass(frozen=True, slots=True)
class RemoteLog:
    """The contents of `remote.json`: the segments of a log that are whole in a bucket, oldest first."""

    url: str = ""
    log_id: str = ""
    entries: tuple[RemoteEntry, ...] = ()

    def source_of(self, entry: RemoteEntry, log: Path, source: PartSource | None) -> RemoteSource:
        """Return one segment for its reader; `log` is the folder of the log."""
        return RemoteSource(entry, self.url, f"{log.parent.name}/{log.name}/{self.log_id}", source)

    def find(self, segment_id: int) -> RemoteEntry | None:
        """Return the segment of this id."""
        return next((one for one in self.entries if one.id == segment_id), None)

    def with_entries(self, url: str, log_id: str, entries: Iterable[RemoteEntry]) -> "RemoteLog":
        """Return the same with more segments, which are all in the bucket at `url`."""
        known = {one.id: one for one in self.entries} | {one.id: one for one in entries}
        return RemoteLog(url, log_id, tuple(sorted(known.values(), key=lambda one: one.base)))

    def from_base(self, start: int) -> "RemoteLog":
        """Return the same without the segments that end at or before this sequence."""
        return replace(self, entries=tuple(one for one in self.entries if one.end > start))


def part_key(prefix: str, stem: str, segment_id: str, start: int, stop: int, epoch: int) -> str:
    """Return the key of a part in the bucket; `prefix` is the log's folder and id."""
    return f"{prefix}/{stem}-{segment_id}.{start}-{stop}.{epoch}"


def read_remote(files: Files, log: Path) -> RemoteLog:
    """Return the contents of `remote.json` in a log's folder; empty if there is none.

    Raises `Corrupt` if it is damaged: without it the log would seem to begin later, and its objects would be garbage.
    """
    if isinstance(files, ListsRemote):
        return files.remote_log(log)
    path = log / REMOTE
    try:
        content = read_checked(files, path)
        if content["format"] > _FORMAT:
            raise NewerFormat(f"{str(path)!r} was written by a newer Holdfast: update this one")
        entries = tuple(map(RemoteEntry.decode, content["segments"]))
        return RemoteLog(str(content["url"]), str(content["log"]), entries)
    except (FileNotFoundError, NotADirectoryError):
        return RemoteLog()
    except (ValueError, KeyError, TypeError) as error:
        if raised_by_handler(error):
            raise
        raise Corrupt(
            f"{str(path)!r}, which names the segments of the log that are only in the replica, is damaged ({error}): "
            "restore this file from a backup, or restore the newest moment of the replica into a new folder",
            str(path),
        ) from error


def write_remote(files: Files, log: Path, content: RemoteLog) -> None:
    """Write `remote.json`, durably. Raises OSError."""
    segments = [one.encode() for one in content.entries]
    replace_checked(
        files, log / REMOTE, {"format": _FORMAT, "url": content.url, "log": content.log_id, "segments": segments}
    )
