"""API routes for dead letters: list and group them by reason, redrive or delete them."""

import threading
from collections.abc import Callable
from typing import cast

from holdfast.base.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.broker.dead_letter_browser import dead_letter_targets, put_back
from holdfast.broker.permissions import Operation
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.queue import DeadLetter
from holdfast.web.api.dead_letter_query import Desk, Groups, Round, Which, desk_of, known_desk
from holdfast.web.api.queue_summary import all_queues
from holdfast.web.api.queues import ONE
from holdfast.web.api.response_types import (
    DeadLetterJson,
    DeadLetters,
    DeadQueue,
    DeadQueues,
    DeletedCount,
    RedrivenCount,
)
from holdfast.web.api.schemas import BODY_MAX, as_json, moments
from holdfast.web.request_schema import body
from holdfast.web.routes import Call, Needs, Routes

__all__ = ["dead_routes"]

dead_routes = Routes("dead letters")
LOOKED_AT = 50_000
"""Messages of one queue that a request examines: it takes half a second, and an open page asks every two seconds."""
SHOWN_BYTES_MAX = 64 << 20
"""Limit of the bodies in one response."""
_AT_ONCE = 500
"""Dead letters that the broker's thread requeues at a time: clients wait meanwhile."""
_moving = threading.Lock()
"""Held while a batch of dead letters is read and settled: two requests must not requeue the same ones."""
_CHOICE = {
    "origin": "Only those that died in this queue.",
    "reason": "Only those that died for this reason; an empty value selects those without one.",
    "cause": "Only those with this cause: attempts, rejected, ttl, overflow; over AMQP the same as the reason.",
}
_WHICH = body(
    ids={"type": ["array", "null"], "items": {"type": "integer"}},
    **{name: {"type": ["string", "null"], "description": says} for name, says in _CHOICE.items()},
)


@dead_routes.get(
    "/api/holdfast/dead",
    needs=Needs.LOGIN,
    says="List the queues with dead letters, grouped by origin, reason and cause.",
    query={"vhost": "Only those of this virtual host."},
)
def all_dead(call: Call) -> DeadQueues:
    """Return the queues with dead letters, grouped by origin, reason and cause.

    Only queues that the caller may read are included. `more` says that a queue has more messages than were examined.
    """
    found: list[DeadQueue] = []
    site = call.site
    holders = site.on_broker(lambda: {host.name: dead_letter_targets(host) for host in site.broker.hosts.values()})
    for vhost, name, queue, broker_queue in all_queues(site, call.who, call.query.get("vhost") or None):
        if not _may_look(call, vhost, name):
            continue
        groups = Groups()
        try:
            desk = known_desk(site, queue, broker_queue, holders.get(vhost, frozenset()))
            if desk is None:  # its dead letters are listed under the queues that hold them
                continue
            if desk.lies_in is not None and not _may_look(call, *site.names_of(desk.lies_in)):
                continue
            through = Round(desk, most=LOOKED_AT)
            for letter in through:
                groups.add(letter)
        except HoldfastError:
            continue
        if groups.count or through.left is not None:
            found.append(
                {
                    "vhost": vhost,
                    "name": name,
                    "count": groups.count,
                    "more": through.left is not None,
                    "groups": groups.listed(),
                }
            )
    return {"queues": found}


def _may_look(call: Call, vhost: str, name: str) -> bool:
    return call.site.broker.permissions.allows(call.who.name, Operation.QUEUE_LOOK, name, vhost=vhost)


@dead_routes.get(
    ONE + "/dead",
    needs=Needs.USER,
    says="List the dead letters of a queue, or those that it holds.",
    query={
        "count": "Number of dead letters in the response, 1000 by default.",
        **_CHOICE,
        "truncate": "Maximum bytes of each body; 0: no limit.",
        "from": "Continue here: `next` of the previous response. The totals are then null.",
    },
)
def dead(call: Call) -> DeadLetters:
    """Return dead letters, and the size of each group; `more` if there may be more than were examined.

    With `from`, the total and the groups are null.
    """
    desk = desk_of(call, most=LOOKED_AT)
    which = Which(None, *(call.query.get(name) for name in _CHOICE))
    count, most = call.number("count", 1000), call.number("truncate", 4096) or BODY_MAX
    goes_on = bool(call.query.get("from"))
    groups = Groups()
    shown: list[DeadLetterJson] = []
    size, next_ = 0, None
    through = Round(desk, call.number("from", 0), LOOKED_AT)
    for letter in through:
        groups.add(letter)
        if next_ is not None or not which.fits(letter):
            continue
        if len(shown) < count and size < SHOWN_BYTES_MAX:
            shown.append(_letter_json(letter, most))
            size += min(len(letter.payload), most)
            continue
        next_ = letter.id
        if goes_on:
            break
    return {
        "total": None if goes_on else groups.count,
        "more": through.left is not None or desk.unsure,
        "groups": None if goes_on else groups.listed(),
        "letters": shown,
        "next": through.left if next_ is None else next_,
    }


@dead_routes.get(ONE + "/dead/{id}", needs=Needs.USER, says="Show one dead letter with its whole body.")
def one_letter(call: Call) -> DeadLetterJson:
    """Return a dead letter by its id, with its whole body; 404 if there is none."""
    found = desk_of(call).letter(call.numbered("id"))
    if found is None:
        raise NotFound(f"{call.path['name']!r} has no dead letter {call.path['id']}")
    return _letter_json(found, len(found.payload))


@dead_routes.post(
    ONE + "/redrive", needs=Needs.USER, says="Return dead letters to the queues in which they died.", takes=_WHICH
)
def redrive(call: Call) -> RedrivenCount:
    """Return the selected dead letters to the queues they died in; report how many.

    They are on disk there before this responds, and over AMQP before they are removed here: a crash may leave
    duplicates. Needs write permission on those queues and on the queue in the path, and read permission on the queue
    that holds the dead letters. An error is reported only if none could be returned.
    """
    which = _wanted(call)
    desk = desk_of(call, Operation.QUEUE_REDRIVE)
    holder = desk.holder
    if holder is None:
        count = _settled(desk, which, lambda letters: desk.queue.redrive([one.id for one in letters]))
        desk.queue.sync()
        return {"redriven": count}
    origin = which.origin or desk.origin
    origins = {origin} if origin else {one.queue for one in Round(desk) if which.fits(one)}
    for one in origins:
        call.may(Operation.QUEUE_REDRIVE, one, vhost=call.path["vhost"])
    problems: list[HoldfastError] = []

    def back(letters: list[DeadLetter]) -> int:
        try:
            return _put_back(call, holder, [one for one in letters if one.queue in origins])
        except HoldfastError as error:
            problems.append(error)
            return 0

    count = _settled(desk, which, back)
    if problems and not count:  # the number of those that were returned must be reported
        raise problems[0]
    return {"redriven": count}


def _settled(desk: Desk, which: Which, settle: Callable[[list[DeadLetter]], int]) -> int:
    """Apply `settle` to all selected dead letters, in batches; return the sum of its results."""
    count = 0
    batches = desk.batches(which, _AT_ONCE)
    while True:
        with _moving:
            letters = next(batches, None)
            if letters is None:
                return count
            count += settle(letters)


def _put_back(call: Call, holder: BrokerQueue, letters: list[DeadLetter]) -> int:
    host = call.site.host(call.path["vhost"])
    done = call.site.on_broker(lambda: put_back(host, letters))
    for target in {target.queue for _, target in done}:
        target.log.sync()
    count = holder.queue.discard([letter.id for letter, _ in done])
    holder.queue.sync()
    return count


@dead_routes.post(ONE + "/dead/delete", needs=Needs.USER, says="Delete dead letters permanently.", takes=_WHICH)
def delete(call: Call) -> DeletedCount:
    """Delete the selected dead letters permanently; report how many."""
    desk = desk_of(call, Operation.QUEUE_DISCARD)  # as for a purge: write permission alone must not remove messages
    which = _wanted(call)
    holder = desk.holder
    if holder is None:
        return {
            "deleted": _settled(
                desk, which, lambda letters: desk.queue.delete_dead_letters([one.id for one in letters])
            )
        }
    count = _settled(desk, which, lambda letters: holder.queue.discard([one.id for one in letters]))
    holder.queue.sync()
    return {"deleted": count}


def _wanted(call: Call) -> Which:
    ids = call.field("ids", list, None)
    if ids is not None and not all(type(one) is int for one in ids):
        raise InvalidArgument("ids must be a list of the ids of dead letters")
    return Which(None if ids is None else frozenset(ids), *(call.field(name, str, None) for name in _CHOICE))


def _letter_json(letter: DeadLetter, most: int) -> DeadLetterJson:
    form = {
        "id": letter.id,
        "reason": letter.reason,
        "cause": letter.cause,
        "attempts": letter.attempts,
        "queue": letter.queue,
        "original_id": letter.original_id,
        "redriven": letter.redriven,
        **moments(
            enqueued=letter.enqueued_at,
            died=letter.died_at,
            first_failed=letter.first_failed_at,
            last_failed=letter.last_failed_at,
        ),
        **as_json(letter, most),
    }
    return cast("DeadLetterJson", form)
