"""Resource alarms, for memory, disk and the replica; pages out message bodies, the largest queues first."""

import contextlib
import ctypes
import logging
import os
import resource
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast.base.confirm_gate import ConfirmGate
from holdfast.base.open_files import descriptor_limit
from holdfast.log.segment import mapped_files
from holdfast.queue import Queue

__all__ = ["ALARMS", "Limits", "MemoryMonitor", "free_bytes", "keep_allocator_small", "resident_bytes"]

logger = logging.getLogger("holdfast.broker")

_TRIM_BYTES = 16 << 20
_TRAIL_BYTES = 4 << 20
_LOOK_BYTES = 32 << 20
"""Bytes of incomplete bodies after which memory is checked without waiting for the timer."""
_TRAIL_MARKS = 10_000
_SLICES = 10
"""Idle queues are checked in turn: each once in this many calls."""
_MAPPED_PART = 8
"""Mapped segments may use one in this many of the process's file descriptors."""
_STATM = Path("/proc/self/statm")
_M_TRIM_THRESHOLD, _SPARE_BYTES = -1, 32 << 20
_M_MMAP_THRESHOLD, _LARGE_BUFFER = -3, 1 << 20
NORMAL, PAGING, PAGED = "normal", "paging", "paged"
ALARMS = {
    "memory": "low on memory",
    "disk": "low on disk",
    "replica": "the replica does not confirm what was published",
}
"""The alarms that block publishers, and the reason that they are sent."""
_REPLICA_PATIENCE_S = 3.0
"""So long publishers wait for the replica before others are blocked."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Memory and disk limits of the broker."""

    bodies: int = 2 << 30
    """Bytes of message bodies in memory, of all queues."""
    queue_bodies: int = 128 << 20
    """Bytes of message bodies in memory, of one queue."""
    resident: int = 0
    """Bytes of the whole process above which publishers are blocked; 0: six tenths of the machine's memory."""
    disk_free: int = 50 << 20
    """Free bytes of the disk below which publishers are blocked."""
    page_out_at: float = 0.9
    page_out_to: float = 0.8


class MemoryMonitor:
    """Watches memory and free disk space, and pages out message bodies. Used by the broker's thread.

    The server calls `page_out` ten times a second and `look` once. Bodies are also in the log: paging out drops only
    the copy in memory.
    """

    def __init__(
        self, limits: Limits, folder: str, alarm: Callable[[str | None], None], gate: ConfirmGate | None = None
    ) -> None:
        self.limits = limits
        self._gate = gate
        self._folder = folder
        self._alarm = alarm
        self._queues: dict[str, Queue] = {}
        self._trails: dict[str, _Trail] = {}
        self._busy: dict[str, _Trail] = {}
        """Queues that were used since their last check. Writes to a log add to it, from any thread."""
        self._waiting: list[_Trail] = []
        """Queues that are still to be checked in this pass over all of them."""
        self._cached = 0
        """Bytes of bodies in memory: the sum over all queues, each as of its last check."""
        self._states: dict[str, str] = {}
        self._gathered = 0
        """Bytes of incomplete bodies that were received since memory was last checked."""
        self._freed = 0
        """Bytes of bodies that were paged out since the allocator was last trimmed."""
        self._trimmed_to = resident_bytes()
        """Resident bytes of the process after the last trim."""
        self._helper = ThreadPoolExecutor(1, "holdfast-memory")
        self.may_confirm: Callable[[], bool] = lambda: True
        """Whether messages may be confirmed now: not while a standby may own the store."""
        self._is_refusing = False
        """What `look_at_replica` found last."""
        self.blocked: str | None = None
        """Why publishers are blocked, a key of `ALARMS`; None if they are not."""
        self.resident_max = limits.resident or _machine_bytes() * 6 // 10

    def add(self, queue: Queue) -> None:
        """Watch a queue."""
        queue.cache_limit = min(self.limits.queue_bodies, self.limits.bodies)
        self._queues[queue.name] = queue
        trail = self._trails[queue.name] = self._busy[queue.name] = _Trail(queue)
        queue.log.appender.written = partial(self._busy.__setitem__, queue.name, trail)

    def remove(self, queue: Queue) -> None:
        """Stop watching a queue."""
        self._queues.pop(queue.name, None)
        self._states.pop(queue.name, None)
        queue.log.appender.written = None
        self._busy.pop(queue.name, None)
        if (trail := self._trails.pop(queue.name, None)) is not None:
            self._cached -= trail.cached

    def note_delivery(self, queue: Queue) -> None:
        """Note deliveries from a queue, which may have been read from mapped segments: these are released soon."""
        if (trail := self._trails.get(queue.name)) is not None:
            self._busy[queue.name] = trail

    def state(self, queue: Queue) -> str:
        """Return `normal`, `paging` (bodies are being dropped) or `paged` (they are read from disk when needed)."""
        return self._states.get(queue.name, NORMAL)

    def gathered(self, size: int) -> None:
        """Count `size` bytes of an incomplete body, which no queue can page out; call `look` after 32 MiB."""
        self._gathered += size
        if self._gathered >= _LOOK_BYTES:
            self.look()

    def look(self) -> None:
        """Check memory and disk: trim the allocator, and raise or clear the resource alarm.

        If the process exceeds its limit, the bodies of all queues are paged out first; the alarm is raised only if that
        does not help.
        """
        reason = None
        self._gathered = 0
        if resident_bytes() > self._trimmed_to + _TRIM_BYTES:  # freed bodies leave gaps in the heap, which add up
            self._trim()
        if resident_bytes() > self.resident_max:
            for queue in self._queues.values():
                queue.page_out()
            self._busy.update(self._trails)
            if resident_bytes() > self.resident_max:
                reason = "memory"
        if reason is None and free_bytes(self._folder) < self.limits.disk_free:
            reason = "disk"
        if self._gate is not None:
            self._gate.expire()
            if reason is None and self._replica_is_stuck(self._gate):
                reason = "replica"
        if not self.may_confirm():
            reason = "replica"
        if reason != self.blocked:
            self.blocked = reason
            if reason is not None:
                logger.warning("publishers blocked: reason=%s", reason)
            else:
                logger.info("publishers unblocked")
            self._alarm(reason)

    def _replica_is_stuck(self, gate: ConfirmGate) -> bool:
        """Return whether publishers wait for long; once blocked, also while no attempt to ship succeeds."""
        return gate.waits and (
            gate.longest_s >= _REPLICA_PATIENCE_S or (self.blocked == "replica" and gate.trouble is not None)
        )

    def look_at_replica(self) -> None:
        """Call `look` if this process has just lost, or regained, the right to confirm messages. Called often."""
        if self.may_confirm() == self._is_refusing:
            self._is_refusing = not self._is_refusing
            self.look()

    def close(self) -> None:
        """Stop the helper thread."""
        self._helper.shutdown()

    def cached(self) -> int:
        """Return the bytes of bodies in memory."""
        return sum(queue.cached_bytes for queue in self._queues.values())

    def page_out(self) -> None:
        """Drop bodies from memory if all queues hold too many, from the largest queues first. Called often."""
        self._look_at_some()
        limits = self.limits
        if self._cached <= limits.bodies * limits.page_out_at:
            for name, state in list(self._states.items()):
                if state == PAGING:
                    self._states[name] = PAGED
                elif not self._queues[name].inspect.ready:  # no paged-out message is left
                    del self._states[name]
            return
        total = self.cached()
        goal = limits.bodies * limits.page_out_to
        for queue in sorted(self._queues.values(), key=lambda queue: -queue.cached_bytes):
            if total <= goal:
                break
            self._states[queue.name] = PAGING
            freed = queue.page_out()
            total -= freed
            self._account(self._trails[queue.name])
            self._freed += freed
        if self._freed >= _TRIM_BYTES:
            self._trim()

    def _trim(self) -> None:
        """Return free memory to the system: glibc keeps it if anything small is above it."""
        self._freed = 0
        with contextlib.suppress(AttributeError, OSError):  # other C libraries have no malloc_trim
            ctypes.CDLL(None).malloc_trim(0)
        self._trimmed_to = resident_bytes()

    def _look_at_some(self) -> None:
        """Check the active queues and a part of the others: ten thousand idle queues cost little."""
        for name, trail in list(self._busy.items()):
            # Removed first: what is written from here on adds it again.
            if trail.is_idle() or self._trails.get(name) is not trail:
                self._busy.pop(name, None)
            self._look_at(name, trail)
        if not self._waiting:
            self._waiting = list(self._trails.values())
        crowded = mapped_files() > descriptor_limit() // _MAPPED_PART
        for _ in range(min(len(self._waiting), -(-len(self._trails) // _SLICES))):
            trail = self._waiting.pop()
            name = trail.queue.name
            if self._trails.get(name) is not trail:
                continue
            if not trail.is_idle() or trail.marks:
                self._busy[name] = trail
                self._look_at(name, trail)
            elif crowded and not trail.queue.closed:
                trail.queue.page_out()  # its last block may be all that keeps a segment mapped
                self._account(trail)

    def _look_at(self, name: str, trail: "_Trail") -> None:
        if self._trails.get(name) is trail:
            trail.rest()  # first: mapped pages cannot be dropped
            if done := trail.follow():
                self._helper.submit(_drop_pages, done)
            self._account(trail)

    def _account(self, trail: "_Trail") -> None:
        before, trail.cached = trail.cached, trail.queue.cached_bytes
        self._cached += trail.cached - before


class _Mark(NamedTuple):
    """A stretch of a segment file, and the sequence at which it ends."""

    end: int
    path: Path
    start: int
    stop: int


class _Trail:
    """Written parts of a queue's log whose messages are acknowledged: the system can drop them from its page cache.

    Without this, each new message is written to memory that was never used before, while the pages of old ones stay
    cached; on a virtual machine, whose memory is allocated when it is first touched, large messages were half as fast.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.cached = 0
        """Bytes of bodies in memory at the last check."""
        self.marks: deque[_Mark] = deque()
        self._at: tuple[Path | None, int] = (None, 0)
        self._rested = (0, 0)

    def is_idle(self) -> bool:
        """Whether nothing was put, delivered or loaded since the last check."""
        queue = self.queue
        return queue.closed or (
            (queue.log.end, queue.inspect.totals.leased) == self._rested and queue.cached_bytes == self.cached
        )

    def rest(self) -> None:
        """Release the mapped pages that were read since: they count as ours, though the system caches them anyway."""
        log = self.queue.log
        if not self.queue.closed and (now := (log.end, self.queue.inspect.totals.leased)) != self._rested:
            self._rested = now
            log.reader.release_mapped()

    def follow(self) -> list[_Mark]:
        """Record what was written since the last call; return the stretches that are acknowledged."""
        place = self.queue.log.appender.durable_place() if not self.queue.closed else None
        if place is None:
            return []
        path, offset, end = place
        before, start = self._at
        if path != before:
            start = 0
        if offset - start >= _TRAIL_BYTES:
            self.marks.append(_Mark(end, path, start, offset))
            self._at = (path, offset)
            if len(self.marks) > _TRAIL_MARKS:
                self.marks.popleft()
        floor = self.queue.inspect.floor() if self.marks else 0
        done: list[_Mark] = []
        while self.marks and self.marks[0].end <= floor:
            done.append(self.marks.popleft())
        return done


def _drop_pages(done: list[_Mark]) -> None:
    """Drop these stretches from the page cache. It takes 2 ms for 10 MiB, so a helper thread does it."""
    for _, path, start, stop in done:
        with contextlib.suppress(OSError):  # the segment was dropped meanwhile
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(fd, start, stop - start, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def keep_allocator_small() -> None:
    """Make glibc map buffers of a megabyte and more separately, and return them when they are freed.

    It holds for the whole process. By default glibc raises that size up to 32 MiB as large buffers come and go, and
    they leave gaps: ten queues that were filled and drained took 127 MiB, and 100 with this. Smaller buffers come from
    memory that is kept for the next ones: returning it each time took 20 of the 100 us of a message of 64 KiB.
    `MemoryMonitor` trims it.
    """
    with contextlib.suppress(AttributeError, OSError):
        system = ctypes.CDLL(None)
        system.mallopt(_M_MMAP_THRESHOLD, _LARGE_BUFFER)
        system.mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)


def resident_bytes() -> int:
    """Return the resident memory of this process; without /proc, its peak so far."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: the peak of the process
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes(folder: str | Path) -> int:
    """Return the free bytes of the disk with this folder, for users without privileges."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
