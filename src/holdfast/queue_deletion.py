"""Deletion of queues, resumed after a crash: write a durable mark, delete all files and rows, delete the mark."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast.base.checked_json import read_checked, replace_checked
from holdfast.base.errors import HoldfastError
from holdfast.base.files import Files, translate_os_errors
from holdfast.log.consumer_offsets import QUEUE, OffsetStore, place_of
from holdfast.queue.state_keys import after
from holdfast.state import FAMILIES, State
from holdfast.store_layout import StoreLayout

__all__ = ["STAGING", "QueueDeletion", "remove_folder"]

logger = logging.getLogger("holdfast.store")

STAGING = "backing-up"
"""The folder in a store that holds hard links to files while a backup of them is written."""
_PREFIX_BYTES = 8


class QueueDeletion:
    """Deletes queues completely. Files: a mark in `deleting/`, from the decision until nothing is left.

    The mark is durable before anything is touched, and is removed when everything else is durably gone: a crash leaves
    the queue as it was, or a mark by which the next opening finishes. Every step is idempotent. Used with the store's
    guard held.
    """

    def __init__(self, files: Files, folders: StoreLayout, state: Callable[[], State]) -> None:
        self._files = files
        self._folders = folders
        self._state = state
        self.unfinished = False
        """Whether there may be deletions to finish."""
        self._may_remove = threading.Event()
        self._may_remove.set()

    def decide(self, queue: str, log: str, prefix: bytes | None, *, with_log: bool) -> None:
        """Mark the queue as deleted, durably; nothing else is changed yet."""
        content = {
            "format": 1,
            "name": queue,
            "log": log,
            "with_log": with_log,
            "prefix": None if prefix is None else prefix[:_PREFIX_BYTES].hex(),
        }
        mark = self._folders.mark(queue)
        with translate_os_errors("deleting the queue in", self._folders.journal(queue)):
            self._files.make_dirs(mark.parent)
            self._files.sync_dir(self._folders.path)
            replace_checked(self._files, mark, content)
        self.unfinished = True

    def is_only_view(self, queue: str, log: str, log_id: bytes) -> bool:
        """Return whether no other queue keeps a position in this log."""
        kept = OffsetStore(self._files, self._folders.log(log), log_id).all()
        return all(one.name == place_of(queue) for one in kept if one.name.startswith(QUEUE))

    def resume(self) -> None:
        """Finish deletions that a crash interrupted, and remove the links of a backup, when the store opens.

        Raises no `HoldfastError`: a deletion that cannot be finished now is logged, and tried again later.
        """
        try:
            self.finish()
            with translate_os_errors("removing the links of a backup in", self._folders.path):
                if self._files.exists(self._folders.path / STAGING):
                    remove_folder(self._files, self._folders.path / STAGING)
        except HoldfastError as error:
            self.unfinished = True
            logger.warning(
                "removal of deleted queues failed, will retry: store=%s error=%s",
                self._folders.path,
                error,
                extra={"path": str(self._folders.path)},
            )

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """Delete no files inside: a backup needs them. Entered with the store's guard held, and left without it."""
        self._may_remove.clear()
        try:
            yield
        finally:
            self._may_remove.set()

    def wait(self) -> None:
        """Return when files may be deleted."""
        self._may_remove.wait()

    def finish(self, *, wait: bool = False) -> None:
        """Delete the remains of deleted queues. While `put_off` is entered, `wait` for its end or do it later."""
        if wait:
            self.wait()
        if not self._may_remove.is_set():
            self.unfinished = True
            return
        with translate_os_errors("deleting queues in", self._folders.path):
            whole = self._folders.marks()
            for path in self._folders.all_marks():
                if path not in whole:
                    self._files.remove(path)
            for mark in whole:
                self._sweep(mark)
        self.unfinished = False

    def finish_if_any(self) -> None:
        """Delete the remains of deleted queues, unless there are none, or the store is open for reading only."""
        if self.unfinished and not self._folders.read_only:
            self.finish(wait=True)

    def _sweep(self, mark: Path) -> None:
        try:
            content: dict[str, Any] = read_checked(self._files, mark)
            queue, log = content["name"], self._folders.log(content["log"])
            prefix = None if content["prefix"] is None else bytes.fromhex(content["prefix"])
        except (ValueError, KeyError, TypeError):
            logger.error(
                "deletion mark is damaged, delete the file and then the queue again: path=%s",
                mark,
                extra={"path": str(mark)},
            )
            return
        if prefix is not None:
            self._forget_rows(prefix)
        if content["with_log"]:
            self._folders.forget_log(content["log"])
            remove_folder(self._files, log)
        else:
            OffsetStore(self._files, log, bytes(16)).remove(place_of(queue))
        remove_folder(self._files, self._folders.journal(queue))
        self._files.remove(mark)
        self._files.sync_dir(mark.parent)
        logger.info("queue deleted: queue=%s", queue, extra={"queue": queue})

    def _forget_rows(self, prefix: bytes) -> None:
        batch = self._state().transaction()
        for family in FAMILIES:
            batch.delete_range(family, prefix, after(prefix))
        batch.commit()


def remove_folder(files: Files, folder: Path) -> None:
    """Delete a folder and all in it, durably; also a partly deleted one."""
    if files.exists(folder):
        _remove_tree(files, folder)
    if files.exists(folder.parent):
        files.sync_dir(folder.parent)


def _remove_tree(files: Files, folder: Path) -> None:
    for name in files.list(folder):
        try:
            files.remove(folder / name)
        except OSError:  # the error for a folder depends on the system
            if files.exists(folder / name):
                _remove_tree(files, folder / name)
    files.sync_dir(folder)  # before the folder is removed: a new folder of that name must not contain them again
    files.remove_dir(folder)
