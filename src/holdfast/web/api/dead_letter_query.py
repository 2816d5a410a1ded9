"""Locating and selecting the dead letters of a queue, and iterating over them in batches."""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.base.errors import InvalidArgument
from holdfast.broker.dead_letter_browser import dead_letter_targets
from holdfast.broker.dead_letter_browser import letter_of as amqp_letter_of
from holdfast.broker.permissions import Operation
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.queue import DeadLetter, PeekedMessage, Queue
from holdfast.queue.dead_letter_forwarder import is_forwarded
from holdfast.queue.transfers import dead_letter_of
from holdfast.web.api.queues import queue_of
from holdfast.web.api.response_types import DeadGroup
from holdfast.web.context import ServerContext
from holdfast.web.routes import Call

__all__ = ["Desk", "Groups", "Round", "Which", "desk_of", "known_desk"]

_BATCH_BYTES = 16 << 20
"""Limit of the bodies of one batch, which are in memory together."""


class Which(NamedTuple):
    """A selection of dead letters; all of them unless restricted."""

    ids: frozenset[int] | None = None
    origin: str | None = None
    """The queue in which they died."""
    reason: str | None = None
    cause: str | None = None

    def fits(self, letter: DeadLetter) -> bool:
        """Whether this dead letter is selected; an empty reason is a reason, too."""
        return (
            (self.ids is None or letter.id in self.ids)
            and self.origin in (None, letter.queue)
            and self.reason in (None, letter.reason)
            and self.cause in (None, letter.cause)
        )


class Desk(NamedTuple):
    """Where the dead letters of a queue are stored.

    Either in the dead-letter queue that a program chose (`holder` is None), or in the AMQP queue `holder`, to which a
    dead-letter exchange routed them.
    """

    queue: Queue
    holder: BrokerQueue | None
    pile: Queue | None
    """The queue that holds the dead letters; None if there is none yet."""
    origin: str | None = None
    """If not None: only dead letters that died in the queue of this name."""
    unsure: bool = False
    """Whether there may be dead letters in messages that were not examined."""

    @property
    def lies_in(self) -> str | None:
        """The store name of the queue that holds the dead letters, even if it does not exist yet; else None."""
        if self.holder is not None:
            return self.holder.queue.name
        return _chosen_target(self.queue)

    def letter_of(self, message: PeekedMessage) -> DeadLetter | None:
        """Return a message of the pile as a dead letter; None if it is not one, or belongs to another queue."""
        if self.holder is None:
            letter = dead_letter_of(message)
            return letter if letter.queue in (self.queue.name, "") else None
        found = amqp_letter_of(self.holder, message)
        return found if found is not None and self.origin in (None, found.queue) else None

    def letter(self, id: int) -> DeadLetter | None:
        """Return a dead letter by its id; None if there is none."""
        message = None if self.pile is None else self.pile.message(id)
        return None if message is None else self.letter_of(message)

    def batches(self, which: Which, count: int) -> Iterator[list[DeadLetter]]:
        """Yield the selected dead letters in batches. Each batch reads again which are still there.

        Dead letters that arrive after the start are left out.
        """
        start = min(which.ids, default=0) if which.ids is not None else 0
        stop = 0 if self.pile is None else self.pile.log.end  # messages that die later are not selected
        while True:
            batch: list[DeadLetter] = []
            size = 0
            for letter in Round(self, start):
                if letter.id >= stop or len(batch) >= count or size >= _BATCH_BYTES:
                    break
                if which.fits(letter):
                    batch.append(letter)
                    size += len(letter.payload)
            if not batch:
                return
            yield batch
            start = batch[-1].id + 1


class Round:
    """One pass over the dead letters of a desk, which ends after `most` messages."""

    def __init__(self, desk: Desk, start: int = 0, most: int | None = None) -> None:
        self._desk = desk
        self._start = start
        self._most = most
        self.left: int | None = None
        """The id of the first message that was not examined; None if all were."""

    def __iter__(self) -> Iterator[DeadLetter]:
        pile = self._desk.pile
        for number, message in enumerate(pile.each_ready(self._start) if pile is not None else ()):
            if number == self._most:
                self.left = message.id
                return
            if (letter := self._desk.letter_of(message)) is not None:
                yield letter


def _desk_of_own(site: ServerContext, queue: Queue) -> Desk:
    """Return the desk of a queue whose dead-letter queue a program chose, if any."""
    target = _chosen_target(queue)
    return Desk(queue, None, None if target is None else site.store.find_queue(target))


def _chosen_target(queue: Queue) -> str | None:
    """Return the store name of the dead-letter queue that a program chose; None without one."""
    dead = queue.settings.dead_letter
    return None if dead is None or is_forwarded(dead) else dead


def known_desk(
    site: ServerContext, queue: Queue, broker_queue: BrokerQueue | None, holders: frozenset[str]
) -> Desk | None:
    """Return the desk of a queue if it is known without reading messages; else None.

    `holders` are the queues of the virtual host to which dead-letter exchanges route. A queue in `holders` is its own
    desk, for the dead letters in it. None: an exchange routes the queue's dead letters, to any of `holders`, or it has
    no dead-letter target.
    """
    if broker_queue is None:
        return _desk_of_own(site, queue)
    if broker_queue.name in holders:
        return Desk(queue, broker_queue, queue)
    return None if _chosen_target(queue) is None else _desk_of_own(site, queue)


def desk_of(call: Call, operation: Operation = Operation.QUEUE_LOOK, most: int | None = None) -> Desk:
    """Return the desk of the queue that the path names.

    If its dead letters may be in several queues, `most` messages of each are examined (all, if None). Raises 403 unless
    the caller may perform the operation on the queue and read the queue that holds the dead letters, 400 if several
    queues hold some.
    """
    queue, broker_queue = queue_of(call, operation)
    desk = _found(call, queue, broker_queue, most)
    if desk.lies_in is not None:
        vhost, name = call.site.names_of(desk.lies_in)
        looks = operation is Operation.QUEUE_LOOK  # any other operation removes them from there
        call.may(Operation.QUEUE_LOOK if looks else Operation.QUEUE_DISCARD, name, vhost=vhost)
    return desk


def _found(call: Call, queue: Queue, broker_queue: BrokerQueue | None, most: int | None) -> Desk:
    host = call.site.host(call.path["vhost"])
    holders = call.site.on_broker(lambda: dead_letter_targets(host))
    if (known := known_desk(call.site, queue, broker_queue, holders)) is not None:
        return known
    assert broker_queue is not None
    if broker_queue.definition.settings.dead_letter_exchange is None:
        return Desk(queue, broker_queue, queue)
    found: list[BrokerQueue] = []
    unsure = False
    for name in sorted(holders & host.broker_queues.keys()):
        holder = host.broker_queues[name]
        through = Round(Desk(queue, holder, holder.queue, broker_queue.name), most=most)
        if any(True for _ in through):
            found.append(holder)
        unsure = unsure or through.left is not None
    if len(found) > 1:
        names = ", ".join(repr(one.name) for one in found)
        raise InvalidArgument(f"the dead letters of {broker_queue.name!r} are in several queues: use one of {names}")
    holder = found[0] if found else broker_queue
    return Desk(queue, holder, holder.queue, broker_queue.name, unsure)


class Groups:
    """Counts of dead letters by queue, reason and cause."""

    def __init__(self) -> None:
        self.count = 0
        self._found: dict[tuple[str, str, str], DeadGroup] = {}

    def add(self, letter: DeadLetter) -> None:
        """Count a dead letter."""
        self.count += 1
        group = self._found.setdefault(
            (letter.queue, letter.reason, letter.cause),
            {
                "reason": letter.reason,
                "cause": letter.cause,
                "origin": letter.queue,
                "count": 0,
                "first_died_at": letter.died_at,
                "last_died_at": letter.died_at,
            },
        )
        group["count"] += 1
        group["first_died_at"] = min(group["first_died_at"], letter.died_at)
        group["last_died_at"] = max(group["last_died_at"], letter.died_at)

    def listed(self) -> list[DeadGroup]:
        """Return the groups, the largest first."""
        return sorted(self._found.values(), key=lambda group: (-group["count"], group["reason"], group["origin"]))
