"""Backup manifests, written last, with size and checksum of every file; and the search for backups by manifest."""

import json
import re
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.base.checked_json import decode_checked, replace_checked
from holdfast.base.checksum import crc32c
from holdfast.base.clock import from_ns
from holdfast.base.errors import Corrupt, NewerFormat, NotFound
from holdfast.base.files import Files, read_file, replace_file, translate_os_errors
from holdfast.base.units import iso_time

__all__ = [
    "LAST",
    "MANIFEST",
    "UNFINISHED",
    "FileEntry",
    "Found",
    "Manifest",
    "Taken",
    "choose_backup",
    "find_backups",
    "folder_name",
    "last_backup",
    "note_backup",
    "read_manifest",
    "write_manifest",
]

MANIFEST = "backup.json"
UNFINISHED = "unfinished"
"""The file that a backup has while it is written. A folder with this file and without a manifest may be deleted."""
FORMAT = 1
_NAME = re.compile(r"\d{8}T\d{6}\.\d{6}Z\Z")
_FRAME = re.compile(rb'\{"format":(\d+),"checksum":"([0-9a-f]{8})","backup":(.*)\}\n\Z', re.DOTALL)


LAST = "last-backup.json"
"""The file of a store that records its last backup. It is not in backups."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The last backup of a store."""

    time: int
    """The moment of its contents, in nanoseconds since 1970."""
    path: str


def note_backup(files: Files, store: Path, folder: Path, time: int) -> None:
    """Record in the store that a backup was made."""
    content = {"format": FORMAT, "time": time, "path": str(folder.absolute())}
    replace_checked(files, store / LAST, content)


def last_backup(store: Path) -> Taken | None:
    """Return the last backup of a store; None if none is recorded."""
    try:
        found = decode_checked((store / LAST).read_bytes())
        return Taken(int(found["time"]), str(found["path"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a backup."""

    path: str
    """Relative to the backup, as in the store."""
    size: int
    checksum: str
    """CRC-32C, eight hex digits."""
    segment: str = ""
    """For segments of logs: their id. Files with the same id, size and last bytes have the same content."""
    linked: bool = False
    """Whether it is a hard link to a file of the live store."""
    mode: str = ""
    """Its mode in the store, in octal digits; empty in backups of earlier versions."""


@dataclass(slots=True)
class Manifest:
    """Content of a backup's manifest."""

    created: int
    """The moment of the backup's contents, in nanoseconds since 1970."""
    store: str
    """The folder of the store."""
    version: str
    """The version of Holdfast that wrote it."""
    mode: str = ""
    """The mode of the store's folder, in octal digits."""
    base: str | None = None
    """The earlier backup that it shares unchanged files with."""
    cut: dict[str, int] = field(default_factory=dict)
    """By the folder of each open log: the sequence after its last record."""
    left_out: list[str] = field(default_factory=list)
    """States that are not in it, because they are rebuilt when the store is opened."""
    files: list[FileEntry] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(entry.size for entry in self.files)

    def count(self, root: str) -> int:
        """Return the number of folders under a root such as `logs`."""
        return len({entry.path.split("/")[1] for entry in self.files if entry.path.startswith(f"{root}/")})


@dataclass(frozen=True, slots=True)
class Found:
    """A backup in a folder of backups, also a damaged or incomplete one."""

    path: Path
    manifest: Manifest | None
    problem: str = ""
    """Why there is no valid manifest."""


def folder_name(created: int) -> str:
    """Return the folder name of a backup of this time. Names sort by time."""
    return from_ns(created).strftime("%Y%m%dT%H%M%S.") + f"{created // 1000 % 1_000_000:06}Z"


def write_manifest(files: Files, folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a backup, durably."""
    content = {**asdict(manifest), "time": iso_time(manifest.created), "bytes": manifest.bytes}
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    replace_file(files, folder / MANIFEST, _framed(body))


def read_manifest(files: Files, folder: Path) -> Manifest:
    """Return the manifest of a backup. Raises `NotFound`, `Corrupt` or `NewerFormat`."""
    path = folder / MANIFEST
    with translate_os_errors("reading the backup", folder):
        try:
            raw = read_file(files, path)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(
                f"{str(folder)!r} is not a backup, or not a complete one: it has no {MANIFEST}. Choose another backup"
            ) from None
    frame = _FRAME.match(raw)
    if frame is None or raw != _framed(frame[3], int(frame[1])) or (int(frame[1]) == 0):
        raise Corrupt(
            f"{str(path)!r} is damaged, so the files of this backup cannot be verified. Choose another backup; the "
            "folder has the layout of a store, so a copy of it can still be opened",
            str(path),
        )
    if int(frame[1]) > FORMAT:
        raise NewerFormat(f"{str(path)!r} was written by a newer Holdfast: update this one")
    manifest = _manifest(json.loads(frame[3]))
    for entry in manifest.files:
        parts = PurePosixPath(entry.path).parts
        if not parts or ".." in parts or parts[0] == "/":
            raise Corrupt(f"{str(path)!r} names {entry.path!r}, which is outside of it: it is not a backup", str(path))
    return manifest


def find_backups(files: Files, dest: Path) -> list[Found]:
    """Return all backups in a folder, the oldest first, including damaged and incomplete ones."""
    found = []
    for name in files.list(dest):
        if _NAME.match(name):
            try:
                found.append(Found(dest / name, read_manifest(files, dest / name)))
            except (NotFound, Corrupt, NewerFormat) as error:
                unfinished = files.exists(dest / name / UNFINISHED)
                found.append(Found(dest / name, None, "it was not finished" if unfinished else str(error)))
    return found


def choose_backup(files: Files, where: Path, at: datetime | None = None) -> Path:
    """Return the folder itself if it is a backup, else the newest backup in it, or the newest not later than `at`."""
    if files.exists(where / MANIFEST) or files.exists(where / UNFINISHED):
        return where
    backups = find_backups(files, where)
    if not backups:
        raise NotFound(f"there is no backup in {str(where)!r}: check the path")
    # Also those whose manifest is damaged, by their name: using an older one instead would lose data silently.
    limit = None if at is None else folder_name(int(at.timestamp() * 1_000_000) * 1000)
    chosen = [one.path for one in backups if one.problem != "it was not finished"]
    chosen = [path for path in chosen if limit is None or path.name <= limit]
    if not chosen:
        when = f"; the oldest is {backups[0].path.name}" if limit is not None else ""
        raise NotFound(f"there is no complete backup of that time in {str(where)!r}{when}: see holdfast backup --list")
    return chosen[-1]


def _framed(body: bytes, version: int = FORMAT) -> bytes:
    return b'{"format":%d,"checksum":"%08x","backup":%s}\n' % (version, crc32c(body), body)


def _manifest(content: dict[str, Any]) -> Manifest:
    return Manifest(
        **{**_known(Manifest, content), "files": [FileEntry(**_known(FileEntry, one)) for one in content["files"]]}
    )


def _known(kind: type[Manifest] | type[FileEntry], content: dict[str, Any]) -> dict[str, Any]:
    """Return the content without members that a newer version has added."""
    return {name: value for name, value in content.items() if name in kind.__dataclass_fields__}
