"""An AMQP channel: publishes, consumers, acknowledgements, transactions and declarations, in frame order."""

import base64
import contextlib
import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.amqp import methods as m
from holdfast.amqp.consumer import ChannelConsumer
from holdfast.amqp.direct_reply_to import REPLY_TO
from holdfast.amqp.frames import ACK_FRAME, END_OCTET, content_frames
from holdfast.amqp.publisher import ChannelPublisher
from holdfast.amqp.topology_commands import TopologyCommands
from holdfast.amqp.transaction import Transaction
from holdfast.amqp.unacked import Taken, UnackedTags
from holdfast.base.errors import HoldfastError
from holdfast.broker.errors import (
    AccessRefused,
    CommandInvalid,
    NotAllowed,
    NotOffered,
    PreconditionFailed,
    named,
)
from holdfast.broker.message import content_of, counted
from holdfast.broker.permissions import Operation
from holdfast.broker.queue_arguments import amqp_type
from holdfast.broker.queue_dispatcher import BrokerQueue

if TYPE_CHECKING:
    from holdfast.amqp.connection import Connection

__all__ = ["ACK", "Channel"]

ACK = b"\x00\x3c\x00\x50"
"""The first bytes of the payload of an ack."""


class Channel:
    """One channel of a connection, used by the event loop. Invariant: a delivery is either in `unacked` or settled."""

    def __init__(self, connection: "Connection", number: int) -> None:
        self.connection = connection
        self.number = number
        host = connection.host
        assert host is not None
        self.host = host
        self.user = connection.user
        self.frame_max = connection.frame_max
        self.body_max = connection.frame_max - 8
        self.write = connection.write
        self.now = connection.now
        self.after_read = connection.end_of_read.append
        """Call a function when everything from the current read is processed; its error closes the connection."""
        self.publishing = ChannelPublisher(self)
        self._topology = TopologyCommands(connection, host, self._send, self._check)
        self.unacked = UnackedTags()
        self.subscriptions: dict[str, ChannelConsumer] = {}
        self.consumed = 0
        """Unsettled deliveries to consumers, cancelled ones included; without messages that basic.get fetched."""
        self.prefetch = 0
        """Unsettled deliveries that the whole channel may hold; 0: any number."""
        self.transaction: Transaction | None = None
        self.closing = False
        """Whether a close was sent: frames that arrive before its answer are discarded."""
        self.consumer_prefetch = 0
        """Unsettled deliveries that each new consumer may hold; 0: any number."""
        self.delivered = 0
        """How many deliveries were sent so far, which is also the last delivery tag."""
        self._acks: dict[BrokerQueue, dict[int, list[int]]] = {}

    # For senders on this channel.

    def check_publish(self, exchange: str) -> None:
        """Raise 403 or 404 if this user cannot publish to the exchange."""
        self._check(Operation.EXCHANGE_PUBLISH, exchange)
        self.host.check_publish(exchange)

    def consumer_cancelled(self, subscription: ChannelConsumer) -> None:
        """Remove a consumer whose queue was deleted, and notify the client if it supports that."""
        self.subscriptions.pop(subscription.tag, None)
        if self.connection.understands("consumer_cancel_notify"):
            # Not now: a client that deletes the queue itself gets the answer to its request first.
            self.connection.broker.turns.after_turn(partial(self._cancelled, subscription.tag))

    def _cancelled(self, tag: str) -> None:
        if not self.closing and self.connection.channels.get(self.number) is self:
            self._send(m.BasicCancel(tag, True))

    # For the connection.

    def method(self, payload: bytes) -> None:
        """Perform a method other than basic.publish."""
        method = m.decode_method(payload)
        perform = _PERFORM.get(type(method))
        if perform is not None:
            perform(self, method)
        elif not self._topology.perform(method):
            raise CommandInvalid("unimplemented method")

    def _send(self, method: m.Method) -> None:
        self.write(m.method_frame(self.number, method))

    def _check(self, operation: Operation, name: str) -> None:
        self.connection.broker.permissions.check(self.user, operation, name, vhost=self.host.name)

    def end(self) -> None:
        """Close the channel: put published messages, remove its consumers, and requeue unsettled deliveries.

        An open transaction is rolled back. Pending confirms are not sent.
        """
        self.closing = True  # first: flushed messages may be delivered at once, but not to this channel
        with contextlib.suppress(HoldfastError):  # the close notifies their publisher
            self.publishing.flush()
        self.publishing.forget()
        self._flush_acks()
        if self.transaction is not None:
            self.transaction.rollback()
        self.connection.replies.leave(self)
        self.requeue(self.unacked.take_all())
        for subscription in list(self.subscriptions.values()):
            self._remove(subscription)

    # Consuming.

    def _qos(self, method: m.BasicQos) -> None:
        if method.prefetch_size:
            raise NotOffered(f"prefetch_size!=0 ({method.prefetch_size})")
        if method.global_:
            self.prefetch = method.prefetch_count
        else:
            self.consumer_prefetch = method.prefetch_count
            self.prefetch = 0
        self._send(m.BasicQosOk())
        self._deliver_soon()

    def _consume(self, method: m.BasicConsume) -> None:
        name = self._topology.queue_name(method.queue)
        replies = self.connection.replies
        tag = method.consumer_tag or "amq.ctag-" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()[:22]
        if tag in self.subscriptions or replies.uses_tag(self, tag):
            raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
        if name == REPLY_TO:
            replies.listen(self, tag, no_ack=method.no_ack)
            if not method.nowait:
                self._send(m.BasicConsumeOk(tag))
            return
        self._check(Operation.QUEUE_TAKE, name)
        broker_queue = self.host.broker_queue(name, self.connection)
        priority = method.arguments.get("x-priority", 0)
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise PreconditionFailed(
                f"invalid arg 'x-priority' for {named('queue', name, self.host.name)}: "
                f'"expected integer, got {amqp_type(priority)}"'
            )
        if broker_queue.exclusive is not None or (method.exclusive and broker_queue.consumers):
            raise AccessRefused(f"{named('queue', name, self.host.name)} in exclusive use")
        if method.exclusive and broker_queue.arguments.single_active_consumer:
            raise AccessRefused(f"{named('queue', name, self.host.name)} in exclusive use")
        subscription = ChannelConsumer(
            self, tag, broker_queue, no_ack=method.no_ack, priority=priority, prefetch=self.consumer_prefetch
        )
        subscription.arguments = method.arguments
        if method.exclusive:
            broker_queue.exclusive = subscription
        self.subscriptions[tag] = subscription
        if not method.nowait:
            self._send(m.BasicConsumeOk(tag))
        broker_queue.add(subscription)

    def _cancel(self, method: m.BasicCancel) -> None:
        subscription = self.subscriptions.get(method.consumer_tag)
        if subscription is not None:
            self._remove(subscription)
        else:
            self.connection.replies.leave(self, method.consumer_tag)
        if not method.nowait:
            self._send(m.BasicCancelOk(method.consumer_tag))

    def _remove(self, subscription: ChannelConsumer) -> None:
        del self.subscriptions[subscription.tag]
        subscription.broker_queue.remove(subscription)
        self.host.consumer_left(subscription.broker_queue)

    def _get(self, method: m.BasicGet) -> None:
        name = self._topology.queue_name(method.queue)
        self._check(Operation.QUEUE_TAKE, name)
        broker_queue = self.host.broker_queue(name, self.connection)
        delivery = broker_queue.get()
        if delivery is None:
            self._send(m.BasicGetEmpty())
            return
        tag = self.delivered = self.delivered + 1
        if method.no_ack:
            broker_queue.ack({delivery.lease: [delivery.id]})
        else:
            self.unacked.add(tag, [delivery.id], delivery.lease, broker_queue, None, self.now())
        content = content_of(delivery.key, delivery.headers, name)
        if broker_queue.counts_deliveries:
            content = counted(content, delivery.attempt - 1)
        answer = m.BasicGetOk(tag, delivery.attempt > 1, content.exchange, content.routing_key, broker_queue.ready())
        frames = content_frames(self.number, 60, content.raw, delivery.payload, self.frame_max)
        self.write(b"".join([m.method_frame(self.number, answer), *frames]))

    # Settling.

    def take_acks(self, data: bytes | memoryview, offset: int, following: int) -> int:
        """Process an ack and the acks that follow it in the buffer; return the offset after the last.

        Clients that ack one by one send many at a time; decoding each method separately took three times as long.
        """
        prefix = bytes(data[offset : offset + 11])
        while True:
            if following - offset != ACK_FRAME.size:
                m.decode_method(bytes(data[offset + 7 : following - 1]))  # raises: it is too short or too long
            *_, tag, bits, _ = ACK_FRAME.unpack_from(data, offset)
            taken = self.unacked.take(tag, multiple=bits & 1 == 1)
            if self.transaction is not None:
                self.transaction.settle("ack", taken)
            else:
                self.ack(taken)
            offset, following = following, following + ACK_FRAME.size
            if data[offset : offset + 11] != prefix or following > len(data) or data[following - 1] != END_OCTET:
                return offset

    def ack(self, taken: list[Taken]) -> None:
        """Acknowledge deliveries. They are collected until the end of the read, for one journal record a queue."""
        if not self._acks:
            self.after_read(self._flush_acks)
        for broker_queue, subscription, lease, ids, _ in taken:
            if subscription is not None:
                subscription.settled(len(ids))
            self._acks.setdefault(broker_queue, {}).setdefault(lease, []).extend(ids)

    def _flush_acks(self) -> None:
        acks, self._acks = self._acks, {}
        for broker_queue, parts in acks.items():
            broker_queue.ack(parts)
        if self.prefetch:
            self._deliver_soon()

    def _nack(self, method: m.BasicNack) -> None:
        self._refuse(self.unacked.take(method.delivery_tag, multiple=method.multiple), requeue=method.requeue)

    def _reject(self, method: m.BasicReject) -> None:
        self._refuse(self.unacked.take(method.delivery_tag, multiple=False), requeue=method.requeue)

    def _refuse(self, taken: list[Taken], *, requeue: bool) -> None:
        if self.transaction is not None:
            self.transaction.settle("requeue" if requeue else "reject", taken)
        elif requeue:
            self.requeue(taken)
        else:
            self.reject(taken)

    def reject(self, taken: list[Taken]) -> None:
        """Reject deliveries: they are dead-lettered or dropped."""
        for broker_queue, parts in _grouped(taken).items():
            broker_queue.reject(parts)
        if self.prefetch:
            self._deliver_soon()

    def requeue(self, taken: list[Taken]) -> None:
        """Return deliveries to their queues."""
        for broker_queue, parts in _grouped(taken).items():
            broker_queue.requeue(parts)
        if self.prefetch:
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        """Let all queues deliver that the channel consumes: its limit may have held back any of them."""
        for subscription in self.subscriptions.values():
            subscription.broker_queue.deliver_soon()

    def _recover(self, method: m.BasicRecover) -> None:
        self._recover_async(m.BasicRecoverAsync(method.requeue))
        self._send(m.BasicRecoverOk())

    def _recover_async(self, method: m.BasicRecoverAsync) -> None:
        if not method.requeue:
            raise NotOffered("requeue=false")
        self.requeue(self.unacked.take_all())

    # Modes.

    def _confirm_select(self, method: m.ConfirmSelect) -> None:
        if self.transaction is not None:
            raise PreconditionFailed("cannot switch from tx to confirm mode")
        self.publishing.confirms = True
        if not method.nowait:
            self._send(m.ConfirmSelectOk())

    def _tx_select(self, method: m.TxSelect) -> None:
        if self.publishing.confirms:
            raise PreconditionFailed("cannot switch from confirm to tx mode")
        if self.transaction is None:
            self.transaction = Transaction(self)
        self._send(m.TxSelectOk())

    def _tx_commit(self, method: m.TxCommit) -> None:
        if self.transaction is None:
            raise PreconditionFailed("channel is not transactional")
        self.transaction.commit(lambda: self._send(m.TxCommitOk()))

    def _tx_rollback(self, method: m.TxRollback) -> None:
        if self.transaction is None:
            raise PreconditionFailed("channel is not transactional")
        self.transaction.rollback()
        self._send(m.TxRollbackOk())

    def _flow(self, method: m.ChannelFlow) -> None:
        if not method.active:
            raise NotOffered("active=false")
        self._send(m.ChannelFlowOk(method.active))

    def _access(self, method: m.AccessRequest) -> None:
        self._send(m.AccessRequestOk(1))


def _grouped(taken: list[Taken]) -> dict[BrokerQueue, dict[int, list[int]]]:
    found: dict[BrokerQueue, dict[int, list[int]]] = {}
    for broker_queue, subscription, lease, ids, _ in taken:
        if subscription is not None:
            subscription.settled(len(ids))
        found.setdefault(broker_queue, {}).setdefault(lease, []).extend(ids)
    return found


_PERFORM: dict[type, Callable[[Channel, Any], None]] = {
    m.BasicQos: Channel._qos,
    m.BasicConsume: Channel._consume,
    m.BasicCancel: Channel._cancel,
    m.BasicGet: Channel._get,
    m.BasicNack: Channel._nack,
    m.BasicReject: Channel._reject,
    m.BasicRecover: Channel._recover,
    m.BasicRecoverAsync: Channel._recover_async,
    m.BasicCancelOk: lambda channel, method: None,
    m.ConfirmSelect: Channel._confirm_select,
    m.TxSelect: Channel._tx_select,
    m.TxCommit: Channel._tx_commit,
    m.TxRollback: Channel._tx_rollback,
    m.ChannelFlow: Channel._flow,
    m.AccessRequest: Channel._access,
}
