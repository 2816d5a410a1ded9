"""Queueber's Cap'n Proto interface, implemented on one queue."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from holdfast.base.errors import InvalidArgument
from holdfast.broker.errors import AccessRefused
from holdfast.log.record import Message
from holdfast.queue import Delivery
from holdfast.rpc.client import Client
from holdfast.rpc.errors import answered
from holdfast.rpc.ids import SIZE
from holdfast.rpc.queue_service import QueueService

__all__ = ["LONGEST_S", "Queueber", "fitting", "keeping"]

LONGEST_S = 100 * 365 * 86_400
"""The longest time in seconds; longer ones are reduced to it, as a client may ask for 2 ** 64 seconds."""


class Queueber:
    """The methods of Queueber's interface, for one client. pycapnp finds them by their names."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @answered
    async def add_context(self, context: Any) -> None:
        """Add items, all or none."""
        service = await self._served()
        items = context.params.req.items
        messages: list[bytes | Message] = []
        size = 0
        for item in items:
            contents, seconds = item.contents, item.visibilityTimeoutSecs
            messages.append(Message(contents, delay=min(seconds, LONGEST_S)) if seconds else contents)
            size += len(contents)
        context.release_params()
        with self.client.call(size):
            ids = await service.write_batcher.put(messages)
        context.results.init("resp").ids = list(map(service.identifiers.of_id, ids))

    @answered
    async def remove_context(self, context: Any) -> None:
        """Acknowledge an item; the response is False if it is not held under this lease."""
        service = await self._served()
        request = context.params.req
        lease = service.identifiers.to_lease(_checked(request.lease))
        id = service.identifiers.to_id(request.id)
        removed = False
        if lease is not None and id is not None:
            with self.client.call():
                removed = not await service.write_batcher.ack([(id, lease)])
        context.results.init("resp").removed = removed

    @answered
    async def poll_context(self, context: Any) -> None:
        """Lease items, waiting for them if there are none."""
        service = await self._served()
        request = context.params.req
        seconds, count, timeout = request.leaseValiditySecs, request.numItems or 1, request.timeoutSecs
        context.release_params()
        if not seconds:
            raise InvalidArgument("leaseValiditySecs must be more than 0")
        most = self.client.desk.max_reply
        with self.client.call():
            deliveries = await service.polls.lease(
                count,
                lease=min(seconds, LONGEST_S),
                wait=min(timeout, LONGEST_S) if timeout else None,
                most_bytes=most,
            )
            deliveries = fitting(service, deliveries, most)
        with keeping(service, deliveries):
            response = context.results.init("resp")
            if deliveries:
                of_id = service.identifiers.of_id
                response.lease = service.identifiers.of_lease(deliveries[0].lease)
                items = response.init("items", len(deliveries))
                for place, delivery in enumerate(deliveries):
                    item = items[place]
                    item.contents = delivery.payload
                    item.id = of_id(delivery.id)

    @answered
    async def extend_context(self, context: Any) -> None:
        """Extend a whole lease, counted from now; the response is False if there is none."""
        service = await self._served()
        request = context.params.req
        lease = service.identifiers.to_lease(_checked(request.lease))
        seconds = min(request.leaseValiditySecs, LONGEST_S)
        extended = False
        if lease is not None:
            with self.client.call():
                extended = await service.write_batcher.run(partial(service.extend_whole, lease, seconds))
        context.results.init("resp").extended = extended

    async def _served(self) -> QueueService:
        allowed = self.client.desk.queueber_clients
        if allowed == "nobody" or (allowed == "loopback" and not self.client.wire.is_loopback):
            raise AccessRefused(
                "Queueber's methods, which have no login, are not allowed for this client: log in and use Holdfast's "
                "own methods, or set rpc_queueber to anyone"
            )
        self.client.wire.keep()
        return await self.client.queueber()


def fitting(service: QueueService, deliveries: list[Delivery], most: int) -> list[Delivery]:
    """Return as many of these as fit into a response, at least one; the others are released untried."""
    size = 0
    for place, delivery in enumerate(deliveries):
        size += len(delivery.payload)
        if size > most and place:
            service.polls.give_back(deliveries[place:])
            return deliveries[:place]
    return deliveries


@contextmanager
def keeping(service: QueueService, deliveries: list[Delivery]) -> Iterator[None]:
    """Release these deliveries if the block, which writes the response, raises."""
    try:
        yield
    except BaseException:
        service.polls.give_back(deliveries)
        raise


def _checked(lease: bytes) -> bytes:
    if len(lease) != SIZE:
        raise InvalidArgument(f"a lease has {SIZE} bytes, not {len(lease)}: send the lease that poll returned")
    return lease
