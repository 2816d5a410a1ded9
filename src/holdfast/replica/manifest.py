"""Manifests: what a bucket holds of a store at one moment, immutable, numbered, compressed and with a checksum."""

import json
import logging
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checksum import crc32c
from holdfast.base.errors import Corrupt, InvalidArgument, NewerFormat
from holdfast.log.remote_segments import part_key

__all__ = [
    "MANIFESTS",
    "LogEntry",
    "Manifest",
    "Moment",
    "Part",
    "SegmentEntry",
    "list_moments",
    "read_manifest",
    "read_newest_manifest",
]

logger = logging.getLogger("holdfast.replica")

MANIFESTS = "manifest/"
FORMAT = 2
"""Format 2 has parts inside the manifest. A manifest without such parts is written in format 1."""
_PLAIN = 1
_KEY = re.compile(r"manifest/(\d{10})-(\d{12})-(\d{19})\Z")
_NAME = re.compile(r"(\d+)-(\d+)\Z")
_FRAME = re.compile(rb'\{"format":(\d+),"checksum":"([0-9a-f]{8})","manifest":(.*)\}\n\Z', re.DOTALL)
_LEVEL = 1


class Moment(NamedTuple):
    """A moment of a store in a bucket. Moments are ordered by epoch, then by number; the last one counts."""

    epoch: int
    number: int
    time: int
    """Nanoseconds since 1970, by the clock of the owner."""

    @property
    def name(self) -> str:
        """The name that people use: `EPOCH-NUMBER`."""
        return f"{self.epoch}-{self.number}"

    @property
    def key(self) -> str:
        """The key of its manifest. It contains the time, so that one listing finds the moment of a time."""
        return f"{MANIFESTS}{self.epoch:010}-{self.number:012}-{self.time:019}"

    @classmethod
    def of_key(cls, key: str) -> "Moment | None":
        """Return the moment of a manifest; None if this is not the key of one."""
        found = _KEY.match(key)
        return None if found is None else cls(int(found[1]), int(found[2]), int(found[3]))

    @staticmethod
    def parse(text: str) -> tuple[int, int]:
        """Return epoch and number of a moment's name."""
        found = _NAME.match(text)
        if found is None:
            raise InvalidArgument(f"{text!r} is not the name of a moment: use EPOCH-NUMBER, such as 3-1042")
        return int(found[1]), int(found[2])


class Part(NamedTuple):
    """Bytes of a segment that are one object. Parts begin and end where blocks do."""

    start: int
    stop: int
    checksum: int
    """CRC-32C."""
    epoch: int
    """The epoch of the owner that wrote it, which is part of its key: an owner never writes an object of another."""
    inline: bytes | None = None
    """Its content, if that is in the manifest and not in an object of its own. Only of the last part of a segment."""

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment, or the part of it that is in the bucket: its parts follow each other from the first byte."""

    name: str
    """Its path in the folder of the log, without a suffix: `2026/11/15/20261115-0001`."""
    id: str
    base: int
    created: int
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """How many of its bytes are in the bucket."""
        return self.parts[-1].stop if self.parts else 0


@dataclass(frozen=True)
class LogEntry:
    """A log: of messages, of a queue's journal, of a table or of the transactions."""

    folder: str
    """As in the store: `logs/<folder>`, `journals/<folder>`, `tables/<folder>` or `transactions`."""
    id: str
    start: int
    """The first sequence that is kept."""
    end: int
    """The sequence after the last record."""
    last_timestamp: int
    segments: tuple[SegmentEntry, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """Its small files, such as `log.json`, by their path in the folder."""

    @property
    def size(self) -> int:
        """The bytes of its segments."""
        return sum(segment.size for segment in self.segments)

    def key(self, segment: SegmentEntry, part: Part) -> str:
        """Return the key of a part."""
        name = PurePosixPath(segment.name).name
        return part_key(f"{self.folder}/{self.id}", name, segment.id, part.start, part.stop, part.epoch)

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Yield each part with its key; also those that are in the manifest, which have no object of that key."""
        for segment in self.segments:
            for part in segment.parts:
                yield self.key(segment, part), part

    def keys(self) -> Iterator[str]:
        """Yield the keys of the parts that are objects."""
        for key, part in self.parts():
            if part.inline is None:
                yield key

    @property
    def inlined(self) -> Iterator[bytes]:
        """The contents of the parts that are in the manifest, in order."""
        for segment in self.segments:
            for part in segment.parts[-1:]:
                if part.inline is not None:
                    yield part.inline

    @cached_property
    def encoded(self) -> bytes:
        """The entry as JSON; computed once, because most entries are the same in the next manifest."""
        segments = [
            [one.name, one.id, one.base, one.created, list(map(_encoded_part, one.parts))] for one in self.segments
        ]
        content = {
            "folder": self.folder,
            "id": self.id,
            "start": self.start,
            "end": self.end,
            "last_timestamp": self.last_timestamp,
            "segments": segments,
            "files": dict(sorted(self.files.items())),
        }
        return _json(content)

    @classmethod
    def decode(cls, content: Mapping[str, Any], inlined: "_Inlined") -> "LogEntry":
        """Return the entry of a manifest, and take the contents of its inline parts."""
        return cls(
            _checked_path(content["folder"]),
            content["id"],
            content["start"],
            content["end"],
            content["last_timestamp"],
            tuple(
                SegmentEntry(_checked_path(name), segment_id, base, created, tuple(_parts(parts, inlined)))
                for name, segment_id, base, created, parts in content["segments"]
            ),
            {_checked_path(path): text for path, text in content["files"].items()},
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """All logs of a store, of one consistent cut, and its other small files."""

    store: str
    """The id of the store."""
    moment: Moment
    version: str
    """The version of Holdfast that wrote it."""
    mode: str
    """The mode of the store's folder, in octal digits; empty if it is not known."""
    logs: tuple[LogEntry, ...]
    files: Mapping[str, str]

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(log.size for log in self.logs)

    @property
    def digest(self) -> str:
        """A digest of all logs, without the time of the moment."""
        found = blake2b(digest_size=16)
        for log in self.logs:
            found.update(log.encoded)
        return found.hexdigest()

    def keys(self) -> Iterator[str]:
        """Yield the keys of all parts that are objects."""
        for log in self.logs:
            yield from log.keys()

    def encode(self) -> bytes:
        """Return the content of the object."""
        head = {
            "store": self.store,
            "epoch": self.moment.epoch,
            "number": self.moment.number,
            "time": self.moment.time,
            "version": self.version,
            "mode": self.mode,
            "files": dict(sorted(self.files.items())),
        }
        body = b'%s,"logs":[%s]}' % (_json(head)[:-1], b",".join(log.encoded for log in self.logs))
        inlined = b"".join(content for log in self.logs for content in log.inlined)
        version = FORMAT if inlined else _PLAIN
        framed = b'{"format":%d,"checksum":"%08x","manifest":%s}\n' % (version, crc32c(body), body)
        return zlib.compress(framed, _LEVEL) + inlined  # not compressed: payloads often are already

    @classmethod
    def decode(cls, raw: bytes, where: str) -> "Manifest":
        """Return the manifest in an object at `where`. Raises `Corrupt` or `NewerFormat`."""
        try:
            inflater = zlib.decompressobj()
            frame = _FRAME.match(inflater.decompress(raw))
        except zlib.error:
            frame = None
        if frame is None or f"{crc32c(frame[3]):08x}".encode() != frame[2]:
            raise Corrupt(f"the manifest {where} is damaged: use another moment", where)
        if int(frame[1]) > FORMAT:
            raise NewerFormat(f"the manifest {where} was written by a newer Holdfast: update this one")
        content, inlined = json.loads(frame[3]), _Inlined(inflater.unused_data)
        return cls(
            content["store"],
            Moment(content["epoch"], content["number"], content["time"]),
            content["version"],
            content["mode"],
            tuple(LogEntry.decode(log, inlined) for log in content["logs"]),
            {_checked_path(path): text for path, text in content["files"].items()},
        )


def list_moments(bucket: Bucket) -> list[Moment]:
    """Return the moments in a bucket, the oldest first."""
    return sorted(moment for one in bucket.list(MANIFESTS) if (moment := Moment.of_key(one.key)) is not None)


def read_manifest(bucket: Bucket, moment: Moment) -> Manifest:
    """Return the manifest of a moment. Raises `ObjectMissing`, `Corrupt` or `NewerFormat`."""
    where = f"{bucket.url}/{moment.key}"
    manifest = Manifest.decode(bucket.get(moment.key).content, where)
    if manifest.moment != moment:
        raise Corrupt(f"the manifest {where} is one of the moment {manifest.moment.name}: use another moment", where)
    return manifest


def read_newest_manifest(
    bucket: Bucket, noted: str, counts: Callable[[Moment], bool] = lambda moment: True
) -> Manifest | None:
    """Return the newest manifest: of the listing, or the one of this key, if the listing lags; None if there is none.

    Only moments that count. One that cannot be read is passed over: what only it names is uploaded again.
    """
    moment = Moment.of_key(noted)
    moments = {*list_moments(bucket), *([moment] if moment is not None else [])}
    for one in sorted(filter(counts, moments), reverse=True):
        try:
            return read_manifest(bucket, one)
        except (Corrupt, ObjectMissing) as error:
            logger.error("moment cannot be read, using an earlier one: url=%s error=%s", bucket.url, error)
    return None


class _Inlined:
    """The contents of inline parts, behind the compressed manifest, one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._offset = 0

    def take(self, size: int) -> bytes:
        """Return the next one, shorter if the object is: its checksum tells."""
        self._offset += size
        return self._content[self._offset - size : self._offset]


def _encoded_part(part: Part) -> list[int]:
    return [part.stop, part.checksum, part.epoch, *([1] if part.inline is not None else [])]


def _parts(parts: Iterable[list[int]], inlined: _Inlined) -> Iterator[Part]:
    start = 0
    for stop, checksum, epoch, *is_inline in parts:
        yield Part(start, stop, checksum, epoch, inlined.take(stop - start) if any(is_inline) else None)
        start = stop


def _checked_path(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise Corrupt(f"a manifest names {path!r}, which is outside of the store: it was not written by Holdfast", path)
    return path


def _json(content: Mapping[str, Any]) -> bytes:
    # In ASCII: bytes of a damaged file that are not UTF-8 are kept as surrogates.
    return json.dumps(content, separators=(",", ":")).encode()
