"""Retention of a queue's journal, and of acknowledged messages in its log."""

from holdfast.log.log import Log
from holdfast.queue.queue_core import QueueCore

__all__ = ["QueueHistory"]


class QueueHistory:
    """What a store asks of a queue about its past: for retention, a full disk, and backups. Uses the queue's lock."""

    def __init__(self, core: QueueCore) -> None:
        self._core = core

    def sync(self) -> None:
        """Return when all messages and events so far are on disk. It waits for no replica: see `Queue.sync`."""
        core = self._core
        core.check_writable()
        core.log.appender.sync()
        core.make_durable()

    def has_events_before(self, moment: int) -> bool:
        """Return whether `retire` may find events to drop. Cheap: it reads no file and takes no lock."""
        core = self._core
        return not core.read_only and core.closed is None and core.journal.is_past(moment)

    def retire(self) -> None:
        """Drop events that are older than `history`, in a queue without activity. Called by the store's background."""
        core = self._core
        moment = core.now() - core.history_ns
        if core.read_only or not core.history_ns or not core.journal.is_past(moment):
            return
        with core.lock, core.section:
            if self._is_unusable or not core.journal.is_past(moment):
                return
            core.catch_up(core.now())
            core.checkpoints.save(core.state)
            if core.journal.log.appender.is_past(moment):
                core.checkpoints.renew_journal()

    def may_shorten(self) -> bool:
        """Return whether `shorten` would let the log drop a segment whose messages have all left the queue."""
        core = self._core
        if core.read_only:
            return False
        with core.lock, core.section:
            if self._is_unusable:
                return False
            floor = self._stored_floor()
            return floor > core.checkpoints.floor_kept and core.log.appender.has_segment_below(floor)

    def shorten(self) -> None:
        """Save the position below which all messages have left the queue, so that the log may drop them.

        The journal has all events since the last checkpoint, so no new one is needed. It is made only if there are
        unsaved dedup ids: they would be dropped with the log.
        """
        core = self._core
        with core.lock, core.section:
            if self._is_unusable:
                return
            if core.state.dedup.unsaved:
                core.recover_and_save()
            else:
                core.journal.confirm()
                core.checkpoints.keep_floor(self._stored_floor())

    def hand_over(self) -> Log:
        """For a backup: return the journal's log, after appending every event to it."""
        core = self._core
        if not (core.journal.durable or core.read_only):
            with core.lock, core.section:
                if not self._is_unusable:
                    core.journal.flush()
        return core.journal.log

    @property
    def _is_unusable(self) -> bool:
        return self._core.closed is not None or self._core.journal.broken

    def _stored_floor(self) -> int:
        return min(self._core.state.floor(), self._core.log.reader.end)
