"""The topology of one virtual host in memory: exchanges, queues and bindings, with RabbitMQ's rules for changes."""

import base64
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from holdfast.broker.errors import (
    AccessRefused,
    CommandInvalid,
    NoSuch,
    PreconditionFailed,
    ResourceLocked,
    named,
)
from holdfast.broker.queue_arguments import (
    COMPARED,
    QueueArguments,
    amqp_type,
    check_equivalent,
    check_same_arguments,
    check_x_match,
    new_settings,
)
from holdfast.broker.routing import EXCHANGE_TYPES, Arguments, Binding, DestinationKind, Router
from holdfast.broker.store_names import check_deletable, check_new_name, check_not_default, stripped

__all__ = [
    "Binding",
    "Change",
    "ExchangeDefinition",
    "Listener",
    "QueueDefinition",
    "Removed",
    "Topology",
    "check_exchange",
    "check_type",
]

DELAYED = "x-delayed-message"
"""The type of RabbitMQ's plug-in for delays: it routes as its argument `x-delayed-type` says."""


@dataclass(frozen=True, slots=True)
class ExchangeDefinition:
    """An exchange as it was declared."""

    kind: ClassVar[Literal["exchange"]] = "exchange"
    vhost: str
    name: str
    type: str = "direct"
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = field(default_factory=dict, hash=False)

    @property
    def kept(self) -> bool:
        """Whether it is durable and not predeclared."""
        return self.durable and not self.predeclared

    @property
    def predeclared(self) -> bool:
        """Whether each virtual host has it from the start."""
        return self.name == "" or self.name.startswith("amq.")

    @property
    def alternate(self) -> str | None:
        """The exchange that gets the messages which this one cannot route."""
        return self.arguments.get("alternate-exchange")

    @property
    def routes_as(self) -> str:
        """The exchange type that decides how it routes."""
        return str(self.arguments["x-delayed-type"]) if self.type == DELAYED else self.type

    def __str__(self) -> str:
        """Return its name as error texts write it."""
        return named("exchange", self.name, self.vhost)


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue as it was declared."""

    kind: ClassVar[Literal["queue"]] = "queue"
    vhost: str
    name: str
    durable: bool = False
    auto_delete: bool = False
    arguments: Arguments = field(default_factory=dict, hash=False)
    owner: object | None = None
    """For an exclusive queue, the connection with which it is deleted."""
    settings: QueueArguments = field(default_factory=QueueArguments)
    """The parsed arguments."""

    @property
    def exclusive(self) -> bool:
        """Whether it belongs to one connection."""
        return self.owner is not None

    @property
    def kept(self) -> bool:
        """Whether it survives a restart of the broker; an exclusive queue does not, durable or not."""
        return self.durable and not self.exclusive

    def __str__(self) -> str:
        """Return its name as error texts write it."""
        return named("queue", self.name, self.vhost)


@dataclass(frozen=True, slots=True)
class Removed:
    """Everything that one deletion removed."""

    queues: tuple[QueueDefinition, ...] = ()
    exchanges: tuple[ExchangeDefinition, ...] = ()
    bindings: tuple[Binding, ...] = ()


Change = tuple[ExchangeDefinition | QueueDefinition | Binding, bool]
"""A durable object, and whether it exists from now on."""
Listener = Callable[[Sequence[Change]], None]

_PREDECLARED = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
    "amq.rabbitmq.trace": "topic",
}


class Topology:
    """The topology of one virtual host: no input or output, no messages.

    The listener is notified of durable changes before they are made, of all changes of one call together: if it raises,
    nothing has changed. Threads: the broker's thread makes all changes, with the broker's `guard` held. Other threads
    take that lock to iterate, or copy in one atomic step.
    """

    def __init__(self, name: str, listener: Listener | None = None) -> None:
        self.name = name
        self.exchanges: dict[str, ExchangeDefinition] = {}
        self.queues: dict[str, QueueDefinition] = {}
        self.router = Router(name, self.queues)
        self.route = self.router.route
        """`route(exchange, key, headers)`: the names of the queues. The router's own method: each message calls it."""
        self._listener = listener
        self._from: dict[str, dict[Binding, None]] = {}
        self._to: dict[tuple[DestinationKind, str], dict[Binding, None]] = {}
        for exchange, kind in _PREDECLARED.items():
            self._add_exchange(
                ExchangeDefinition(name, exchange, kind, durable=True, internal=exchange == "amq.rabbitmq.trace")
            )

    def exchange(self, name: str) -> ExchangeDefinition:
        """Return the exchange of this name, or raise 404."""
        found = self.exchanges.get(name)
        if found is None:
            raise NoSuch("no " + named("exchange", name, self.name))
        return found

    def queue(self, name: str, connection: object | None = None) -> QueueDefinition:
        """Return the queue for a connection: 404 if there is none, 405 if it is another connection's."""
        found = self.queues.get(name)
        if found is None:
            raise NoSuch("no " + named("queue", name, self.name))
        if found.owner is not None and found.owner is not connection:
            raise _locked(found)
        return found

    def check_publish(self, exchange: str) -> None:
        """Raise 404 or 403 if clients cannot publish to the exchange."""
        if self.exchange(exchange).internal:
            raise AccessRefused(f"cannot publish to internal {named('exchange', exchange, self.name)}")

    def bindings(self) -> Iterable[Binding]:
        """Return all bindings, except the implicit ones of the default exchange."""
        return [binding for held in self._from.values() for binding in held]

    def bindings_from(self, exchange: str) -> Iterable[Binding]:
        """Return the bindings whose source is this exchange."""
        return list(self._from.get(exchange, ()))

    def bindings_to(self, kind: DestinationKind, name: str) -> Iterable[Binding]:
        """Return the bindings whose destination is this queue or exchange."""
        return list(self._to.get((kind, name), ()))

    def is_bound(self, binding: Binding) -> bool:
        """Whether exactly this binding exists."""
        return binding in self._from.get(binding.source, ())

    def declare_exchange(
        self,
        name: str,
        type: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
        passive: bool = False,
    ) -> ExchangeDefinition:
        """Return the exchange; create it if there is none. If passive, raise 404 instead of creating it.

        Raises 406 if it exists with other properties or an argument is invalid, 503 for an unknown type, 403 for a
        reserved name.
        """
        name = stripped(name)
        check_not_default(name)
        if passive:
            return self.exchange(name)
        wanted = ExchangeDefinition(self.name, name, type, durable, auto_delete, internal, dict(arguments or {}))
        check_exchange(wanted)
        current = self.exchanges.get(name)
        if current is not None:
            what = str(current)
            check_equivalent(what, "type", type, current.type)
            check_equivalent(what, "durable", durable, current.durable)
            check_equivalent(what, "auto_delete", auto_delete, current.auto_delete)
            check_equivalent(what, "internal", internal, current.internal)
            compared = ("alternate-exchange", "x-delayed-type")
            check_same_arguments(what, compared, wanted.arguments, current.arguments)
            return current
        check_new_name("exchange", name)
        self._tell([(wanted, True)])
        self._add_exchange(wanted)
        return wanted

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> Removed:
        """Delete an exchange and its bindings. As in RabbitMQ, a missing exchange is not an error.

        Raises 403 for a predeclared exchange, 406 if it is in use and `if_unused` is set.
        """
        check_deletable(name, self.name)
        if name not in self.exchanges:
            return Removed()
        if if_unused and self._from.get(name):
            raise PreconditionFailed(f"{named('exchange', name, self.name)} in use")
        return self._delete(exchange=name)

    def declare_queue(
        self,
        name: str = "",
        *,
        durable: bool = False,
        exclusive_owner: object | None = None,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
        passive: bool = False,
        connection: object | None = None,
    ) -> QueueDefinition:
        """Return the queue; create it if there is none; 406 if it differs. Without a name, one is generated.

        `connection` is the caller, `exclusive_owner` the same if the queue shall be exclusive. Raises 405 if an
        existing queue belongs to another connection, or is exclusive and not declared so, or the reverse. Passive: 404
        if there is none.
        """
        name = stripped(name)
        if passive:
            return self.queue(name, exclusive_owner if connection is None else connection)
        given = dict(arguments or {})
        current = self.queues.get(name)
        durable = durable and exclusive_owner is None  # an exclusive queue does not survive its connection
        if current is not None:
            if current.owner is not exclusive_owner:
                raise _locked(current)
            check_equivalent(str(current), "durable", durable, current.durable)
            check_equivalent(str(current), "auto_delete", auto_delete, current.auto_delete)
            check_same_arguments(str(current), COMPARED, given, current.arguments)
            return current
        if name:
            check_new_name("queue", name)
        else:
            name = "amq.gen-" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        settings = new_settings(given, name, self.name)
        wanted = QueueDefinition(self.name, name, durable, auto_delete, given, exclusive_owner, settings)
        _check_quorum(wanted)
        self._tell([(wanted, True)])
        self._add_queue(wanted)
        return wanted

    def delete_queue(self, name: str, *, connection: object | None = None) -> Removed:
        """Delete a queue with its bindings, and auto-delete exchanges that lost their last binding.

        405 if it is another connection's; as in RabbitMQ, a missing queue is not an error.
        """
        if name not in self.queues:
            return Removed()
        self.queue(name, connection)
        return self._delete(queue=name)

    def owned_by(self, connection: object) -> list[QueueDefinition]:
        """Return the exclusive queues of a connection, to be deleted with it."""
        return [queue for queue in self.queues.values() if queue.owner is connection]

    def bind(
        self,
        source: str,
        kind: DestinationKind,
        destination: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        *,
        connection: object | None = None,
    ) -> Binding:
        """Bind a queue or exchange to an exchange; an existing binding is not changed.

        Raises 403 for the default exchange, 404 for a missing end, 405 for a queue of another connection, 406 for an
        invalid `x-match`.
        """
        binding = self._checked(source, kind, destination, routing_key, arguments)
        exchange = self.exchange(source)
        if kind == "queue":
            self.queue(destination, connection)
        else:
            self.exchange(destination)
        if exchange.routes_as == "headers":
            check_x_match(binding.arguments)
        if not self.is_bound(binding):
            self._tell([(binding, True)])
            self._add_binding(binding)
        return binding

    def unbind(
        self,
        source: str,
        kind: DestinationKind,
        destination: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        *,
        connection: object | None = None,
    ) -> Removed:
        """Remove a binding, and its source if that is auto-delete and has no other.

        As in RabbitMQ, a missing binding is not an error, nor is a missing source or destination.
        """
        binding = self._checked(source, kind, destination, routing_key, arguments)
        if kind == "queue" and destination in self.queues:
            self.queue(destination, connection)
        if not self.is_bound(binding):
            return Removed()
        return self._delete(binding=binding)

    def is_kept(self, thing: ExchangeDefinition | QueueDefinition | Binding) -> bool:
        """Whether it survives a restart of the broker; a binding does if both its ends do."""
        if not isinstance(thing, Binding):
            return thing.kept
        ends = (
            self.exchanges[thing.source],
            self.queues[thing.destination] if thing.destination_kind == "queue" else self.exchanges[thing.destination],
        )
        return all(end.durable and (end.kept or isinstance(end, ExchangeDefinition)) for end in ends)

    def restore(self, things: Iterable[ExchangeDefinition | QueueDefinition | Binding]) -> None:
        """Restore stored definitions, without checks and without notifying the listener. Existing ones are not changed.

        Bindings follow what they bind; a binding with a missing end is skipped.
        """
        for thing in things:
            if isinstance(thing, ExchangeDefinition):
                if thing.name not in self.exchanges:
                    self._add_exchange(thing)
            elif isinstance(thing, QueueDefinition):
                if thing.name not in self.queues:
                    self._add_queue(thing)
            else:
                ends: Iterable[str] = self.queues if thing.destination_kind == "queue" else self.exchanges
                if (
                    thing.source in self.exchanges
                    and thing.destination in ends
                    and thing not in self._from[thing.source]
                ):
                    self._add_binding(thing)

    def _checked(
        self, source: str, kind: DestinationKind, destination: str, routing_key: str, arguments: Arguments | None
    ) -> Binding:
        check_not_default(source)
        if kind == "exchange":
            check_not_default(destination)
        return Binding(self.name, source, kind, destination, routing_key, dict(arguments or {}))

    def _delete(
        self, *, queue: str | None = None, exchange: str | None = None, binding: Binding | None = None
    ) -> Removed:
        """Determine everything that goes, notify the listener, and only then remove it."""
        bindings: dict[Binding, None] = {}
        exchanges: dict[str, None] = {}
        left: dict[str, int] = {}
        waiting: list[Binding] = [] if binding is None else [binding]
        if queue is not None:
            waiting += self._to.get(("queue", queue), ())
        doomed = [] if exchange is None else [exchange]
        while waiting or doomed:
            if doomed:
                name = doomed.pop()
                if name not in exchanges:
                    exchanges[name] = None
                    waiting += self._from.get(name, ())
                    waiting += self._to.get(("exchange", name), ())
                continue
            going = waiting.pop()
            if going in bindings:
                continue
            bindings[going] = None
            left[going.source] = left.get(going.source, len(self._from[going.source])) - 1
            if left[going.source] == 0 and self.exchanges[going.source].auto_delete:
                doomed.append(going.source)
        gone = Removed(
            () if queue is None else (self.queues[queue],),
            tuple(self.exchanges[name] for name in exchanges),
            tuple(bindings),
        )
        changes: list[Change] = [(one, False) for one in gone.bindings]
        changes += [(one, False) for one in gone.queues]
        changes += [(one, False) for one in gone.exchanges]
        self._tell(changes)
        for going in gone.bindings:
            self._remove_binding(going)
        for name in exchanges:
            del self.exchanges[name], self._from[name]
            self.router.remove_exchange(name)
        if queue is not None:
            del self.queues[queue]
            self.router.forget_routes()
        return gone

    def _tell(self, changes: Sequence[Change]) -> None:
        if self._listener is not None and (durable := [one for one in changes if self.is_kept(one[0])]):
            self._listener(durable)

    def _add_exchange(self, exchange: ExchangeDefinition) -> None:
        self.exchanges[exchange.name] = exchange
        self._from[exchange.name] = {}
        self.router.add_exchange(exchange.name, exchange.routes_as, exchange.alternate)

    def _add_queue(self, queue: QueueDefinition) -> None:
        self.queues[queue.name] = queue
        self.router.forget_routes()

    def _add_binding(self, binding: Binding) -> None:
        self._from[binding.source][binding] = None
        self._to.setdefault(binding.target, {})[binding] = None
        self.router.bind(binding)

    def _remove_binding(self, binding: Binding) -> None:
        del self._from[binding.source][binding]
        leading = self._to[binding.target]
        del leading[binding]
        if not leading:
            del self._to[binding.target]
        self.router.unbind(binding)


def check_type(exchange_type: str) -> None:
    """Raise 503 for an unsupported exchange type."""
    if exchange_type not in EXCHANGE_TYPES and exchange_type != DELAYED:
        raise CommandInvalid(f"unknown exchange type '{exchange_type}'")


def check_exchange(wanted: ExchangeDefinition) -> None:
    """Raise 503 for an unsupported exchange type, 406 for invalid arguments."""
    check_type(wanted.type)
    if wanted.type == DELAYED and wanted.arguments.get("x-delayed-type") not in list(EXCHANGE_TYPES):
        raise PreconditionFailed(
            f"invalid arg 'x-delayed-type' for {wanted}: it must be one of {', '.join(EXCHANGE_TYPES)}"
        )
    alternate = wanted.arguments.get("alternate-exchange", "")
    if not isinstance(alternate, str):
        raise PreconditionFailed(f"invalid type '{amqp_type(alternate)}' for arg 'alternate-exchange' in {wanted}")


def _check_quorum(wanted: QueueDefinition) -> None:
    if wanted.settings.queue_type == "quorum":
        for refused, name in (
            (wanted.exclusive, "exclusive-owner"),
            (not wanted.durable, "non-durable"),
            (wanted.auto_delete, "auto-delete"),
        ):
            if refused:
                raise PreconditionFailed(f"invalid property '{name}' for {wanted}")


def _locked(queue: QueueDefinition) -> ResourceLocked:
    return ResourceLocked(
        f"cannot obtain exclusive access to locked {queue}. It could be originally declared on another connection or "
        "the exclusive property value does not match that of the original declaration."
    )
