"""Watermark file: how far other processes may read.

The writer rewrites it after each sync and, under `batch` and `async`, after each block.

It is not synced itself, and need not be: what it calls durable was durable when it was written, so an old copy is
never wrong, only short. Readers in other processes use it to see neither half a block nor, under `sync`, anything that
a power cut could take back; recovery uses it to know what cannot be torn.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from holdfast.base.checksum import crc32c
from holdfast.base.files import File, Files, read_file, write_all

__all__ = ["WATERMARK", "Watermark", "WatermarkFile", "read_watermark"]

WATERMARK = "watermark"
WATERMARK_MAGIC = b"HFWM"
_FORM = struct.Struct("<4sH2xQQQQQq4x")
_CRC = struct.Struct("<I")
_SIZE = _FORM.size + _CRC.size


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
    """The writer's side of the watermark. The file is opened with the first write, and again after `rest`."""

    def __init__(self, files: Files, folder: Path, last: Watermark | None = None) -> None:
        """`last` is what the file says, where that is known."""
        self._files = files
        self._path = folder / WATERMARK
        self._last = last
        self._file: File | None = None

    def write(self, mark: Watermark) -> None:
        """Publish. One small write within a page: another process sees the old or the new, or a bad checksum."""
        if self._file is None:
            if mark == self._last:
                return
            self._file = self._files.open(self._path, "w" if self._files.exists(self._path) else "x")
        raw = _FORM.pack(WATERMARK_MAGIC, 1, *mark)
        self._last = None  # until it is written it may be half of each
        write_all(self._file, raw + _CRC.pack(crc32c(raw)), 0)
        self._last = mark

    def rest(self) -> None:
        """Close the file until the next write. It need not be synced: an old copy is never wrong."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def read_watermark(files: Files, folder: Path) -> Watermark | None:
    """Return the last watermark that the writer published; None where there is no legible one."""
    for _ in range(3):  # the writer may be in the middle of it
        try:
            raw = read_file(files, folder / WATERMARK)[:_SIZE]
        except FileNotFoundError:
            return None
        except OSError:
            continue
        if len(raw) == _SIZE and crc32c(raw[: _FORM.size]) == _CRC.unpack_from(raw, _FORM.size)[0]:
            magic, version, *fields = _FORM.unpack_from(raw)
            if magic == WATERMARK_MAGIC and version == 1:
                return Watermark(*fields)
    return None
