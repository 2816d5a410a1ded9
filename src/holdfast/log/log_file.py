"""`log.json`: the id of a log, its name, and the first sequence that it should have."""

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.checked_json import decode_checked, has_checksum, replace_checked
from holdfast.base.errors import Corrupt, NewerFormat, raised_by_handler
from holdfast.base.files import Files, read_file
from holdfast.log.consumer_offsets import log_ids_in
from holdfast.log.segment import open_segment
from holdfast.log.segment_files import list_segments

__all__ = ["META", "Identity", "ids_in_segments", "keep_identity", "known_id", "note_start", "read_identity"]

logger = logging.getLogger("holdfast.log")

META = "log.json"
_FORMAT = 1
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """The contents of `log.json`."""

    id: bytes
    name: str
    start: int | None = None
    """The first sequence that was not dropped on purpose. None: not recorded, by an earlier version."""
    checked: bool = True
    """Whether a checksum confirms it."""


def read_identity(files: Files, folder: Path) -> Identity | None:
    """Return the contents of `log.json` in this folder; None if there is none.

    Raises `Corrupt` if it is damaged, and `NewerFormat` if a newer version wrote it.
    """
    path = folder / META
    try:
        raw = read_file(files, path)
        meta = decode_checked(raw)
        log_id, name, start = bytes.fromhex(meta["id"]), meta["name"], meta.get("start")
        if len(log_id) != _ID_BYTES or not isinstance(name, str) or not isinstance(start, int | None):
            raise ValueError("a member has a wrong value")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        if raised_by_handler(error):
            raise
        raise Corrupt(f"{str(path)!r} is damaged: {error}", str(path)) from error
    if meta.get("format", _FORMAT) != _FORMAT:
        raise NewerFormat(f"{str(path)!r} was written by a newer Holdfast: update this one")
    return Identity(log_id, name, start, has_checksum(raw))


def keep_identity(files: Files, folder: Path, identity: Identity) -> None:
    """Write `log.json`, durably."""
    content = {"format": _FORMAT, "id": identity.id.hex(), "name": identity.name}
    replace_checked(files, folder / META, content if identity.start is None else {**content, "start": identity.start})


def note_start(files: Files, folder: Path, start: int) -> None:
    """Record that records before `start` were dropped on purpose, to distinguish that from a lost first segment.

    Nothing is recorded if `log.json` is missing or damaged: the next opening repairs it. Raises OSError.
    """
    with contextlib.suppress(Corrupt, NewerFormat):
        known = read_identity(files, folder)
        if known is not None and (known.start is None or known.start < start):
            keep_identity(files, folder, Identity(known.id, known.name, start))


def ids_in_segments(files: Files, folder: Path) -> set[bytes]:
    """Return the log ids in the headers of the segments in a folder; each header has its own checksum."""
    found = set()
    for name in list_segments(files, folder):
        with contextlib.suppress(FileNotFoundError):  # retention in another process
            segment = open_segment(files, folder, name, lambda damage: None)
            if segment is not None and any(segment.log_id):
                found.add(segment.log_id)
    return found


def known_id(files: Files, folder: Path) -> bytes | None:
    """Return the id of a log from its segments, or from the positions of its readers.

    None if there are no segments and no positions: nothing is lost with a new id. Raises `Corrupt` if there are
    segments and no id can be found, or if ids differ.
    """
    found = ids_in_segments(files, folder) or log_ids_in(files, folder)
    if len(found) == 1:
        return next(iter(found))
    if found or list_segments(files, folder):
        why = "its segments have ids of different logs" if found else "no segment has a readable id"
        raise Corrupt(
            f"{str(folder / META)!r} is missing or damaged, and the id of the log cannot be found: {why}. Restore "
            "log.json from a backup; with a new id, queues and tailers of this log would start from the beginning",
            str(folder / META),
        )
    return None
