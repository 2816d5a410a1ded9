"""Which logs and queues does a store have? Each is a folder that says its name and id, or what was chosen for it."""

import json
import logging
from pathlib import Path
from typing import Any

from holdfast.base.errors import InvalidName, NotFound
from holdfast.base.files import Files, errors_as_ours, read_file, replace_file
from holdfast.base.names import folder_of, name_of
from holdfast.log.catalog import list_segments
from holdfast.log.positions import Positions, place_of
from holdfast.log.segment import open_segment
from holdfast.queue.settings import from_json, to_json

__all__ = ["JOURNALS", "LOGS", "Folders", "few"]

logger = logging.getLogger("holdfast.store")

LOGS = "logs"
JOURNALS = "journals"
DELETING = "deleting"
META = "log.json"
QUEUE_META = "queue.json"
_MARK = ".json"


class Folders:
    """The folders of a store. Files: `logs/*/log.json`, `journals/*/log.json` and `queue.json`, `deleting/*.json`."""

    def __init__(self, files: Files, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._files = files
        self._durable: set[Path] = set()
        """Folders of folders whose own names this process has seen on disk."""

    def log(self, name: str) -> Path:
        """The folder of a log."""
        return self.path / LOGS / folder_of(name, "log name")

    def journal(self, queue: str) -> Path:
        """The folder of a queue."""
        return self.path / JOURNALS / folder_of(queue, "queue name")

    def mark(self, queue: str) -> Path:
        """The file that says that a queue is deleted, whatever is still there of it."""
        return self.path / DELETING / (folder_of(queue, "queue name") + _MARK)

    def marks(self) -> list[Path]:
        """Of the queues that are deleted and not yet gone."""
        return [path for path in self.all_marks() if path.name.endswith(_MARK)]

    def all_marks(self) -> list[Path]:
        """The same, and those that a crash left half-made."""
        root = self.path / DELETING
        return [root / name for name in self._files.list(root)]

    def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        root = self.path / JOURNALS
        with errors_as_ours("listing the queues in", root):
            names = [self.read_meta(root / folder).get("name") for folder in self._files.list(root)]
            deleted = {mark.name for mark in self.marks()}
        return sorted(name for name in names if isinstance(name, str) and self.mark(name).name not in deleted)

    def has_queue(self, name: str) -> bool:
        """Whether there is a queue of that name: one that is deleted, and not gone yet, is none."""
        with errors_as_ours("looking for the queue in", self.path):
            is_deleted = self._files.exists(self.mark(name))
        return not is_deleted and self.queue_meta(name, self.journal(name))[0] is not None

    def queue_at(self, log: str, place: str) -> str | None:
        """The queue that keeps its place in this log under this name; None if it is gone, or reads another log."""
        for queue in self.queues():
            if place_of(queue) == place and (settings := self.queue_meta(queue, self.journal(queue))[0]) is not None:
                return queue if settings.get("log", queue) == log else None
        return None

    def logs(self) -> list[str]:
        """The names of all logs, sorted."""
        root = self.path / LOGS
        with errors_as_ours("listing the logs in", root):
            folders = self._files.list(root)
        # A folder's name mostly tells; to open ten thousand files takes a good part of a second.
        names = [name_of(folder) or self.read_meta(root / folder).get("name") for folder in folders]
        return sorted(name for name in names if isinstance(name, str))

    def id_of(self, folder: Path) -> bytes | None:
        """The id of the log in a folder, as its `log.json` says."""
        meta = self.read_meta(folder)
        return bytes.fromhex(meta["id"]) if meta else None

    def identify(self, name: str, folder: Path) -> bytes:
        """The log's id, from its `log.json`; made where there is none."""
        meta = self.read_meta(folder)
        if meta:
            if meta["name"] != name:
                raise InvalidName(f"the folder of {name!r} belongs to the log {meta['name']!r}: choose another name")
            return bytes.fromhex(meta["id"])
        segments = list_segments(self._files, folder)
        if self.read_only and not segments:
            raise NotFound(f"there is no log {name!r} in {str(self.path)!r}; there are: {few(self.logs())}")
        log_id = self._files.random_bytes(16)
        for segment_name in segments:  # log.json was lost: the segments know
            segment = open_segment(self._files, folder, segment_name, lambda damage: None)
            if segment is not None and any(segment.log_id):
                log_id = segment.log_id
                break
        if not self.read_only:
            self._make(folder)
            content = {"format": 1, "id": log_id.hex(), "name": name}
            replace_file(self._files, folder / META, json.dumps(content, ensure_ascii=False).encode() + b"\n")
        return log_id

    def _make(self, folder: Path) -> None:
        """Make the folder of a log or queue, durable with the one it lies in."""
        is_there = self._files.exists(folder)
        self._files.make_dirs(folder)
        if is_there:  # an earlier try may have made it, and stopped before its name was on disk
            self._files.sync_dir(folder.parent)
        if folder.parent not in self._durable:
            self._files.sync_dir(self.path)
            self._durable.add(folder.parent)

    def read_meta(self, folder: Path) -> dict[str, Any]:
        """What a `log.json` says; nothing where there is none, or it is not legible."""
        try:
            meta = json.loads(read_file(self._files, folder / META))
            if isinstance(meta["name"], str) and len(bytes.fromhex(meta["id"])) == 16:
                return dict(meta)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (ValueError, KeyError, TypeError):
            pass
        logger.warning("%s is not legible and will be made anew", folder / META, extra={"log": str(folder)})
        return {}

    def queue_meta(self, name: str, folder: Path) -> tuple[dict[str, Any] | None, bytes | None]:
        """What was chosen for a queue, None where there is none; and the id of the log it is a view of."""
        with errors_as_ours("opening the queue in", folder):
            if self.read_only and self._files.exists(self.mark(name)):
                return None, None  # it is deleted, and not gone yet
            try:
                meta = json.loads(read_file(self._files, folder / QUEUE_META))
                return from_json(dict(meta["settings"])), bytes.fromhex(meta["log"])
            except (FileNotFoundError, NotADirectoryError):
                return None, None
            except (ValueError, KeyError, TypeError):
                logger.warning("%s is not legible: the queue's settings are the defaults", folder / QUEUE_META)
                log = self._log_read_by(name)
                return ({} if log is None or log == name else {"log": log}), None

    def _log_read_by(self, queue: str) -> str | None:
        """The log in which a queue keeps its place."""
        root = self.path / LOGS
        for folder in self._files.list(root):
            if Positions(self._files, root / folder, bytes(16)).exists(place_of(queue)):
                return self.read_meta(root / folder).get("name") or name_of(folder)
        return None

    def is_paused(self, folder: Path) -> bool:
        """Whether a queue was paused, and not resumed since."""
        try:
            return json.loads(read_file(self._files, folder / QUEUE_META)).get("paused") is True
        except (OSError, ValueError, AttributeError):  # whatever is wrong is told where the settings are read
            return False

    def keep_queue_meta(
        self, name: str, folder: Path, chosen: dict[str, Any], log_id: bytes, *, paused: bool | None = None
    ) -> None:
        """Keep what was chosen for a queue, which log it is a view of, and whether it is paused (None: as it was)."""
        content = {"format": 1, "name": name, "log": log_id.hex(), "settings": json.loads(to_json(chosen))}
        if self.is_paused(folder) if paused is None else paused:
            content["paused"] = True
        with errors_as_ours("opening the queue in", folder):
            self._make(folder)
            replace_file(self._files, folder / QUEUE_META, json.dumps(content, ensure_ascii=False).encode() + b"\n")


def few(names: list[str]) -> str:
    """The first of them, for an error's text."""
    return ", ".join(map(repr, names[:10])) or "none"
