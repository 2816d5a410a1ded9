"""How does a queue end? A mark says that it is deleted; then all of it goes, if need be at the next opening."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.base.errors import HoldfastError
from holdfast.base.files import Files, errors_as_ours, read_file, replace_file
from holdfast.folders import Folders
from holdfast.log.positions import QUEUE, Positions, place_of
from holdfast.queue.keys import after
from holdfast.state import FAMILIES, State

__all__ = ["Deleting"]

logger = logging.getLogger("holdfast.store")

_PREFIX_BYTES = 8


class Deleting:
    """Deletes queues whole. Files: a mark in `deleting/`, from the decision until nothing is left.

    The mark is durable before anything is touched, and goes when everything else is durably gone: a crash leaves the
    queue as it was, or a mark by which the next opening finishes. Every step can be done again. Used with the store's
    guard held.
    """

    def __init__(self, files: Files, folders: Folders, state: Callable[[], State]) -> None:
        self._files = files
        self._folders = folders
        self._state = state
        self.unfinished = False
        """Whether there may be marks."""

    def decide(self, queue: str, log: str, prefix: bytes | None, *, with_log: bool) -> None:
        """From here on the queue is deleted; nothing of it has changed yet."""
        content = {
            "format": 1,
            "name": queue,
            "log": log,
            "with_log": with_log,
            "prefix": None if prefix is None else prefix[:_PREFIX_BYTES].hex(),
        }
        mark = self._folders.mark(queue)
        with errors_as_ours("deleting the queue in", self._folders.journal(queue)):
            self._files.make_dirs(mark.parent)
            self._files.sync_dir(self._folders.path)
            replace_file(self._files, mark, json.dumps(content, ensure_ascii=False).encode() + b"\n")
        self.unfinished = True

    def is_only_view(self, queue: str, log: str, log_id: bytes) -> bool:
        """Whether no other queue keeps a place in this log."""
        kept = Positions(self._files, self._folders.log(log), log_id).all()
        return all(one.name == place_of(queue) for one in kept if one.name.startswith(QUEUE))

    def resume(self) -> None:
        """When the store opens: finish what a crash cut off. What cannot be finished now is tried when it matters."""
        try:
            self.finish()
        except HoldfastError as error:
            self.unfinished = True
            logger.warning("a deleted queue is not gone yet: %s", error, extra={"path": str(self._folders.path)})

    def finish(self) -> None:
        """Let all go that is left of deleted queues."""
        with errors_as_ours("deleting queues in", self._folders.path):
            whole = self._folders.marks()
            for path in self._folders.all_marks():
                if path not in whole:
                    self._files.remove(path)
            for mark in whole:
                self._sweep(mark)
        self.unfinished = False

    def _sweep(self, mark: Path) -> None:
        try:
            content: dict[str, Any] = json.loads(read_file(self._files, mark))
            queue, log = content["name"], self._folders.log(content["log"])
            prefix = None if content["prefix"] is None else bytes.fromhex(content["prefix"])
        except (ValueError, KeyError, TypeError):
            logger.error("%s is not legible: delete it, and the queue once more", mark, extra={"path": str(mark)})
            return
        if prefix is not None:
            self._forget_rows(prefix)
        if content["with_log"]:
            _remove(self._files, log)
        else:
            Positions(self._files, log, bytes(16)).remove(place_of(queue))
        _remove(self._files, self._folders.journal(queue))
        self._files.remove(mark)
        self._files.sync_dir(mark.parent)
        logger.info("the queue %s is deleted", queue, extra={"queue": queue})

    def _forget_rows(self, prefix: bytes) -> None:
        batch = self._state().transaction()
        for family in FAMILIES:
            batch.delete_range(family, prefix, after(prefix))
        batch.commit()


def _remove(files: Files, folder: Path) -> None:
    """Remove a folder and all in it, durably; also what is left of one, or of its going."""
    if files.exists(folder):
        _remove_tree(files, folder)
    if files.exists(folder.parent):
        files.sync_dir(folder.parent)


def _remove_tree(files: Files, folder: Path) -> None:
    for name in files.list(folder):
        try:
            files.remove(folder / name)
        except OSError:  # which error a folder causes depends on the system
            if files.exists(folder / name):
                _remove_tree(files, folder / name)
    files.sync_dir(folder)  # before the folder: one of the same name must not find them again
    files.remove_dir(folder)
