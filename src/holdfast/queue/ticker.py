"""The background work of a queue: expiries, limits, checkpoints, flushes and transfers."""

from holdfast.base.clock import NS
from holdfast.queue.dispatcher import LONGEST_SLEEP_S
from holdfast.queue.expiry import Expiry
from holdfast.queue.lease import NEVER
from holdfast.queue.length_limit import LengthLimit
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.transfers import Transfers

__all__ = ["QueueTicker"]

SWEEP_S = 1.0
"""Interval in seconds at which the ticker checks for messages that expire or exceed the length."""
_RETRY_S = 1.0
_SOON_S = 0.01
"""The shortest wait for the next expiry: messages that expire at about the same time are dropped together."""


class QueueTicker:
    """Does the work of a queue that is due, whenever the background calls it. Uses the queue's lock."""

    def __init__(self, core: QueueCore, expiry: Expiry, limit: LengthLimit, transfers: Transfers) -> None:
        self._core = core
        self._expiry = expiry
        self._limit = limit
        self._transfers = transfers
        self._swept_to = -1
        """How far the log was scanned at the last tick."""
        self._next_overdue = NEVER
        """When the next waiting message expires."""
        if not core.read_only:
            core.waiters.on_signal = self._schedule_sweep

    @property
    def _may_leave(self) -> bool:
        """Whether messages may expire or exceed the limits without a call."""
        core = self._core
        is_timed = self._expiry.ttl_ns is not None or core.state.expiring
        return self._limit.drops_excess or is_timed or "expiry" in core.log.appender.columns_written

    def _schedule_sweep(self) -> None:
        """Wake the background after a write, if messages may have to be dropped before its next tick."""
        core = self._core
        if self._may_leave and core.now() + min(SWEEP_S * NS, self._expiry.ttl_ns or NEVER) < core.alarm.at:
            core.alarm.wake()

    def tick(self) -> float | None:
        """Do the background work that is due; return in how many seconds to call again, None if there is no more."""
        core = self._core
        if core.read_only:
            return None
        if self._limit.drops_excess and core.closed is None:
            self._limit.enforce()  # other writers of the log do not know the limit of this queue
        journal = core.journal
        with core.lock, core.section:
            if core.closed is not None:
                return None
            now = core.now()
            pending_block = core.advance(now)
            self._next_overdue = self._expiry.sweep(now) if self._expiry.is_timed else NEVER
            waits = self._until_next(now)
            flush, idle = journal.log.settings.flush, core.alarm.idle
            if journal.pending:
                journal.flush()
                waits.append(flush.interval_ns / NS)
            else:
                idle = not waits or flush.mode != "sync"
            core.alarm.set(now + round(min(waits) * NS) if waits else NEVER, idle=idle)
        journal.commit(pending_block)
        if core.state.moving:
            self._transfers.carry()
        more = journal.log.tick()
        return min([*waits, *([more] if more is not None else [])], default=None)

    def _until_next(self, now: int) -> list[float]:
        core = self._core
        checkpoint = core.checkpoint_if_due()
        state = core.state  # afterwards: it may have been loaded again
        waits = [checkpoint] if checkpoint is not None else []
        if (left := state.leases.due_in(now)) is not None:
            waits.append(min(left / NS, LONGEST_SLEEP_S))
        # New messages may have been delivered by now: then one more check is enough, and not one with each put.
        if (self._expiry.is_timed and state.ready) or (self._may_leave and state.scanned != self._swept_to):
            waits.append(min(SWEEP_S, max(_SOON_S, (self._next_overdue - now) / NS)))
        self._swept_to = state.scanned
        if state.moving:
            waits.append(_RETRY_S)
        if (core.waiters.listeners or self._may_leave) and (due := state.delayed.next_due) is not None:
            waits.append(max(0.0, min((due - now) / NS, LONGEST_SLEEP_S)))
        return waits
