"""Waiting for messages in asyncio without a thread per caller: polls are served in turn, a batch at a time."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from itertools import islice
from typing import Any

from holdfast.base.clock import NS, Duration, duration_ns, positive_ns
from holdfast.base.errors import Closed, HoldfastError, InvalidArgument
from holdfast.queue.messages import Delivery
from holdfast.queue.queue import Queue

__all__ = ["AsyncLeases"]

logger = logging.getLogger("holdfast.queue")

WATCH_S = 1.0
"""Interval in seconds of the check whether the queue was closed: listeners are not notified of that."""
_LONGEST_WAIT_S = 10 * 365 * 86_400.0


class _Poll:
    """A call that waits for up to `demand` messages."""

    __slots__ = ("answer", "demand", "lease_ns", "most_bytes")

    def __init__(
        self, demand: int, lease_ns: int, most_bytes: int | None, answer: "asyncio.Future[list[Delivery]]"
    ) -> None:
        self.demand = demand
        self.lease_ns = lease_ns
        self.most_bytes = most_bytes
        self.answer = answer


class AsyncLeases:
    """The waiting polls of one queue in one event loop. Created and used in that loop's thread.

    A queue calls its listeners whenever there may be more to lease: after a put, when a delay ends, when a lease
    expires. Then one *dealing* runs in a thread of the executor, never two at once, because it may wait for the disk.
    It counts the ready messages, takes at most that many polls from the head of the line, and leases its share to each;
    all leases of a dealing are made durable together. So a message costs the same with one waiting poll or ten
    thousand. `_guard` protects the line.
    """

    def __init__(self, queue: Queue, *, executor: Executor | None = None) -> None:
        self.queue = queue
        self._lease_ns = queue.settings.nanoseconds("lease") or 0
        self._loop = asyncio.get_running_loop()
        self._executor = executor
        self._line: dict[_Poll, None] = {}
        """The waiting polls in order of arrival. Changed by the loop and by the dealing, with the guard held."""
        self._guard = threading.Lock()
        self._hasty: list[_Poll] = []
        """Polls that wait only until the next dealing has ended."""
        self._called = False
        """Whether the loop was notified that there may be more, and has not checked yet."""
        self.deals = False
        """Whether a dealing is in progress."""
        self._deals_again = False
        self.at_work: set[asyncio.Future[None]] = set()
        """What runs in the background for waiting polls."""
        self._stop_listening: Callable[[], None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._closed: HoldfastError | None = None

    def __len__(self) -> int:
        """Return the number of waiting polls."""
        return len(self._line)

    async def lease(
        self,
        count: int = 1,
        *,
        lease: Duration | None = None,
        wait: Duration | None = None,
        most_bytes: int | None = None,
    ) -> list[Delivery]:
        """As `Queue.lease`, but it waits forever unless `wait` is given; returns none if the time is up.

        A poll that is cancelled keeps nothing: messages that were just leased to it are released.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidArgument(f"lease needs a count of at least 1, not {count!r}")
        lease_ns = self._lease_ns if lease is None else positive_ns(lease, "lease")
        patience = _LONGEST_WAIT_S if wait is None else duration_ns(wait, "wait") / NS
        if self._closed is not None:
            raise Closed(*self._closed.args)
        self._listen()
        poll = _Poll(count, lease_ns, most_bytes, self._loop.create_future())
        with self._guard:
            self._line[poll] = None
        timer: asyncio.TimerHandle | None = None
        if patience == 0:
            self._hasty.append(poll)
        elif patience < _LONGEST_WAIT_S:
            timer = self._loop.call_later(patience, self._send_away, poll)
        self._start()
        try:
            return await poll.answer
        except asyncio.CancelledError:
            self._leave(poll)
            if not poll.answer.cancelled() and poll.answer.exception() is None:  # served, but not resumed yet
                self.give_back(poll.answer.result())
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Release deliveries in the background, for callers that can no longer use them."""
        if deliveries:
            self._keep(self._release(deliveries))

    async def close(self, reason: str = "waiting for messages was ended: the server is stopping") -> None:
        """Fail all polls with `Closed`, and return when nothing is running."""
        self._closed = Closed(reason)
        self._stop_watching()
        self._fail_all(self._closed)
        while self.at_work:
            await asyncio.wait(set(self.at_work))

    # In the loop's thread.

    def _listen(self) -> None:
        if self._stop_listening is None:
            self._stop_listening = self.queue.listen(self._may_be_more)
        if self._watch is None:
            self._watch = self._loop.call_later(WATCH_S, self._look_around)

    def _look_around(self) -> None:
        self._watch = None
        if not self._line and not self.deals:
            self._stop_watching()  # without polls, puts need not call a listener
            return
        if self.queue.closed:
            self._start()  # which fails the polls with the reason
        self._watch = self._loop.call_later(WATCH_S, self._look_around)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None

    def _start(self) -> None:
        """Start a dealing, or another one after the running one."""
        if self.deals:
            self._deals_again = True
        elif self._line:
            self.deals, self._deals_again = True, False
            hasty, self._hasty = self._hasty, []
            self._keep(self._deal_once(hasty))

    async def _deal_once(self, hasty: list[_Poll]) -> None:
        line = _Line(self._line, self._guard)
        dealt = line.dealt
        try:
            await self._loop.run_in_executor(self._executor, self._serve, line)
        except Exception as error:
            for poll, deliveries in dealt:
                _answer_error(poll, error)
                self.give_back(deliveries)
            self._fail_all(error)
        else:
            orphans: list[Delivery] = []
            for poll, deliveries in dealt:
                if poll.answer.done():  # it was cancelled, or its time was up, while it was served
                    orphans += deliveries
                else:
                    poll.answer.set_result(deliveries)
            if orphans:
                self.give_back(orphans)
        finally:
            for poll in hasty:
                self._send_away(poll)
            self.deals = False
            if self._deals_again or self._hasty:
                self._start()

    def _send_away(self, poll: _Poll) -> None:
        """End a poll whose time is up. One that has left the line is being answered."""
        if self._leave(poll) and not poll.answer.done():
            poll.answer.set_result([])

    def _leave(self, poll: _Poll) -> bool:
        with self._guard:
            return self._line.pop(poll, _ABSENT) is None

    def _fail_all(self, error: Exception) -> None:
        with self._guard:
            polls = list(self._line)
            self._line.clear()
        for poll in polls:
            _answer_error(poll, error)

    async def _release(self, deliveries: list[Delivery]) -> None:
        try:
            await self._loop.run_in_executor(self._executor, self.queue.settler.try_release, deliveries)
        except HoldfastError as error:  # then their lease expires
            logger.warning("release of unclaimed messages failed: queue=%s error=%s", self.queue.name, error)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self.at_work.add(task)
        task.add_done_callback(self.at_work.discard)

    # In any thread.

    def _may_be_more(self) -> None:
        if self._line and not self._called:
            self._called = True
            with contextlib.suppress(RuntimeError):  # the loop is closed, and no poll waits in it
                self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self._called = False
        self._start()

    # In a thread of the executor.

    def _serve(self, line: "_Line") -> None:
        dispatcher, transfers = self.queue.dispatcher, self.queue.transfers
        if dispatcher.deal(line):
            self._deals_again = True
        try:
            transfers.start_if_moving()
        except HoldfastError as error:  # the background tries again; the polls must still get their messages
            logger.warning("transfer of dead letters failed, will retry: queue=%s error=%s", self.queue.name, error)


class _Line:
    """The waiting polls, as `Dispatcher.deal` serves them. Its `dealt` is changed in a thread of the executor."""

    def __init__(self, polls: dict[_Poll, None], guard: threading.Lock) -> None:
        self.dealt: list[tuple[_Poll, list[Delivery]]] = []
        """The polls that were served, and their messages."""
        self._polls = polls
        self._guard = guard

    def first(self, count: int) -> list[_Poll]:
        """Return the first waiting polls, at most so many."""
        with self._guard:
            return list(islice(self._polls, count))

    def waits(self, caller: _Poll) -> bool:
        """Return whether a poll still waits."""
        with self._guard:
            return caller in self._polls

    def serve(self, caller: _Poll, deliveries: list[Delivery]) -> None:
        """Give a poll its messages; it no longer waits."""
        with self._guard:
            self._polls.pop(caller, None)
        self.dealt.append((caller, deliveries))


_ABSENT = object()


def _answer_error(poll: _Poll, error: Exception) -> None:
    if not poll.answer.done():
        poll.answer.set_exception(type(error)(*error.args) if isinstance(error, HoldfastError) else error)
        poll.answer.exception()  # marks it as retrieved: the caller may be gone
