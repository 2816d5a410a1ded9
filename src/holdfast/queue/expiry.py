"""Time to live and starvation of waiting messages."""

import logging
from collections.abc import Callable

from holdfast.log.record import NO_HEADERS, Headers
from holdfast.queue.body_cache import Page
from holdfast.queue.events import Dropped
from holdfast.queue.lease import NEVER
from holdfast.queue.length_limit import LimitHolds
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.ranges import spans_of
from holdfast.queue.ready import Pick

__all__ = ["Columns", "Expiry"]

logger = logging.getLogger("holdfast.queue")

Columns = tuple[list[bytes], list[int], list[bytes | None] | None, list[Headers] | None]
"""Payloads, times, and keys and headers if any message has some."""
_SWEPT = 256
"""How many messages a sweep reads at a time."""


class Expiry:
    """Reads waiting messages, and drops those that are expired or unreadable. Used with the queue's lock held."""

    def __init__(self, core: QueueCore, holds: LimitHolds) -> None:
        self.ttl_ns = core.settings.nanoseconds("ttl")
        """The time to live of messages without one of their own; None: they do not expire."""
        self._starvation_ns = core.settings.nanoseconds("starvation")
        self._core = core
        self._holds = holds

    @property
    def is_timed(self) -> bool:
        """Whether there may be messages that expire."""
        return self.ttl_ns is not None or self._core.state.expiring

    def read(
        self, picks: list[Pick], now: int, most_bytes: int | None = None
    ) -> tuple[list[int], Columns, list[int], list[int]]:
        """Return the columns of these messages, and which are expired or lost; limited to pages of so many bytes."""
        bodies = self._core.bodies
        bytes_left = most_bytes if most_bytes is not None else 1 << 62
        ids: list[int] = []
        payloads: list[bytes] = []
        times: list[int] = []
        keys: list[bytes | None] | None = None
        headers: list[Headers] | None = None
        overdue: list[int] = []
        lost: list[int] = []
        for _, start, stop in picks:
            at = start
            while at < stop and bytes_left > 0:
                page = bodies.page(at)
                if page is None:
                    lost.append(at)
                    at += 1
                    continue
                first, end = at - page.first, min(stop, page.end) - page.first
                before = len(ids)
                ids += range(at, page.first + end)
                if page.unseen:
                    bodies.note(page, end - first)
                payloads += page.payloads[first:end]
                if most_bytes is not None:
                    bytes_left -= sum(map(len, page.payloads[first:end]))
                times += page.times[first:end]
                if page.keys is not None:
                    keys = [*(keys or _nones(before)), *page.keys[first:end]]
                elif keys is not None:
                    keys += _nones(end - first)
                if page.headers is not None:
                    headers = [*(headers or [NO_HEADERS] * before), *page.headers[first:end]]
                elif headers is not None:
                    headers += [NO_HEADERS] * (end - first)
                if page.lost:
                    lost += [page.first + index for index in range(first, end) if page.first + index in page.lost]
                if self.ttl_ns is not None or page.expiries is not None:
                    moment = self._holds.time(now)
                    overdue += [page.first + index for index in range(first, end) if self.moment(page, index) <= moment]
                at = page.first + end
        return ids, (payloads, times, keys, headers), overdue, lost

    def moment(self, page: Page, index: int) -> int:
        """Return when a message's time to live ends."""
        own = page.expiries[index] if page.expiries is not None else 0
        if own:
            return own
        if self.ttl_ns is None:
            return NEVER
        return max(page.times[index], page.dues[index] if page.dues else 0) + self.ttl_ns

    def starved(self, now: int) -> Callable[[int], bool] | None:
        """Return a function that tells whether a message has waited too long; None if priorities are strict."""
        if self._starvation_ns is None:
            return None
        cutoff, bodies = now - self._starvation_ns, self._core.bodies

        def starved(sequence: int) -> bool:
            page = bodies.page(sequence)
            if page is None:
                return True  # it cannot be read: leasing drops it
            index = sequence - page.first
            return max(page.times[index], page.dues[index] if page.dues else 0) <= cutoff

        return starved

    def drop(self, overdue: list[int], lost: list[int], now: int) -> None:
        """Drop unreadable messages, and drop or dead-letter those whose time to live is over."""
        core = self._core
        if lost:
            logger.error("unreadable messages dropped: queue=%s count=%d", core.name, len(lost), extra=core.fields)
            core.apply([Dropped(now, "damaged", spans_of(sorted(lost)))])
        overdue = sorted(set(overdue) - set(lost))
        if overdue:
            target = core.settings.dead_letter if core.settings.expired == "dead-letter" else None
            core.apply([core.state.removal(now, "ttl", "its time to live was over", overdue, target)])

    def sweep(self, now: int) -> int:
        """Drop or dead-letter expired messages at the head, without a consumer; return when the next may expire."""
        soonest = NEVER
        for priority, level in enumerate(self._core.state.ready.levels):
            while level:
                spans = [(priority, start, stop) for start, stop in level.front(_SWEPT)]
                ids, _, overdue, lost = self.read(spans, now)
                self.drop(overdue, lost, now)
                gone = {*overdue, *lost}
                if len(gone) < len(ids):
                    soonest = min(soonest, *(self._moment_of(one) for one in ids if one not in gone))
                    break
        return soonest

    def _moment_of(self, sequence: int) -> int:
        page = self._core.bodies.page(sequence)
        return NEVER if page is None else self.moment(page, sequence - page.first)


def _nones(count: int) -> list[bytes | None]:
    return [None] * count
