"""A connected RPC client: its connection, and limits on the calls and bytes it has in progress."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.base.errors import HoldfastError
from holdfast.rpc.auth import Access
from holdfast.rpc.queue_service import QueueService, QueueServices
from holdfast.rpc.transport import Transport

__all__ = ["CALLS_MAX", "Client", "Desk", "TooManyCalls"]

CALLS_MAX = 20_000
"""Calls of one client that may be in progress, including waiting polls."""
_BYTES_MAX = 32 << 20
"""Bytes of calls in progress above which nothing more is read from a client."""


class TooManyCalls(HoldfastError):
    """A client has too many calls in progress."""


@dataclass(frozen=True, slots=True)
class Desk:
    """State shared by all clients of a server."""

    queue_services: QueueServices
    access: Access
    executor: Executor
    logins: asyncio.Semaphore
    """Limits concurrent password checks: each takes a core for a while, and other calls must not wait."""
    queueber: tuple[str, str]
    """Virtual host and name of the queue that Queueber's interface serves."""
    queueber_clients: str
    max_reply: int


class Client:
    """One client. Used by the RPC server's event loop alone."""

    def __init__(self, wire: Transport, desk: Desk) -> None:
        self.wire = wire
        self.desk = desk
        self._calls = 0
        self._bytes = 0
        self._queueber: QueueService | None = None

    @contextmanager
    def call(self, size: int = 0) -> Iterator[None]:
        """Count a call and its bytes while the block runs; with too many bytes, stop reading from the client.

        Raises `TooManyCalls`.
        """
        if self._calls >= CALLS_MAX:
            raise TooManyCalls(f"this client has {CALLS_MAX} calls in progress: wait for some, or connect twice")
        self._calls += 1
        self._bytes += size
        if self._bytes > _BYTES_MAX:
            self.wire.hold(True)
        try:
            yield
        finally:
            self._calls -= 1
            self._bytes -= size
            if self._bytes <= _BYTES_MAX:
                self.wire.hold(False)

    async def queueber(self) -> QueueService:
        """Return the queue that Queueber's interface serves."""
        if self._queueber is None or self._queueber.queue.closed:
            self._queueber = await self.desk.queue_services.get(*self.desk.queueber)
        return self._queueber
