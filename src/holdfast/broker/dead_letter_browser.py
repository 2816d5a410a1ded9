"""Finds and requeues messages that were dead-lettered through an exchange, using their `x-death` header."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.base.clock import instant_ns
from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.broker.amqp_values import Long, MalformedField
from holdfast.broker.basic_properties import decode_properties, encode_properties
from holdfast.broker.errors import PreconditionFailed
from holdfast.broker.message import Content, content_of, instructions_in
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.queue import DeadLetter, PeekedMessage

if TYPE_CHECKING:
    from holdfast.broker.topology import QueueDefinition
    from holdfast.broker.vhost import VirtualHostRuntime

__all__ = ["REDRIVEN", "dead_letter_targets", "letter_of", "put_back"]

REDRIVEN = "x-redriven"
"""The header that counts how often a dead letter was put back into its queue."""
_DEATH = "x-death"


def dead_letter_targets(host: "VirtualHostRuntime", origin: "QueueDefinition | None" = None) -> frozenset[str]:
    """Return the existing queues that dead letters of one queue, or of all queues, may be routed to.

    All bindings of a dead-letter exchange are followed, whatever their routing keys are; alternate exchanges are not.
    For the default exchange it is the queue that the dead-letter routing key names: without such a key, none.
    """
    topology = host.topology
    queues: set[str] = set()
    seen: set[str] = set()
    line: list[str] = []
    for one in list(topology.queues.values()) if origin is None else [origin]:
        exchange = one.settings.dead_letter_exchange
        if exchange == "":
            queues.add(one.settings.dead_letter_routing_key or "")
        elif exchange is not None:
            line.append(exchange)
    while line:
        exchange = line.pop()
        if exchange in seen or exchange not in topology.exchanges:
            continue
        seen.add(exchange)
        for binding in topology.bindings_from(exchange):
            if binding.destination_kind == "queue":
                queues.add(binding.destination)
            else:
                line.append(binding.destination)
    return frozenset(queues & topology.queues.keys())


def letter_of(broker_queue: BrokerQueue, message: PeekedMessage) -> DeadLetter | None:
    """Return a ready message as a dead letter, from its `x-death`; None if it has none that can be read."""
    content = content_of(message.key, message.headers, broker_queue.name)
    try:
        headers = decode_properties(content.raw).headers or {}
    except MalformedField:
        return None
    death = _last_death(headers)
    if death is None:
        return None
    died_at = instant_ns(death["time"], "time") if isinstance(death.get("time"), datetime) else message.enqueued_at
    redriven = headers.get(REDRIVEN)
    deaths = death.get("count")
    return DeadLetter(
        id=message.id,
        payload=message.payload,
        key=message.key,
        headers=message.headers,
        reason=str(death.get("reason", "")),
        cause=str(death.get("reason", "")),
        attempts=deaths if isinstance(deaths, int) else 1,
        first_failed_at=None,
        last_failed_at=died_at,
        queue=str(death.get("queue", "")),
        original_id=message.id,
        enqueued_at=message.enqueued_at,
        died_at=died_at,
        redriven=redriven if isinstance(redriven, int) else 0,
    )


def _last_death(headers: Mapping[str, Any]) -> Mapping[str, Any] | None:
    deaths = headers.get(_DEATH)
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], Mapping):
        return deaths[0]
    return None


def put_back(host: "VirtualHostRuntime", letters: list[DeadLetter]) -> list[tuple[DeadLetter, BrokerQueue]]:
    """Requeue dead letters in their original queues; return those that were, each with its queue.

    Call it on the broker's thread. The caller syncs the queues, and only then removes the dead letters: a crash in
    between leaves duplicates and loses nothing. A dead letter whose queue is missing, or full and rejects it, is
    skipped without an error. Another failure is raised only if no dead letter could be requeued.
    """
    done: list[tuple[DeadLetter, BrokerQueue]] = []
    problem: HoldfastError | None = None
    for letter in letters:
        target = host.broker_queues.get(letter.queue)
        if target is None:
            continue
        content = content_of(letter.key, letter.headers, letter.queue)
        try:
            properties = decode_properties(content.raw)
            headers = dict(properties.headers or {})
            death = _last_death(headers) or {}
            before = headers.get(REDRIVEN)
            headers[REDRIVEN] = Long((before if isinstance(before, int) else 0) + 1)
            keys = death.get("routing-keys")
            key = keys[0] if isinstance(keys, list) and keys and isinstance(keys[0], str) else letter.queue
            raw = encode_properties(properties.with_headers(headers))
            directives = instructions_in(raw).for_another_queue()
        except (MalformedField, PreconditionFailed):
            problem = InvalidArgument(f"dead letter {letter.id} cannot be requeued: its properties are malformed")
            continue
        exchange = death.get("exchange")
        fresh = Content(exchange if isinstance(exchange, str) else "", key, raw)
        try:
            if target.put(fresh, [letter.payload], directives):
                done.append((letter, target))
        except HoldfastError as error:
            problem = error
    if problem is not None and not done:
        raise problem
    return done
