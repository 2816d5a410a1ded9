"""Parts of a batch that are built in memory and sent elsewhere: to a bucket or a server, not into a folder."""

import os
from collections.abc import Callable

from holdfast.base.checksum import crc32c
from holdfast.base.errors import Corrupt
from holdfast.log.batch_inbox import Manifest, Part
from holdfast.log.block import open_block
from holdfast.log.layout import (
    HEADER_SIZE,
    EncodedBlock,
    SegmentHeader,
    frame,
    pack_segment_header,
    parse_block_header,
    parse_segment_header,
)

__all__ = ["SENT_MAX", "PartBuffer", "block_list"]

SENT_BYTES = 32 << 20
"""A part that is sent ends at about this size: it is in memory as a whole."""
SENT_MAX = 64 << 20
"""The most bytes of a part that is sent."""


class PartBuffer:
    """Builds the parts of one task and sends each when it is full. For one thread."""

    def __init__(
        self, manifest: Manifest, now: int, send: Callable[[str, bytes], None], remove: Callable[[list[str]], None]
    ) -> None:
        """Build parts of a batch. `send` keeps a part under its name, `remove` deletes parts."""
        self._prefix = f"{manifest.digest}-{manifest.batch}-{now}"
        self._send = send
        self._remove = remove
        self._buffer = bytearray()
        self._name = ""
        self._records = self._segment_id = 0
        self.parts: list[Part] = []
        """The finished parts."""
        self.checksums: dict[str, int] = {}
        """CRC-32C of each finished part."""

    def put(self, sealed: EncodedBlock) -> None:
        """Add a block; its first sequence is ignored."""
        if self._buffer and len(self._buffer) + sealed.length > SENT_BYTES:
            self.finish()
        if not self._buffer:
            unique = os.urandom(8)
            self._name = f"{self._prefix}-{unique.hex()}.part"
            self._segment_id = int.from_bytes(unique, "little")
            self._buffer += pack_segment_header(SegmentHeader(self._segment_id, bytes(16), 0, 0))
            self._records = 0
        offset = len(self._buffer)
        for piece in frame(sealed.starting_at(self._records), offset, offset, self._segment_id):
            self._buffer += piece
        self._records += sealed.records

    def finish(self) -> list[Part]:
        """Send the part that was begun, and return all parts so far."""
        if self._buffer:
            content, self._buffer = bytes(self._buffer), bytearray()
            self.parts.append(Part(self._name, self._records, len(content)))
            self.checksums[self._name] = crc32c(content)
            self._send(self._name, content)
        return self.parts

    def close_discarding(self) -> None:
        """Delete all parts, after the task failed."""
        self._buffer = bytearray()
        if self.parts:
            self._remove([part.file for part in self.parts])


def block_list(content: bytes, part: Part | None, where: str) -> bytes:
    """Return the list of blocks of a part, as in its file `.blocks`. Verifies every block; raises `Corrupt`."""
    view, headers, records = memoryview(content), bytearray(), 0
    if parse_segment_header(content[:HEADER_SIZE], where) is None:
        raise Corrupt(f"the part {where} has no header: it was not written by Holdfast", where)
    offset = HEADER_SIZE
    while offset < len(content):
        header = parse_block_header(view, offset, offset, len(content))
        if header is None or header.sequence != records:
            raise Corrupt(f"the part {where} is damaged at byte {offset}", where, offset)
        if open_block(view, header).bad:
            raise Corrupt(f"the part {where} has a damaged block at byte {offset}", where, offset)
        headers += view[offset : offset + HEADER_SIZE]
        records += header.records
        offset = header.next_offset
    if part is not None and (len(content) != part.bytes or records != part.records):
        raise Corrupt(f"the part {where} has {records} records in {len(content)} bytes: its manifest says other", where)
    return bytes(headers)
