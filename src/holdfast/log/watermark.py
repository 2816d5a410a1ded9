"""Watermark file: how far other processes may read.

The writer rewrites it after each sync and, under `batch` and `async`, after each block.

It is not synced, and need not be: records below its durable end were durable when it was written, so an old copy is
never wrong, only behind. With it, readers in other processes see neither half a block nor, under `sync`, a record that
a power cut could remove; recovery uses it to know which bytes cannot be torn.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from holdfast.base.checksum import crc32c
from holdfast.base.files import File, Files, read_file, write_all

__all__ = ["WATERMARK", "Watermark", "WatermarkFile", "pack_watermark", "read_watermark"]

WATERMARK = "watermark"
WATERMARK_MAGIC = b"HFWM"
_FORM = struct.Struct("<4sH2xQQQQQq4x")
_CRC = struct.Struct("<I")
_SIZE = _FORM.size + _CRC.size


class Watermark(NamedTuple):
    """Ends of the visible and of the durable records in the active segment."""

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
        """Make the writer's side; `last` is the content of the file, if that is known."""
        self._files = files
        self._path = folder / WATERMARK
        self._last = last
        self._file: File | None = None

    def write(self, mark: Watermark) -> None:
        """Publish a watermark with one small write: others read the old one, the new one or a bad checksum."""
        if self._file is None:
            if mark == self._last:
                return
            self._file = self._files.open(self._path, "w" if self._files.exists(self._path) else "x")
        raw = _FORM.pack(WATERMARK_MAGIC, 1, *mark)
        self._last = None  # unknown while it is being written
        write_all(self._file, raw + _CRC.pack(crc32c(raw)), 0)
        self._last = mark

    def rest(self) -> None:
        """Close the file until the next write. It need not be synced: an old copy is never wrong."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def pack_watermark(mark: Watermark) -> bytes:
    """Return the contents of the file."""
    raw = _FORM.pack(WATERMARK_MAGIC, 1, *mark)
    return raw + _CRC.pack(crc32c(raw))


def read_watermark(files: Files, folder: Path) -> Watermark | None:
    """Return the last watermark that the writer published; None if it is missing or damaged."""
    for _ in range(3):  # the writer may be writing it just now
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
