"""Queues in use by RPC clients, each with its waiting polls, its write batcher and its identifiers."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from holdfast.base.errors import Closed
from holdfast.log.record import NO_HEADERS
from holdfast.queue import Delivery, Queue
from holdfast.queue.async_lease import AsyncLeases
from holdfast.rpc.ids import Identifiers
from holdfast.rpc.write_batcher import Pair, WriteBatcher

__all__ = ["Find", "QueueService", "QueueServices"]

Find = Callable[[str, str], Queue]
"""The queue of this name in this virtual host; raises `NotFound`. Called in a worker thread."""


class QueueService:
    """One queue, as the calls of clients use it."""

    def __init__(self, queue: Queue, executor: Executor, check_space: Callable[[], None]) -> None:
        self.queue = queue
        self.polls = AsyncLeases(queue, executor=executor)
        self.write_batcher = WriteBatcher(queue, executor, check_space)
        self.identifiers = Identifiers(queue.log.id, queue.name)

    async def close(self) -> None:
        """Fail waiting polls, and return when nothing is in progress."""
        await self.polls.close()
        await self.write_batcher.close()

    # In a worker thread.

    def extend(self, pairs: list[Pair], seconds: float | None) -> list[int]:
        """Extend the leases of messages, from now on; return the ids that are not held. Call it in a worker thread."""
        return self.queue.settler.try_extend([self._held(id, lease) for id, lease in pairs], seconds)

    def extend_whole(self, lease: int, seconds: float) -> bool:
        """Extend a whole lease, from now on; False if there is none. Call it in a worker thread."""
        while True:
            ids = self.queue.inspect.leased_ids(lease)
            if not ids:
                return False
            if not self.extend([(ids[0], lease)], seconds):
                return True
            # The message was settled meanwhile, or the lease expired: check what is left of it.

    def _held(self, id: int, lease: int) -> Delivery:
        return Delivery(id, b"", None, NO_HEADERS, 1, 0, 0, lease, self.queue)


class QueueServices:
    """Registry of the queues in use: one `QueueService` a queue, however many clients use it."""

    def __init__(self, find: Find, executor: Executor, check_space: Callable[[], None]) -> None:
        self._find = find
        self._check_space = check_space
        self._executor = executor
        self._served: dict[Queue, QueueService] = {}
        self._closed = False

    async def get(self, vhost: str, name: str) -> QueueService:
        """Return the queue that has this name now; raise `NotFound`, or `Closed` while the server stops."""
        queue = await asyncio.get_running_loop().run_in_executor(self._executor, self._find, vhost, name)
        if self._closed:
            raise Closed("the server is shutting down: connect again later")
        found = self._served.get(queue)
        if found is None:
            for gone in [other for other in self._served if other.closed]:
                del self._served[gone]
            found = self._served[queue] = QueueService(queue, self._executor, self._check_space)
        return found

    async def close(self) -> None:
        """Fail all waiting polls, and return when nothing is in progress."""
        self._closed = True
        await asyncio.gather(*(service.close() for service in self._served.values()))
