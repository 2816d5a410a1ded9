"""Limits on waiting messages and their bytes, and their suspension while messages are put for idle consumers."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.base.errors import HoldfastError, QueueFull
from holdfast.queue.delayed import Entry
from holdfast.queue.queue_core import QueueCore, Turn

__all__ = ["LengthLimit", "LimitHold", "LimitHolds"]


class LimitHold(NamedTuple):
    """A suspension of a queue's limits."""

    since: int
    """When the suspension began: messages are expired as of this time."""
    end: int
    """The first sequence to which length limits do not apply."""
    extra_capacity: int
    """How many messages above its limit the queue accepts, if it rejects messages when full."""


class LimitHolds:
    """The active suspensions of a queue. Used with the queue's lock held."""

    def __init__(self) -> None:
        self._held: list[LimitHold] = []

    def add(self, hold: LimitHold) -> None:
        """Begin a suspension."""
        self._held.append(hold)

    def remove(self, hold: LimitHold) -> None:
        """End a suspension."""
        self._held.remove(hold)

    def time(self, now: int) -> int:
        """Return the time to compare expiries with: when the oldest suspension began, or now."""
        return min(now, *(hold.since for hold in self._held)) if self._held else now

    def end(self, end: int) -> int:
        """Return the first sequence to which length limits do not apply; at most `end`."""
        return min(end, *(hold.end for hold in self._held)) if self._held else end

    @property
    def extra_capacity(self) -> int:
        """How many messages above its limit a queue accepts that rejects messages when full."""
        return max((hold.extra_capacity for hold in self._held), default=0)


class LengthLimit:
    """The limits of a queue, `max_length` and `max_bytes`. Owns their suspensions, with the queue's lock.

    Invariant: after `enforce`, a queue that drops excess messages is within its limits, except for messages that were
    put under a suspension.
    """

    def __init__(self, core: QueueCore) -> None:
        settings = core.settings
        self.is_unbounded = settings.max_length is None and settings.max_bytes is None
        """Whether the queue has no limit."""
        self.drops_excess = not self.is_unbounded and settings.overflow != "reject"
        """Whether excess messages are dropped or dead-lettered, and not rejected."""
        self.holds = LimitHolds()
        self._core = core

    def suspend(self, extra_capacity: int = 0) -> LimitHold:
        """Suspend expiry and length limits for new messages until `resume`; return the suspension to pass to it.

        For callers that put messages for idle consumers: messages that these take are not dropped first. A queue that
        rejects messages when it is full accepts `extra_capacity` more.
        """
        core = self._core
        with core.lock:
            hold = LimitHold(core.now(), core.log.end, extra_capacity)
            self.holds.add(hold)
        return hold

    def resume(self, hold: LimitHold) -> None:
        """End a suspension, and apply the limits to what is left, except messages put under another suspension."""
        with self._core.lock:
            self.holds.remove(hold)
        if self.drops_excess and self._core.closed is None:
            self.enforce()

    def check_space(self, payloads: list[bytes], staged: tuple[int, int] = (0, 0)) -> None:
        """Raise `QueueFull` if the queue cannot accept these messages and `staged`. Called with the lock held."""
        core = self._core
        settings, state, count = core.settings, core.state, len(payloads) + staged[0]
        if settings.overflow != "reject":
            return
        waiting = state.waiting + core.log.end - state.scanned
        extra_capacity = self.holds.extra_capacity
        if waiting + count <= extra_capacity:
            return
        if settings.max_length is not None and waiting + count > settings.max_length + extra_capacity:
            raise QueueFull(
                f"the queue {core.name!r} holds {waiting} of at most {settings.max_length} messages and cannot accept "
                f"{count} more; nothing was written: try again later, or open it with another overflow or max_length"
            )
        if settings.max_bytes is not None:
            held = state.waiting_bytes + core.log.appender.bytes_after(state.scanned)
            if held + (more := sum(map(len, payloads)) + staged[1]) > settings.max_bytes:
                raise QueueFull(
                    f"the queue {core.name!r} holds {held} of at most {settings.max_bytes} bytes and cannot accept "
                    f"{more} more; nothing was written: try again later, or open it with another overflow or max_bytes"
                )

    def enforce(self) -> None:
        """Drop or dead-letter the oldest messages, lowest priority first, until the queue is within its limits."""
        core = self._core
        with core.lock, core.turn() as turn:
            messages, size = self._excess()
            if messages > 0 or size > 0:
                self._drop_excess(messages, size, turn)
        core.finish(turn.pending_block)

    def _excess(self) -> tuple[int, int]:
        """Return how many messages, and how many bytes, are above the limits."""
        state, settings = self._core.state, self._core.settings
        messages = size = 0
        judged = self.holds.end(state.scanned)
        if settings.max_length is not None:
            messages = state.waiting - (state.scanned - judged) - settings.max_length
        if settings.max_bytes is not None and state.weights is not None:
            fresh = state.weights.between(judged, state.scanned) if judged < state.scanned else 0
            size = state.waiting_bytes - fresh - settings.max_bytes
        return messages, size

    def _drop_excess(self, messages: int, size: int, turn: Turn) -> None:
        state, settings = self._core.state, self._core.settings
        leaving: list[int] = []
        for start, stop in self._oldest(messages, size):
            leaving += range(start, stop)
            messages -= stop - start
            size -= state.weights.between(start, stop) if state.weights is not None else 0
        # The rest of the excess is delayed: those that are due next become ready, and are dropped with the others.
        early: list[Entry] = []
        while (messages > 0 or size > 0) and (taken := state.fire_early(1 if size > 0 else messages)):
            early += taken
            leaving += [sequence for _, sequence, _ in taken]
            messages -= len(taken)
            if state.weights is not None:
                size -= sum(state.weights.between(sequence, sequence + 1) for _, sequence, _ in taken)
        target = settings.dead_letter if settings.overflow == "dead-letter" else None
        try:
            turn.apply([state.removal(turn.now, "overflow", "the queue was full", sorted(leaving), target)])
        except HoldfastError:  # after any other exception the state is loaded again
            state.delay_again(early)
            raise

    def _oldest(self, messages: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield the oldest ready messages, lowest priority first: at least so many, with at least so many bytes."""
        state = self._core.state
        weights = state.weights
        for level in state.ready.levels:
            if messages <= 0 and size <= 0:
                return
            spans: Iterable[tuple[int, int]] = level if size > 0 else level.front(messages)
            for start, stop in spans:
                end = min(stop, start + max(messages, 0))
                if size > 0 and weights is not None:
                    end = max(end, weights.reach(start, stop, size))
                    size -= weights.between(start, end)
                messages -= end - start
                if end > start:
                    yield start, end
                if messages <= 0 and size <= 0:
                    return
