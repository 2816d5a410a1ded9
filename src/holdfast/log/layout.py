"""Binary layout of segments and blocks, format version 1: headers, columns and checksums. See docs/formats.md."""

import struct
import sys
from functools import partial
from typing import Any, NamedTuple, cast

from holdfast.base.checksum import crc32c
from holdfast.base.errors import NewerFormat

__all__ = [
    "ALIGN",
    "BLOCK_MAGIC",
    "BLOCK_MAX",
    "CODEC_SHIFT",
    "COLUMNS",
    "FORMAT_VERSION",
    "HEADER_SIZE",
    "PADDING",
    "BlockHeader",
    "Column",
    "EncodedBlock",
    "SegmentHeader",
    "aligned",
    "find_block",
    "frame",
    "pack_block_header",
    "pack_segment_header",
    "parse_block_header",
    "parse_segment_header",
]

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("Holdfast's files are little-endian and read in place: this machine is big-endian")

FORMAT_VERSION = 1
HEADER_SIZE = 64
"""The size of a segment's header and of a block's header."""
ALIGN = 8
PADDING = [b"\0" * n for n in range(ALIGN)]
BLOCK_MAX = 1 << 30
"""The longest block; offsets inside are 32 bits wide, as Arrow's are."""
CODEC_SHIFT = 16
CODEC_MAX = 3
CHECKSUM_CRC32C = 1

SEGMENT_MAGIC = b"HOLDFAST"
BLOCK_MAGIC = b"HFB\x01"

# magic, version, checksum kind, pad, segment id, log id, base sequence, created, pad, header checksum
_SEGMENT = struct.Struct("<8sHB5xQ16sQq4xI")
# magic, header checksum, length, count, first sequence, first timestamp, durable, segment id, flags,
# length of the columns, checksum of the columns, checksum of the payloads
_BLOCK = struct.Struct("<4sIIIQqQQIIII")
_CRC = struct.Struct("<I")
assert _SEGMENT.size == _BLOCK.size == HEADER_SIZE


class Column(NamedTuple):
    """An optional column: present in a block only if some record has a value."""

    name: str
    flag: int
    kind: str
    """An array type code for numbers, `bytes` for nullable byte strings, `headers` for maps."""


COLUMNS = (
    Column("timestamp", 1, "q"),
    Column("key", 2, "bytes"),
    Column("headers", 4, "headers"),
    Column("expiry", 8, "q"),
    Column("priority", 16, "B"),
    Column("due", 32, "q"),
    Column("dedup", 64, "bytes"),
    Column("producer", 128, "Q"),
    Column("number", 256, "Q"),
)
"""The columns in their order in the block; a number is 0 if a record has no value."""
KNOWN_FLAGS = sum(column.flag for column in COLUMNS) | 0xFF << CODEC_SHIFT


class SegmentHeader(NamedTuple):
    """The first 64 bytes of a segment."""

    segment_id: int
    log_id: bytes
    base: int
    created: int


class BlockHeader(NamedTuple):
    """The first 64 bytes of a block, and its offset."""

    offset: int
    length: int
    records: int
    sequence: int
    timestamp: int
    durable: int
    """The offset up to which the segment was known to be on disk when the block was written."""
    segment_id: int
    flags: int
    columns_length: int
    columns_crc: int
    payload_crc: int

    @property
    def next_offset(self) -> int:
        """The offset of the next block."""
        return aligned(self.offset + self.length)

    @property
    def end(self) -> int:
        """The sequence after the block's last record."""
        return self.sequence + self.records

    def at(self, offset: int) -> "BlockHeader":
        """Return the header of the same block at another offset."""
        return self._replace(offset=offset)

    def adopted(self, sequence: int, timestamp: int) -> "BlockHeader":
        """Return the header of this block of a part as a block of a log: with its sequence there, and its time."""
        return self._replace(sequence=sequence, timestamp=timestamp, durable=self.offset)


_make_header = partial(cast("Any", tuple.__new__), BlockHeader)


def aligned(size: int) -> int:
    """Return the size rounded up to the alignment of blocks and columns."""
    return (size + ALIGN - 1) & -ALIGN


def pack_segment_header(header: SegmentHeader) -> bytes:
    """Return the 64 bytes that start a segment."""
    raw = _SEGMENT.pack(
        SEGMENT_MAGIC, FORMAT_VERSION, CHECKSUM_CRC32C, header.segment_id, header.log_id, header.base, header.created, 0
    )
    return raw[:-4] + _CRC.pack(crc32c(raw[:-4]))


def parse_segment_header(raw: bytes, path: str) -> SegmentHeader | None:
    """Return the header, None if it is damaged. Raises `NewerFormat`."""
    if len(raw) < HEADER_SIZE or crc32c(raw[: HEADER_SIZE - 4]) != _CRC.unpack_from(raw, HEADER_SIZE - 4)[0]:
        return None
    magic, version, checksum_kind, segment_id, log_id, base, created, _ = _SEGMENT.unpack_from(raw)
    if magic != SEGMENT_MAGIC:
        return None
    if version > FORMAT_VERSION or checksum_kind != CHECKSUM_CRC32C:
        raise NewerFormat(
            f"{path!r} has format version {version}, checksum kind {checksum_kind}; this Holdfast reads up to version "
            f"{FORMAT_VERSION}, kind {CHECKSUM_CRC32C}: upgrade it. Nothing was changed"
        )
    return SegmentHeader(segment_id, log_id, base, created)


def pack_block_header(header: BlockHeader) -> bytes:
    """Return the 64 bytes that start a block. The checksum covers its offset, so a copy elsewhere is not a block."""
    raw = _BLOCK.pack(
        BLOCK_MAGIC,
        0,
        header.length,
        header.records,
        header.sequence,
        header.timestamp,
        header.durable,
        header.segment_id,
        header.flags,
        header.columns_length,
        header.columns_crc,
        header.payload_crc,
    )
    return raw[:4] + _CRC.pack(crc32c(raw[8:], header.offset & 0xFFFFFFFF)) + raw[8:]


class EncodedBlock(NamedTuple):
    """A block's content, ready to be written at any offset of a segment."""

    sequence: int
    records: int
    timestamp: int
    last_timestamp: int
    flags: int
    columns: bytes
    payload: bytes | memoryview
    columns_crc: int
    payload_crc: int
    length: int
    """Bytes in the file, without the padding at the end."""
    more: tuple[bytes, ...] = ()
    """The payloads behind `payload`: large bodies are not joined only to be written."""

    def starting_at(self, sequence: int) -> "EncodedBlock":
        """Return the same block with another first sequence."""
        return self._replace(sequence=sequence)


def frame(sealed: EncodedBlock, offset: int, durable: int, segment_id: int) -> tuple[bytes | memoryview, ...]:
    """Return the parts of the block as written at this offset: header, columns, payloads, padding."""
    header = BlockHeader(
        offset,
        sealed.length,
        sealed.records,
        sealed.sequence,
        sealed.timestamp,
        durable,
        segment_id,
        sealed.flags,
        len(sealed.columns),
        sealed.columns_crc,
        sealed.payload_crc,
    )
    return pack_block_header(header), sealed.columns, sealed.payload, *sealed.more, PADDING[-sealed.length % ALIGN]


def parse_block_header(buffer: bytes | memoryview, at: int, offset: int, limit: int) -> BlockHeader | None:
    """Return the header at position `at` of a buffer, which is `offset` in the file; None if there is no whole block.

    A block that with its padding would end beyond `limit` (an offset in the file) is not whole. Raises `NewerFormat`.
    """
    if offset + HEADER_SIZE > limit:
        return None
    fields = _BLOCK.unpack_from(buffer, at)
    magic, crc, length, count, _, _, _, _, flags, columns_length, _, _ = fields
    if magic != BLOCK_MAGIC or crc != crc32c(buffer[at + 8 : at + HEADER_SIZE], offset & 0xFFFFFFFF):
        return None
    if flags & ~KNOWN_FLAGS or flags >> CODEC_SHIFT > CODEC_MAX:
        raise NewerFormat(
            f"a block has columns or a compression that this Holdfast does not know (flags {flags:#x}): upgrade it"
        )
    if count < 1 or not HEADER_SIZE + columns_length <= length <= BLOCK_MAX or aligned(offset + length) > limit:
        return None
    header: BlockHeader = _make_header((offset, *fields[2:]))
    return header


def find_block(buffer: memoryview, start: int, limit: int, segment_id: int | None) -> BlockHeader | None:
    """Return the first whole block at or after `start` in a mapped segment: how a reader resumes behind damage."""
    window = 1 << 20
    position = aligned(start)
    while position + HEADER_SIZE <= limit:
        chunk = bytes(buffer[position : min(position + window, limit)])
        at = chunk.find(BLOCK_MAGIC)
        while at >= 0:
            offset = position + at
            if offset % ALIGN == 0:
                header = parse_block_header(buffer, offset, offset, limit)
                if header is not None and segment_id in (None, header.segment_id):
                    return header
            at = chunk.find(BLOCK_MAGIC, at + 1)
        position += window  # blocks are aligned, so no magic spans two windows
    return None
