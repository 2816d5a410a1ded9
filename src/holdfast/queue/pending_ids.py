"""Dedup ids of messages that are being put, shared by the queues of a log."""

import threading
from weakref import WeakKeyDictionary

from holdfast.log.log import Log
from holdfast.log.pending_block import PendingBlock

__all__ = ["PendingIds"]


class PendingIds:
    """The dedup ids of messages that are appended to one log and not yet visible.

    `guard` is held while an id is checked and its message appended, so that two queues of the log do not both append
    it. Invariant: a message whose id is not in `blocks` is visible to every queue of the log, or was never appended.
    """

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.blocks: dict[bytes, PendingBlock] = {}
        """By id, the block of the message. Used with the guard held."""

    @staticmethod
    def of(log: Log) -> "PendingIds":
        """Return the ids of a log, the same object for each of its queues."""
        return _of_logs.setdefault(log, PendingIds())

    def forget(self, pending_block: PendingBlock) -> None:
        """Remove the ids of this block: it is visible, or never will be."""
        with self.guard:
            self._forget(pending_block)

    # Loops that run with a lock held are in separate functions: see "Signals" in docs/architecture.md.

    def _forget(self, pending_block: PendingBlock) -> None:
        for key in list(self.blocks):
            if self.blocks[key] is pending_block:
                del self.blocks[key]


_of_logs: WeakKeyDictionary[Log, PendingIds] = WeakKeyDictionary()
