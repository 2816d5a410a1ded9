"""Folders of a store's logs and queues, with the files that hold their names, ids and settings."""

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

from holdfast.base.checked_json import read_checked, replace_checked
from holdfast.base.errors import Corrupt, InvalidName, NewerFormat, NotFound, raised_by_handler
from holdfast.base.files import Files, translate_os_errors
from holdfast.base.names import escape_name, name_of
from holdfast.log.consumer_offsets import OffsetStore, place_of
from holdfast.log.log_file import META, Identity, ids_in_segments, keep_identity, known_id, read_identity
from holdfast.log.segment import open_segment
from holdfast.log.segment_files import list_segments
from holdfast.queue.settings import from_json, to_json

__all__ = ["JOURNALS", "LOCK", "LOGS", "STANDBY_FILE", "STATE", "StoreLayout", "few"]

logger = logging.getLogger("holdfast.store")

LOCK = "LOCK"
STATE = "state"
LOGS = "logs"
JOURNALS = "journals"
DELETING = "deleting"
STANDBY_FILE = "standby.json"
"""In the folder of a standby: it is no store until the standby takes over."""
KNOWN = "known"
QUEUE_META = "queue.json"
_MARK = ".json"
LOG_SUFFIX = ".log"
"""Suffix of the name of a file in `known/` that records that a log exists."""


class StoreLayout:
    """The folders of a store. Files: `logs/*/log.json`, `journals/*/log.json` and `queue.json`, `deleting/*.json`."""

    def __init__(self, files: Files, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._files = files
        self._durable: set[Path] = set()
        """Parent folders, such as `logs` and `journals`, whose names this process has synced."""

    def log(self, name: str) -> Path:
        """Return the folder of a log."""
        return self.path / LOGS / escape_name(name, "log name")

    def journal(self, queue: str) -> Path:
        """Return the folder of a queue."""
        return self.path / JOURNALS / escape_name(queue, "queue name")

    def mark(self, queue: str) -> Path:
        """Return the path of the file that marks a queue as deleted, even if parts of it are left."""
        return self.path / DELETING / (escape_name(queue, "queue name") + _MARK)

    def marks(self) -> list[Path]:
        """Return the marks of deleted queues whose files are not all removed yet."""
        return [path for path in self.all_marks() if path.name.endswith(_MARK)]

    def all_marks(self) -> list[Path]:
        """Return the marks of deleted queues, including those that a crash left half-written."""
        root = self.path / DELETING
        return [root / name for name in self._files.list(root)]

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        root = self.path / JOURNALS
        with translate_os_errors("listing the queues in", root):
            names = [self._queue_in(root / folder) for folder in self._files.list(root)]
            deleted = {mark.name for mark in self.marks()}
        return sorted(name for name in names if isinstance(name, str) and self.mark(name).name not in deleted)

    def has_queue(self, name: str) -> bool:
        """Return whether there is a queue of that name; not if it is deleted, even if parts are left."""
        with translate_os_errors("looking for the queue in", self.path):
            is_deleted = self._files.exists(self.mark(name))
        return not is_deleted and self.queue_meta(name, self.journal(name), lenient=True)[0] is not None

    def queue_at(self, log: str, place: str) -> str | None:
        """Return the queue that keeps its position in this log under this name; None if it is gone or reads another."""
        for queue in self.queues():
            if place_of(queue) == place:
                settings = self.queue_meta(queue, self.journal(queue), lenient=True)[0]
                if settings is not None:
                    return queue if settings.get("log", queue) == log else None
        return None

    def logs(self) -> list[str]:
        """Return the names of all logs, sorted."""
        root = self.path / LOGS
        with translate_os_errors("listing the logs in", root):
            folders = self._files.list(root)
        # A folder's name is usually enough; opening ten thousand files takes a good part of a second.
        names = [name_of(folder) or self._name_in(root / folder) for folder in folders]
        return sorted(name for name in names if name is not None)

    def note_log(self, name: str) -> None:
        """Record that a log exists that no queue reads, so that its loss is noticed.

        The record is an empty file, and not synced: if a crash loses it, only this check is lost.
        """
        path = self._noted(name)
        with translate_os_errors("opening the log in", self.log(name)):
            if not self._files.exists(path):
                self._files.make_dirs(path.parent)
                self._files.open(path, "x").close()

    def forget_log(self, name: str) -> None:
        """Remove the file of `note_log`, before the log is deleted. Raises OSError."""
        if self._files.exists(self._noted(name)):
            self._files.remove(self._noted(name))

    def _noted(self, name: str) -> Path:
        return self.path / KNOWN / (escape_name(name, "log name") + LOG_SUFFIX)

    def id_of(self, folder: Path) -> bytes | None:
        """Return the id of the log in a folder from `log.json` or, if that is damaged, from other files."""
        try:
            known = read_identity(self._files, folder)
            return known_id(self._files, folder) if known is None else known.id
        except Corrupt:
            with contextlib.suppress(Corrupt):
                return known_id(self._files, folder)
            return None

    def identify(self, name: str, folder: Path) -> bytes:
        """Return the log's id from `log.json`, which is repaired from other files, or created if there is no log."""
        known, is_damaged = self._read_identity(folder)
        if known is not None:
            if known.name != name:
                raise InvalidName(f"the folder of {name!r} belongs to the log {known.name!r}: choose another name")
            if known.checked or self._is_confirmed(known, folder):
                return known.id
        segments = list_segments(self._files, folder)
        if self.read_only and not segments and not is_damaged:
            raise NotFound(f"there is no log {name!r} in {str(self.path)!r}; there are: {few(self.logs())}")
        log_id = known_id(self._files, folder) or self._files.random_bytes(16)
        if segments or is_damaged:
            logger.warning("log.json rebuilt: path=%s id=%s", folder / META, log_id.hex(), extra={"log": str(folder)})
        if not self.read_only:
            self._make(folder)
            keep_identity(self._files, folder, Identity(log_id, name, self._first_base(folder)))
        return log_id

    def _read_identity(self, folder: Path) -> tuple[Identity | None, bool]:
        """Return the contents of `log.json` if it can be read, and whether it is damaged."""
        try:
            return read_identity(self._files, folder), False
        except Corrupt as error:
            logger.warning("%s", error, extra={"log": str(folder)})
            return None, True

    def _is_confirmed(self, known: Identity, folder: Path) -> bool:
        """Return whether no segment contradicts a `log.json` without a checksum, of an earlier version."""
        named = next(iter(list_segments(self._files, folder)), None)
        first = None if named is None else open_segment(self._files, folder, named, lambda damage: None)
        if first is None or not any(first.log_id) or first.log_id == known.id:
            return True
        return known.id in ids_in_segments(self._files, folder)

    def _first_base(self, folder: Path) -> int:
        for name in list_segments(self._files, folder):
            segment = open_segment(self._files, folder, name, lambda damage: None)
            if segment is not None:
                return segment.base
        return 0

    def _make(self, folder: Path) -> None:
        """Make the folder of a log or queue, durably, with its parent."""
        is_there = self._files.exists(folder)
        self._files.make_dirs(folder)
        if is_there:  # an earlier attempt may have made it, and stopped before its name was synced
            self._files.sync_dir(folder.parent)
        if folder.parent not in self._durable:
            self._files.sync_dir(self.path)
            self._durable.add(folder.parent)

    def _name_in(self, folder: Path) -> str | None:
        """Return the name in `log.json`; None if it is missing or cannot be read."""
        with contextlib.suppress(NewerFormat):  # reported when the log is opened
            known, _ = self._read_identity(folder)
            return None if known is None else known.name
        return None

    def _queue_in(self, folder: Path) -> str | None:
        """Return the name of the queue in a folder, also if `log.json` is lost; None if there is no queue."""
        if (name := self._name_in(folder)) is not None:
            return name
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(read_checked(self._files, folder / QUEUE_META)["name"])
        is_there = self._files.exists(folder / META) or list_segments(self._files, folder)
        return name_of(folder.name) if is_there else None

    def queue_meta(
        self, name: str, folder: Path, *, lenient: bool = False
    ) -> tuple[dict[str, Any] | None, bytes | None]:
        """Return the saved settings of a queue, None if there is no queue; and the id of the log it is a view of.

        If the file is damaged this raises `Corrupt` or, if `lenient`, returns only the name of the log.
        """
        with translate_os_errors("opening the queue in", folder):
            if self.read_only and self._files.exists(self.mark(name)):
                return None, None  # it is deleted, and its files are not removed yet
            path = folder / QUEUE_META
            try:
                meta = read_checked(self._files, path)
                return from_json(dict(meta["settings"])), bytes.fromhex(meta["log"])
            except NotADirectoryError:
                return None, None
            except FileNotFoundError:
                if not list_segments(self._files, folder):
                    return None, None
                logger.error("queue.json is missing, using default settings: queue=%s path=%s", name, path)
            except (ValueError, KeyError, TypeError) as error:
                if raised_by_handler(error):
                    raise
                if not lenient:
                    raise Corrupt(
                        f"{str(path)!r}, with the settings of the queue {name!r}, is damaged ({error}): restore it "
                        "from a backup, or delete this file and open the queue with its settings again. Its messages "
                        "are not affected",
                        str(path),
                    ) from error
            log = self._log_read_by(name)
            return ({} if log is None or log == name else {"log": log}), None

    def _log_read_by(self, queue: str) -> str | None:
        """Return the log in which a queue keeps its position."""
        root = self.path / LOGS
        for folder in self._files.list(root):
            if OffsetStore(self._files, root / folder, bytes(16)).exists(place_of(queue)):
                return self._name_in(root / folder) or name_of(folder)
        return None

    def is_paused(self, folder: Path) -> bool:
        """Return whether a queue is paused."""
        try:
            return read_checked(self._files, folder / QUEUE_META).get("paused") is True
        except (OSError, ValueError, AttributeError):  # `queue_meta` reports it
            return False

    def queue_defaults(self, folder: Path) -> frozenset[str]:
        """Return which of a queue's saved settings were not chosen, but defaults of the server that created it."""
        try:
            meta = read_checked(self._files, folder / QUEUE_META)
            if "by_default" not in meta and meta["settings"].keys() >= _OF_SERVERS:
                return _OF_SERVERS  # created by a server of an earlier version
            return frozenset(map(str, meta.get("by_default", ())))
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            return frozenset()

    def keep_queue_meta(
        self,
        name: str,
        folder: Path,
        chosen: dict[str, Any],
        log_id: bytes,
        *,
        paused: bool | None = None,
        by_default: frozenset[str] | None = None,
    ) -> None:
        """Save the settings of a queue, its log's id, whether it is paused, and which settings are defaults.

        None for the last two keeps their saved values.
        """
        content: dict[str, Any] = {
            "format": 1,
            "name": name,
            "log": log_id.hex(),
            "settings": json.loads(to_json(chosen)),
        }
        if unchosen := self.queue_defaults(folder) if by_default is None else by_default:
            content["by_default"] = sorted(unchosen)
        if self.is_paused(folder) if paused is None else paused:
            content["paused"] = True
        with translate_os_errors("opening the queue in", folder):
            self._make(folder)
            replace_checked(self._files, folder / QUEUE_META, content)


_OF_SERVERS = frozenset(
    ("max_attempts", "dead_letter", "starvation", "ttl", "expired", "max_length", "max_bytes", "overflow", "history")
)
"""The settings that a server of an earlier version saved with each queue, whether or not a client had chosen them."""


def few(names: list[str]) -> str:
    """Return the first ten names as text, for an error message."""
    return ", ".join(map(repr, names[:10])) or "none"
