"""The turns of the broker's thread: the one place that decides when confirms and deliveries are sent.

A turn of the event loop has four parts, in this order:

1. Reads. Each connection processes the bytes of one read, and then what it collected for the end of it: messages are
   put into their queues, acks go to the journals, and publishers ask for their confirms with `when_durable`.
2. Durability. The syncs that the turn requested begin: first, since publishers need not wait for consumers. A lone
   small one is done at once and confirmed; others are done by threads, and confirmed in a later turn. If the store
   confirms by its replica, a confirm then waits at the gate of the store, and is sent in the turn after.
3. Deliveries, from each queue that `deliver_from` named.
4. `after_turn`: what no client waits for, such as notifying readers in other processes.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial

from holdfast.base.confirm_gate import ConfirmGate
from holdfast.base.errors import HoldfastError
from holdfast.broker.group_commit import Done, GroupCommitter, SyncRequest
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.log.log import Log
from holdfast.queue import Queue

__all__ = ["TurnScheduler"]

logger = logging.getLogger("holdfast.broker")

_SEVERAL = 3
"""Requests after which a sync starts before the turn ends: a turn may read megabytes while the disk is idle."""
_AT_ONCE = 4
"""Chunks that `deliver_now` delivers at most: more than one put adds, but not all of a long backlog."""


class TurnScheduler:
    """What is to be done at the end of the turn, and after it.

    Threads: `deliver_from` and `deliver_now` may be called from any thread, everything else from the thread that made
    it. `post` brings a call to that thread from any other, and `soon` schedules one after the current turn. Locks:
    `_asking` protects the requests of other threads, and is never held during a call.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        soon: Callable[[Callable[[], None]], object],
        delivered: Callable[[Queue], None] = lambda queue: None,
        gate: ConfirmGate | None = None,
    ) -> None:
        """Schedule for the thread that makes it; `gate` is where confirms wait for the replica of the store."""
        self.after_turn = soon
        """Call a function after the current turn: when its confirms and deliveries are on the sockets."""
        self.committer = GroupCommitter(post, soon)
        self._post = post
        self._gate = gate
        self._delivered = delivered
        """Called with each queue that has delivered."""
        self._thread = threading.get_ident()
        self._syncs: list[SyncRequest] = []
        self._due: dict[BrokerQueue, None] = {}
        self.is_pending = False
        """Whether the end of the turn is scheduled."""
        self._asking = threading.Lock()
        self._asked: dict[BrokerQueue, list[Callable[[], None]]] = {}
        """Queues that other threads passed to `deliver_now`, each with the functions to call after its deliveries."""

    # Durability.

    def when_durable(self, logs: Iterable[Log], done: Done, *, small: bool = False) -> None:
        """Call `done` when all that was written to these logs is on disk, or with the error that prevents it.

        With `confirm="replica"` it is called when the bucket has it. `small` says that little was written to them. The
        sync begins at the end of the turn, or with the third request.
        """
        if self._gate is not None and self._gate.is_on:
            done = partial(self._confirm, self._gate, done)
        self._syncs.append(SyncRequest(list(logs), done, small=small))
        if len(self._syncs) >= _SEVERAL:
            self.begin_syncs()
        elif not self.is_pending:
            self._end_soon()

    def _confirm(self, gate: ConfirmGate, done: Done, error: HoldfastError | None) -> None:
        """Let a request wait for the replica, without a thread. Called when its logs are on disk."""
        if error is not None:
            done(error)
        elif gate.waits:
            gate.then(lambda error: self._post(partial(done, error)))
        else:
            gate.then(done)

    def begin_syncs(self) -> None:
        """Begin the syncs that were requested so far."""
        if self._syncs:
            requests, self._syncs = self._syncs, []
            self.committer.begin(requests)

    # Deliveries.

    def deliver_from(self, broker_queue: BrokerQueue) -> None:
        """Deliver from a queue at the end of the turn."""
        if threading.get_ident() != self._thread:
            self._post(partial(self.deliver_from, broker_queue))
            return
        self._due[broker_queue] = None
        if not self.is_pending:
            self._end_soon()

    def deliver_now(self, broker_queue: BrokerQueue, then: Callable[[], None]) -> None:
        """Deliver some chunks from a queue now, then call `then`; from another thread, post both to the broker's."""
        if threading.get_ident() == self._thread:
            self._deliver_some(broker_queue, [then])
            return
        with self._asking:
            waiting = self._asked.setdefault(broker_queue, [])
            waiting.append(then)
            is_first = len(waiting) == 1  # else a request for this queue is pending already
        if is_first:
            self._post(partial(self._deliver_asked, broker_queue))

    def _deliver_asked(self, broker_queue: BrokerQueue) -> None:
        with self._asking:
            waiting = self._asked.pop(broker_queue)
        self._deliver_some(broker_queue, waiting)

    def _deliver_some(self, broker_queue: BrokerQueue, waiting: list[Callable[[], None]]) -> None:
        for _ in range(_AT_ONCE):
            if not (self._deliver(broker_queue) and broker_queue.has_more):
                break
        for then in waiting:
            try:
                then()
            except HoldfastError:  # the others must be called nevertheless
                logger.exception(
                    "applying queue limits failed: queue=%s", broker_queue.name, extra={"queue": broker_queue.name}
                )

    def _deliver(self, broker_queue: BrokerQueue) -> bool:
        try:
            if not broker_queue.deliver():
                return False
            self._delivered(broker_queue.queue)
        except Exception:  # an error of one queue must not affect other queues or publishers
            logger.exception("delivery failed: queue=%s", broker_queue.name, extra={"queue": broker_queue.name})
            return False
        return True

    # The end of a turn.

    def _end_soon(self) -> None:
        self.is_pending = True
        self.after_turn(self.end)

    def end(self) -> None:
        """End the turn: begin its syncs, and deliver."""
        self.is_pending = False
        self.begin_syncs()
        due, self._due = self._due, {}
        for broker_queue in due:
            if self._deliver(broker_queue) and broker_queue.has_more:
                broker_queue.deliver_soon()

    def stop(self) -> None:
        """Complete all syncs, and stop the threads. Their `done` calls are posted to the broker's thread."""
        self.begin_syncs()
        self.committer.stop()
