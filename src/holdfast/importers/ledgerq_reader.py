"""Reader of LedgerQ folders: message by message, past any damage; it never writes to them.

A folder holds segments `%020d.log` (and their `.idx`, which are not needed), `metadata.dat`, `.retry_state.json` and
`.dedup_state.json`; a dead letter queue is another such folder. All numbers are little-endian, all checksums CRC-32C.
LedgerQ should not be running meanwhile: messages that it writes after the opening are not read.
"""

import contextlib
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from holdfast.base.checksum import crc32c
from holdfast.base.clock import instant_ns
from holdfast.base.errors import Corrupt, NotFound
from holdfast.base.files import Buffer, Files, SystemFiles, forget, read_file, translate_os_errors
from holdfast.log.compression import codec_by_id, decompress

__all__ = [
    "Dedup",
    "Entry",
    "LedgerQFolder",
    "Metadata",
    "Report",
    "Retry",
    "gunzip",
    "parse_dedups",
    "parse_entry",
    "parse_metadata",
    "parse_retries",
    "read_ledgerq",
    "walk",
    "whole_entry",
]

_SEGMENT_NAME = re.compile(r"[0-9]{1,20}\.log")
_SEGMENT_HEADER = struct.Struct("<IHHQqQQ20xI")  # magic, version, flags, base, created, min id, max id, checksum
_SEGMENT_MAGIC = 0x4C445151
_METADATA = struct.Struct("<IQQ4x")  # version, next id, read id
_VERSION = 1
_ENTRY_HEAD = struct.Struct("<IBBQq")  # length, type, flags, id, timestamp
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_CHECKSUM_SIZE = 4
_PAD = 4  # four zero bytes follow each entry; its length does not count them
_LENGTH_MIN = _ENTRY_HEAD.size + _CHECKSUM_SIZE
_DATA, _TOMBSTONE, _CHECKPOINT = 1, 2, 3
_COMPRESSED, _TTL, _HEADERS, _PRIORITY = 1, 4, 8, 16
_UNREADABLE = ~(_COMPRESSED | _TTL | _HEADERS | _PRIORITY)
_STORED, _GZIPPED = 0, 1
_OUR_GZIP = next(codec.id for codec in codec_by_id.values() if codec.name == "gzip")
_FIRST_ID = 1
_ID_MAX = (1 << 48) - 1
# A type, flags and an id below 2^48: the head of an entry behind its length. A regular expression searches 100 MB of
# payload in half a second; a loop over the bytes would take half a minute.
_PLAUSIBLE = re.compile(rb"[\x01-\x03][\x00-\x1f].{6}\x00\x00", re.DOTALL)
_FORGET_EVERY = 32 << 20

Report = Callable[[str], None]
"""Called with a description of what is skipped, and why; reading continues behind it."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a message failed, and its last failure."""

    message_id: int
    attempts: int
    failed: int | None = None
    """When it failed last, in nanoseconds since 1970."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Dedup:
    """A deduplication id that LedgerQ has saved, as a digest."""

    digest: str
    """SHA-256 of the user's id, in hexadecimal."""
    message_id: int
    enqueued: int
    expires: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """The contents of `metadata.dat`."""

    next_id: int
    read_id: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One message. Times are in nanoseconds since 1970."""

    id: int
    timestamp: int
    payload: bytes
    """The decompressed payload, if the entry is marked as compressed."""
    headers: dict[str, str | bytes]
    """As on disk, `dlq.*` included. A value that is not UTF-8 is bytes; in a name, such bytes become `\\xNN`."""
    priority: int | None = None
    """0 low, 1 medium, 2 high. LedgerQ stores no 0, so None and 0 mean the same."""
    expires: int | None = None
    attempts: int = 0
    reason: str | None = None
    failed: int | None = None
    origin: int | None = None
    """The id of a dead letter in the queue where it failed."""

    @property
    def still_compressed(self) -> bool:
        """Whether this may be a dead letter that LedgerQ moved in its compressed form without marking it.

        Its sender may as well have sent gzip: only the queue's entry `origin` tells. `gunzip` decompresses it.
        """
        return self.origin is not None and self.payload.startswith(b"\x1f\x8b\x08")


_NO_RETRIES: Mapping[int, Retry] = MappingProxyType({})
_NEVER_FAILED = Retry(0, 0)


def gunzip(data: bytes) -> bytes:
    """Return the decompressed bytes of one gzip member, at most 100 MiB. Raises `Corrupt`."""
    size = int.from_bytes(data[-4:], "little")  # gzip ends with the decompressed length
    return decompress(_OUR_GZIP, data, size)


def whole_entry(memory: Buffer, offset: int) -> int:
    """Return the length of the undamaged entry at an offset, without its padding; 0 if there is none."""
    bytes_left = len(memory) - offset
    if bytes_left < _LENGTH_MIN:
        return 0
    length: int = _U32.unpack_from(memory, offset)[0]
    if not _LENGTH_MIN <= length <= bytes_left:
        return 0
    end = offset + length - _CHECKSUM_SIZE
    return length if crc32c(memory[offset:end]) == _U32.unpack_from(memory, end)[0] else 0


def walk(memory: Buffer, report: Report) -> Iterator[tuple[int, int]]:
    """Yield the offset and length of each undamaged entry of a segment, of any type."""
    ceiling = _highest_id(memory, report)
    if ceiling is None:
        return
    offset, last = _SEGMENT_HEADER.size, 0
    while offset < len(memory):
        if length := whole_entry(memory, offset):
            yield offset, length
            last = _ENTRY_HEAD.unpack_from(memory, offset)[3]
            offset += length + _PAD
            continue
        behind = _next_entry(memory, offset, last, ceiling)
        if behind is None:
            report(f"the last {len(memory) - offset} bytes, from byte {offset} on, are a torn tail and were skipped")
            return
        report(f"{behind - offset} bytes from byte {offset} on are damaged and were skipped")
        offset = behind


def _highest_id(memory: Buffer, report: Report) -> int | None:
    """Return the highest id that a segment's header allows; None if the segment cannot be read at all."""
    if len(memory) < _SEGMENT_HEADER.size:
        report(f"it ends inside its header, after {len(memory)} bytes")
        return None
    magic, version, _, _, _, lowest, highest, checksum = _SEGMENT_HEADER.unpack_from(memory)
    if crc32c(memory[: _SEGMENT_HEADER.size - _CHECKSUM_SIZE]) != checksum:
        report("its header is damaged; its entries were still read")
        return _ID_MAX
    if magic != _SEGMENT_MAGIC or version != _VERSION:
        report(f"it is not a segment of version {_VERSION} (magic {magic:#x}, version {version}) and was skipped")
        return None
    # LedgerQ writes the ids when it closes a segment: after a crash they are 0.
    return highest if 0 < lowest <= highest else _ID_MAX


def _next_entry(memory: Buffer, damaged: int, last: int, ceiling: int) -> int | None:
    """Return the offset at which the entries continue behind a damaged one; None if there are no more.

    If its length still points to an undamaged entry, the bytes between are its payload, even if they contain a LedgerQ
    entry. The exception: if entries between end exactly at the one it points to, the length is damaged, and they are
    real.
    """
    follower = None
    if len(memory) - damaged >= _U32.size:
        claimed = damaged + _U32.unpack_from(memory, damaged)[0] + _PAD
        follower = claimed if whole_entry(memory, claimed) else None
    at = damaged + 1
    while (candidate := _plausible_entry(memory, at, last, ceiling)) is not None:
        if follower is None:
            return candidate
        if candidate >= follower:
            break
        at = _chain_end(memory, candidate, follower)
        if at == follower:
            return candidate
    return follower


def _plausible_entry(memory: Buffer, at: int, last: int, ceiling: int) -> int | None:
    at += _U32.size
    while match := _PLAUSIBLE.search(memory, at):
        offset = match.start() - _U32.size
        # Ids only grow within a segment. Checked first: it avoids the checksum for nearly all false matches.
        if last < int.from_bytes(match[0][2:], "little") <= ceiling and whole_entry(memory, offset):
            return offset
        at = match.start() + 1
    return None


def _chain_end(memory: Buffer, offset: int, stop: int) -> int:
    while offset < stop and (length := whole_entry(memory, offset)):
        offset += length + _PAD
    return offset


def parse_entry(raw: Buffer, retries: Mapping[int, Retry] = _NO_RETRIES) -> Entry:
    """Return the message in the bytes of an undamaged data entry; raise `Corrupt` if its fields are invalid."""
    _, _, flags, message_id, timestamp = _ENTRY_HEAD.unpack_from(raw)
    if unknown := flags & _UNREADABLE:
        raise Corrupt(f"it is encrypted or of a newer format (flags {unknown:#x})")
    body = memoryview(raw)[_ENTRY_HEAD.size : -_CHECKSUM_SIZE]
    at = 0
    priority: int | None = None
    expires: int | None = None
    headers: dict[str, str | bytes] = {}
    compression = _STORED
    try:
        if flags & _PRIORITY:
            priority, at = body[at], at + 1
        if flags & _TTL:
            expires, at = _I64.unpack_from(body, at)[0], at + _I64.size
        if flags & _HEADERS:
            headers, at = _parse_headers(body, at)
        if flags & _COMPRESSED:
            compression, at = body[at], at + 1
    except (IndexError, struct.error) as error:
        raise Corrupt("its fields are longer than the entry") from error
    payload = bytes(body[at:])
    if compression == _GZIPPED:
        payload = gunzip(payload)
    elif compression != _STORED:
        raise Corrupt(f"its compression {compression} is unknown")
    origin = _number(headers.get("dlq.original_msg_id"))
    retry = _dead_letter(origin, headers) if origin is not None else retries.get(message_id, _NEVER_FAILED)
    return Entry(
        message_id, timestamp, payload, headers, priority, expires, retry.attempts, retry.reason, retry.failed, origin
    )


def _parse_headers(body: memoryview, at: int) -> tuple[dict[str, str | bytes], int]:
    headers: dict[str, str | bytes] = {}
    (count,) = _U16.unpack_from(body, at)
    at += _U16.size
    for _ in range(count):
        name, at = _sized(body, at)
        value, at = _sized(body, at)
        try:
            headers[name.decode(errors="backslashreplace")] = value.decode()
        except UnicodeDecodeError:
            headers[name.decode(errors="backslashreplace")] = value
    return headers, at


def _sized(body: memoryview, at: int) -> tuple[bytes, int]:
    start = at + _U16.size
    end = start + _U16.unpack_from(body, at)[0]
    if end > len(body):
        raise Corrupt("a header is longer than the entry")
    return bytes(body[start:end]), end


def _dead_letter(origin: int, headers: Mapping[str, str | bytes]) -> Retry:
    reason = headers.get("dlq.failure_reason")
    return Retry(
        origin,
        _number(headers.get("dlq.retry_count")) or 0,
        _time_ns(headers.get("dlq.last_failure")),
        reason if isinstance(reason, str) else None,
    )


def _number(value: str | bytes | None) -> int | None:
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,20}", value) else None


def _time_ns(value: object) -> int | None:
    """Return Go's RFC 3339 time in nanoseconds; None if it is not a time."""
    match = re.fullmatch(r"([^.]+?)(?:\.([0-9]{1,9}))?(Z|[+-][0-9:]+)", value) if isinstance(value, str) else None
    if match is None:
        return None
    seconds, fraction, zone = match.groups(default="")
    try:
        # datetime has only microseconds, so the fraction is added separately.
        return instant_ns(datetime.fromisoformat(seconds + zone), "time") + int(fraction.ljust(9, "0"))
    except ValueError:
        return None


def parse_metadata(data: bytes) -> Metadata:
    """Return the contents of `metadata.dat`. Raises `Corrupt`."""
    if len(data) < _METADATA.size:
        raise Corrupt(f"it has {len(data)} bytes instead of {_METADATA.size}")
    version, next_id, read_id = _METADATA.unpack_from(data)
    if version != _VERSION:
        raise Corrupt(f"its version {version} is unknown")
    if not _FIRST_ID <= read_id <= next_id:
        raise Corrupt(f"its next id to read, {read_id}, is not between {_FIRST_ID} and its next id to write, {next_id}")
    return Metadata(next_id, read_id)


def parse_retries(data: bytes, report: Report) -> dict[int, Retry]:
    """Return the messages in `.retry_state.json` by id. Raises `Corrupt` if it is not such a file."""
    found = {}
    for entry in _state_entries(data):
        try:
            message_id = _field(entry, "msg_id", int)
            attempts = _field(entry, "retry_count", int)
        except Corrupt as error:
            report(str(error))
            continue
        reason = entry.get("failure_reason")  # LedgerQ omits it if it is empty
        failed = _time_ns(entry.get("last_failure"))
        found[message_id] = Retry(message_id, attempts, failed, reason if isinstance(reason, str) else None)
    return found


def parse_dedups(data: bytes, report: Report) -> list[Dedup]:
    """Return the ids in `.dedup_state.json` by the order of their messages. Raises `Corrupt` if it is another file."""
    found = []
    for entry in _state_entries(data):
        try:
            digest, message_id = _field(entry, "dedup_id", str), _field(entry, "message_id", int)
            found.append(Dedup(digest, message_id, _field(entry, "enqueued_at", int), _field(entry, "expires_at", int)))
        except Corrupt as error:
            report(str(error))
    return sorted(found, key=lambda dedup: (dedup.message_id, dedup.digest))


def _state_entries(data: bytes) -> list[dict[str, object]]:
    try:
        state = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"it is not JSON: {error}") from error
    entries = state.get("entries") if isinstance(state, dict) and state.get("version") == _VERSION else None
    if not isinstance(entries, list):
        raise Corrupt(f"it is not a state of version {_VERSION}")
    return [entry if isinstance(entry, dict) else {} for entry in entries]


def _field(entry: Mapping[str, object], name: str, kind: type[_T]) -> _T:
    value = entry.get(name)
    if not isinstance(value, kind):
        raise Corrupt(f"an entry was skipped, because its {name} is not of the type {kind.__name__}")
    return value


class LedgerQFolder:
    """A LedgerQ folder as it was when it was opened.

    For one thread. Memory: one message, and the pages of the segment's mapping that were read last.
    """

    def __init__(self, files: Files, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        """Data that could not be read, with the reason, in the order of reading; it grows while `entries` is read."""
        self.bytes_read = 0
        self._files = files
        self._last_id = 0
        self._segments: list[tuple[Path, int]] = []
        with translate_os_errors("reading", folder):
            names = files.list(folder)
            for name in sorted(filter(_SEGMENT_NAME.fullmatch, names), key=lambda name: int(name.removesuffix(".log"))):
                with contextlib.closing(files.open(folder / name, "r")) as file:
                    self._segments.append((folder / name, file.size()))
        if not self._segments and "metadata.dat" not in names:
            raise NotFound(f"{str(folder)!r} is not a LedgerQ folder: it has neither a segment nor metadata.dat")
        self.total_bytes = sum(size for _, size in self._segments)
        """The size of all segments; `bytes_read` reaches it when `entries` ends."""
        self.metadata = self._load("metadata.dat", lambda data, _: parse_metadata(data))
        """The positions that LedgerQ saved, if they can be read."""
        if self.metadata is None:
            self.problems.append("metadata.dat: it is missing or damaged, so reading begins with the first message")
        self.retries = self._load(".retry_state.json", parse_retries) or {}
        """Failures by message id. These are before `read_id`, but unacknowledged: LedgerQ never redelivers."""
        self.dedups = self._load(".dedup_state.json", parse_dedups) or []
        """The saved deduplication ids, also expired ones. LedgerQ saves them only when it is closed."""
        self.entries: Iterator[Entry] = self._read()
        """The messages in the order of writing, which is that of their ids. Can be read once."""

    @property
    def read_id(self) -> int:
        """The id that LedgerQ would deliver next; the first possible one if that is unknown."""
        return self.metadata.read_id if self.metadata else _FIRST_ID

    @property
    def next_id(self) -> int:
        """The id that LedgerQ would assign next, as far as it is known: metadata.dat may be behind the segments."""
        return max(self.metadata.next_id if self.metadata else _FIRST_ID, self._last_id + 1)

    def _load(self, name: str, parse: Callable[[bytes, Report], _T]) -> _T | None:
        path = self.folder / name
        if not self._files.exists(path):  # LedgerQ writes a state only if its feature is in use
            return None
        with translate_os_errors("reading", path):
            data = read_file(self._files, path)
        try:
            return parse(data, self._report(name))
        except Corrupt as error:
            self.problems.append(f"{name}: {error}; it was ignored")
            return None

    def _report(self, name: str) -> Report:
        return lambda problem: self.problems.append(f"{name}: {problem}")

    def _read(self) -> Iterator[Entry]:
        began = 0
        for path, size in self._segments:
            for entry, end in self._segment_entries(path, size):
                self.bytes_read = began + end
                yield entry
            began += size
            self.bytes_read = began

    def _segment_entries(self, path: Path, size: int) -> Iterator[tuple[Entry, int]]:
        report = self._report(path.name)
        if not self._files.exists(path):
            report("it was removed before it was read: stop LedgerQ, and import again")
            return
        memory = self._map(path, size)
        passed = reused = 0
        for offset, length in walk(memory, report):
            if offset - passed > _FORGET_EVERY:
                forget(memory, passed, offset)
                passed = offset
            _, kind, _, message_id, _ = _ENTRY_HEAD.unpack_from(memory, offset)
            if kind in (_TOMBSTONE, _CHECKPOINT):
                continue
            if kind != _DATA:
                report(f"the entry at byte {offset} is of the unknown type {kind} and was skipped")
                continue
            reused += message_id <= self._last_id
            self._last_id = max(self._last_id, message_id)
            try:
                entry = parse_entry(memory[offset : offset + length], self.retries)
            except Corrupt as error:
                report(f"message {message_id} at byte {offset} cannot be read: {error}")
            else:
                yield entry, offset + length
        if reused:
            report(f"{reused} messages have ids that were used before, because two processes wrote; all were read")

    def _map(self, path: Path, size: int) -> memoryview:
        with translate_os_errors("reading", path), contextlib.closing(self._files.open(path, "r")) as file:
            return file.map(min(size, file.size()))


def read_ledgerq(folder: Path, files: Files | None = None) -> LedgerQFolder:
    """Open a folder for reading. Raises `NotFound` if it is not a LedgerQ folder."""
    return LedgerQFolder(files or SystemFiles(), folder)
