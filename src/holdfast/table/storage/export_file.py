"""File format of a table backup: checksummed frames, with their writer and reader.

A backup is `HFTBACK1` and then frames: `kind u8, codec u8, 2 bytes 0, stored length u32, plain length u32, CRC-32C of
all these and of the stored bytes u32`, and the bytes. Kinds: 1 the head (JSON: which table, its definition and
settings, the log and where in it this begins), 2 events (msgpack: a list of `[sequence, timestamp, key, payload]`), 3
the manifest (JSON: how many, up to where, and the SHA-256 of the plain bytes of all frames before it). The manifest is
written last, so that a truncated file is recognised.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from holdfast.base.checksum import crc32c
from holdfast.base.errors import Corrupt, InvalidArgument, NewerFormat, NotFound
from holdfast.base.files import File, Files, translate_os_errors, write_all
from holdfast.log.compression import codec_by_name, compress, decompress
from holdfast.table.storage.row_codec import decode_event

__all__ = ["BACKUP_FORMAT", "BackupEntry", "BackupReader", "BackupReport", "BackupWriter"]

BACKUP_FORMAT = 1
_MAGIC = b"HFTBACK1"
_FRAME = Struct("<BBxxII")
_CRC = Struct("<I")
_FRAME_HEAD = _FRAME.size + _CRC.size
_HEAD, _EVENTS, _MANIFEST = 1, 2, 3
_PLAIN_MAX = (1 << 32) - 1
_codec = codec_by_name("zstd")
_encode = msgspec.msgpack.Encoder().encode


class BackupEntry(NamedTuple):
    """An event as a backup has it."""

    sequence: int
    timestamp: int
    key: bytes
    payload: bytes


_entries = msgspec.msgpack.Decoder(list[BackupEntry])


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Content of a backup."""

    path: str
    table: str
    model_id: int
    log: str
    """The id of the log, in hex."""
    first: int
    """The sequence at which it begins: above the log's start, if it continues another backup."""
    stop: int
    """The sequence before which it ends; the next one begins here."""
    events: int
    missing: int
    """Events that were damaged in the log and left out; 0 unless that was allowed."""
    last_version: int
    """The highest version of its events."""
    bytes: int
    """The size of the file."""
    digest: str
    """SHA-256 of its plain content, in hex."""
    full: bool
    """Whether it begins where the log did, and can be restored without another one before it."""


class BackupWriter:
    """A backup that is written into an open, empty file."""

    def __init__(self, file: File, head: dict[str, Any]) -> None:
        self._file = file
        self._head = {"format": BACKUP_FORMAT, **head}
        self._digest = hashlib.sha256(_MAGIC)
        self._offset = len(_MAGIC)
        self._version = 0
        self.events = 0
        """The number of events that were written."""
        write_all(file, _MAGIC, 0)
        self._put(_HEAD, json.dumps(self._head, ensure_ascii=False).encode())

    def put(self, entries: list[BackupEntry]) -> None:
        """Write some events, in their order."""
        self._put(_EVENTS, _encode(entries))
        self.events += len(entries)
        self._version = max(self._version, *(decode_event(entry.payload).version for entry in entries))

    def finish(self, path: Path, stop: int) -> BackupReport:
        """Write the manifest, and sync the file that will be at `path`."""
        manifest = {
            "stop": stop,
            "events": self.events,
            "last_version": self._version,
            "digest": self._digest.hexdigest(),
        }
        self._put(_MANIFEST, json.dumps(manifest).encode())
        self._file.sync()
        return _report(path, self._head, manifest, self._offset)

    def _put(self, kind: int, plain: bytes) -> None:
        frame = _framed(kind, plain)
        self._digest.update(plain)
        write_all(self._file, frame, self._offset)
        self._offset += len(frame)


class BackupReader:
    """Reads a backup; its report comes from the manifest, which is read first."""

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        with self._opened() as file:
            if file.read(len(_MAGIC), 0) != _MAGIC:
                raise Corrupt(f"{str(path)!r} is not a backup of a table", str(path))
            kind, raw, at = self._frame(file, len(_MAGIC))
            self.head = self._json(raw, len(_MAGIC)) if kind == _HEAD else {}
            if self.head.get("format") != BACKUP_FORMAT:
                raise NewerFormat(
                    f"the format {self.head.get('format')!r} of the backup {str(path)!r} is newer: upgrade Holdfast"
                )
            self._start = at
            manifest, size = self._last(file, at), file.size()
        self._digest = manifest["digest"]
        try:
            self.report = _report(path, self.head, manifest, size)
        except (KeyError, TypeError) as error:
            raise self._broken(0, f"its head or manifest lacks {error}") from error
        self._head_raw = raw

    def batches(self) -> Iterator[list[BackupEntry]]:
        """Yield all events, checked; raises `Corrupt` at the first wrong byte, or at the end if one is missing."""
        digest = hashlib.sha256(_MAGIC)
        digest.update(self._head_raw)
        report, done, expected, version = self.report, 0, self.report.first, 0
        with self._opened() as file:
            at = self._start
            while True:
                begin = at
                kind, raw, at = self._frame(file, at)
                if kind != _EVENTS:
                    break
                digest.update(raw)
                entries = self._decoded(raw, begin)
                for entry in entries:
                    if entry.sequence < expected:
                        raise self._broken(begin, f"the event {entry.sequence} comes after {expected - 1}")
                    expected = entry.sequence + 1
                    version = max(version, decode_event(entry.payload).version)
                done += len(entries)
                yield entries
            if kind != _MANIFEST or at != file.size():
                raise self._broken(begin, "it does not end with its manifest")
        if digest.hexdigest() != self._digest or done != report.events or version != report.last_version:
            raise self._broken(0, f"it has {done} events but {report.events} were written, or their content differs")
        if expected > report.stop:
            raise self._broken(0, f"it has events beyond {report.stop}")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[File]:
        with translate_os_errors("reading the backup", self._path):
            try:
                file = self._files.open(self._path, "r")
            except FileNotFoundError as error:
                raise NotFound(f"there is no backup {str(self._path)!r}: check the path") from error
            with contextlib.closing(file):
                yield file

    def _frame(self, file: File, at: int) -> tuple[int, bytes, int]:
        """Return a frame's kind and plain bytes, and where the next one begins."""
        head = file.read(_FRAME_HEAD, at)
        if len(head) < _FRAME_HEAD:
            raise self._broken(at, "it is truncated")
        kind, codec, length, size = _FRAME.unpack_from(head)
        following = at + _FRAME_HEAD + length
        if following > file.size():
            raise self._broken(at, "it is truncated or damaged")
        stored = file.read(length, at + _FRAME_HEAD)
        if (crc32c(stored, crc32c(head[: _FRAME.size])),) != _CRC.unpack_from(head, _FRAME.size):
            raise self._broken(at, "the checksum does not match")
        return kind, decompress(codec, stored, size) if codec else stored, following

    def _last(self, file: File, at: int) -> dict[str, Any]:
        """Return the manifest: skips over the frames, of which only the last is read."""
        size = file.size()
        while True:
            head = file.read(_FRAME_HEAD, at)
            if len(head) < _FRAME_HEAD:
                raise self._broken(at, "it is truncated: its manifest is missing")
            kind, _, length, _ = _FRAME.unpack_from(head)
            following = at + _FRAME_HEAD + length
            if kind == _MANIFEST:
                if following != size:
                    raise self._broken(at, "it does not end with its manifest")
                return self._json(self._frame(file, at)[1], at)
            if kind != _EVENTS or following > size:
                raise self._broken(at, "it is truncated or damaged")
            at = following

    def _json(self, raw: bytes, at: int) -> dict[str, Any]:
        try:
            return dict(json.loads(raw))
        except (ValueError, TypeError) as error:
            raise self._broken(at, f"invalid JSON: {error}") from error

    def _decoded(self, raw: bytes, at: int) -> list[BackupEntry]:
        try:
            return _entries.decode(raw)
        except msgspec.DecodeError as error:
            raise self._broken(at, f"its events cannot be decoded: {error}") from error

    def _broken(self, at: int, why: str) -> Corrupt:
        return Corrupt(
            f"the backup {str(self._path)!r} is damaged (byte {at}): {why}. Use another one", str(self._path), at
        )


def _report(path: Path, head: dict[str, Any], manifest: dict[str, Any], size: int) -> BackupReport:
    return BackupReport(
        path=str(path),
        table=head["table"],
        model_id=head["id"],
        log=head["log"],
        first=head["first"],
        stop=manifest["stop"],
        events=manifest["events"],
        missing=manifest["stop"] - head["first"] - manifest["events"],
        last_version=manifest["last_version"],
        bytes=size,
        digest=manifest["digest"],
        full=head["full"],
    )


def _framed(kind: int, plain: bytes) -> bytes:
    assert _codec is not None
    packed = compress(_codec, plain)
    stored, codec = (plain, 0) if packed is None else (packed, _codec.id)
    if len(plain) > _PLAIN_MAX:
        raise InvalidArgument(f"an event of {len(plain)} bytes is too large for a backup")
    head = _FRAME.pack(kind, codec, len(stored), len(plain))
    return b"".join((head, _CRC.pack(crc32c(stored, crc32c(head))), stored))
