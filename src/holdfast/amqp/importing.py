"""How do queues and messages move in from RabbitMQ? Each message is acknowledged there once it is on disk here.

A crash therefore loses nothing. It may bring again what was on disk and not yet acknowledged, at most the last two
rounds: AMQP gives messages no identity by which a second run could know them.
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
from holdfast.amqp.rabbitmq import UNKNOWN_TYPE, queue_type
from holdfast.base.errors import HoldfastError, NotFound, QueueFull
from holdfast.base.files import UnsyncedFiles
from holdfast.broker.broker import Broker
from holdfast.broker.definitions import open_definitions
from holdfast.broker.errors import BrokerError
from holdfast.broker.fields import MalformedField
from holdfast.broker.mailbox import Mailbox
from holdfast.broker.message import Content, Instructions, instructions_in
from holdfast.broker.properties import decode_properties, encode_properties
from holdfast.runtime import TRANSIENT
from holdfast.store import Store

__all__ = ["Copied", "Found", "RabbitImport", "RabbitSource", "broker_over", "define", "is_fresh", "queues_in"]

_FIRST_ROUND = 8
_ROUND_MAX = 500
_LULL_S, _LONG_LULL_S = 0.3, 3.0
"""How long nothing has to be delivered until a queue counts as empty: with all that was seen in it here, and before."""
_ROUND_BYTES = 4 << 20
"""About how much is asked for at once: enough to share the cost of an fdatasync, little enough for any memory."""
_COUNT_HEADER = "x-delivery-count"
_NOT_THERE, _LOCKED = 404, 405


@dataclass(frozen=True, slots=True)
class Found:
    """A queue of the other broker, as it was when it was looked at."""

    vhost: str
    name: str
    ready: int
    consumers: int
    type: str = "classic"


@dataclass(frozen=True, slots=True)
class Copied:
    """What was brought of one queue."""

    vhost: str
    queue: str
    messages: int
    problem: str | None = None
    """Why it is not everything."""
    notes: list[str] = field(default_factory=list)


@contextlib.contextmanager
def broker_over(store: Store) -> Iterator[Broker]:
    """A broker in this process that no client can reach: what it keeps, a served one keeps as well."""
    folder = store.path / TRANSIENT
    shutil.rmtree(folder, ignore_errors=True)  # of the last process that served
    with Store(folder, read_only=False, files=UnsyncedFiles(), clock=None, background=False) as transient:
        broker = Broker(store, transient, post=lambda call: call(), soon=lambda call: call())
        try:
            yield broker
        finally:
            broker.close()
    shutil.rmtree(folder, ignore_errors=True)


def queues_in(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The queues of some definitions: virtual host, name and type."""
    return [(one["vhost"], one["name"], queue_type(one)) for one in document.get("queues", ())]


class RabbitSource:
    """The other broker: a connection for each virtual host, made when it is needed first."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._tls = tls
        self._clients: dict[str, Client] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up; what was not acknowledged goes back to its queue."""
        for client in self._clients.values():
            client.close()

    def client(self, vhost: str) -> Client:
        """The connection to a virtual host."""
        client = self._clients.get(vhost)
        if client is None:
            client = self._clients[vhost] = Client(self.address, vhost, tls=self._tls)
        return client

    def look(self, vhost: str, name: str, type: str = "classic") -> Found:
        """A queue as it is now; `NotFound` where it is not there, or is for one connection only."""
        client = self.client(vhost)
        client.open_channel()
        try:
            ready, consumers = client.look(name)
        except ChannelClosed as error:
            if error.code == _NOT_THERE:
                raise NotFound(f"{self.address} has no queue {name!r} in the virtual host {vhost!r}") from error
            if error.code == _LOCKED:
                raise NotFound(f"the queue {name!r} is exclusive: it belongs to one connection") from error
            raise
        return Found(vhost, name, ready, consumers, type)

    def forget(self, vhost: str) -> None:
        """A connection that broke is made anew when it is needed next."""
        client = self._clients.pop(vhost, None)
        if client is not None:
            client.close()


def define(broker: Broker, document: dict[str, Any], *, fresh: bool) -> int:
    """Take over definitions that fit; how many were new. `fresh`: nothing was ever defined in this store before.

    A new store has the user guest, whom everyone knows. Who comes with users of their own and has deleted guest there
    does not want it here.
    """
    added = broker.import_definitions(document)
    names = {one["name"] for one in document.get("users", ())}
    if fresh and names and "guest" not in names:
        broker.users.delete("guest")
    return added


def is_fresh(store: Store) -> bool:
    """Whether nothing was ever defined in a store; asked before a broker opens it."""
    return open_definitions(store).is_new


class RabbitImport:
    """Brings the messages of queues that are defined on both sides.

    Messages keep their order, properties, exchange and routing key. What time they had left to live is not told by
    AMQP: it starts again. With `keep` they stay at the source, which gets them back when the queue is through.
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
        """Told how many messages came, each time."""

    def run(self, queues: Sequence[Found]) -> list[Copied]:
        """Bring one queue after another; one that fails does not keep the others from coming."""
        return [self._bring(found) for found in queues]

    def _bring(self, found: Found) -> Copied:
        mailbox = self._broker.host(found.vhost).mailbox(found.name, None)
        before = mailbox.queue.waiting()
        intake = _Intake(mailbox, counts=found.type != "classic")
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
                intake.sync()  # they cannot be acknowledged any more, and come again in the next run
                raise
            except (HoldfastError, OSError):
                self._settle(client, intake)
                raise
            if self._keep and intake.safe:
                client.give_back(intake.safe)
            client.close_channel()
            if not self._keep and (left := self._source.look(found.vhost, found.name).ready):
                notes.append(f"{left} more wait there by now: stop who publishes, and run this again")
        except (ConnectionEnded, FrameError) as error:
            problem = str(error)
            self._source.forget(found.vhost)
        except (HoldfastError, OSError) as error:
            problem = str(error)
        return Copied(found.vhost, found.name, intake.count, problem, notes + _notes(mailbox, intake, before))

    def _get(self, client: Client, name: str, intake: "_Intake") -> None:
        """Ask for messages until there are no more; no consumer is seen that could take an auto-delete queue along."""
        asked = _FIRST_ROUND
        client.ask(name, asked)
        while asked:
            empty = False
            for got in client.answers(asked):
                empty = got is None
                if got is not None:
                    intake.add(got)
            asked = 0 if empty else intake.round_size()
            if asked:  # the other broker works while our disk does
                client.ask(name, asked)
            intake.put()
            self._settle(client, intake)

    def _consume(self, client: Client, found: Found, intake: "_Intake") -> None:
        """Have messages delivered until no more come.

        For quorum queues: RabbitMQ takes each get from one for a consumer of its own, holds back acks of more than a
        few, and forgets those when the channel is closed. Of 200 messages got and acknowledged, 159 came back.
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
        """Make what the queue took safe, and then say so to the other broker."""
        fresh = intake.sync()
        if fresh:
            self._progress(fresh)
            if not self._keep:
                client.ack(intake.safe)


class _Intake:
    """Messages on their way into a queue, gathered while they differ in nothing but their bodies."""

    def __init__(self, mailbox: Mailbox, *, counts: bool) -> None:
        self._mailbox = mailbox
        self._counts = counts
        self._content: Content | None = None
        self._wishes: Instructions | None = None
        """None where the properties cannot be read."""
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
        """How many messages had properties that cannot be read: they are kept as they are, and not obeyed."""

    def add(self, got: Got) -> None:
        """One more message."""
        raw = _without_count(got.raw) if self._counts else got.raw
        content = Content(got.exchange, got.routing_key, raw)
        if content != self._content or self._held > _ROUND_BYTES:
            self.put()
            self._content, self._wishes = content, _read(raw)
        self._bodies.append(got.body)
        self._tags.append(got.tag)
        self.unreadable += self._wishes is None
        size = len(got.body) + len(raw)
        self._held += size
        self._mean = size if not self._mean else (7 * self._mean + size) // 8 + 1

    def round_size(self) -> int:
        """How many to ask for at once."""
        return max(1, min(_ROUND_MAX, _ROUND_BYTES // max(1, self._mean)))

    def put(self) -> None:
        """Hand to the queue what was gathered; `QueueFull` where it does not take all."""
        bodies, tags = self._bodies, self._tags
        self._bodies, self._tags, self._held = [], [], 0
        if not bodies or self._content is None:
            return
        wishes = self._wishes or Instructions(None, True, raw=self._content.raw)
        taken = self._mailbox.put(self._content._replace(raw=wishes.raw), bodies, wishes)
        self._put_count += taken
        if taken:
            self._put_tag = tags[taken - 1]
        if taken < len(bodies):
            raise QueueFull(
                f"the queue {self._mailbox.name!r} refuses more, as its limit says: empty it, or raise the limit"
            )

    def sync(self) -> int:
        """Make what was put durable; how many messages that were."""
        fresh = self._put_count - self.count
        if fresh:
            self._mailbox.queue.log.sync()
            self.count, self.safe = self._put_count, self._put_tag
        return fresh


def _counts_deliveries(client: Client, name: str, intake: "_Intake") -> bool:
    """Whether a queue is a quorum queue: only those say with each message how often it was delivered.

    It takes one message to find out, which is not given back: it would lose its place.
    """
    client.ask(name, 1)
    for got in client.answers(1):
        if got is not None:
            intake.add(got)
            return _without_count(got.raw) != got.raw
    return False


def _read(raw: bytes) -> Instructions | None:
    try:
        wishes = instructions_in(raw)
    except (MalformedField, BrokerError):
        return None
    # A delay is over when a message is in a queue; where none was obeyed it must not begin now.
    return wishes if wishes.delay_ms is None else wishes._replace(delay_ms=None)


def _without_count(raw: bytes) -> bytes:
    """The properties as they were published: the header with the count of deliveries is the broker's own."""
    try:
        properties = decode_properties(raw)
    except MalformedField:
        return raw
    if _COUNT_HEADER not in (properties.headers or {}):
        return raw
    headers = {name: value for name, value in (properties.headers or {}).items() if name != _COUNT_HEADER}
    return encode_properties(properties._replace(headers=headers or None))


def _notes(mailbox: Mailbox, intake: _Intake, before: int) -> list[str]:
    notes = []
    if intake.unreadable:
        notes.append(f"{intake.unreadable} with properties that cannot be read: expiration and priority not obeyed")
    limits = mailbox.arguments
    missing = before + intake.count - mailbox.queue.waiting()
    if missing > 0 and (limits.max_length is not None or limits.max_length_bytes is not None):
        notes.append(f"{missing} fell out at the head: the queue's limit lets no more in")
    return notes
