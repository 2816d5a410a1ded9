"""Which messages could not be delivered, and what is to become of them? Grouped by reason, put back or deleted."""

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.broker.letters import led_to, letters_in, put_back
from holdfast.broker.mailbox import Mailbox
from holdfast.queue import DeadLetter, Queue
from holdfast.web.fields import body
from holdfast.web.own.forms import BODY_MAX, as_json, moments
from holdfast.web.own.queues import ONE, queue_of
from holdfast.web.own.rows import all_queues
from holdfast.web.routes import Call, Needs, Routes

__all__ = ["dead_routes"]

dead_routes = Routes("dead letters")
_LOOKED_AT = 20_000
"""Dead letters of one queue that are grouped at most."""
_AT_ONCE = 500
"""Dead letters that the broker's thread puts back in one go: clients wait meanwhile."""
_moving = threading.Lock()
"""Held from the look at dead letters until they are gone: two who put back the same ones would double them."""
_WHICH = body(
    ids={"type": ["array", "null"], "items": {"type": "integer"}},
    reason={"type": ["string", "null"], "description": "Only those that died for this reason."},
    origin={"type": ["string", "null"], "description": "Only those that died in this queue."},
)


class _Desk(NamedTuple):
    """Where the letters of a queue are dealt with: by the queue itself, or in the queue that AMQP led them to."""

    queue: Queue
    holder: Mailbox | None
    origin: str | None
    """Of the letters that lie there, only those of this queue."""

    def letters(self) -> list[DeadLetter]:
        if self.holder is None:
            return self.queue.dead_letters(_LOOKED_AT)
        return [one for one in letters_in(self.holder, _LOOKED_AT) if self.origin in (None, one.queue)]


def _desk(call: Call, kind: Any = "read") -> _Desk:
    queue, mailbox = queue_of(call, kind)
    if mailbox is None:
        return _Desk(queue, None, None)
    host = call.site.host(call.path["vhost"])
    exchange = mailbox.definition.settings.dead_letter_exchange
    holders = call.site.on_broker(lambda: led_to(host))
    if mailbox.name in holders or exchange is None:
        return _Desk(queue, mailbox, None)
    found = [
        host.mailboxes[name]
        for name in sorted(holders)
        if name in host.mailboxes and any(one.queue == mailbox.name for one in letters_in(host.mailboxes[name], 1000))
    ]
    if len(found) > 1:
        names = ", ".join(repr(one.name) for one in found)
        raise InvalidArgument(f"the dead letters of {mailbox.name!r} lie in {names}: look at one of these")
    return _Desk(queue, found[0] if found else mailbox, mailbox.name)


def _groups(letters: Iterable[DeadLetter]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for letter in letters:
        group = groups.setdefault(
            (letter.reason, letter.cause, letter.queue),
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
    return sorted(groups.values(), key=lambda group: (-group["count"], group["reason"]))


@dead_routes.get(
    "/api/holdfast/dead",
    needs=Needs.LOGIN,
    says="All queues with dead letters, grouped by reason.",
    query={"vhost": "Only those of this virtual host."},
)
def all_dead(call: Call) -> dict[str, Any]:
    """Where dead letters lie, and why."""
    found = []
    site = call.site
    holders = site.on_broker(lambda: {host.name: led_to(host) for host in site.broker.hosts.values()})
    for vhost, name, queue, mailbox in all_queues(site, call.who, call.query.get("vhost") or None):
        if not site.broker.users.allowed(call.who.name, vhost, "read", name):
            continue
        try:
            if mailbox is not None:
                letters = list(letters_in(mailbox, _LOOKED_AT)) if name in holders[vhost] else []
            else:
                letters = queue.dead_letters(_LOOKED_AT) if queue.settings.dead_letter is not None else []
        except HoldfastError:
            continue
        if letters:
            found.append({"vhost": vhost, "name": name, "count": len(letters), "groups": _groups(letters)})
    return {"queues": found}


@dead_routes.get(
    ONE + "/dead",
    needs=Needs.USER,
    says="The dead letters of a queue, or those that lie in it.",
    query={
        "count": "How many to show.",
        "reason": "Only those that died for this reason.",
        "origin": "Only those that died in this queue.",
        "truncate": "Bytes of each body at most; 0 for all.",
    },
)
def dead(call: Call) -> dict[str, Any]:
    """The letters, and how many there are for which reason."""
    letters = _desk(call).letters()
    most = call.number("truncate", 4096) or BODY_MAX
    shown = _chosen(letters, None, call.query.get("reason"), call.query.get("origin"))
    return {
        "total": len(letters),
        "groups": _groups(letters),
        "letters": [_letter_json(one, most) for one in shown[: call.number("count", 1000)]],
    }


@dead_routes.post(ONE + "/redrive", needs=Needs.USER, says="Put dead letters back where they died.", takes=_WHICH)
def redrive(call: Call) -> dict[str, int]:
    """How many went back."""
    ids, reason, origin = _wanted(call)
    desk = _desk(call, "write")
    with _moving:
        letters = _chosen(desk.letters(), ids, reason, origin)
        if desk.holder is None:
            count = desk.queue.redrive([one.id for one in letters]) if letters else 0
            desk.queue.sync()
            return {"redriven": count}
        call.may("read", call.path["vhost"], desk.holder.name)  # as they are taken from there
        for one in {letter.queue for letter in letters}:
            call.may("write", call.path["vhost"], one)
        count = 0
        for at in range(0, len(letters), _AT_ONCE):
            count += _put_back(call, desk.holder, letters[at : at + _AT_ONCE])
        return {"redriven": count}


def _put_back(call: Call, holder: Mailbox, letters: list[DeadLetter]) -> int:
    host = call.site.host(call.path["vhost"])
    done = call.site.on_broker(lambda: put_back(host, letters))
    for target in {target.queue for _, target in done}:
        target.log.sync()
    count = holder.queue.discard([letter.id for letter, _ in done])
    holder.queue.sync()
    return count


@dead_routes.post(ONE + "/dead/delete", needs=Needs.USER, says="Delete dead letters for good.", takes=_WHICH)
def delete(call: Call) -> dict[str, int]:
    """How many are gone."""
    desk = _desk(call)  # as purging does: who may only put messages may take none away
    ids, reason, origin = _wanted(call)
    if desk.holder is not None:
        call.may("read", call.path["vhost"], desk.holder.name)
    letters = [one.id for one in _chosen(desk.letters(), ids, reason, origin)]
    if not letters:
        return {"deleted": 0}
    if desk.holder is None:
        return {"deleted": desk.queue.delete_dead_letters(letters)}
    count = desk.holder.queue.discard(letters)
    desk.holder.queue.sync()
    return {"deleted": count}


def _wanted(call: Call) -> tuple[set[int] | None, str | None, str | None]:
    ids = call.field("ids", list, None)
    if ids is not None and not all(type(one) is int for one in ids):
        raise InvalidArgument("ids must be the numbers that the letters have")
    return None if ids is None else set(ids), call.field("reason", str, None), call.field("origin", str, None)


def _chosen(
    letters: list[DeadLetter], ids: set[int] | None, reason: str | None, origin: str | None
) -> list[DeadLetter]:
    return [
        one
        for one in letters
        if (ids is None or one.id in ids)
        and (reason is None or one.reason == reason)
        and (origin is None or one.queue == origin)
    ]


def _letter_json(letter: DeadLetter, most: int) -> dict[str, Any]:
    return {
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
