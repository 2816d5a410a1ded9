"""Reports on connections, channels and consumers as they are at this moment, for management interfaces."""

import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import NotFound
from holdfast.base.metrics import Rate, Reading

if TYPE_CHECKING:
    from holdfast.amqp.channel import Channel
    from holdfast.amqp.connection import Connection
    from holdfast.amqp.consumer import ChannelConsumer
    from holdfast.amqp.server import Server

__all__ = ["ChannelReport", "ConnectionReport", "ConsumerReport", "Report", "TlsReport", "name_of"]

_STATES = {
    "header": "starting",
    "login": "starting",
    "tuning": "tuning",
    "opening": "opening",
    "open": "running",
    "blocked": "blocked",
    "closing": "closing",
    "closed": "closed",
}
"""RabbitMQ's names of the states of a connection."""


@dataclass(frozen=True, slots=True)
class TlsReport:
    """The TLS session of a connection, and the contents of the client's certificate."""

    protocol: str
    cipher: str
    bits: int
    subject: str | None
    issuer: str | None
    valid: str | None


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """A connection; the names are as RabbitMQ writes them."""

    name: str
    user: str
    vhost: str | None
    state: str
    """`starting`, `tuning`, `opening`, `running`, `blocked`, `closing` or `closed`."""
    peer_host: str
    peer_port: int
    host: str
    port: int
    channels: int
    connected_at: float
    """Seconds since 1970."""
    heartbeat: int
    frame_max: int
    channel_max: int
    mechanism: str
    client: Mapping[str, Any]
    """The properties that the client reported."""
    received: int
    received_rate: float
    sent: int
    sent_rate: float
    tls: TlsReport | None


@dataclass(frozen=True, slots=True)
class ConsumerReport:
    """A consumer."""

    tag: str
    vhost: str
    queue: str
    channel: str
    connection: str
    number: int
    user: str
    peer_host: str
    peer_port: int
    no_ack: bool
    exclusive: bool
    active: bool
    """Whether it gets messages: in a queue with a single active consumer, the others wait."""
    prefetch: int
    priority: int
    unacked: int
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """A channel."""

    name: str
    connection: str
    number: int
    user: str
    vhost: str
    peer_host: str
    peer_port: int
    state: str
    """`running`, `flow` while its publishes are held back, or `closing`."""
    unacked: int
    unconfirmed: int
    published: int
    publish_rate: float
    delivered: int
    deliver_rate: float
    prefetch: int
    """Unsettled deliveries that each new consumer may hold."""
    global_prefetch: int
    confirms: bool
    transactional: bool
    consumers: int


class Report:
    """Reads the connections of a server, and closes them on request.

    Used by the broker's thread alone, except `clients`.
    """

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._rates: weakref.WeakKeyDictionary[Connection, tuple[Rate, Rate]] = weakref.WeakKeyDictionary()
        """Received and sent bytes a second of the connections that were reported on."""
        self._channel_rates: weakref.WeakKeyDictionary[Channel, tuple[Rate, Rate]] = weakref.WeakKeyDictionary()
        """Published and delivered messages a second of the channels that were reported on."""

    def connections(self, vhost: str | None = None) -> list[ConnectionReport]:
        """Return all connections that have logged in, or only those to one virtual host."""
        return [self._connection(one) for one in self.clients() if vhost is None or _host(one) == vhost]

    def connection(self, name: str) -> ConnectionReport:
        """Return the connection of this name, or raise `NotFound`."""
        return self._connection(self._named(name))

    def channels(self, vhost: str | None = None, connection: str | None = None) -> list[ChannelReport]:
        """Return all channels, or only those in a virtual host, or of a connection (`NotFound` if unknown)."""
        chosen = self.clients() if connection is None else [self._named(connection)]
        return [
            self._channel(one, channel)
            for one in chosen
            if vhost is None or _host(one) == vhost
            for channel in one.channels.values()
        ]

    def consumers(self, vhost: str | None = None, queue: str | None = None) -> list[ConsumerReport]:
        """Return all consumers, or only those in a virtual host, or of a queue in it."""
        if vhost is not None and queue is not None:
            host = self._server.broker.hosts.get(vhost)
            broker_queue = host.broker_queues.get(queue) if host is not None else None
            if broker_queue is None:
                return []
            held: list[Any] = [one for one in broker_queue.consumers if hasattr(one, "channel")]
            return [_consumer(one.channel.connection, one.channel, one) for one in held]
        return [
            _consumer(one, channel, subscription)
            for one in self.clients()
            if vhost is None or _host(one) == vhost
            for channel in one.channels.values()
            for subscription in channel.subscriptions.values()
        ]

    def close(self, name: str, reason: str) -> None:
        """Close a connection; raise `NotFound` if there is none of this name."""
        self._server.close(self._named(name), reason)

    def close_channel(self, name: str, reason: str) -> None:
        """Close a channel, but not its connection; raise `NotFound` if there is none of this name."""
        for connection in self.clients():
            for channel in connection.channels.values():
                if f"{name_of(connection)} ({channel.number})" == name and not channel.closing:
                    self._server.close_channel(channel, reason)
                    return
        raise NotFound(f"there is no channel {name!r}: it may be closed already")

    def close_user(self, user: str, reason: str) -> int:
        """Close all connections of a user; return how many."""
        doomed = [one for one in self.clients() if one.user == user]
        for connection in doomed:
            self._server.close(connection, reason)
        return len(doomed)

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of connections, channels and consumers."""
        channels = consumers = connections = 0
        for one in self.clients():
            connections += 1
            channels += len(one.channels)
            consumers += sum(len(channel.subscriptions) for channel in one.channels.values())
        return connections, channels, consumers

    def clients(self) -> "list[Connection]":
        """Return the connections that have logged in and are not closed. May be called from any thread."""
        return [one for one in list(self._server.connections) if one.user and one.state != "closed"]

    def _named(self, name: str) -> "Connection":
        for one in self.clients():
            if name_of(one) == name:
                return one
        raise NotFound(f"there is no connection {name!r}: it may be closed already")

    def _connection(self, one: "Connection") -> ConnectionReport:
        rates = self._rates.get(one)
        if rates is None:
            looked = weakref.proxy(one)  # the rate must not keep the connection alive
            rates = self._rates[one] = (
                Rate(Reading(lambda: int(looked.received)), time.monotonic),
                Rate(Reading(lambda: int(looked.sent)), time.monotonic),
            )
        (peer_host, peer_port), (host, port) = _ends(one)
        return ConnectionReport(
            name=name_of(one),
            user=one.user,
            vhost=one.host.name if one.host is not None else None,
            state=_STATES[one.state],
            peer_host=peer_host,
            peer_port=peer_port,
            host=host,
            port=port,
            channels=len(one.channels),
            connected_at=one.opened_at,
            heartbeat=one.heartbeat,
            frame_max=one.frame_max,
            channel_max=one.channel_max,
            mechanism=one.mechanism,
            client=one.client,
            received=one.received,
            received_rate=rates[0].per_second(),
            sent=one.sent,
            sent_rate=rates[1].per_second(),
            tls=_tls(one),
        )

    def _channel(self, connection: "Connection", channel: "Channel") -> ChannelReport:
        came, went = self._rates_of(channel)
        (peer_host, peer_port), _ = _ends(connection)
        name = name_of(connection)
        return ChannelReport(
            name=f"{name} ({channel.number})",
            connection=name,
            number=channel.number,
            user=channel.user,
            vhost=channel.host.name,
            peer_host=peer_host,
            peer_port=peer_port,
            state="closing" if channel.closing else "flow" if connection.state == "blocked" else "running",
            unacked=channel.unacked.count,
            unconfirmed=channel.publishing.unconfirmed,
            published=channel.publishing.published,
            publish_rate=came.per_second(),
            delivered=channel.delivered,
            deliver_rate=went.per_second(),
            prefetch=channel.consumer_prefetch,
            global_prefetch=channel.prefetch,
            confirms=channel.publishing.confirms,
            transactional=channel.transaction is not None,
            consumers=len(channel.subscriptions),
        )

    def _rates_of(self, channel: "Channel") -> tuple[Rate, Rate]:
        rates = self._channel_rates.get(channel)
        if rates is None:
            looked = weakref.proxy(channel)
            rates = self._channel_rates[channel] = (
                Rate(Reading(lambda: int(looked.publishing.published)), time.monotonic),
                Rate(Reading(lambda: int(looked.delivered)), time.monotonic),
            )
        return rates


def name_of(connection: "Connection") -> str:
    """Return RabbitMQ's name of a connection: `127.0.0.1:53212 -> 127.0.0.1:5672`."""
    (peer_host, peer_port), (host, port) = _ends(connection)
    return f"{peer_host}:{peer_port} -> {host}:{port}"


def _host(connection: "Connection") -> str:
    return connection.host.name if connection.host is not None else ""


def _ends(connection: "Connection") -> tuple[tuple[str, int], tuple[str, int]]:
    peer, here = connection.peer, connection.extra("sockname")
    return (
        (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) and len(peer) > 1 else ("", 0),
        (str(here[0]), int(here[1])) if isinstance(here, tuple) and len(here) > 1 else ("", 0),
    )


def _consumer(connection: "Connection", channel: "Channel", one: "ChannelConsumer") -> ConsumerReport:
    (peer_host, peer_port), _ = _ends(connection)
    name = name_of(connection)
    broker_queue = one.broker_queue
    return ConsumerReport(
        tag=one.tag,
        vhost=channel.host.name,
        queue=broker_queue.name,
        channel=f"{name} ({channel.number})",
        connection=name,
        number=channel.number,
        user=channel.user,
        peer_host=peer_host,
        peer_port=peer_port,
        no_ack=one.no_ack,
        exclusive=broker_queue.exclusive is one,
        active=broker_queue.active in (None, one),
        prefetch=one.prefetch,
        priority=one.priority,
        unacked=one.unacked,
        arguments=one.arguments,
    )


def _tls(connection: "Connection") -> TlsReport | None:
    cipher = connection.extra("cipher")
    if cipher is None:
        return None
    certificate = connection.extra("peercert") or {}
    return TlsReport(
        protocol=str(cipher[1]),
        cipher=str(cipher[0]),
        bits=int(cipher[2] or 0),
        subject=_distinguished(certificate.get("subject")),
        issuer=_distinguished(certificate.get("issuer")),
        valid=f"{certificate['notBefore']} - {certificate['notAfter']}" if certificate else None,
    )


def _distinguished(name: Any) -> str | None:
    return ",".join(f"{key}={value}" for part in name for key, value in part) if name else None
