"""When written records are synced in the background, under the flush mode `async`."""

from collections.abc import Callable

from holdfast.base.clock import Clock

__all__ = ["SYNC_AFTER_S", "DelayedSync"]

SYNC_AFTER_S = 0.8
"""Seconds from a write to its sync in the background: about a second with the write and the sync."""
_ASK_AGAIN_S = 10.0
"""Seconds without a sync after which it is requested again: the syncing thread has ended, as closing a store failed."""


class DelayedSync:
    """Requests a sync once something is written: so the durable end follows the visible one without calls of `sync`.

    A log without unsynced records requests nothing. Has no lock: one thread requests, another one syncs.
    """

    def __init__(self, clock: Clock, sync_later: Callable[[], None]) -> None:
        self._clock = clock
        self._sync_later = sync_later
        self._asked_at: float | None = None
        """When `sync_later` was called, if nothing was synced since."""
        self._unsynced_since: float | None = None

    def request(self) -> None:
        """Ask for a sync of what was written, if no other one is expected."""
        now, asked_at = self._clock.monotonic(), self._asked_at
        if asked_at is None or now - asked_at > _ASK_AGAIN_S:
            self._asked_at = now
            self._sync_later()

    def due_in(self) -> float:
        """Return in how many seconds to sync: `SYNC_AFTER_S` after the first call since the last sync."""
        now = self._clock.monotonic()
        if self._unsynced_since is None:
            self._unsynced_since = now
        return self._unsynced_since + SYNC_AFTER_S - now

    def begin(self) -> None:
        """Note that a sync begins: records that are written while it runs request another one."""
        self._unsynced_since = self._asked_at = None
