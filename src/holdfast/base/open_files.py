"""LRU limit on logs with open files: an idle log closes its files, and opens them again with its next write.

A log that is written has three files open: the segment, its index and the watermark. A store of ten thousand queues has
twenty thousand logs, of which few are written at the same time. So a log opens its files with its next write, and
closes them when others need the descriptors.

**A log whose files are closed has no unsynced data.** Files are closed only after an fdatasync of everything that was
written to the segment has succeeded. If they were closed before, the kernel could fail to write a page later without
any descriptor to report it to, and the next fdatasync, through another descriptor, could succeed and mean nothing. The
index and the watermark are derived and carry checksums: losing them costs time, never records, so no caller waits for
them.
"""

import os
import resource
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

__all__ = ["OPEN_FILES", "CloseFiles", "OpenFileLimit", "descriptor_limit"]

_PART = 8
"""The descriptor limit of the process, divided by this, is how many logs have open files. Each has three of them."""
_LEAST, _MOST = 16, 4096
_LOOKS = 32
"""How many logs are asked to close their files if that costs no sync, before others are asked to sync and close."""
_INSISTENT_LOOKS = 32


class CloseFiles(Protocol):
    """Callback that asks a log to close its files."""

    def __call__(self, *, at_once: bool) -> None:
        """Close the files and call `leave`, unless they are in use.

        Unless `at_once`, keep files open that were used lately or would have to be synced.
        """
        ...


class OpenFileLimit:
    """The logs with open files, of one `Files` implementation, roughly in order of last use. Threads: any.

    Locks: `_guard` is the last in the lock order, and not held during any call. A log that opens its files holds its
    own I/O lock and asks others to close theirs; those try their I/O locks without waiting.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        """How many logs may have their files open; None: derived from the descriptor limit of the process."""
        self._guard = threading.Lock()
        self._order: OrderedDict[int, Callable[[], CloseFiles | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def admit(self, key: int, close_files: Callable[[], CloseFiles | None]) -> None:
        """Note that a log is about to open its files, and ask others to close theirs if there are too many.

        `close_files` is a weak reference.
        """
        with self._guard:
            self._order[key] = close_files
            self._order.move_to_end(key)
        most = self.most if self.most is not None else _allowed()
        for look in range(_LOOKS + _INSISTENT_LOOKS):
            if len(self._order) <= most:
                return
            self._ask_the_oldest(at_once=look >= _LOOKS)

    def leave(self, key: int) -> None:
        """Note that a log has closed its files."""
        with self._guard:
            self._order.pop(key, None)

    def _ask_the_oldest(self, *, at_once: bool) -> None:
        with self._guard:
            if not self._order:
                return
            key = next(iter(self._order))
            reference = self._order[key]
            self._order.move_to_end(key)  # if it declines, it is asked again after all others
        close_files = reference()
        if close_files is not None:
            close_files(at_once=at_once)  # it calls `leave` with its own lock held: its files may be open again by now
            return
        with self._guard:
            if self._order.get(key) is reference:
                del self._order[key]

    def forget(self) -> None:
        """Remove all logs. Called in a forked child, where they belong to the parent."""
        self._guard = threading.Lock()
        self._order = OrderedDict()


def descriptor_limit() -> int:
    """Return how many files this process may have open. Read each time: a server raises its limit when it starts."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _allowed() -> int:
    return max(_LEAST, min(_MOST, descriptor_limit() // _PART))


OPEN_FILES = OpenFileLimit()
"""The logs with open files on the operating system's file system, in this process."""
os.register_at_fork(after_in_child=OPEN_FILES.forget)
