"""How far may others read? One small record in a file, rewritten by the writer after each block and each sync.

It is not synced itself, and need not be: what it calls durable was durable when it was written, so an old copy is
never wrong, only short. Readers in other processes use it to see neither half a block nor, under `sync`, anything that
a power cut could take back; recovery uses it to know what cannot be torn.
"""

import contextlib
import struct
from pathlib import Path
from typing import NamedTuple

from holdfast.base.checksum import crc32c
from holdfast.base.files import File, Files, read_file, write_all

__all__ = ["WATERMARK", "Watermark", "WatermarkFile", "read_watermark"]

WATERMARK = "watermark"
WATERMARK_MAGIC = b"HFWM"
_FORM = struct.Struct("<4sH2xQQQQQq4xI")
_CRC = struct.Struct("<I")


class Watermark(NamedTuple):
    """Ends, in the active segment, of what is visible and of what is durable."""

    segment_id: int
    visible_end: int
    visible_offset: int
    durable_end: int
    durable_offset: int
    last_timestamp: int
    """No record before the durable end is later than this."""


class WatermarkFile:
    """The writer's side."""

    def __init__(self, files: Files, folder: Path) -> None:
        path = folder / WATERMARK
        self._file: File = files.open(path, "w" if files.exists(path) else "x")

    def write(self, mark: Watermark) -> None:
        """Publish. One small write within a page: another process sees the old or the new, or a bad checksum."""
        raw = _FORM.pack(WATERMARK_MAGIC, 1, *mark, 0)
        write_all(self._file, raw[:-4] + _CRC.pack(crc32c(raw[:-4])), 0)

    def close(self) -> None:
        """Let the file go."""
        self._file.close()


def read_watermark(files: Files, folder: Path) -> Watermark | None:
    """What the writer said last, or None where nothing legible is there."""
    for _ in range(3):  # the writer may be in the middle of it
        with contextlib.suppress(OSError):
            raw = read_file(files, folder / WATERMARK)[: _FORM.size]
            if len(raw) == _FORM.size and crc32c(raw[:-4]) == _CRC.unpack_from(raw, _FORM.size - 4)[0]:
                magic, version, *fields, _ = _FORM.unpack(raw)
                if magic == WATERMARK_MAGIC and version == 1:
                    return Watermark(*fields)
    return None
