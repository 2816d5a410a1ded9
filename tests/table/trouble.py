"""How does a test bring trouble at the right moment? Files that call back before a sync, threads that may not hang."""

import shutil
import threading
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import holdfast
from holdfast import Store
from holdfast.base.files import File, Mode, SystemFiles
from holdfast.table import Index, Model, field

__all__ = ["Account", "Entry", "Held", "Running", "TroubledFiles", "interrupt", "killed"]

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds until a thread counts as one that hangs."""


class Account(Model, id=1):
    """With something that is unique."""

    email: str | None = field(1, unique=True, default=None)
    name: str = field(2, default="")
    __indexes__ = (Index("name"),)


class Entry(Model, id=2):
    """Of another table."""

    name: str = field(1, default="")


class TroubledFiles(SystemFiles):
    """The operating system's files, and a call before the next sync of one that matches."""

    def __init__(self) -> None:
        self._pattern = ""
        self._trouble: Callable[[], None] | None = None

    def before_sync(self, pattern: str, trouble: Callable[[], None]) -> None:
        """Call this, once, before the next sync of a file like that."""
        self._pattern, self._trouble = pattern, trouble

    def open(self, path: Path, mode: Mode) -> File:
        return cast("File", _Troubled(self, path, super().open(path, mode)))

    def allocate(self, path: Path, size: int) -> None:
        SystemFiles().allocate(path, size)  # it needs a file of the operating system

    def call(self, path: Path) -> None:
        trouble = self._trouble
        if trouble is not None and fnmatch(str(path), self._pattern):
            self._trouble = None
            trouble()


class _Troubled:
    """A file of the operating system whose next sync may be in trouble."""

    def __init__(self, files: TroubledFiles, path: Path, file: File) -> None:
        self._files, self._path, self._file = files, path, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._files.call(self._path)
        self._file.sync()


def interrupt() -> None:
    """What Ctrl-C does, wherever the program is."""
    raise KeyboardInterrupt


class Held:
    """A trouble that holds a thread until it may go on."""

    def __init__(self) -> None:
        self._reached, self._go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        assert self._go.wait(PATIENCE)

    def wait(self) -> None:
        """Until a thread is held."""
        assert self._reached.wait(PATIENCE)

    def release(self) -> None:
        """Let it go on."""
        self._go.set()


class Running(Generic[T]):
    """Something that another thread does."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:
            self._error = error

    def is_waiting(self) -> bool:
        """Whether it is still at it after a moment."""
        self._thread.join(0.1)
        return self._thread.is_alive()

    def result(self) -> T:
        """What came of it; a failure of the test if nothing ever does."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it hangs"
        if self._error is not None:
            raise self._error
        return self._results[0]


def killed(store: Store) -> Store:
    """The store as another process finds it after a kill of this one."""
    copy = store.path.with_name(store.path.name + "-killed")
    shutil.copytree(store.path, copy, ignore=shutil.ignore_patterns("LOCK"))
    return holdfast.open(copy)
