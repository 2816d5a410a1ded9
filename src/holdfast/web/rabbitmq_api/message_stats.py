"""Message counts and rates of queues and exchanges, in the form of RabbitMQ's `message_stats`."""

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from holdfast.broker.exchange_stats import Traffic
from holdfast.queue import Queue
from holdfast.web.queue_snapshot import Flow, snapshot_of
from holdfast.web.rabbitmq_api.response_types import MessageStats, QueueTotals
from holdfast.web.rabbitmq_api.serializers import rate

__all__ = ["Totals", "exchange_stats", "message_stats", "totals_of", "unroutable"]


class Totals(NamedTuple):
    """Counts of messages in some queues, and through them."""

    ready: int
    unacked: int
    delayed: int
    flow: Flow

    def row(self) -> QueueTotals:
        """Return the totals of queues as RabbitMQ writes them."""
        growth = self.flow.put_rate - self.flow.ack_rate
        return {
            "messages": self.ready + self.unacked,
            "messages_details": rate(growth),
            "messages_ready": self.ready,
            "messages_ready_details": rate(self.flow.put_rate - self.flow.deliver_rate),
            "messages_unacknowledged": self.unacked,
            "messages_unacknowledged_details": rate(self.flow.deliver_rate - self.flow.ack_rate),
        }


def totals_of(queues: Iterable[Queue]) -> Totals:
    """Return the totals of these queues; one that is deleted meanwhile is left out."""
    ready = unacked = delayed = 0
    flow = Flow()
    for queue in queues:
        found = snapshot_of(queue, None)
        if found.closed:
            continue
        ready += found.ready
        unacked += found.leased
        delayed += found.delayed
        flow = flow.plus(found.flow)
    return Totals(ready, unacked, delayed, flow)


def message_stats(flow: Flow) -> MessageStats:
    """Return the statistics as RabbitMQ writes them; empty if no message ever went through.

    All deliveries count as `deliver`, also those by basic.get and without acknowledgement.
    """
    if not flow.put and not flow.delivered:
        return {}
    row: dict[str, Any] = {}
    for name, count, speed in (
        ("ack", flow.acked, flow.ack_rate),
        ("deliver", flow.delivered, flow.deliver_rate),
        ("deliver_get", flow.delivered, flow.deliver_rate),
        ("deliver_no_ack", 0, 0.0),
        ("get", 0, 0.0),
        ("get_empty", 0, 0.0),
        ("get_no_ack", 0, 0.0),
        ("publish", flow.put, flow.put_rate),
        ("redeliver", flow.returned, 0.0),
    ):
        row[name] = count
        row[f"{name}_details"] = rate(speed)
    return cast("MessageStats", row)


def exchange_stats(traffic: Traffic) -> MessageStats:
    """Return the statistics of an exchange."""
    came, went = traffic.rates[:2]
    return {
        "publish_in": traffic.came,
        "publish_in_details": rate(came.per_second()),
        "publish_out": traffic.went,
        "publish_out_details": rate(went.per_second()),
    }


def unroutable(all_traffic: Iterable[Traffic]) -> MessageStats:
    """Return the counts of unroutable messages of these exchanges."""
    found = list(all_traffic)
    return {
        "drop_unroutable": sum(one.dropped for one in found),
        "drop_unroutable_details": rate(sum(one.rates[2].per_second() for one in found)),
        "return_unroutable": sum(one.returned for one in found),
        "return_unroutable_details": rate(sum(one.rates[3].per_second() for one in found)),
    }
