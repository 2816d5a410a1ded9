"""Group commit for RPC calls: calls that arrive while a round is on disk are one write in the next round."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, NamedTuple, TypeVar

from holdfast.log.record import Message
from holdfast.queue import Queue

__all__ = ["WriteBatcher"]

T = TypeVar("T")
Pair = tuple[int, int]
"""The id of a message, and of the lease under which it is held."""

_PUT_BYTES = 8 << 20
"""Payload bytes that are joined into one put."""
_PUT_MESSAGES = 10_000


class _Work(NamedTuple):
    messages: list[bytes | Message] | None
    pairs: list[Pair] | None
    function: Callable[[], Any] | None
    check: Callable[[], None] | None
    answer: "asyncio.Future[Any]"


class WriteBatcher:
    """Applies the changes of one queue in rounds, by a worker thread.

    In a round all puts are one put, and consecutive acks one ack. Puts go first: no client can hold their messages yet.
    Whatever the queue's flush mode is, a call is answered when its change is on disk.
    """

    def __init__(self, queue: Queue, executor: Executor, check_space: Callable[[], None] = lambda: None) -> None:
        self._queue = queue
        self._check_space = check_space
        """Raises while no messages may be put, by any client."""
        self._loop = asyncio.get_running_loop()
        self._executor = executor
        self._next: list[_Work] = []
        self._task: asyncio.Task[None] | None = None

    async def put(self, messages: list[bytes | Message], check: Callable[[], None] | None = None) -> list[int]:
        """Add messages, all or none; return their ids when they are on disk."""
        ids: list[int] = await self._do(_Work(messages, None, None, check, self._loop.create_future()))
        return ids

    async def ack(self, pairs: list[Pair], check: Callable[[], None] | None = None) -> list[int]:
        """Acknowledge messages; return the ids of those that are not held, when the rest is on disk."""
        lost: list[int] = await self._do(_Work(None, pairs, None, check, self._loop.create_future()))
        return lost

    async def run(self, function: Callable[[], T], check: Callable[[], None] | None = None) -> T:
        """Run another function on the queue, in its turn and on a worker thread; return its result."""
        result: T = await self._do(_Work(None, None, function, check, self._loop.create_future()))
        return result

    async def close(self) -> None:
        """Return when no round is in progress."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _do(self, work: _Work) -> Any:
        self._next.append(work)
        if self._task is None:
            self._task = self._loop.create_task(self._turn())
        return await work.answer

    async def _turn(self) -> None:
        try:
            while self._next:
                works, self._next = self._next, []
                outcomes = await self._loop.run_in_executor(self._executor, self._round, works)
                for work, outcome in zip(works, outcomes, strict=True):
                    if work.answer.done():  # the client disconnected; its request was carried out
                        continue
                    if isinstance(outcome, BaseException):
                        work.answer.set_exception(outcome)
                    else:
                        work.answer.set_result(outcome)
        finally:
            self._task = None

    # In a worker thread.

    def _round(self, works: list[_Work]) -> list[Any]:
        outcomes: dict[int, Any] = {}
        rest: list[tuple[int, _Work]] = []
        puts: list[tuple[int, _Work]] = []
        for place, work in enumerate(works):
            try:
                if work.check is not None:
                    work.check()
                if work.messages is not None:
                    self._check_space()
            except Exception as error:
                outcomes[place] = error
            else:
                (rest if work.messages is None else puts).append((place, work))
        for group in _grouped(puts):
            self._put(group, outcomes)
        acks: list[tuple[int, list[Pair]]] = []
        leases: dict[int, int] = {}
        for place, work in rest:
            # The queue reports lost ids without their lease: so each id is passed with one lease at a time.
            if work.pairs is None or any(leases.setdefault(id, lease) != lease for id, lease in work.pairs):
                self._ack(acks, outcomes)
                acks, leases = [], dict(work.pairs or ())
            if work.pairs is not None:
                acks.append((place, work.pairs))
            elif work.function is not None:
                outcomes[place] = _attempt(work.function)
        self._ack(acks, outcomes)
        if self._queue.log.settings.flush.mode != "sync":
            failure = _attempt(self._queue.sync)
            if failure is not None:  # nothing of this round is known to be durable
                outcomes = {
                    place: outcome if isinstance(outcome, Exception) else failure for place, outcome in outcomes.items()
                }
        return [outcomes[place] for place in range(len(works))]

    def _put(self, group: list[tuple[int, _Work]], outcomes: dict[int, Any]) -> None:
        everything = [message for _, work in group for message in work.messages or ()]
        ids = _attempt(lambda: self._queue.put_many(everything))
        if isinstance(ids, Exception) and len(group) > 1:  # one of them is invalid: put each separately
            for one in group:
                self._put([one], outcomes)
            return
        at = 0
        for place, work in group:
            count = len(work.messages or ())
            outcomes[place] = ids if isinstance(ids, Exception) else list(ids[at : at + count])
            at += count

    def _ack(self, acks: list[tuple[int, list[Pair]]], outcomes: dict[int, Any]) -> None:
        if not acks:
            return
        parts: dict[int, set[int]] = {}
        first: dict[Pair, int] = {}
        for place, pairs in acks:
            for pair in pairs:
                first.setdefault(pair, place)  # only the first request settles it
                parts.setdefault(pair[1], set()).add(pair[0])
        lost = _attempt(lambda: set(self._queue.ack_ids(parts)))
        for place, pairs in acks:
            if isinstance(lost, Exception):
                outcomes[place] = lost
            else:
                outcomes[place] = [pair[0] for pair in pairs if pair[0] in lost or first[pair] != place]


def _grouped(puts: list[tuple[int, _Work]]) -> Iterable[list[tuple[int, _Work]]]:
    group: list[tuple[int, _Work]] = []
    size = count = 0
    for one in puts:
        messages = one[1].messages or []
        if group and (size > _PUT_BYTES or count + len(messages) > _PUT_MESSAGES):
            yield group
            group, size, count = [], 0, 0
        group.append(one)
        size += sum(len(message if isinstance(message, bytes) else message.payload) for message in messages)
        count += len(messages)
    if group:
        yield group


def _attempt(function: Callable[[], T]) -> T | Exception:
    try:
        return function()
    except Exception as error:
        return error
