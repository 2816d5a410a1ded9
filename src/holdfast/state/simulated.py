"""State on a simulated disk: sorted in memory, and in one file that each synced commit replaces.

RocksDB can only write to the operating system's files; this one uses `holdfast.base.files`, where a test can stop the
machine at any operation. It is for small states: the cost of a commit is that of writing everything.

The file, little-endian: a header of `magic 4s, version u16, 2 zero bytes, length of the body u64, CRC-32C u32, 4 zero
bytes` (the CRC is over the header with zeros in its place, and the body), then for each family
`length of the name u16, name, count u32`, and for each of its records `length of the key u32, length of the value u32,
key, value`, ascending by key.
"""

import logging
import struct
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.checksum import crc32c
from holdfast.base.errors import (
    Closed,
    Corrupt,
    DiskFull,
    InvalidArgument,
    NewerFormat,
    ReadOnly,
    StorageError,
    WriterStopped,
)
from holdfast.base.files import Files, SystemFiles, read_file, replace_file, translate_os_errors
from holdfast.state.column_families import check_family
from holdfast.state.state import Layer, Reads, Transaction, check_reads

__all__ = ["MemoryState", "SimulatedState"]

logger = logging.getLogger("holdfast.state")

MAGIC = b"HFST"
VERSION = 1
_HEADER = struct.Struct("<4sH2xQI4x")
_NAME = struct.Struct("<H")
_COUNT = struct.Struct("<I")
_LENGTHS = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class _Family:
    """Sorted rows of one family. Immutable: a scan keeps using the one that it began with."""

    keys: list[bytes]
    values: dict[bytes, bytes]

    @classmethod
    def of(cls, values: dict[bytes, bytes]) -> "_Family":
        return cls(sorted(values), values)


_NOTHING = _Family([], {})
_Content = dict[str, _Family]


class SimulatedState:
    """A `State` in memory and in the one file `path`; empty if there is no file.

    Threads: all methods may be called from any; `_guard` is held during a commit. After a failure other than a full
    disk it accepts no more commits until `recover`, because it is unknown what the disk holds.
    """

    def __init__(
        self, files: Files, path: Path, read_only: bool = False, free_space: Callable[[], bool] = lambda: False
    ) -> None:
        self._free_space = free_space
        self.path = path
        self.read_only = read_only
        self._files = files
        self._guard = threading.Lock()
        self._closed = False
        self._stopped = ""
        self.generation = 0
        self._commits = 0
        self._unwritten = False
        """Whether there are commits in memory that are not in the file: those without a sync."""
        if not read_only:
            with translate_os_errors("opening the state", path):
                files.make_dirs(path.parent)
        self._content = self._read()

    def get(self, family: str, key: bytes) -> bytes | None:
        """As `State.get`."""
        return self._family(family).values.get(key)

    @property
    def commits(self) -> int:
        """As `State.commits`."""
        return self._commits

    def scan(
        self, family: str, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """As `State.scan`."""
        return self._records(self._family(family), start, stop, reverse)

    def first(self, family: str, start: bytes, stop: bytes, *, since: int = 0) -> tuple[bytes, bytes] | None:
        """As `State.first`."""
        return next(self._records(self._family(family), start, stop, False), None)

    def transaction(self) -> Transaction:
        """As `State.transaction`."""
        self._check_open()
        return Transaction(self)

    @property
    def stopped(self) -> str:
        """As `State.stopped`."""
        return self._stopped

    def recover(self) -> None:
        """As `State.recover`: from the file, which holds the last commit that is known to be on disk, or the next."""
        with self._guard:
            self._check_open()
            if self._stopped:
                self._content = self._read()
                self._stopped, self._unwritten = "", False
                self.generation += 1

    def close(self) -> None:
        """As `State.close`."""
        with self._guard:
            if self._unwritten and not self._stopped:
                try:
                    self._write(self._content)
                except StorageError as error:  # nothing is lost: commits without a sync can be rebuilt
                    logger.warning(
                        "state not written at closing: path=%s error=%s",
                        self.path,
                        error,
                        extra={"path": str(self.path)},
                    )
            self._closed = True
            self._content = {}

    def _records(
        self, family: _Family, start: bytes, stop: bytes | None, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        first = bisect_left(family.keys, start)
        last = len(family.keys) if stop is None else bisect_left(family.keys, stop)
        for position in range(last - 1, first - 1, -1) if reverse else range(first, last):
            self._check_open()
            key = family.keys[position]
            yield key, family.values[key]

    def apply(self, reads: Reads, layers: Sequence[Layer], sync: bool) -> None:
        """As `State.apply`."""
        with self._guard:
            check_reads(reads, self.get)
            self._check_open()
            if not layers:
                return
            if self.read_only:
                raise ReadOnly(
                    f"the state in {str(self.path)!r} is open read-only: open the store without read_only=True to write"
                )
            if self._stopped:
                raise WriterStopped(f"{self._stopped}. The state accepts no more commits until it is opened again")
            content = changed(self._content, layers)
            if sync:
                self._write(content)
            self._unwritten = not sync
            self._content = content
            self._commits += 1

    def _write(self, content: _Content) -> None:
        try:
            with translate_os_errors("writing the state", self.path):
                replace_file(self._files, self.path, _encode(content))
        except DiskFull:
            if not self._free_space():
                raise
            self._write(content)
        except StorageError as error:
            self._stopped = str(error)
            raise WriterStopped(f"{error}. The state accepts no more commits until it is opened again") from error

    def _read(self) -> _Content:
        with translate_os_errors("opening the state", self.path):
            try:
                raw = read_file(self._files, self.path)
            except FileNotFoundError:
                return {}
        return _decode(raw, self.path)

    def _family(self, family: str) -> _Family:
        self._check_open()
        check_family(family)
        return self._content.get(family, _NOTHING)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the state in {str(self.path)!r} is closed: open the store again")


def changed(content: _Content, layers: Sequence[Layer]) -> _Content:
    """Return the content after some changes; unchanged families are shared."""
    touched: dict[str, dict[bytes, bytes]] = {}

    def values_of(family: str) -> dict[bytes, bytes]:
        if family not in touched:
            touched[family] = dict(content.get(family, _NOTHING).values)
        return touched[family]

    for layer in layers:
        for family, ranges in layer.ranges.items():
            values = values_of(family)
            for start, stop in ranges:
                for key in [key for key in values if start <= key < stop]:
                    del values[key]
        for family, points in layer.points.items():
            _set_points(values_of(family), points)
    return content | {family: _Family.of(values) for family, values in touched.items()}


def _set_points(values: dict[bytes, bytes], points: Mapping[bytes, bytes | None]) -> None:
    for key, value in points.items():
        # As strict as RocksDB, so that tests find wrong types.
        if not isinstance(key, bytes) or not isinstance(value, bytes | None):
            raise InvalidArgument("keys and values of a state must be bytes")
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value


def _encode(content: _Content) -> bytes:
    parts: list[bytes] = []
    for name, family in sorted(content.items()):  # also one that only a later version knows
        parts += [_NAME.pack(len(name)), name.encode(), _COUNT.pack(len(family.keys))]
        for key in family.keys:
            value = family.values[key]
            parts += [_LENGTHS.pack(len(key), len(value)), key, value]
    body = b"".join(parts)
    return _header(VERSION, body) + body


def _header(version: int, body: bytes) -> bytes:
    checksum = crc32c(body, crc32c(_HEADER.pack(MAGIC, version, len(body), 0)))
    return _HEADER.pack(MAGIC, version, len(body), checksum)


def _decode(raw: bytes, path: Path) -> _Content:
    """Decode a file. The checksum covers everything."""
    if len(raw) < _HEADER.size or not raw.startswith(MAGIC):
        raise Corrupt(f"{str(path)!r} is not a state: it does not begin with {MAGIC!r}", str(path))
    _, version, length, _ = _HEADER.unpack_from(raw)
    body = raw[_HEADER.size :]
    if length != len(body) or raw[: _HEADER.size] != _header(version, body):
        raise Corrupt(f"the state in {str(path)!r} is damaged: its checksum does not match", str(path))
    if version > VERSION:  # after the checksum: a damaged version must not be reported as a newer one
        raise NewerFormat(f"{str(path)!r} has the format {version} of a newer Holdfast: update, or rebuild the state")
    content: _Content = {}
    offset = 0
    while offset < len(body):
        (size,) = _NAME.unpack_from(body, offset)
        offset += _NAME.size
        name = body[offset : offset + size].decode()
        offset += size
        (count,) = _COUNT.unpack_from(body, offset)
        offset += _COUNT.size
        values: dict[bytes, bytes] = {}
        for _ in range(count):
            key_size, value_size = _LENGTHS.unpack_from(body, offset)
            offset += _LENGTHS.size
            key = body[offset : offset + key_size]
            offset += key_size
            values[key] = body[offset : offset + value_size]
            offset += value_size
        content[name] = _Family(list(values), values)
    return content


class MemoryState(SimulatedState):
    """A `State` that is lost when it is closed."""

    def __init__(self) -> None:
        self.path = Path("memory")
        self.read_only = False
        self._files = SystemFiles()
        self._guard = threading.Lock()
        self._closed = False
        self._stopped = ""
        self.generation = 0
        self._content = {}
        self._commits = 0
        self._unwritten = False

    def apply(self, reads: Reads, layers: Sequence[Layer], sync: bool) -> None:
        """As `State.apply`."""
        with self._guard:
            check_reads(reads, self.get)
            self._content = changed(self._content, layers)
            self._commits += 1
