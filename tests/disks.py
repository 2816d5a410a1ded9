"""Real disks that take as long as a test wants, tell how far they have come, or are full."""

import errno
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.base.files import File, Mode, SystemFile, SystemFiles
from tests.base.internals import descriptor_of

__all__ = ["PATIENCE_S", "Ballast", "NotingFiles", "SlowFiles", "fills_the_disk"]

PATIENCE_S = 180.0
"""How long a test waits for what must happen."""
GIB = 1 << 30
fills_the_disk = pytest.mark.xdist_group("disk")
"""One at a time: what one of these tests gives back would lift the alarm of another."""


class SlowFile(SystemFile):
    """Its syncs wait until they may go on."""

    __slots__ = ("_slow",)

    def __init__(self, fd: int, slow: "SlowFiles | None") -> None:
        super().__init__(fd)
        self._slow = slow

    def sync(self) -> None:
        if self._slow is not None:
            self._slow.enter()
        super().sync()


class SlowFiles(SystemFiles):
    """The operating system's files, whose segments are synced when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = False
        self.fails = False
        """From now on."""
        self.waiting = threading.Semaphore(0)
        self._go_on = threading.Semaphore(0)

    def open(self, path: Path, mode: Mode) -> File:
        found = super().open(path, mode)
        other = SlowFile(os.dup(descriptor_of(found)), self if path.suffix == ".data" else None)
        found.close()
        return other

    def enter(self) -> None:
        if self.holding:
            self.waiting.release()
            assert self._go_on.acquire(timeout=PATIENCE_S)
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def await_one(self) -> None:
        """Return when someone waits for the disk."""
        assert self.waiting.acquire(timeout=PATIENCE_S)

    def go_on(self, *, holding: bool = False) -> None:
        """Let the one go on; those who come later too, unless `holding`."""
        self.holding = holding
        self._go_on.release()


class NotedFile(SystemFile):
    """Notes how far it is certainly on disk: up to what was written before a sync that has ended."""

    __slots__ = ("_name", "_notes", "_written")

    def __init__(self, fd: int, name: str, notes: dict[str, int]) -> None:
        super().__init__(fd)
        self._name, self._notes, self._written = name, notes, 0

    def write_parts(self, parts: Sequence[bytes | memoryview], offset: int) -> int:
        size = super().write_parts(parts, offset)
        self._written = max(self._written, offset + size)
        return size

    def sync(self) -> None:
        written = self._written
        super().sync()
        self._notes[self._name] = max(written, self._notes.get(self._name, 0))


class NotingFiles(SystemFiles):
    """The operating system's files, and what of the segments is on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.on_disk: dict[str, int] = {}

    def open(self, path: Path, mode: Mode) -> File:
        found = super().open(path, mode)
        if path.suffix != ".data":
            return found
        other = NotedFile(os.dup(descriptor_of(found)), str(path), self.on_disk)
        found.close()
        return other

    def holds(self, content: bytes) -> bool:
        """Whether a power cut would leave this."""
        return any(content in Path(name).read_bytes()[:end] for name, end in list(self.on_disk.items()))


class Ballast:
    """Four gigabytes of the disk, and a limit for what must be free that is passed when they are taken."""

    def __init__(self, folder: Path) -> None:
        free = shutil.disk_usage(folder).free
        if free < 8 * GIB:
            pytest.skip("needs 8 GiB of free disk: others who use it meanwhile must not decide this test")
        self.limit = free - 2 * GIB
        self._file = folder / "ballast"

    def take(self) -> None:
        """Now there is too little."""
        with self._file.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 4 * GIB)

    def give_back(self) -> None:
        """Now there is enough again."""
        self._file.unlink(missing_ok=True)
