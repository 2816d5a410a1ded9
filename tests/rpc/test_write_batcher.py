"""Rounds: what many calls do to a queue is written together, and each is told of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Flush, InvalidArgument, Message, MessageTooLarge, Queue, QueueFull, Store
from holdfast.rpc.write_batcher import WriteBatcher


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(params=[Flush.sync(), Flush.async_()], ids=lambda flush: str(flush.mode))
def queue(request: pytest.FixtureRequest, disk_store: Store) -> Queue:
    return disk_store.queue("orders", flush=request.param, max_attempts=None)


def run(test: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(test(), 120)

    return asyncio.run(limited())


async def together(*calls: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


def test_each_put_gets_its_own_ids(queue: Queue, executor: ThreadPoolExecutor) -> None:
    async def test() -> None:
        write_batcher = WriteBatcher(queue, executor)
        found = await together(*(write_batcher.put([b"%d" % number] * (number % 3)) for number in range(100)))
        assert [len(ids) for ids in found] == [number % 3 for number in range(100)]
        for message in queue.lease(1000):
            assert message.id in found[int(message.payload)]

    run(test)


def test_many_puts_are_one_write(queue: Queue, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    put_many = queue.put_many

    def counted(messages: Any) -> Any:
        writes.append(len(messages))
        return put_many(messages)

    monkeypatch.setattr(queue, "put_many", counted)

    async def test() -> None:
        write_batcher = WriteBatcher(queue, executor)
        await together(*(write_batcher.put([b"x"]) for _ in range(500)))

    run(test)
    assert sum(writes) == 500
    assert len(writes) <= 3


def test_a_put_that_cannot_be_spoils_no_other(queue: Queue, executor: ThreadPoolExecutor) -> None:
    async def test() -> None:
        write_batcher = WriteBatcher(queue, executor)
        bad: list[bytes | Message] = [b"lost", Message(b"x", priority=1000)]
        found = await together(write_batcher.put([b"a"]), write_batcher.put(bad), write_batcher.put([b"b", b"c"]))
        assert isinstance(found[1], InvalidArgument)
        assert [message.payload for message in queue.lease(10)] == [b"a", b"b", b"c"]

    run(test)


def test_a_put_that_is_too_large_is_refused(queue: Queue, executor: ThreadPoolExecutor) -> None:
    async def test() -> None:
        with pytest.raises(MessageTooLarge):
            await WriteBatcher(queue, executor).put([b"small", bytes(40 << 20)])
        assert queue.stats().ready == 0

    run(test)


def test_a_queue_that_is_full_takes_what_it_can(disk_store: Store, executor: ThreadPoolExecutor) -> None:
    queue = disk_store.queue("small", max_length=3, overflow="reject")

    async def test() -> None:
        write_batcher = WriteBatcher(queue, executor)
        found = await together(*(write_batcher.put([b"x"]) for _ in range(5)))
        assert sum(isinstance(one, QueueFull) for one in found) == 2
        assert queue.stats().ready == 3

    run(test)


def test_acks_are_told_apart_though_they_are_one(queue: Queue, executor: ThreadPoolExecutor) -> None:
    queue.put_many([b"%d" % number for number in range(4)])
    first, second = queue.lease(2), queue.lease(2)

    async def test() -> None:
        write_batcher = WriteBatcher(queue, executor)
        mine, yours = first[0].lease, second[0].lease
        found = await together(
            write_batcher.ack([(0, mine)]),
            write_batcher.ack([(1, yours)]),  # held by another
            write_batcher.ack([(1, mine), (2, yours)]),
            write_batcher.ack([(0, mine)]),  # too late
            write_batcher.ack([(99, mine)]),
            write_batcher.ack([(3, 12345)]),
        )
        assert found == [[], [1], [], [0], [99], [3]]
        assert queue.stats().leased == 1

    run(test)


def test_other_work_is_done_in_its_turn(queue: Queue, executor: ThreadPoolExecutor) -> None:
    queue.put_many([b"a", b"b"])
    held = queue.lease(2)
    pairs = [(message.id, message.lease) for message in held]

    async def test() -> None:
        write_batcher = WriteBatcher(queue, executor)
        found = await together(
            write_batcher.ack(pairs[:1]),
            write_batcher.run(lambda: queue.settler.try_release(held)),
            write_batcher.ack(pairs),
            write_batcher.run(str),
        )
        assert found == [[], [0], [0, 1], ""]

    run(test)


def test_what_is_not_permitted_is_not_done(queue: Queue, executor: ThreadPoolExecutor) -> None:
    def refuse() -> None:
        raise InvalidArgument("not for you")

    async def test() -> None:
        write_batcher = WriteBatcher(queue, executor)
        found = await together(
            write_batcher.put([b"bad"], refuse), write_batcher.put([b"good"]), write_batcher.run(queue.purge, refuse)
        )
        assert [type(one) for one in found] == [InvalidArgument, list, InvalidArgument]
        assert [message.payload for message in queue.lease(10)] == [b"good"]

    run(test)


def test_a_caller_that_goes_away_disturbs_no_other(queue: Queue, executor: ThreadPoolExecutor) -> None:
    async def test() -> None:
        write_batcher = WriteBatcher(queue, executor)
        gone = asyncio.ensure_future(write_batcher.put([b"a"]))
        stays = asyncio.ensure_future(write_batcher.put([b"b"]))
        await asyncio.sleep(0)
        gone.cancel()
        assert len(await stays) == 1
        await write_batcher.close()
        assert queue.stats().ready == 2

    run(test)
