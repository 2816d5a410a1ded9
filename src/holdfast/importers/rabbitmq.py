"""Import of queues and messages from RabbitMQ: each message is acknowledged there once it is on disk here.

A crash therefore loses nothing. It may duplicate messages that were on disk and not yet acknowledged, at most those of
the last two rounds: AMQP messages have no identity by which a second run could recognise them.
"""

import contextlib
import shutil
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from holdfast.amqp.client import Address, ChannelClosed, Client, ConnectionEnded, Got
from holdfast.amqp.frames import FrameError
from holdfast.base.errors import HoldfastError, NotFound, QueueFull
from holdfast.base.files import UnsyncedFiles
from holdfast.broker.amqp_values import MalformedField
from holdfast.broker.basic_properties import decode_properties, encode_properties
from holdfast.broker.broker import Broker
from holdfast.broker.definitions import open_definitions
from holdfast.broker.errors import BrokerError
from holdfast.broker.message import Content, Instructions, instructions_in
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.importers.rabbitmq_definitions import UNKNOWN_TYPE, queue_type
from holdfast.running_server import TRANSIENT
from holdfast.store import Store

__all__ = ["Copied", "Found", "RabbitImport", "RabbitSource", "broker_over", "define", "is_fresh", "queues_in"]

_FIRST_ROUND = 8
_ROUND_MAX = 500
_LULL_S, _LONG_LULL_S = 0.3, 3.0
"""Seconds without a delivery after which a queue counts as empty: after all expected messages arrived, and before."""
_ROUND_BYTES = 4 << 20
"""About how many bytes are requested at once: enough to share the cost of an fdatasync, and few for the memory."""
_COUNT_HEADER = "x-delivery-count"
_NOT_THERE, _LOCKED = 404, 405


@dataclass(frozen=True, slots=True)
class Found:
    """A queue of the source broker, as it was when it was checked."""

    vhost: str
    name: str
    ready: int
    consumers: int
    type: str = "classic"


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of the import of one queue."""

    vhost: str
    queue: str
    messages: int
    problem: str | None = None
    """Why the import of this queue stopped early; None if it did not."""
    notes: list[str] = field(default_factory=list)


@contextlib.contextmanager
def broker_over(store: Store) -> Iterator[Broker]:
    """Open a broker in this process without a listener. A server on this store will have what it stores."""
    folder = store.path / TRANSIENT
    shutil.rmtree(folder, ignore_errors=True)  # of the last server
    with Store(folder, read_only=False, files=UnsyncedFiles(), clock=None, background=False) as transient:
        broker = Broker(store, transient, post=lambda call: call(), soon=lambda call: call())
        try:
            yield broker
        finally:
            broker.close()
    shutil.rmtree(folder, ignore_errors=True)


def queues_in(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the queues of a definitions document: virtual host, name and type."""
    return [(one["vhost"], one["name"], queue_type(one)) for one in document.get("queues", ())]


class RabbitSource:
    """The source broker: one connection for each virtual host, opened when it is first needed."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._tls = tls
        self._clients: dict[str, Client] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections; the source requeues unacknowledged messages."""
        for client in self._clients.values():
            client.close()

    def client(self, vhost: str) -> Client:
        """Return the connection to a virtual host."""
        client = self._clients.get(vhost)
        if client is None:
            client = self._clients[vhost] = Client(self.address, vhost, tls=self._tls)
        return client

    def look(self, vhost: str, name: str, type: str = "classic") -> Found:
        """Return a queue as it is now; raise `NotFound` if it does not exist or is exclusive."""
        client = self.client(vhost)
        client.open_channel()
        try:
            ready, consumers = client.look(name)
        except ChannelClosed as error:
            if error.code == _NOT_THERE:
                raise NotFound(f"there is no queue {name!r} in the virtual host {vhost!r} of {self.address}") from error
            if error.code == _LOCKED:
                raise NotFound(f"the queue {name!r} is exclusive: it belongs to another connection") from error
            raise
        return Found(vhost, name, ready, consumers, type)

    def forget(self, vhost: str) -> None:
        """Drop a broken connection; it is opened again when it is next needed."""
        client = self._clients.pop(vhost, None)
        if client is not None:
            client.close()


def define(broker: Broker, document: dict[str, Any], *, fresh: bool) -> int:
    """Import definitions, all or none; return how many were added or changed.

    `fresh`: the store has never had definitions. A new store has the well-known user guest. If the imported users do
    not include guest, it was deleted there, and is deleted here too.
    """
    added = broker.import_definitions(document)
    names = {one["name"] for one in document.get("users", ())}
    if fresh and names and "guest" not in names:
        broker.users.delete("guest")
    return added


def is_fresh(store: Store) -> bool:
    """Return whether a store has never had definitions. Called before a broker opens the store."""
    return open_definitions(store).is_new


class RabbitImport:
    """Imports the messages of queues that are defined on both sides.

    Messages keep their order, properties, exchange and routing key. AMQP does not report the remaining time to live, so
    it starts again. With `keep`, messages stay at the source: they are returned when the queue is finished.
    """

    def __init__(
        self,
        source: RabbitSource,
        broker: Broker,
        *,
        keep: bool = False,
        progress: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._source = source
        self._broker = broker
        self._keep = keep
        self._progress = progress
        """Called with the number of messages after each round that is on disk."""

    def run(self, queues: Sequence[Found]) -> list[Copied]:
        """Import one queue after another; a queue that fails does not stop the others."""
        return [self._bring(found) for found in queues]

    def _bring(self, found: Found) -> Copied:
        broker_queue = self._broker.host(found.vhost).broker_queue(found.name, None)
        before = broker_queue.queue.waiting()
        intake = _Intake(broker_queue, counts=found.type != "classic")
        notes: list[str] = []
        problem = None
        try:
            client = self._source.client(found.vhost)
            client.open_channel()
            try:
                if found.type == "quorum" or (
                    found.type == UNKNOWN_TYPE and _counts_deliveries(client, found.name, intake)
                ):
                    self._consume(client, found, intake)
                else:
                    self._get(client, found.name, intake)
            except (ConnectionEnded, ChannelClosed, FrameError):
                intake.sync()  # they cannot be acknowledged any more, and are imported again by the next run
                raise
            except (HoldfastError, OSError):
                self._settle(client, intake)
                raise
            if self._keep and intake.safe:
                client.give_back(intake.safe)
            client.close_channel()
            if not self._keep and (left := self._source.look(found.vhost, found.name).ready):
                notes.append(f"{left} more messages have arrived there: stop the publishers, and run this again")
        except (ConnectionEnded, FrameError) as error:
            problem = str(error)
            self._source.forget(found.vhost)
        except (HoldfastError, OSError) as error:
            problem = str(error)
        return Copied(found.vhost, found.name, intake.count, problem, notes + _notes(broker_queue, intake, before))

    def _get(self, client: Client, name: str, intake: "_Intake") -> None:
        """Get messages until there are none. Without a consumer: its end would delete an auto-delete queue."""
        asked = _FIRST_ROUND
        client.ask(name, asked)
        while asked:
            empty = False
            for got in client.answers(asked):
                empty = got is None
                if got is not None:
                    intake.add(got)
            asked = 0 if empty else intake.round_size()
            if asked:  # the other broker sends them while the disk syncs
                client.ask(name, asked)
            intake.put()
            self._settle(client, intake)

    def _consume(self, client: Client, found: Found, intake: "_Intake") -> None:
        """Consume until no more messages arrive.

        For quorum queues: RabbitMQ treats each get from one as a separate consumer, delays acks of more than a few, and
        loses those when the channel is closed. Of 200 messages that were got and acknowledged, 159 were redelivered.
        """
        client.consume(found.name, 0 if self._keep else 2 * _ROUND_MAX)
        came = fresh = 0
        while (got := client.delivered(_LULL_S if came >= found.ready else _LONG_LULL_S)) is not None:
            intake.add(got)
            came += 1
            fresh += 1
            if fresh >= intake.round_size():
                intake.put()
                self._settle(client, intake)
                fresh = 0
        for got in client.cancel():
            intake.add(got)
        intake.put()
        self._settle(client, intake)

    def _settle(self, client: Client, intake: "_Intake") -> None:
        """Sync the imported messages, then acknowledge them at the source, unless messages are kept there."""
        fresh = intake.sync()
        if fresh:
            self._progress(fresh)
            if not self._keep:
                client.ack(intake.safe)


class _Intake:
    """Messages to be put into one queue, collected as long as they differ only in their bodies."""

    def __init__(self, broker_queue: BrokerQueue, *, counts: bool) -> None:
        self._broker_queue = broker_queue
        self._counts = counts
        self._content: Content | None = None
        self._directives: Instructions | None = None
        """None if the properties cannot be read."""
        self._bodies: list[bytes] = []
        self._tags: list[int] = []
        self._held = 0
        self._mean = 0
        """A running mean of the size of a message."""
        self._put_tag = 0
        self._put_count = 0
        self.safe = 0
        """The last tag that is on disk."""
        self.count = 0
        """How many messages are on disk."""
        self.unreadable = 0
        """How many messages had unreadable properties, which are kept unchanged and have no effect."""

    def add(self, got: Got) -> None:
        """Add a message to the batch; put the batch first if the message differs from it, or the batch is large."""
        raw = _without_count(got.raw) if self._counts else got.raw
        content = Content(got.exchange, got.routing_key, raw)
        if content != self._content or self._held > _ROUND_BYTES:
            self.put()
            self._content, self._directives = content, _read(raw)
        self._bodies.append(got.body)
        self._tags.append(got.tag)
        self.unreadable += self._directives is None
        size = len(got.body) + len(raw)
        self._held += size
        self._mean = size if not self._mean else (7 * self._mean + size) // 8 + 1

    def round_size(self) -> int:
        """Return how many messages to request at once."""
        return max(1, min(_ROUND_MAX, _ROUND_BYTES // max(1, self._mean)))

    def put(self) -> None:
        """Put the collected messages into the queue; raise `QueueFull` if it does not accept all."""
        bodies, tags = self._bodies, self._tags
        self._bodies, self._tags, self._held = [], [], 0
        if not bodies or self._content is None:
            return
        directives = self._directives or Instructions(None, True, raw=self._content.raw)
        taken = self._broker_queue.put(self._content.with_raw(directives.raw), bodies, directives)
        self._put_count += taken
        if taken:
            self._put_tag = tags[taken - 1]
        if taken < len(bodies):
            raise QueueFull(f"the queue {self._broker_queue.name!r} is full: empty it, or raise its limit")

    def sync(self) -> int:
        """Make the messages that were put durable; return how many they were."""
        fresh = self._put_count - self.count
        if fresh:
            self._broker_queue.queue.log.sync()
            self.count, self.safe = self._put_count, self._put_tag
        return fresh


def _counts_deliveries(client: Client, name: str, intake: "_Intake") -> bool:
    """Return whether a queue is a quorum queue: only those count the deliveries of each message.

    This takes one message, which is not returned: it would lose its position.
    """
    client.ask(name, 1)
    for got in client.answers(1):
        if got is not None:
            intake.add(got)
            return _without_count(got.raw) != got.raw
    return False


def _read(raw: bytes) -> Instructions | None:
    try:
        directives = instructions_in(raw)
    except (MalformedField, BrokerError):
        return None
    # The delay of a message in a queue is over; one that RabbitMQ ignored must not begin now.
    return directives if directives.delay_ms is None else directives.without_delay()


def _without_count(raw: bytes) -> bytes:
    """Return the properties as they were published, without the header with the delivery count of the broker."""
    try:
        properties = decode_properties(raw)
    except MalformedField:
        return raw
    if _COUNT_HEADER not in (properties.headers or {}):
        return raw
    headers = {name: value for name, value in (properties.headers or {}).items() if name != _COUNT_HEADER}
    return encode_properties(properties.with_headers(headers or None))


def _notes(broker_queue: BrokerQueue, intake: _Intake, before: int) -> list[str]:
    notes = []
    if intake.unreadable:
        notes.append(f"{intake.unreadable} with unreadable properties: expiration and priority have no effect")
    limits = broker_queue.arguments
    missing = before + intake.count - broker_queue.queue.waiting()
    if missing > 0 and (limits.max_length is not None or limits.max_length_bytes is not None):
        notes.append(f"{missing} dropped from the head: the queue's limit was reached")
    return notes
