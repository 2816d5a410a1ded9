"""Where in a segment is a sequence or a time? Sparse checkpoints, written only for what is on disk already.

An entry (sequence, offset, timestamp) says: all records before `sequence` lie before `offset`, whole and synced, and
none of them is later than `timestamp`. So an entry is a place to start reading, and the last one is a place from which
recovery may start. The file is derived from the data: losing it costs time, never records.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import NamedTuple

from holdfast.base.checksum import crc32c
from holdfast.base.files import Files, read_file
from holdfast.log.layout import FORMAT_VERSION, HEADER_SIZE, SegmentHeader

__all__ = ["Checkpoint", "SparseIndex", "pack_entry", "pack_index_header"]

INDEX_MAGIC = b"HFIX"
# magic, version, pad, segment id, base sequence, created, pad, checksum
_HEADER = struct.Struct("<4sH2xQQq28xI")
_ENTRY = struct.Struct("<QQq4xI")
_CRC = struct.Struct("<I")
ENTRY_SIZE = _ENTRY.size
assert _HEADER.size == HEADER_SIZE


class Checkpoint(NamedTuple):
    """An entry of the index."""

    sequence: int
    offset: int
    timestamp: int


def pack_index_header(header: SegmentHeader) -> bytes:
    """The 64 bytes that start an index; they repeat what a damaged segment header would take with it."""
    raw = _HEADER.pack(INDEX_MAGIC, FORMAT_VERSION, header.segment_id, header.base, header.created, 0)
    return raw[:-4] + _CRC.pack(crc32c(raw[:-4]))


def pack_entry(entry: Checkpoint) -> bytes:
    """The 32 bytes of an entry."""
    raw = _ENTRY.pack(*entry, 0)
    return raw[:-4] + _CRC.pack(crc32c(raw[:-4]))


class SparseIndex:
    """The checkpoints of one segment, ascending. Only the log's writer adds to it."""

    __slots__ = ("base", "offsets", "segment_id", "sequences", "times")

    def __init__(self, segment_id: int | None = None, base: int | None = None) -> None:
        self.segment_id = segment_id
        self.base = base
        self.sequences = array("Q")
        self.offsets = array("Q")
        self.times = array("q")

    def add(self, entry: Checkpoint) -> None:
        """Append one; entries that do not move forward are dropped."""
        if self.sequences and (entry.sequence <= self.sequences[-1] or entry.offset <= self.offsets[-1]):
            return
        # The sequence goes last: a reader in another thread that finds it finds the rest too.
        self.offsets.append(entry.offset)
        self.times.append(entry.timestamp)
        self.sequences.append(entry.sequence)

    def last(self) -> Checkpoint | None:
        """The newest checkpoint."""
        return self[len(self.sequences) - 1] if self.sequences else None

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, position: int) -> Checkpoint:
        return Checkpoint(self.sequences[position], self.offsets[position], self.times[position])

    def at_or_before(self, sequence: int) -> Checkpoint | None:
        """The nearest place from which `sequence` can be reached."""
        position = bisect_right(self.sequences, sequence) - 1
        return self[position] if position >= 0 else None

    def before_time(self, timestamp: int) -> Checkpoint | None:
        """The nearest place from which the first record at or after `timestamp` can be reached."""
        position = bisect_left(self.times, timestamp, hi=len(self.sequences)) - 1
        return self[position] if position >= 0 else None

    @classmethod
    def load(cls, files: Files, path: Path) -> "SparseIndex":
        """What can be trusted of the file: it ends at the first entry that is torn, damaged or out of order."""
        try:
            raw = read_file(files, path)
        except FileNotFoundError:
            return cls()
        if len(raw) < HEADER_SIZE or crc32c(raw[: HEADER_SIZE - 4]) != _CRC.unpack_from(raw, HEADER_SIZE - 4)[0]:
            return cls()
        magic, version, segment_id, base, _created, _ = _HEADER.unpack_from(raw)
        if magic != INDEX_MAGIC or version != FORMAT_VERSION:
            return cls()
        index = cls(segment_id, base)
        for start in range(HEADER_SIZE, len(raw) - ENTRY_SIZE + 1, ENTRY_SIZE):
            *fields, crc = _ENTRY.unpack_from(raw, start)
            if crc != crc32c(raw[start : start + ENTRY_SIZE - 4]):
                break
            known = len(index)
            index.add(Checkpoint(*fields))
            if len(index) == known:
                break
        return index
