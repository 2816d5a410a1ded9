"""Where calls wait, after they have released all locks, until what they wrote is confirmed by a replica."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue

from holdfast.base.clock import Clock
from holdfast.base.errors import Closed, HoldfastError, NotConfirmed

__all__ = ["ConfirmGate", "Confirmed", "Waiter"]

logger = logging.getLogger("holdfast.replica")

Confirmed = Callable[[HoldfastError | None], None]
"""Called once, from any thread: with None when it is confirmed, otherwise with the reason why it is not."""

_LOOK_S = 1.0
"""How often a waiting thread checks that its confirmation can still come."""
_SOON_S = 0.02
"""After so many seconds the first call whose records share a block makes them durable: until then the cut of the
replica does. Longer than a cut takes, and short for those who read what others have put."""
_HEADS = 2
"""How many threads are woken at once; each wakes the next. All at once, they got in each other's way: 256 threads that
wait for a sync alone took 37 us of a processor for each call, and 29 so."""
_LONG_S = 5.0
"""After so many seconds of waiting a warning is logged, once until something is confirmed again."""


class Waiter:
    """A call that waits for its confirmation, which is given once: by the thread that takes the only item of `_due`.

    Nothing in it is locked: a signal handler may cut off the thread that waits at any instruction.
    """

    __slots__ = ("_due", "_following", "is_thread", "outcome", "since")

    def __init__(self, answer: Confirmed, since: float, *, is_thread: bool = False) -> None:
        self.since = since
        """When it began to wait, by the monotonic clock."""
        self.is_thread = is_thread
        """Whether a thread waits, and wakes those that follow it."""
        self.outcome: list[HoldfastError | None] = []
        """Of a thread: its answer, when it is known; a thread that waits before it may not have woken it yet."""
        self._due = [answer]
        self._following: list[Waiter] = []

    def answer(self, error: HoldfastError | None) -> bool:
        """Answer the call; return False if it was answered before."""
        try:
            answer = self._due.pop()  # one call of C code: two threads cannot both have it
        except IndexError:
            return False
        try:
            answer(error)
        except Exception:  # the others must be answered nevertheless
            logger.exception("answering a caller that waited for the replica failed")
        return True

    def lead(self, following: "list[Waiter]") -> None:
        """Wake these when this one has woken: their outcomes are set."""
        self._following = following

    def leave(self) -> None:
        """Wake who follows. Called by the thread that waited, when it goes on for whatever reason."""
        del self._due[:]
        following, self._following = self._following, []
        while following:
            try:
                one = following.pop()
            except IndexError:  # another thread has the same list, if one that it led was cut off, and took the last
                return
            if one.outcome:
                one.lead(following)
                if one.answer(one.outcome[0]):
                    return  # it wakes the others
                following = one.take_following()

    def take_following(self) -> "list[Waiter]":
        """Return those that it would have woken, and has not."""
        following, self._following = self._following, []
        return following


class ConfirmGate:
    """The calls of a store that wait until a replica has what they wrote. One for each store, off without a replica.

    Calls come here at the public boundaries, with no lock held: a consistent cut of the store takes its locks. A cut
    has all logs, so it answers every call that began to wait before it, whatever that has written.

    Two things may be asked of it, both by `begin`. *Waiting*: `confirm` and `then` answer when `release` was called
    with a list that `waiting` returned after they began. *Checking*: `check`, before something is written and after,
    raises if this process may not confirm anything now. `is_on` is false without either: callers read it first, where
    a call would cost too much.

    Threads: any. There is no lock: the waiting calls are the keys of a dict, which C code changes in one step.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_on = False
        """Whether anything is to be waited for or checked."""
        self.waits = False
        """Whether a call waits for the replica; otherwise it only checks."""
        self.timeout: float | None = None
        """After so many seconds a call that waits gets `NotConfirmed`; None: it waits forever."""
        self._clock = clock
        self._waiting: dict[Waiter, None] = {}
        self._check: Callable[[], None] = _nothing
        self._wake: Callable[[], None] = _nothing
        self._serve: Callable[[], None] | None = None
        self._is_served: Callable[[], bool] = bool
        self._why: Callable[[], str | None] = lambda: None
        self._ended: str | None = None
        self._warned = False

    def begin(
        self,
        *,
        check: Callable[[], None],
        waits: bool,
        timeout: float | None = None,
        wake: Callable[[], None] = lambda: None,
        serve: Callable[[], None] | None = None,
        is_served: Callable[[], bool] = lambda: True,
        why: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Check from now on, and with `waits` wait.

        `check` raises `ReplicaFenced` if nothing may be confirmed. `wake` is called when a call begins to wait, from
        its thread. Without background threads `serve` does what answers it; otherwise `is_served` says whether there
        is still a thread that can. `why` returns what is wrong with the replica, for errors.
        """
        self._check, self._wake, self._serve = check, wake, serve
        self._is_served, self._why = is_served, why
        self.timeout, self.waits = timeout, waits
        self._ended = None
        self.is_on = True

    def check(self) -> None:
        """Raise `ReplicaFenced` if nothing may be confirmed now. Called before something is written."""
        if self.is_on:
            self._check()

    def confirm(self, keep: Callable[[], object] = bool, *, soon: bool = False) -> None:
        """Return when everything that was written before is confirmed. Call it with no lock held.

        `keep` makes sure that it is on the local disk, or raises. It is called if the confirmation takes longer than a
        second or, with `soon`, 20 ms; at once without background threads.

        Raises `ReplicaFenced`, and `NotConfirmed` after the timeout or when the store is closed meanwhile.
        """
        if not self.is_on:
            return
        self._check()
        if self.waits:
            answer: SimpleQueue[HoldfastError | None] = SimpleQueue()
            waiter = Waiter(answer.put, self._clock.monotonic(), is_thread=True)
            try:
                if self._serve is not None:
                    keep()
                self._enter(waiter)
                error = self._await(answer, waiter, keep, _SOON_S if soon else _LOOK_S)
            finally:
                self._waiting.pop(waiter, None)  # also if a signal handler has cut off the wait
                waiter.leave()
            if error is not None:
                raise error

    def then(self, done: Confirmed) -> None:
        """Call `done` when everything that was written before is confirmed, or with the error. Returns at once.

        `done` is called from any thread, perhaps this one. Someone must call `expire` from time to time.
        """
        if not self.is_on:
            done(None)
            return
        try:
            self._check()
        except HoldfastError as error:
            done(error)
            return
        if not self.waits:
            done(None)
            return
        self._enter(Waiter(done, self._clock.monotonic()))

    # For who confirms.

    def waiting(self) -> list[Waiter]:
        """Return the calls that wait now, the oldest first."""
        return list(self._waiting)  # one call of C code

    def release(self, waiters: Iterable[Waiter], error: HoldfastError | None = None) -> None:
        """Answer these calls: they are confirmed, or `error` says why they are not."""
        threads: list[Waiter] = []
        for waiter in waiters:
            if waiter.is_thread:
                waiter.outcome.append(error)
                threads.append(waiter)
            else:
                waiter.answer(error)
            self._waiting.pop(waiter, None)
        threads.reverse()
        for number in range(min(_HEADS, len(threads))):
            following = threads[number::_HEADS]
            one = following.pop()
            one.lead(following)
            if not one.answer(error):
                one.leave()
        if error is None and self._warned:
            self._warned = False
            logger.warning("replica confirms again")

    def expire(self) -> None:
        """Answer calls of `then` that have waited for longer than the timeout."""
        now = self._clock.monotonic()
        for waiter in self.waiting():
            if self.timeout is None or now - waiter.since < self.timeout:
                break
            self.release([waiter], self._late(now - waiter.since))
        self._warn_if_long(now)

    def end(self, why: str) -> None:
        """Answer all calls that still wait, and those that come later, with `NotConfirmed`."""
        if self.is_on and self.waits:
            self._ended = why
            self.release(self.waiting(), NotConfirmed(why))

    @property
    def trouble(self) -> str | None:
        """What is wrong with the replica; None if nothing is."""
        return self._why()

    @property
    def count(self) -> int:
        """How many calls wait."""
        return len(self._waiting)

    @property
    def longest_s(self) -> float:
        """For how many seconds the oldest of them has waited; 0 if none waits."""
        waiting = self.waiting()
        return max(0.0, self._clock.monotonic() - waiting[0].since) if waiting else 0.0

    # ------------------------------------------------------------

    def _enter(self, waiter: Waiter) -> None:
        self._waiting[waiter] = None
        if self._ended is not None:  # read after it was entered: `end` answers those that were entered before
            self.release([waiter], NotConfirmed(self._ended))
        else:
            self._wake()

    def _await(
        self, answer: "SimpleQueue[HoldfastError | None]", waiter: Waiter, keep: Callable[[], object], look_s: float
    ) -> HoldfastError | None:
        clock = self._clock
        until = None if self.timeout is None else waiter.since + self.timeout
        while True:
            left = _LOOK_S if until is None else until - clock.monotonic()
            if self._serve is not None:
                if not answer.empty():
                    return answer.get()
                if left > 0:
                    self._serve_or_sleep(left)
            else:
                with suppress(Empty):
                    return answer.get(timeout=max(0.0, min(left, look_s)))
                if waiter.outcome:  # a signal handler has cut off who was to wake it
                    return waiter.outcome[0]
                if not self._is_served() and answer.empty():
                    return Closed("the store was closed before the replica confirmed: open it again")
                keep()
                look_s = _LOOK_S
            now = clock.monotonic()
            self._warn_if_long(now)
            if until is not None and now >= until and answer.empty():
                return self._late(now - waiter.since)

    def _serve_or_sleep(self, left: float) -> None:
        """Do what answers the calls, for a store without background threads; after an error wait a little."""
        assert self._serve is not None
        try:
            self._serve()
        except HoldfastError:  # noted by the replica; the next try may succeed
            self._clock.sleep(min(left, _LOOK_S))

    def _late(self, seconds: float) -> NotConfirmed:
        why = self._why()
        return NotConfirmed(
            f"the replica has not confirmed within {seconds:.0f} s ({why or 'the bucket is slow'}). What was written "
            "is on the local disk and is not confirmed; it is shipped when the bucket answers. Writing it again may "
            "duplicate it"
        )

    def _warn_if_long(self, now: float) -> None:
        waiting = self.waiting()
        if waiting and not self._warned and now - waiting[0].since >= _LONG_S:
            self._warned = True
            logger.warning(
                "callers wait for the replica: waiting=%d seconds=%.0f reason=%s",
                len(waiting),
                now - waiting[0].since,
                self._why() or "slow",
            )


def _nothing() -> None:
    """Do nothing."""
