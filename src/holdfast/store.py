"""What is a store? A folder with one writer and any number of readers, and the logs in it."""

import contextlib
import json
import logging
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from holdfast.base.clock import Clock, SystemClock
from holdfast.base.errors import Closed, HoldfastError, InvalidArgument, InvalidName, NotFound
from holdfast.base.files import Files, Lock, SystemFiles, errors_as_ours, read_file, replace_file
from holdfast.base.names import check_name, folder_of, name_of
from holdfast.log.catalog import list_segments
from holdfast.log.log import Log
from holdfast.log.policy import Flush, Retention, Roll
from holdfast.log.segment import open_segment
from holdfast.log.settings import LogSettings
from holdfast.log.ticker import Ticker

__all__ = ["LogOptions", "Store", "open"]

logger = logging.getLogger("holdfast.store")

LOCK = "LOCK"
LOGS = "logs"
META = "log.json"


_open_stores: weakref.WeakSet["Store"] = weakref.WeakSet()


def _disown_in_child() -> None:
    for store in list(_open_stores):
        store.disown()


os.register_at_fork(after_in_child=_disown_in_child)


class LogOptions(TypedDict, total=False):
    """The settings that `Store.log` takes."""

    flush: Flush
    roll: Roll
    index_interval: int
    compression: str | None
    retention: Retention | None
    verify_on_open: bool
    max_message: int


def open(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
    background: bool = True,
) -> "Store":
    """Open a store: creates the folder and takes the lock, or with `read_only` neither.

    `files` and `clock` are for tests (see `holdfast.testing`); without `background` no thread is started, and
    `Store.tick` does its work.
    """
    return Store(Path(path), read_only=read_only, files=files, clock=clock, background=background)


class Store:
    """An open store; also a context manager.

    Files: `LOCK` and `logs/`. Threads: all methods may be called from any.
    """

    def __init__(
        self, path: Path, *, read_only: bool, files: Files | None, clock: Clock | None, background: bool
    ) -> None:
        self.path = path
        self.read_only = read_only
        self._files: Files = files or SystemFiles()
        self._clock: Clock = clock or SystemClock()
        self._guard = threading.RLock()
        self._open_logs: dict[str, Log] = {}
        self._closed = False
        self._lock: Lock | None = None
        self._ticker = Ticker(self._snapshot)
        self._wake: Callable[[], None] = self._ticker.wake if background else lambda: None
        _open_stores.add(self)
        with errors_as_ours("opening the store", path):
            if read_only:
                if not self._files.exists(path):
                    raise NotFound(
                        f"there is no store at {str(path)!r}: check the path, or open it without read_only=True"
                    )
            else:
                self._files.make_dirs(path)
                with contextlib.suppress(PermissionError):  # in a folder of others that we may pass but not open
                    self._files.sync_dir(path.parent)
                self._lock = self._files.lock(path / LOCK)

    def log(self, name: str, **settings: Unpack[LogOptions]) -> Log:
        """The log of that name, made if there is none. Settings count when it is first opened in this store."""
        check_name(name, "log name")
        with self._guard:
            self._check_open()
            known = self._open_logs.get(name)
            wanted = LogSettings.of(dict(settings))
            if known is not None:
                if settings and known.settings != wanted:
                    raise InvalidArgument(
                        f"the log {name!r} is open with other settings: close the store to change them"
                    )
                return known
            folder = self.path / LOGS / folder_of(name, "log name")
            with errors_as_ours("opening the log in", folder):
                log_id = self._identify(name, folder)
            log = Log(
                name,
                folder,
                log_id,
                wanted,
                files=self._files,
                clock=self._clock,
                lock=self.path / LOCK,
                read_only=self.read_only,
                wake=self._wake,
            )
            self._open_logs[name] = log
            return log

    def logs(self) -> list[str]:
        """The names of all logs in the store, sorted."""
        self._check_open()
        root = self.path / LOGS
        with errors_as_ours("listing the logs in", root):
            folders = self._files.list(root)
        names = [self._read_meta(root / folder).get("name") or name_of(folder) for folder in folders]
        return sorted(name for name in names if isinstance(name, str))

    def tick(self) -> None:
        """Do the background work that is due, for stores that were opened without `background`."""
        for log in self._snapshot():
            log.tick()

    def close(self) -> None:
        """Drain and sync what was accepted, and let the lock go; idempotent."""
        with self._guard:
            if self._closed:
                return
            problem: HoldfastError | None = None
            for name, log in list(self._open_logs.items()):
                try:
                    log.close()
                except HoldfastError as error:  # the others are closed all the same
                    problem = problem or error
                    logger.error("closing the log %s failed: %s", name, error, extra={"log": name})
                if log.closed:
                    del self._open_logs[name]
            if not self._open_logs:
                self._ticker.stop()
                if self._lock is not None:
                    self._lock.release()
                self._closed = True
            if problem is not None:
                raise problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def disown(self) -> None:
        """Called in a forked child: this opening, its lock and its thread are the parent's."""
        self._guard = threading.RLock()
        for log in self._snapshot():
            log.disown()
        self._open_logs.clear()
        self._closed = True

    def _snapshot(self) -> list[Log]:
        return list(self._open_logs.values())

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the store {str(self.path)!r} is closed: open it again")

    def _identify(self, name: str, folder: Path) -> bytes:
        """The log's id, from its `log.json`; made where there is none."""
        meta = self._read_meta(folder)
        if meta:
            if meta["name"] != name:
                raise InvalidName(f"the folder of {name!r} belongs to the log {meta['name']!r}: choose another name")
            return bytes.fromhex(meta["id"])
        segments = list_segments(self._files, folder)
        if self.read_only and not segments:
            known = ", ".join(map(repr, self.logs()[:10])) or "none"
            raise NotFound(f"there is no log {name!r} in {str(self.path)!r}; there are: {known}")
        log_id = self._files.random_bytes(16)
        for segment_name in segments:  # log.json was lost: the segments know
            segment = open_segment(self._files, folder, segment_name, lambda damage: None)
            if segment is not None and any(segment.log_id):
                log_id = segment.log_id
                break
        if not self.read_only:
            self._files.make_dirs(folder)
            self._files.sync_dir(folder.parent)  # also where an earlier try made them and stopped before this
            self._files.sync_dir(self.path)
            content = {"format": 1, "id": log_id.hex(), "name": name}
            replace_file(self._files, folder / META, json.dumps(content, ensure_ascii=False).encode() + b"\n")
        return log_id

    def _read_meta(self, folder: Path) -> dict[str, Any]:
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
