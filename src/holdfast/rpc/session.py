"""Holdfast's own Cap'n Proto interface: login, sessions and work queues, with a permission check at each call."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from holdfast.base.errors import HoldfastError
from holdfast.broker.errors import AccessRefused
from holdfast.broker.permissions import Operation
from holdfast.broker.users import log_failed_login
from holdfast.log.record import Headers, HeaderValue, Message
from holdfast.rpc.auth import Visitor
from holdfast.rpc.client import Client
from holdfast.rpc.errors import answered
from holdfast.rpc.queue_service import QueueService
from holdfast.rpc.queueber import LONGEST_S, Queueber, fitting, keeping
from holdfast.rpc.schema import HOLDFAST
from holdfast.rpc.write_batcher import Pair

__all__ = ["Bootstrap", "Session", "WorkQueue"]

_LOGIN_DELAY_S = 0.5
"""Delay of the response to a failed login."""
_COLUMNS = ("ready", "delayed", "leased", "moving", "dead", "leases", "lag")
_RATES = ("put", "lease", "ack")
_TOTALS = ("leased", "acked", "nacked", "expired", "dead", "dropped")


class _Kept(Protocol):
    """The common fields of deliveries and waiting messages."""

    @property
    def id(self) -> int: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def enqueued_at(self) -> int: ...
    @property
    def priority(self) -> int: ...


class Bootstrap(HOLDFAST.Holdfast.Server):  # type: ignore[misc]
    """The bootstrap interface of a connection: Queueber's methods, and login."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        queueber = Queueber(client)
        self.add_context = queueber.add_context
        self.remove_context = queueber.remove_context
        self.poll_context = queueber.poll_context
        self.extend_context = queueber.extend_context

    @answered
    async def login_context(self, context: Any) -> None:
        """Authenticate by name and password."""
        params = context.params
        access, wire = self.client.desk.access, self.client.wire
        name = await self._proven(partial(access.login, params.user, params.password, wire.is_loopback))
        context.results.session = Session(self.client, Visitor(access, name))

    @answered
    async def enter_context(self, context: Any) -> None:
        """Authenticate by a token."""
        access, wire = self.client.desk.access, self.client.wire
        enter = partial(access.enter, context.params.token, wire.is_loopback)
        context.results.session = Session(self.client, Visitor(access, await self._proven(enter), enter))

    async def _proven(self, prove: Callable[[], str]) -> str:
        desk = self.client.desk
        self.client.wire.begin_login()
        with self.client.call():
            try:
                async with desk.logins:
                    name = await asyncio.get_running_loop().run_in_executor(desk.executor, prove)
            except HoldfastError as error:
                if isinstance(error, AccessRefused) or getattr(error, "login", None) is not None:
                    log_failed_login(error, peer=self.client.wire.peer, protocol="capnp")
                    await asyncio.sleep(_LOGIN_DELAY_S)  # others log in meanwhile
                raise
        self.client.wire.keep()
        return name


class Session(HOLDFAST.Session.Server):  # type: ignore[misc]
    """The session of an authenticated user. Each call checks the user's token again; a password only at login."""

    def __init__(self, client: Client, visitor: Visitor) -> None:
        super().__init__()
        self._client = client
        self._visitor = visitor

    @answered
    async def whoami_context(self, context: Any) -> None:
        """Return the user's name."""
        with self._client.call():
            await asyncio.get_running_loop().run_in_executor(self._client.desk.executor, self._visitor.may_stay)
        context.results.name = self._visitor.name

    @answered
    async def queue_context(self, context: Any) -> None:
        """Return a queue, if the user has read or write permission on it."""
        vhost, name = context.params.vhost, context.params.queueName
        desk = self._client.desk
        with self._client.call():
            await asyncio.get_running_loop().run_in_executor(desk.executor, self._check_any, vhost, name)
            service = await desk.queue_services.get(vhost, name)
        context.results.queue = WorkQueue(self._client, self._visitor, vhost, name, service)

    def _check_any(self, vhost: str, name: str) -> None:
        try:
            self._visitor.may(Operation.QUEUE_TAKE, vhost, name)
        except AccessRefused:
            self._visitor.may(Operation.QUEUE_PUT, vhost, name)


class WorkQueue(HOLDFAST.WorkQueue.Server):  # type: ignore[misc]
    """One queue, used by an authenticated user. Each call checks the permission again."""

    def __init__(self, client: Client, visitor: Visitor, vhost: str, name: str, service: QueueService) -> None:
        super().__init__()
        self._client = client
        self._visitor = visitor
        self._vhost = vhost
        self._name = name
        self._served = service

    @answered
    async def put_context(self, context: Any) -> None:
        """Add messages, all or none."""
        messages: list[bytes | Message] = [_message(one) for one in context.params.messages]
        context.release_params()
        service = await self._current()
        with self._client.call(sum(len(one.payload) for one in messages if isinstance(one, Message))):
            context.results.ids = await service.write_batcher.put(messages, self._may(Operation.QUEUE_PUT))

    @answered
    async def lease_context(self, context: Any) -> None:
        """Lease messages, waiting for them if there are none."""
        params = context.params
        count, seconds, wait = params.count, params.seconds, params.wait
        service = await self._current()
        desk = self._client.desk
        may_read = partial(asyncio.get_running_loop().run_in_executor, desk.executor, self._may(Operation.QUEUE_TAKE))
        with self._client.call():
            await may_read()
            deliveries = await service.polls.lease(
                count,
                lease=min(seconds, LONGEST_S) if seconds else None,
                wait=None if wait < 0 else min(wait, LONGEST_S),
                most_bytes=desk.max_reply,
            )
            deliveries = fitting(service, deliveries, desk.max_reply)
        with keeping(service, deliveries):
            if wait and deliveries:  # perhaps for days
                await may_read()
            listed = context.results.init("deliveries", len(deliveries))
            for place, delivery in enumerate(deliveries):
                row = listed[place]
                _fill(row, delivery)
                row.lease = delivery.lease
                row.attempt = delivery.attempt

    @answered
    async def ack_context(self, context: Any) -> None:
        """Acknowledge messages; return the ids that were not held."""
        pairs = _pairs(context)
        service = await self._current()
        with self._client.call():
            context.results.lost = await service.write_batcher.ack(pairs, self._may(Operation.QUEUE_TAKE))

    @answered
    async def nack_context(self, context: Any) -> None:
        """Report failed messages; return the ids that were not held."""
        params = context.params
        reason, delay = params.reason, params.delay
        parts = _parts(_pairs(context))
        service = await self._current()
        delay = None if delay < 0 else min(delay, LONGEST_S)
        await self._settle(context, service, partial(service.queue.return_ids, parts, reason, delay))

    @answered
    async def extend_context(self, context: Any) -> None:
        """Set the expiry of leases, counted from now; return the ids that were not held."""
        seconds, pairs = context.params.seconds, _pairs(context)
        service = await self._current()
        seconds = min(seconds, LONGEST_S) if seconds else None
        await self._settle(context, service, partial(service.extend, pairs, seconds))

    @answered
    async def release_context(self, context: Any) -> None:
        """Release messages without counting an attempt; return the ids that were not held."""
        parts = _parts(_pairs(context))
        service = await self._current()
        await self._settle(context, service, partial(service.queue.release_ids, parts))

    @answered
    async def peek_context(self, context: Any) -> None:
        """Return the next messages without leasing them."""
        service = await self._current()
        count = min(context.params.count, 10_000)
        with self._client.call():
            found = await service.write_batcher.run(partial(service.queue.peek, count), self._may(Operation.QUEUE_LOOK))
        most, size, shown = self._client.desk.max_reply, 0, 0
        for waiting in found:
            size += len(waiting.payload)
            if size > most and shown:
                break
            shown += 1
        listed = context.results.init("messages", shown)
        for place, waiting in enumerate(found[:shown]):
            _fill(listed[place], waiting)
            listed[place].attempts = waiting.attempts

    @answered
    async def stats_context(self, context: Any) -> None:
        """Return counts, ages and rates."""
        service = await self._current()
        with self._client.call():
            stats = await service.write_batcher.run(service.queue.stats, self._may(Operation.QUEUE_LOOK))
        row = context.results.init("stats")
        for name in _COLUMNS:
            setattr(row, name, getattr(stats, name))
        for name in _RATES:
            setattr(row, f"{name}Rate", getattr(stats, f"{name}_rate"))
        for name in _TOTALS:
            setattr(row, f"total{name.capitalize()}", getattr(stats, f"total_{name}"))
        if stats.oldest_age is not None:
            row.oldestAge = stats.oldest_age

    async def _settle(self, context: Any, service: QueueService, function: Callable[[], list[int]]) -> None:
        with self._client.call():
            context.results.lost = await service.write_batcher.run(function, self._may(Operation.QUEUE_TAKE))

    async def _current(self) -> QueueService:
        """Return the queue, found again if it was closed: a new one may have its name."""
        if self._served.queue.closed:
            self._served = await self._client.desk.queue_services.get(self._vhost, self._name)
        return self._served

    def _may(self, operation: Operation) -> Callable[[], None]:
        return partial(self._visitor.may, operation, self._vhost, self._name)


def _message(row: Any) -> Message:
    headers: dict[str, HeaderValue] = {
        header.name: header.value.text if header.value.which() == "text" else header.value.data
        for header in row.headers
    }
    return Message(
        row.payload,
        row.key.some if row.key.which() == "some" else None,
        headers or None,
        min(row.delay, LONGEST_S) or None,
        row.priority,
        min(row.ttl, LONGEST_S) or None,
        row.dedup or None,
    )


def _fill(row: Any, kept: _Kept) -> None:
    row.id = kept.id
    row.payload = kept.payload
    row.enqueuedAt = kept.enqueued_at
    row.priority = kept.priority
    if kept.key is not None:
        row.key.some = kept.key
    if kept.headers:
        headers = row.init("headers", len(kept.headers))
        for place, (name, value) in enumerate(kept.headers.items()):
            headers[place].name = name
            if isinstance(value, str):
                headers[place].value.text = value
            else:
                headers[place].value.data = value


def _pairs(context: Any) -> list[Pair]:
    """Return the messages to settle, each once however often it is listed."""
    return list(dict.fromkeys((held.id, held.lease) for held in context.params.held))


def _parts(pairs: list[Pair]) -> dict[int, set[int]]:
    parts: dict[int, set[int]] = {}
    for id, lease in pairs:
        parts.setdefault(lease, set()).add(id)
    return parts
