"""Declaring, deleting, binding and purging queues and exchanges on a channel, with RabbitMQ's edge cases."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.amqp import methods as m
from holdfast.broker.errors import NoSuch
from holdfast.broker.permissions import Operation
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.routing import Arguments, DestinationKind
from holdfast.broker.store_names import check_deletable, check_new_name, check_not_default, stripped
from holdfast.broker.topology import check_type
from holdfast.broker.vhost import VirtualHostRuntime

if TYPE_CHECKING:
    from holdfast.amqp.connection import Connection

__all__ = ["TopologyCommands"]


class TopologyCommands:
    """The topology methods of one channel: `send` answers the client, `check` raises 403 if its user may not do it.

    Used by the event loop alone. It owns the name of the queue that the channel declared last.
    """

    def __init__(
        self,
        connection: "Connection",
        host: VirtualHostRuntime,
        send: Callable[[m.Method], None],
        check: Callable[[Operation, str], None],
    ) -> None:
        self._connection = connection
        self._host = host
        self._send = send
        self._check = check
        self._last_queue = ""

    def perform(self, method: m.Method) -> bool:
        """Perform a method; return False if it is not one of the topology."""
        perform = _PERFORM.get(type(method))
        if perform is not None:
            perform(self, method)
        return perform is not None

    def queue_name(self, name: str) -> str:
        """Return the name or, if it is empty, that of the queue this channel declared last."""
        if name:
            return name
        if not self._last_queue:
            raise NoSuch("no previously declared queue")
        return self._last_queue

    # Exchanges.

    def _exchange_declare(self, method: m.ExchangeDeclare) -> None:
        name = stripped(method.exchange)
        if not method.passive:
            check_type(method.type)  # before the permission check: an unknown type is an error for every user
            check_not_default(name)
            self._check(Operation.EXCHANGE_DECLARE, name)
            alternate = method.arguments.get("alternate-exchange")
            if isinstance(alternate, str) and name not in self._host.topology.exchanges:
                self._check(Operation.EXCHANGE_BIND_FROM, name)
                self._check(Operation.EXCHANGE_PUBLISH, alternate)
        self._host.declare_exchange(
            name,
            method.type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
            passive=method.passive,
        )
        if not method.nowait:
            self._send(m.ExchangeDeclareOk())

    def _exchange_delete(self, method: m.ExchangeDelete) -> None:
        name = stripped(method.exchange)
        check_deletable(name, self._host.name)
        self._check(Operation.EXCHANGE_DELETE, name)
        self._host.delete_exchange(name, if_unused=method.if_unused)
        if not method.nowait:
            self._send(m.ExchangeDeleteOk())

    def _exchange_bind(self, method: m.ExchangeBind) -> None:
        self._host.bind(*self._binding("exchange", method.source, method.destination, method))
        if not method.nowait:
            self._send(m.ExchangeBindOk())

    def _exchange_unbind(self, method: m.ExchangeUnbind) -> None:
        self._host.unbind(*self._binding("exchange", method.source, method.destination, method))
        if not method.nowait:
            self._send(m.ExchangeUnbindOk())

    def _binding(
        self,
        kind: DestinationKind,
        source: str,
        destination: str,
        method: m.ExchangeBind | m.ExchangeUnbind | m.QueueBind | m.QueueUnbind,
    ) -> tuple[str, DestinationKind, str, str, Arguments, object]:
        """Check the user's permissions; return the arguments of `bind` or `unbind` of the vhost.

        A queue without a name is the one that this channel declared last; its name is then also the routing key, if
        that is empty.
        """
        source, name, key = stripped(source), stripped(destination), method.routing_key
        if kind == "queue" and not name:
            name = self.queue_name(name)
            key = key or name
        self._check(Operation.QUEUE_BIND if kind == "queue" else Operation.EXCHANGE_BIND_TO, name)
        check_not_default(source)
        self._check(Operation.EXCHANGE_BIND_FROM, source)
        return source, kind, name, key, method.arguments, self._connection

    # Queues.

    def _queue_declare(self, method: m.QueueDeclare) -> None:
        name = stripped(method.queue)
        if self._connection.replies.knows(name):
            self._last_queue = name
            if not method.nowait:
                self._send(m.QueueDeclareOk(name, 0, 1))
            return
        if not method.passive:
            is_new = name not in self._host.topology.queues
            if is_new:
                check_new_name("queue", name)
            self._check(Operation.QUEUE_DECLARE, name or "amq.gen-")
            dead = method.arguments.get("x-dead-letter-exchange")
            if isinstance(dead, str) and is_new:
                self._check(Operation.QUEUE_TAKE, name or "amq.gen-")
                self._check(Operation.EXCHANGE_PUBLISH, dead)
        broker_queue = self._host.declare_queue(
            name,
            durable=method.durable,
            exclusive=method.exclusive,
            auto_delete=method.auto_delete,
            arguments=method.arguments,
            passive=method.passive,
            owner=self._connection,
        )
        self._last_queue = broker_queue.name
        if not method.nowait:
            self._send(m.QueueDeclareOk(broker_queue.name, broker_queue.ready(), len(broker_queue.consumers)))

    def _queue_bind(self, method: m.QueueBind) -> None:
        self._host.bind(*self._binding("queue", method.exchange, method.queue, method))
        if not method.nowait:
            self._send(m.QueueBindOk())

    def _queue_unbind(self, method: m.QueueUnbind) -> None:
        self._host.unbind(*self._binding("queue", method.exchange, method.queue, method))
        self._send(m.QueueUnbindOk())

    def _queue_purge(self, method: m.QueuePurge) -> None:
        name = self.queue_name(method.queue)
        self._check(Operation.QUEUE_PURGE, name)
        broker_queue = self._host.broker_queue(name, self._connection, uses=False)
        count = broker_queue.queue.purge()
        if not method.nowait:
            self._answer_safely(broker_queue, m.QueuePurgeOk(count))

    def _queue_delete(self, method: m.QueueDelete) -> None:
        name = self.queue_name(stripped(method.queue))
        self._check(Operation.QUEUE_DELETE, name)
        count = self._host.delete_queue(name, self._connection, if_unused=method.if_unused, if_empty=method.if_empty)
        if not method.nowait:
            self._send(m.QueueDeleteOk(count))

    def _answer_safely(self, broker_queue: BrokerQueue, answer: m.Method) -> None:
        """Sync the queue on this thread, which blocks the event loop meanwhile; then send the answer."""
        broker_queue.queue.history.sync()
        self._send(answer)


_PERFORM: dict[type, Callable[[TopologyCommands, Any], None]] = {
    m.ExchangeDeclare: TopologyCommands._exchange_declare,
    m.ExchangeDelete: TopologyCommands._exchange_delete,
    m.ExchangeBind: TopologyCommands._exchange_bind,
    m.ExchangeUnbind: TopologyCommands._exchange_unbind,
    m.QueueDeclare: TopologyCommands._queue_declare,
    m.QueueBind: TopologyCommands._queue_bind,
    m.QueueUnbind: TopologyCommands._queue_unbind,
    m.QueuePurge: TopologyCommands._queue_purge,
    m.QueueDelete: TopologyCommands._queue_delete,
}
