"""Unsettled deliveries of a channel, stored as runs of tags, so that a batch costs no more than a single message."""

from bisect import bisect_right
from typing import NamedTuple

from holdfast.amqp.consumer import ChannelConsumer
from holdfast.broker.errors import PreconditionFailed
from holdfast.broker.queue_dispatcher import BrokerQueue

__all__ = ["Taken", "UnackedTags"]


class Taken(NamedTuple):
    """Deliveries of one queue that are settled together."""

    broker_queue: BrokerQueue
    subscription: ChannelConsumer | None
    """None: they were fetched with basic.get."""
    lease: int
    ids: list[int]
    tags: "list[int] | range"
    """Their delivery tags, in the same order."""


class _Run:
    """Deliveries with consecutive tags that belong to one lease."""

    __slots__ = ("broker_queue", "first", "ids", "lease", "left", "since", "subscription")

    def __init__(
        self, first: int, ids: list[int], lease: int, broker_queue: BrokerQueue, sub: ChannelConsumer | None
    ) -> None:
        self.first = first
        self.ids: list[int | None] = [*ids]
        """None for each delivery that was settled separately."""
        self.left = len(ids)
        self.lease = lease
        self.broker_queue = broker_queue
        self.subscription = sub
        self.since = 0.0

    def taken(self, start: int, stop: int) -> Taken:
        """Return the deliveries between two positions that are still held."""
        ids, first = self.ids[start:stop], self.first
        held = [id for id in ids if id is not None]
        if len(held) == len(ids):
            return Taken(self.broker_queue, self.subscription, self.lease, held, range(first + start, first + stop))
        tags = [first + start + place for place, id in enumerate(ids) if id is not None]
        return Taken(self.broker_queue, self.subscription, self.lease, held, tags)


class UnackedTags:
    """The unsettled deliveries of a channel, in the order of their tags.

    Invariant: `count` is the number of tags that are held, and a run is held only while it has unsettled deliveries.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._firsts: list[int] = []
        self.count = 0

    def add(
        self, first: int, ids: list[int], lease: int, broker_queue: BrokerQueue, sub: ChannelConsumer | None, now: float
    ) -> None:
        """Record deliveries that were sent with the tags from `first` on."""
        run = _Run(first, ids, lease, broker_queue, sub)
        run.since = now
        self._runs.append(run)
        self._firsts.append(first)
        self.count += len(ids)

    def take(self, tag: int, *, multiple: bool) -> list[Taken]:
        """Remove a delivery, or with `multiple` all up to it; tag 0 with `multiple` means all of them."""
        if multiple and tag == 0:
            return self.take_all()
        place = bisect_right(self._firsts, tag) - 1
        if place < 0:
            raise _unknown(tag)
        run = self._runs[place]
        at = tag - run.first
        if at >= len(run.ids) or (id := run.ids[at]) is None:
            raise _unknown(tag)
        if not multiple:
            run.ids[at] = None
            run.left -= 1
            self.count -= 1
            if not run.left:
                del self._runs[place], self._firsts[place]
            return [Taken(run.broker_queue, run.subscription, run.lease, [id], [tag])]
        found = [other.taken(0, len(other.ids)) for other in self._runs[:place]]
        found.append(run.taken(0, at + 1))
        self.count -= sum(len(one.ids) for one in found)
        run.left -= len(found[-1].ids)
        if run.left:
            run.ids = run.ids[at + 1 :]
            run.first = self._firsts[place] = tag + 1
        else:
            place += 1
        del self._runs[:place], self._firsts[:place]
        return found

    def take_all(self) -> list[Taken]:
        """Remove all deliveries."""
        found = [run.taken(0, len(run.ids)) for run in self._runs]
        self._runs, self._firsts, self.count = [], [], 0
        return found

    def put_back(self, taken: list[Taken], now: float) -> None:
        """Record deliveries again that were removed and not settled, under their old tags."""
        for broker_queue, subscription, lease, ids, tags in taken:
            for tag, id in zip(tags, ids, strict=True):
                place = bisect_right(self._firsts, tag)
                run = self._runs[place - 1] if place else None
                if run is not None and tag < run.first + len(run.ids):  # its run is still held
                    run.ids[tag - run.first] = id
                    run.left += 1
                else:
                    run = _Run(tag, [id], lease, broker_queue, subscription)
                    run.since = now
                    self._runs.insert(place, run)
                    self._firsts.insert(place, tag)
                self.count += 1

    def oldest(self) -> float | None:
        """Return the time since which the oldest delivery is unsettled; None if there is none."""
        return self._runs[0].since if self._runs else None


def _unknown(tag: int) -> PreconditionFailed:
    return PreconditionFailed(f"unknown delivery tag {tag}")
