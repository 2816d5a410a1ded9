"""Sparse index of a segment: maps sequences and times to offsets, with entries only for data that is on disk.

An entry (sequence, offset, timestamp) means: all records before `sequence` are stored before `offset`, whole and
synced, and none of them is later than `timestamp`. So reading may start at any entry, and recovery may start at the
last one. The file is derived from the data: losing it costs time, never records.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast.base.checksum import crc32c
from holdfast.base.files import Files, read_file
from holdfast.log.layout import FORMAT_VERSION, HEADER_SIZE, SegmentHeader

__all__ = ["Checkpoint", "SparseIndex", "pack_entry", "pack_index_header"]

INDEX_MAGIC = b"HFIX"
# magic, version, pad, segment id, base sequence, created, pad, checksum
_HEADER = struct.Struct("<4sH2xQQq28xI")
# sequence, offset, timestamp, sealed, checksum
_ENTRY = struct.Struct("<QQqII")
_CRC = struct.Struct("<I")
ENTRY_SIZE = _ENTRY.size
assert _HEADER.size == HEADER_SIZE


class Checkpoint(NamedTuple):
    """An entry of the index."""

    sequence: int
    offset: int
    timestamp: int


def pack_index_header(header: SegmentHeader) -> bytes:
    """Return the 64 bytes that start an index; they repeat the segment's header, in case that is damaged."""
    raw = _HEADER.pack(INDEX_MAGIC, FORMAT_VERSION, header.segment_id, header.base, header.created, 0)
    return raw[:-4] + _CRC.pack(crc32c(raw[:-4]))


def pack_entry(entry: Checkpoint, *, sealed: bool = False) -> bytes:
    """Return the 32 bytes of an entry. A sealed one confirms those before it, which were synced before."""
    raw = _ENTRY.pack(*entry, sealed, 0)
    return raw[:-4] + _CRC.pack(crc32c(raw[:-4]))


class SparseIndex:
    """The checkpoints of one segment, ascending, in the format of the file. Only the log's writer adds to it.

    In the writer's memory it may be ahead of the file, where an entry is written after the sync of its records.

    If the last entry is sealed nothing else is parsed when the index is loaded, so that a large segment opens as fast
    as a small one; an entry's checksum is checked when it is used, and a damaged entry can only make a search start too
    early. After a crash the entries are checked one by one, and those behind a torn one are left out.
    """

    __slots__ = ("_learn", "_raw", "_unlearned", "header")

    def __init__(self, header: SegmentHeader | None = None, raw: bytes = b"") -> None:
        self.header = header
        """The header of its segment, without the log id; None if there is no readable index."""
        self._raw = bytearray(raw)
        self._learn: Callable[[int], Checkpoint | None] = lambda offset: None
        self._unlearned: set[int] = set()
        """The positions of entries of which only the offset is known."""

    @classmethod
    def of_offsets(
        cls, header: SegmentHeader, offsets: Iterable[int], learn: Callable[[int], Checkpoint | None]
    ) -> "SparseIndex":
        """Return an index of the blocks at these offsets, ascending.

        `learn` returns the entry of an offset, None if its block is damaged. It is called when a search first needs it:
        a search among n blocks reads log n of them.
        """
        index = cls(header, b"".join(pack_entry(Checkpoint(0, offset, 0)) for offset in offsets))
        index._learn, index._unlearned = learn, set(range(len(index)))
        return index

    @classmethod
    def load(cls, files: Files, path: Path) -> "SparseIndex":
        """Return the trustworthy entries of the file."""
        try:
            raw = read_file(files, path)
        except OSError:  # derived: without it a search takes longer
            return cls()
        if len(raw) < HEADER_SIZE or crc32c(raw[: HEADER_SIZE - 4]) != _CRC.unpack_from(raw, HEADER_SIZE - 4)[0]:
            return cls()
        magic, version, segment_id, base, created, _ = _HEADER.unpack_from(raw)
        if magic != INDEX_MAGIC or version != FORMAT_VERSION:
            return cls()
        index = cls(SegmentHeader(segment_id, bytes(16), base, created), raw[HEADER_SIZE:])
        count = len(index) if index.sealed else index._whole()
        del index._raw[count * ENTRY_SIZE :]
        return index

    def add(self, entry: Checkpoint) -> None:
        """Append an entry; ignore one that does not move forward."""
        last = self.last()
        if last is None or (entry.sequence > last.sequence and entry.offset > last.offset):
            self._raw += pack_entry(entry)

    def cut(self, offset: int) -> None:
        """Drop the entries beyond an offset of the segment."""
        del self._raw[bisect_right(range(len(self)), offset, key=partial(self._field, 1)) * ENTRY_SIZE :]

    @property
    def sealed(self) -> bool:
        """Whether the last entry is sealed, and so confirms all before it."""
        return len(self) > 0 and self.last() is not None and bool(self._field(3, len(self) - 1))

    def seal(self, entry: Checkpoint) -> int:
        """Make this the sealed last entry, in place of one for the same sequence; return its position."""
        last = self.last()
        position = len(self) - (last is not None and last.sequence == entry.sequence)
        self._raw[position * ENTRY_SIZE :] = pack_entry(entry, sealed=True)  # in one step: others may be searching
        return position

    def content(self) -> bytes:
        """Return the contents of the file."""
        assert self.header is not None
        return pack_index_header(self.header) + bytes(self._raw)

    def __len__(self) -> int:
        return len(self._raw) // ENTRY_SIZE

    def __getitem__(self, position: int) -> Checkpoint | None:
        """Return the entry, or None if it is damaged."""
        self._know(position)
        start = position * ENTRY_SIZE
        *fields, _sealed, crc = _ENTRY.unpack_from(self._raw, start)
        return Checkpoint(*fields) if crc == crc32c(bytes(self._raw[start : start + ENTRY_SIZE - 4])) else None

    def last(self) -> Checkpoint | None:
        """Return the last entry; None if there is none, or if it is damaged."""
        return self[len(self) - 1] if self._raw else None

    def at_or_before(self, sequence: int) -> Checkpoint | None:
        """Return the nearest entry from which `sequence` can be reached."""
        entry = self._nearest(bisect_right(range(len(self)), sequence, key=partial(self._field, 0)))
        return entry if entry is not None and entry.sequence <= sequence else None

    def at_or_before_offset(self, offset: int) -> Checkpoint | None:
        """Return the nearest entry at or before an offset: a block boundary."""
        entry = self._nearest(bisect_right(range(len(self)), offset, key=partial(self._field, 1)))
        return entry if entry is not None and entry.offset <= offset else None

    def after(self, sequence: int) -> Checkpoint | None:
        """Return the first entry behind `sequence`."""
        position = bisect_right(range(len(self)), sequence, key=partial(self._field, 0))
        return next((entry for at in range(position, len(self)) if (entry := self[at])), None)

    def before_time(self, timestamp: int) -> Checkpoint | None:
        """Return the nearest entry from which the first record at or after `timestamp` can be reached."""
        entry = self._nearest(bisect_left(range(len(self)), timestamp, key=partial(self._field, 2)))
        return entry if entry is not None and entry.timestamp < timestamp else None

    def _whole(self) -> int:
        """Return how many entries there are before the first that is damaged or does not move forward."""
        last = Checkpoint(-1, -1, 0)
        for position in range(len(self)):
            entry = self[position]
            if entry is None or entry.sequence <= last.sequence or entry.offset <= last.offset:
                return position
            last = entry
        return len(self)

    def _know(self, position: int) -> None:
        """Learn an entry of which only the offset is known. If its block is damaged, so is the entry from now on."""
        if position not in self._unlearned:
            return
        start = position * ENTRY_SIZE
        offset = self._field(1, position)
        entry = self._learn(offset)
        if entry is not None:
            self._raw[start : start + ENTRY_SIZE] = pack_entry(entry)
        else:  # searches compare with the entry before it, and its own checksum is wrong
            sequence, timestamp = (self._field(0, position - 1), self._field(2, position - 1)) if position else (0, 0)
            raw = pack_entry(Checkpoint(sequence, offset, timestamp))
            self._raw[start : start + ENTRY_SIZE] = raw[:-1] + bytes([raw[-1] ^ 1])
        self._unlearned.discard(position)

    def _field(self, field: int, position: int) -> int:
        if field != 1:
            self._know(position)
        value: int = _ENTRY.unpack_from(self._raw, position * ENTRY_SIZE)[field]
        return value

    def _nearest(self, position: int) -> Checkpoint | None:
        return self[position - 1] if position else None
