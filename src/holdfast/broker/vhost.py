"""A running virtual host: its topology joined with the broker queues that hold its queues' messages."""

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.base.errors import HoldfastError
from holdfast.base.names import abbreviate
from holdfast.broker.errors import NoSuch, PreconditionFailed, named
from holdfast.broker.exchange_stats import Traffic
from holdfast.broker.memory_alarm import Limits
from holdfast.broker.message import Content, lifetime_s
from holdfast.broker.programs import check_program_queue
from holdfast.broker.queue_arguments import FORWARDED, SETTINGS, check_chosen, queue_settings
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.routing import Arguments, DestinationKind
from holdfast.broker.store_names import check_reserved, name_in_store, stripped
from holdfast.broker.topology import QueueDefinition, Removed, Topology
from holdfast.log.policy import Flush, Roll
from holdfast.typed_options import LogOptions, QueueOptions

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.definitions import InHost

__all__ = ["DEAD_LETTERS", "MESSAGE_MAX", "VirtualHostRuntime", "log_options"]

logger = logging.getLogger("holdfast.broker")

DEAD_LETTERS = FORWARDED
MESSAGE_MAX = 128 << 20
_EXPIRY_MAX_S = 3600.0
_FLUSH_NS = 20_000_000
_FLUSH_MAX = 64 << 20
_NOTHING = object()
"""Marks an absent setting, since None is a value."""
_ROLL = Roll.any(Roll.size(256 << 20), Roll.time(86_400))


def log_options(limits: Limits) -> LogOptions:
    """Return the settings with which a server opens logs, whatever protocol asks for them.

    No append waits for the disk: publishers that want to know get a confirm after an fdatasync by the broker. The
    larger a pending block may be, the less often the broker has to write one while it should read from clients.
    """
    flush = Flush("async", max(1 << 20, min(_FLUSH_MAX, limits.queue_bodies // 4)), _FLUSH_NS)
    return {"flush": flush, "roll": _ROLL, "max_message": MESSAGE_MAX + (1 << 20)}


class VirtualHostRuntime:
    """A running virtual host. Used by the broker's thread.

    The thread that forwards dead letters also routes here, with the broker's `guard` held.
    """

    def __init__(self, broker: "Broker", topology: Topology) -> None:
        self.broker = broker
        self.topology = topology
        self.name = topology.name
        self.broker_queues: dict[str, BrokerQueue] = {}
        self.version = 0
        """Counts changes: results cached before the last one may be outdated."""
        self.traffic: defaultdict[str, Traffic] = defaultdict(Traffic)
        """By exchange: its message counters."""
        self._used: dict[str, float] = {}
        """By queue with an expiry: when it was last used."""
        self._next_expiry = 0.0
        """Before this none of them can have expired."""

    def start(self) -> None:
        """Open the durable queues. Messages that were leased when the last process ended are ready again.

        A queue that cannot be opened is logged and left out; the others are opened.
        """
        for definition in list(self.topology.queues.values()):
            try:
                self._warn_of_contradictions(definition)
                self._open(definition).queue.void_leases("the broker was started again")
            except HoldfastError as error:  # a queue that cannot be opened does not stop the others
                logger.error(
                    "opening queue failed: queue=%s vhost=%s error=%s",
                    definition.name,
                    self.name,
                    error,
                    extra={"vhost": self.name},
                )

    def restore(self, things: "list[InHost]") -> None:
        """Add imported definitions to the running host, and open its queues that are not open."""
        self.topology.restore(things)
        for definition in list(self.topology.queues.values()):
            if definition.name not in self.broker_queues:
                self._open(definition)
        self.version += 1

    # Exchanges and bindings.

    def declare_exchange(
        self,
        name: str,
        type: str,
        *,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Arguments,
        passive: bool,
    ) -> None:
        """Declare an exchange, or check that it exists as described; if passive, only that it exists."""
        with self.broker.guard:
            self.topology.declare_exchange(
                name,
                type,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
                passive=passive,
            )
            self.version += 1

    def delete_exchange(self, name: str, *, if_unused: bool) -> None:
        """Delete an exchange."""
        with self.broker.guard:
            self._went(self.topology.delete_exchange(name, if_unused=if_unused))

    def bind(
        self, source: str, kind: DestinationKind, destination: str, key: str, arguments: Arguments, owner: object
    ) -> None:
        """Bind a queue or exchange to an exchange."""
        with self.broker.guard:
            self.topology.bind(source, kind, destination, key, arguments, connection=owner)
            self.version += 1

    def unbind(
        self, source: str, kind: DestinationKind, destination: str, key: str, arguments: Arguments, owner: object
    ) -> None:
        """Remove a binding."""
        with self.broker.guard:
            self._went(self.topology.unbind(source, kind, destination, key, arguments, connection=owner))

    # Queues.

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
        passive: bool,
        owner: object,
    ) -> BrokerQueue:
        """Return the queue; create it if there is none. If passive, raise 404 instead of creating it.

        Raises 403 for a reserved name, 405 if it belongs to another connection, 406 if it exists with other properties.
        """
        check_reserved(name)
        with self.broker.guard:
            current = self.topology.queues.get(stripped(name))
            if current is not None and not passive:
                arguments = self._without_agreed(current, arguments)
            elif not passive and stripped(name):
                self._check_program(stripped(name), durable, auto_delete, arguments, owner if exclusive else None)
            before = len(self.topology.queues)
            definition = self.topology.declare_queue(
                name,
                durable=durable,
                exclusive_owner=owner if exclusive else None,
                auto_delete=auto_delete,
                arguments=arguments,
                passive=passive,
                connection=owner,
            )
            self.version += 1
            broker_queue = self.broker_queues.get(definition.name)
            if broker_queue is None:
                is_new = len(self.topology.queues) > before  # an existing queue that could not be opened stays defined
                broker_queue = self._made(definition) if is_new else self._open(definition)
        self._touch(broker_queue)
        return broker_queue

    def _check_program(
        self, name: str, durable: bool, auto_delete: bool, arguments: Arguments, owner: object | None
    ) -> None:
        """Raise 406 if a declaration contradicts a program's queue of this name that AMQP does not know yet."""
        chosen = self.broker.store.queue_registry.chosen_for(name_in_store(self.name, name))
        if chosen is not None:  # else nothing needs to be checked
            settings = queue_settings(arguments, name, self.name)
            wanted = QueueDefinition(self.name, name, durable, auto_delete, arguments, owner, settings)
            check_program_queue(self.broker.store, wanted)

    def _without_agreed(self, current: QueueDefinition, arguments: Arguments) -> Arguments:
        """Return the arguments of a declaration without those that repeat what a program chose for the queue.

        The stored declaration may lack these. Raises 406 if an argument contradicts what the program chose.
        """
        more = {name: value for name, value in arguments.items() if name in SETTINGS and name not in current.arguments}
        if not (more and current.kept):
            return arguments
        chosen = self.broker.store.queue_registry.chosen_for(name_in_store(self.name, current.name)) or {}
        by_amqp, _ = _options(current, self.broker.history_s, {})
        of_program = {name: value for name, value in chosen.items() if by_amqp.get(name, _NOTHING) != value}
        check_chosen(str(current), queue_settings(more, current.name, self.name), more, of_program)
        agreed = {name for name in more if SETTINGS[name] in of_program}
        return {name: value for name, value in arguments.items() if name not in agreed}

    def _warn_of_contradictions(self, definition: QueueDefinition) -> None:
        try:
            chosen = self.broker.store.queue_registry.chosen_for(name_in_store(self.name, definition.name))
            if definition.kept and chosen is not None:
                check_chosen(str(definition), definition.settings, definition.arguments, chosen)
        except PreconditionFailed as error:  # a program chose other settings after the declaration
            logger.warning(
                "settings conflict: queue=%s vhost=%s applied=amqp-declaration error=%s",
                definition.name,
                self.name,
                error,
                extra={"vhost": self.name},
            )

    def broker_queue(self, name: str, owner: object, *, uses: bool = True) -> BrokerQueue:
        """Return a queue for a connection; `uses` restarts its expiry.

        Raises 404 if it does not exist or could not be opened, 405 if it belongs to another connection.
        """
        self.topology.queue(name, owner)
        broker_queue = self.broker_queues.get(name)
        if broker_queue is None:
            raise NoSuch(f"{named('queue', name, self.name)} could not be opened when the broker started: see its log")
        if uses:
            self._touch(broker_queue)
        return broker_queue

    def delete_queue(self, name: str, owner: object, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue; return how many of its messages were ready.

        As in RabbitMQ, a missing queue is not an error. A queue that could not be opened counts as missing, and stays
        defined. Raises 405 if it belongs to another connection, 406 if `if_unused` or `if_empty` does not hold.
        """
        broker_queue = self.broker_queues.get(name)
        if broker_queue is None:
            return 0
        self.topology.queue(name, owner)
        if if_unused and broker_queue.consumers:
            raise PreconditionFailed(f"{named('queue', name, self.name)} in use")
        count = broker_queue.ready()
        if if_empty and count:
            raise PreconditionFailed(f"{named('queue', name, self.name)} not empty")
        self._delete(broker_queue)
        return count

    def drop(self, broker_queue: BrokerQueue) -> None:
        """Delete a queue without checks; do nothing if it is deleted already."""
        if self.broker_queues.get(broker_queue.name) is broker_queue:
            self._delete(broker_queue)

    def drop_owned_by(self, owner: object) -> None:
        """Delete the exclusive queues of a closed connection."""
        for definition in self.topology.owned_by(owner):
            if (broker_queue := self.broker_queues.get(definition.name)) is not None:
                self._delete(broker_queue)

    def consumer_left(self, broker_queue: BrokerQueue) -> None:
        """Delete an auto-delete queue after its last consumer left."""
        self._touch(broker_queue)
        if broker_queue.definition.auto_delete and broker_queue.had_consumers and not broker_queue.consumers:
            self.drop(broker_queue)

    def expire(self) -> None:
        """Delete queues that were unused for longer than their `x-expires`."""
        now = time.monotonic()
        if not self._used or now < self._next_expiry:
            return
        self._next_expiry = now + _EXPIRY_MAX_S
        for name, used in list(self._used.items()):
            broker_queue = self.broker_queues.get(name)
            if broker_queue is None:
                del self._used[name]
                continue
            expires = broker_queue.definition.settings.expires_ms
            if broker_queue.consumers:
                self._used[name] = now
                used = now
            if expires is None:
                continue
            if now - used >= expires / 1000:
                self.drop(broker_queue)
            else:
                self._next_expiry = min(self._next_expiry, used + expires / 1000)

    # Messages.

    def check_publish(self, exchange: str) -> None:
        """Raise 404 or 403 if clients cannot publish to the exchange."""
        self.topology.check_publish(exchange)

    def fixed_targets(self, exchange: str, key: str) -> list[BrokerQueue] | None:
        """Return the queues for all messages with this key; None if routing depends on the headers. Raises 404."""
        names = self.topology.router.fixed_route(exchange, key)
        return None if names is None else [self.broker_queues[name] for name in names if name in self.broker_queues]

    def route(self, exchange: str, keys: Sequence[str], headers: Arguments) -> list[BrokerQueue]:
        """Return the open queues for one message. Raises 404 for an unknown exchange."""
        names = self.topology.router.route_all(exchange, keys, headers)
        return [self.broker_queues[name] for name in names if name in self.broker_queues]

    def refuse(self, broker_queue: BrokerQueue, content: Content, bodies: list[bytes]) -> None:
        """Dead-letter messages that a full queue rejected, if its overflow is `reject-publish-dlx`; else do nothing."""
        if broker_queue.definition.settings.overflow == "reject-publish-dlx":
            self.dropped(broker_queue, content, bodies)

    def dropped(self, broker_queue: BrokerQueue, content: Content, bodies: list[bytes]) -> None:
        """Publish messages that a full queue did not accept to its dead-letter exchange, with the reason `maxlen`.

        Without a dead-letter exchange this does nothing, and the messages are lost. Nothing is synced here. A queue
        with a limit of 0 calls this for messages that no consumer can take at once.
        """
        self.broker.dead_letters.refused(self, broker_queue, content, bodies)

    def _made(self, definition: QueueDefinition) -> BrokerQueue:
        try:
            return self._open(definition)
        except BaseException:  # a full disk, too many open files: a queue that does not exist must not stay defined
            self.topology.delete_queue(definition.name, connection=definition.owner)
            raise

    def _open(self, definition: QueueDefinition) -> BrokerQueue:
        store = self.broker.store if definition.kept else self.broker.transient
        name = name_in_store(definition.vhost, definition.name)
        declared, defaults = _options(definition, self.broker.history_s, store.queue_registry.chosen_for(name) or {})
        declared.update(cast("QueueOptions", log_options(self.broker.memory.limits)))
        queue = store.queue_registry.queue_with_defaults(name, defaults, declared)
        queue.carries_later = True
        turns = self.broker.turns
        broker_queue = BrokerQueue(definition, queue, turns.deliver_from, turns.deliver_now, self.dropped)
        self.broker_queues[definition.name] = broker_queue
        self.broker.by_store_name[queue.name] = (self, broker_queue)
        self.broker.memory.add(queue)
        if definition.settings.expires_ms is not None:
            self._used[definition.name] = time.monotonic()
            self._next_expiry = 0.0
        return broker_queue

    def _delete(self, broker_queue: BrokerQueue) -> None:
        if broker_queue.queue.transfers.is_moving:
            broker_queue.queue.transfers.carry()  # its pending dead letters are forwarded before the queue is deleted
        store = self.broker.store if broker_queue.definition.kept else self.broker.transient
        # The messages before the definition: a crash between the two leaves an empty queue, and never messages without
        # a definition, which would appear in the next queue of that name.
        store.delete_queue(broker_queue.queue.name)
        broker_queue.close()
        self.broker.memory.remove(broker_queue.queue)
        with self.broker.guard:
            del self.broker_queues[broker_queue.name]
            self._used.pop(broker_queue.name, None)
            self.broker.by_store_name.pop(broker_queue.queue.name, None)
            self._went(self.topology.delete_queue(broker_queue.name, connection=broker_queue.definition.owner))

    def _went(self, gone: Removed) -> None:
        self.version += 1
        for exchange in gone.exchanges:
            self.traffic.pop(exchange.name, None)
        for definition in gone.queues:
            if (broker_queue := self.broker_queues.get(definition.name)) is not None:
                self.drop(broker_queue)

    def _touch(self, broker_queue: BrokerQueue) -> None:
        if broker_queue.name in self._used:
            self._used[broker_queue.name] = time.monotonic()


def _options(
    definition: QueueDefinition, history_s: float, chosen: Mapping[str, Any]
) -> tuple[QueueOptions, dict[str, Any]]:
    """Return a queue's options from its arguments, and the defaults that apply where no program chose a value."""
    wanted, given = definition.settings, definition.arguments
    dead = wanted.dead_letter_exchange is not None
    all_of_it = QueueOptions(
        max_attempts=None if wanted.delivery_limit is None else wanted.delivery_limit + 1,
        dead_letter=DEAD_LETTERS + abbreviate(definition.name, 200) if dead else None,
        starvation=None,
        ttl=None if wanted.message_ttl_ms is None else lifetime_s(wanted.message_ttl_ms),
        expired="dead-letter" if dead else "drop",
        max_length=None if wanted.max_length is None else max(wanted.max_length, 1),
        max_bytes=None if wanted.max_length_bytes is None else max(wanted.max_length_bytes, 1),
        overflow="reject" if wanted.overflow != "drop-head" else "dead-letter" if dead else "drop-head",
        history=history_s if definition.kept else 0,
    )
    said = {setting for argument, setting in SETTINGS.items() if argument in given}
    if dead:  # settings that follow from it, unless a program chose them
        said |= {"expired", "overflow"} - ({"expired", "overflow"} & chosen.keys() - said)
    declared = {name: value for name, value in all_of_it.items() if name in said}
    defaults = {name: value for name, value in all_of_it.items() if name not in said}
    return cast("QueueOptions", declared), defaults
