"""Queues in RabbitMQ's JSON form, with all fields that exporters and tools read, in some microseconds each."""

import time
import weakref
from datetime import UTC, datetime
from typing import NamedTuple

from holdfast.amqp.connection import Connection
from holdfast.amqp.connection_report import name_of
from holdfast.base.errors import HoldfastError
from holdfast.broker.basic_properties import decode_properties
from holdfast.broker.memory_alarm import MemoryMonitor
from holdfast.broker.message import content_of
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.topology import QueueDefinition
from holdfast.broker.vhost import VirtualHostRuntime
from holdfast.queue import Queue
from holdfast.web.queue_snapshot import counts_of, snapshot_of
from holdfast.web.rabbitmq_api.message_stats import message_stats
from holdfast.web.rabbitmq_api.response_types import QueueInfo
from holdfast.web.rabbitmq_api.serializers import node_name, plain, rate

__all__ = [
    "Entry",
    "Idleness",
    "basic_row",
    "entries_of",
    "head_timestamp",
    "queue_row",
    "totals_row",
    "waiting_and_held",
]


class Entry(NamedTuple):
    """A queue's definition and its broker queue, which is None if the queue could not be opened."""

    definition: QueueDefinition
    broker_queue: BrokerQueue | None
    memory: MemoryMonitor


class Idleness:
    """Tracks since when queues are idle: since the first call after their last change, not since the change."""

    def __init__(self) -> None:
        self._seen: weakref.WeakKeyDictionary[Queue, tuple[tuple[int, ...], float]] = weakref.WeakKeyDictionary()

    def since(self, queue: Queue) -> str:
        """Return the time since which the queue is idle, as RabbitMQ writes it."""
        totals = queue.inspect.totals
        now = (queue.log.end, totals.leased, totals.acked, totals.nacked)
        seen = self._seen.get(queue)
        if seen is None or seen[0] != now:
            seen = self._seen[queue] = (now, time.time())
        return datetime.fromtimestamp(seen[1], UTC).isoformat(timespec="milliseconds")


def entries_of(hosts: list[VirtualHostRuntime]) -> list[Entry]:
    """Return the queues of these virtual hosts, in no order. Call it on the broker's thread; it must be fast."""
    return [
        Entry(definition, host.broker_queues.get(name), host.broker.memory)
        for host in hosts
        for name, definition in host.topology.queues.items()
    ]


def basic_row(entry: Entry) -> QueueInfo:
    """Return a queue's declaration, without message counts."""
    definition = entry.definition
    return {
        "arguments": plain(definition.arguments),
        "auto_delete": definition.auto_delete,
        "durable": definition.durable,
        "exclusive": definition.exclusive,
        "name": definition.name,
        "node": node_name(),
        "state": _state(entry),
        "type": definition.settings.queue_type,
        "vhost": definition.vhost,
    }


def totals_row(entry: Entry) -> QueueInfo:
    """Return `basic_row`, with message counts."""
    ready, unacked = waiting_and_held(entry)
    return {
        **basic_row(entry),
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
    }


def queue_row(entry: Entry, idleness: Idleness) -> QueueInfo:
    """Return all that a list shows of a queue; only its declaration if it could not be opened."""
    broker_queue = entry.broker_queue
    if broker_queue is None:
        return basic_row(entry)
    queue, owner = broker_queue.queue, entry.definition.owner
    now = snapshot_of(queue, broker_queue)
    ready, unacked, flow, cached = now.ready, now.leased, now.flow, now.memory
    mean = _mean_bytes(queue)
    in_memory = min(ready + unacked, cached // mean) if mean else ready + unacked
    kept = entry.definition.kept
    active = broker_queue.active
    exclusive = broker_queue.exclusive
    row: QueueInfo = {
        **basic_row(entry),
        "backing_queue_status": {
            "len": ready,
            "mode": "default",
            "next_deliver_seq_id": flow.delivered,
            "next_seq_id": flow.put,
            "version": 1,
        },
        "consumer_capacity": 1.0 if now.consumers and not ready else 0,
        "consumer_utilisation": 1.0 if now.consumers and not ready else 0,
        "consumers": now.consumers,
        "effective_policy_definition": {},
        "exclusive_consumer_tag": exclusive.tag if exclusive is not None else None,
        "head_message_timestamp": None,
        "idle_since": idleness.since(queue),
        "memory": cached,
        "message_bytes": mean * (ready + unacked),
        "message_bytes_paged_out": max(0, mean * (ready + unacked) - cached),
        "message_bytes_persistent": mean * (ready + unacked) if kept else 0,
        "message_bytes_ram": min(cached, mean * (ready + unacked)),
        "message_bytes_ready": mean * ready,
        "message_bytes_unacknowledged": mean * unacked,
        "messages": ready + unacked,
        "messages_delayed": now.delayed,
        "messages_details": rate(flow.put_rate - flow.ack_rate),
        "messages_paged_out": ready + unacked - in_memory,
        "messages_persistent": ready + unacked if kept else 0,
        "messages_ram": in_memory,
        "messages_ready": ready,
        "messages_ready_details": rate(flow.put_rate - flow.deliver_rate),
        "messages_ready_ram": min(ready, in_memory),
        "messages_unacknowledged": unacked,
        "messages_unacknowledged_details": rate(flow.deliver_rate - flow.ack_rate),
        "messages_unacknowledged_ram": max(0, in_memory - ready),
        "operator_policy": None,
        "policy": None,
        "recoverable_slaves": None,
        "single_active_consumer_tag": active.tag if active is not None else None,
    }
    if stats := message_stats(flow):
        row["message_stats"] = stats
    if isinstance(owner, Connection):
        peer = owner.peer if isinstance(owner.peer, tuple) else ("", 0)
        row["owner_pid_details"] = {"name": name_of(owner), "peer_host": peer[0], "peer_port": peer[1]}
    return row


def head_timestamp(broker_queue: BrokerQueue) -> int | None:
    """Return the timestamp property of the next message; None if it has none. Reads the message."""
    try:
        waiting = broker_queue.queue.peek(1)
        if not waiting:
            return None
        return decode_properties(content_of(waiting[0].key, waiting[0].headers, broker_queue.name).raw).timestamp
    except HoldfastError:
        return None


def waiting_and_held(entry: Entry) -> tuple[int, int]:
    """Return how many messages are ready and unacknowledged; zeros if the queue is not open."""
    if entry.broker_queue is None:
        return 0, 0
    counts = counts_of(entry.broker_queue.queue)
    return counts.ready, counts.leased


def _mean_bytes(queue: Queue) -> int:
    """Return an estimate of a message's size: the log's bytes over its records, as queues do not weigh messages."""
    segments = queue.log.reader.segments()
    records = queue.log.end - segments[0].base if segments else 0
    return sum(segment.limit for segment in segments) // records if records > 0 else 0


def _state(entry: Entry) -> str:
    if entry.broker_queue is None:
        return "down"
    return "paused" if entry.broker_queue.queue.paused else "running"
