"""The ends of a queue other than `Queue.close`: it is deleted, the process ends, or this is a forked child."""

from holdfast.queue.dispatcher import Dispatcher
from holdfast.queue.intake import Intake
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.transfers import Transfers

__all__ = ["QueueEnding"]


class QueueEnding:
    """Ends a queue for the store. Owns nothing."""

    __slots__ = ("_core", "_dispatcher", "_intake", "_transfers")

    def __init__(self, core: QueueCore, intake: Intake, dispatcher: Dispatcher, transfers: Transfers) -> None:
        self._core = core
        self._intake = intake
        self._dispatcher = dispatcher
        self._transfers = transfers

    def close_discarding(self, reason: str) -> None:
        """Close without a checkpoint, because the queue is deleted. Callers get `Closed` with this reason."""
        if self._core.closed is None:
            self._intake.close()
        self._core.close_discarding(reason)

    def leave_waiters_asleep(self) -> None:
        """At the end of the process: do not wake waiting daemon threads on close, since they would fail at once."""
        self._core.waiters.close_discarding()

    def detach_after_fork(self) -> None:
        """Mark the queue as closed. Called in a forked child: the open queue is the parent's."""
        self._dispatcher.detach_after_fork()
        self._transfers.detach_after_fork()
        self._core.detach_after_fork()
