"""Rewriting of the end of a segment, after a write or an fdatasync of it has failed.

After a failed fdatasync Linux marks the pages clean: they are read back as they were written, until they are evicted,
and never reach the disk; a second fdatasync succeeds and means nothing. A page whose writing failed may also hold bytes
in front of the failed ones that were durable before. So the file is opened again (the kernel reports every later
failure to a descriptor that was opened after the first), everything from that page on is read, verified and written
again, and synced.
"""

import contextlib
from pathlib import Path

from holdfast.base.errors import Corrupt
from holdfast.base.files import Files, write_all
from holdfast.log.block import open_block
from holdfast.log.layout import aligned, parse_block_header

__all__ = ["rewrite_end"]

_PAGE = 64 << 10
"""Durable bytes are rewritten from a multiple of this on: no file system writes in larger units."""


def rewrite_end(files: Files, path: Path, segment_id: int, durable: int, end: int) -> None:
    """Make a segment durable up to the offset `end`, and cut it there. Bytes before `durable` were durable already.

    Raises `Corrupt` if the bytes between the two can no longer be read back as they were written, and OSError.
    """
    with contextlib.closing(files.open(path, "w")) as file:
        size = file.size()
        if size < end:
            raise Corrupt(f"{str(path)!r} has {size} bytes, of which {end} were written", str(path), size)
        start = durable - durable % _PAGE
        data = file.read(end - start, start)
        _verify(memoryview(data), path, segment_id, start, durable, end)
        file.truncate(end)  # also if it has that length: an earlier cut may have been lost with the sync that failed
        write_all(file, data, start)
        file.sync()


def _verify(data: memoryview, path: Path, segment_id: int, start: int, durable: int, end: int) -> None:
    offset = durable
    while offset < end:
        header = parse_block_header(data, offset - start, offset, end)
        if header is None or header.segment_id != segment_id:
            raise Corrupt(f"the block at byte {offset} of {str(path)!r} was written and is missing", str(path), offset)
        if open_block(data, header.at(offset - start)).bad:
            raise Corrupt(f"payloads of the block at byte {offset} of {str(path)!r} are damaged", str(path), offset)
        offset = aligned(offset + header.length)
