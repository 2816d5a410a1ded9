"""Which deliveries has a channel not settled yet? Runs of tags, so that a batch costs no more than a message."""

from bisect import bisect_right
from typing import NamedTuple

from holdfast.amqp.subscription import Subscription
from holdfast.broker.errors import PreconditionFailed
from holdfast.broker.mailbox import Mailbox

__all__ = ["Taken", "Unacked"]


class Taken(NamedTuple):
    """Deliveries of one queue that are settled together."""

    mailbox: Mailbox
    subscription: Subscription | None
    """None: they were got, not consumed."""
    lease: int
    ids: list[int]


class _Run:
    """Deliveries with consecutive tags that came under one lease."""

    __slots__ = ("first", "ids", "lease", "left", "mailbox", "since", "subscription")

    def __init__(self, first: int, ids: list[int], lease: int, mailbox: Mailbox, sub: Subscription | None) -> None:
        self.first = first
        self.ids: list[int | None] = [*ids]
        """None where a delivery was settled by itself."""
        self.left = len(ids)
        self.lease = lease
        self.mailbox = mailbox
        self.subscription = sub
        self.since = 0.0

    def taken(self, ids: list[int]) -> Taken:
        return Taken(self.mailbox, self.subscription, self.lease, ids)


class Unacked:
    """The deliveries of a channel that wait to be settled, in the order of their tags.

    Invariant: `count` is the number of tags that are held, and a run is held only while something is left of it.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._firsts: list[int] = []
        self.count = 0

    def add(
        self, first: int, ids: list[int], lease: int, mailbox: Mailbox, sub: Subscription | None, now: float
    ) -> None:
        """Deliveries went out with the tags from `first` on."""
        run = _Run(first, ids, lease, mailbox, sub)
        run.since = now
        self._runs.append(run)
        self._firsts.append(first)
        self.count += len(ids)

    def take(self, tag: int, *, multiple: bool) -> list[Taken]:
        """Settle a delivery, or with `multiple` all up to it; tag 0 with `multiple` is all there are."""
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
            return [run.taken([id])]
        found = [other.taken(_held(other.ids)) for other in self._runs[:place]]
        part = _held(run.ids[: at + 1])
        found.append(run.taken(part))
        self.count -= sum(len(one.ids) for one in found)
        run.left -= len(part)
        if run.left:
            run.ids = run.ids[at + 1 :]
            run.first = self._firsts[place] = tag + 1
        else:
            place += 1
        del self._runs[:place], self._firsts[:place]
        return found

    def take_all(self) -> list[Taken]:
        """Settle everything."""
        found = [run.taken(_held(run.ids)) for run in self._runs]
        self._runs, self._firsts, self.count = [], [], 0
        return found

    def take_of(self, mailbox: Mailbox) -> None:
        """Forget what came from a queue that is gone."""
        gone = [run for run in self._runs if run.mailbox is mailbox]
        self.count -= sum(run.left for run in gone)
        self._runs = [run for run in self._runs if run.mailbox is not mailbox]
        self._firsts = [run.first for run in self._runs]

    def copy(self) -> "Unacked":
        """As it is now."""
        other = Unacked()
        for run in self._runs:
            other.add(run.first, [], run.lease, run.mailbox, run.subscription, run.since)
            other._runs[-1].ids, other._runs[-1].left = list(run.ids), run.left
        other.count = self.count
        return other

    def return_to(self, before: "Unacked") -> None:
        """Hold again all that was held then, beside what came after."""
        last = before._runs[-1].first + len(before._runs[-1].ids) if before._runs else 0
        newer = [run for run in self._runs if run.first >= last]
        self._runs = before._runs + newer
        self._firsts = [run.first for run in self._runs]
        self.count = before.count + sum(run.left for run in newer)

    def oldest(self) -> float | None:
        """Since when the longest held delivery is held."""
        return self._runs[0].since if self._runs else None


def _held(ids: list[int | None]) -> list[int]:
    return [id for id in ids if id is not None]


def _unknown(tag: int) -> PreconditionFailed:
    return PreconditionFailed(f"unknown delivery tag {tag}")
