"""Polls: waiting in an event loop, without a thread for each who waits."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Closed, Delivery, Flush, InvalidArgument, Message, Queue, Store
from holdfast.queue.async_lease import AsyncLeases
from holdfast.queue.waiters import shares
from tests.queue.internals import at_work, is_dealing, take_only_poll, waiters_of

PATIENCE_S = 120.0


@pytest.fixture
def queue(disk_store: Store, flush: Flush) -> Queue:
    return disk_store.queue("orders", flush=flush, max_attempts=None)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), PATIENCE_S)

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def waiting(polls: AsyncLeases, count: int, **options: Any) -> "asyncio.Task[list[Delivery]]":
    """A poll that is in line, and was not served at once."""
    before = len(polls)
    task = asyncio.create_task(polls.lease(count, **options))
    await until(lambda: len(polls) == before + 1 and not is_dealing(polls))
    return task


def payloads(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.payload for delivery in deliveries]


def test_what_is_there_is_had_at_once(queue: Queue) -> None:
    async def test() -> None:
        queue.put_many([b"a", b"b", b"c"])
        assert payloads(await AsyncLeases(queue).lease(2)) == [b"a", b"b"]

    run(test)


def test_who_does_not_wait_gets_nothing_from_an_empty_queue(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        assert await polls.lease(1, wait=0) == []
        assert len(polls) == 0
        queue.put(b"a")
        assert payloads(await polls.lease(5, wait=0)) == [b"a"]

    run(test)


def test_time_that_is_up_gives_nothing_and_takes_nothing(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        assert await polls.lease(1, wait=0.05) == []
        queue.put(b"a")
        assert payloads(queue.lease(1)) == [b"a"]

    run(test)


def test_a_put_from_another_thread_wakes_a_poll(queue: Queue) -> None:
    async def test() -> None:
        task = await waiting(AsyncLeases(queue), 1)
        threading.Thread(target=queue.put, args=(b"a",)).start()
        assert payloads(await task) == [b"a"]

    run(test)


def test_a_delay_that_is_over_wakes_a_poll_and_not_before(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        task = await waiting(polls, 1)
        begin = time.monotonic()
        queue.put(b"late", delay=0.3)
        assert payloads(await task) == [b"late"]
        assert time.monotonic() - begin >= 0.29

    run(test)


def test_what_is_put_later_but_due_sooner_wakes_a_poll(queue: Queue) -> None:
    async def test() -> None:
        queue.put(b"far", delay=3600)
        task = await waiting(AsyncLeases(queue), 2)
        queue.put(b"near", delay=0.05)
        assert payloads(await task) == [b"near"]

    run(test)


def test_a_lease_that_runs_out_wakes_a_poll(queue: Queue) -> None:
    async def test() -> None:
        queue.put(b"a")
        queue.lease(1, lease=0.2)
        (delivery,) = await AsyncLeases(queue).lease(1)
        assert (delivery.payload, delivery.attempt) == (b"a", 2)

    run(test)


def test_a_lease_that_is_shortened_wakes_a_poll_in_time(queue: Queue) -> None:
    async def test() -> None:
        queue.put(b"a")
        held = queue.lease(1, lease=3600)
        task = await waiting(AsyncLeases(queue), 1)
        queue.extend(held, 0.05)
        assert payloads(await task) == [b"a"]

    run(test)


def test_a_message_that_is_given_back_wakes_a_poll(queue: Queue) -> None:
    async def test() -> None:
        queue.put(b"a")
        (held,) = queue.lease(1)
        task = await waiting(AsyncLeases(queue), 1)
        held.release()
        assert payloads(await task) == [b"a"]

    run(test)


def test_six_messages_for_demands_of_five_three_and_one_are_dealt_in_turns(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        tasks = [await waiting(polls, demand) for demand in (5, 3, 1)]
        queue.put_many([bytes([number]) for number in range(6)])
        found = await asyncio.gather(*tasks)
        assert [len(part) for part in found] == [3, 2, 1]
        assert sorted(b"".join(payload for part in found for payload in payloads(part))) == list(range(6))

    run(test)


def test_each_poll_has_a_lease_of_its_own_as_long_as_it_asked_for(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        short, long = await waiting(polls, 1, lease=0.1), await waiting(polls, 1, lease=3600)
        queue.put_many([b"a", b"b"])
        (one,), (other,) = await asyncio.gather(short, long)
        assert one.lease != other.lease
        again = await polls.lease(2)
        assert payloads(again) == [b"a"]
        assert not one.ack() and other.ack()

    run(test)


def test_who_waits_longest_is_served_first(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        tasks = [await waiting(polls, 1) for _ in range(5)]
        for number in range(5):
            queue.put(bytes([number]))
            assert payloads(await tasks[number]) == [bytes([number])]

    run(test)


def test_a_cancelled_poll_takes_nothing_with_it(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        task = await waiting(polls, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(polls) == 0
        queue.put(b"a")
        assert queue.stats().ready == 1

    run(test)


def test_a_poll_that_is_cancelled_at_any_moment_of_its_dealing_leaves_every_message(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        for turn in range(60):
            task = await waiting(polls, 3)
            queue.put(b"%d" % turn)
            for _ in range(turn % 12):
                await asyncio.sleep(0 if turn % 2 else 0.0005)
            task.cancel()
            try:
                queue.ack(await task)
            except asyncio.CancelledError:
                while at_work(polls):
                    await asyncio.wait(set(at_work(polls)))
                (left,) = queue.lease(2)
                assert (left.payload, left.attempt) == (b"%d" % turn, 1)
                left.ack()
        stats = queue.stats()
        assert (stats.leased, stats.ready, stats.leases) == (0, 0, 0)

    run(test)


def test_an_answer_that_nobody_takes_any_more_is_given_back(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        task = await waiting(polls, 1)
        answer = take_only_poll(polls)
        queue.put(b"a")
        answer.set_result(queue.lease(1))
        task.cancel()  # it was answered, and has not run since
        with pytest.raises(asyncio.CancelledError):
            await task
        await polls.close()
        assert (queue.stats().ready, queue.stats().leased) == (1, 0)

    run(test)


def test_a_thousand_polls_wait_without_threads_and_each_gets_one(queue: Queue) -> None:
    async def test() -> None:
        with ThreadPoolExecutor(1) as executor:
            polls = AsyncLeases(queue, executor=executor)
            before = threading.active_count()
            tasks = [asyncio.create_task(polls.lease(2)) for _ in range(1000)]
            await until(lambda: len(polls) == 1000)
            assert threading.active_count() <= before + 1
            queue.put(b"0")
            await until(lambda: len(polls) == 999)
            queue.put_many([b"%d" % number for number in range(1, 1000)])
            found = await asyncio.gather(*tasks)
            assert [len(part) for part in found] == [1] * 1000
            assert sorted(int(part[0].payload) for part in found) == list(range(1000))
            assert len({part[0].lease for part in found}) == 1000

    run(test)


def test_one_message_does_not_walk_the_whole_line(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def noted(demands: list[int], available: int) -> list[int]:
        looked.append(len(demands))
        return shares(demands, available)

    monkeypatch.setattr("holdfast.queue.dispatcher.shares", noted)

    async def test() -> None:
        polls = AsyncLeases(queue)
        tasks = [asyncio.create_task(polls.lease(1)) for _ in range(500)]
        await until(lambda: len(polls) == 500 and not is_dealing(polls))
        for _ in range(3):
            queue.put(b"a")
        await until(lambda: len(polls) == 497)
        assert max(looked) <= 3
        await polls.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(test)


def test_polls_beside_threads_that_wait_get_their_turn(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        thread = asyncio.create_task(asyncio.to_thread(queue.lease, 1, wait=PATIENCE_S))
        await until(lambda: len(waiters_of(queue).line) == 1)
        task = await waiting(polls, 1)
        queue.put_many([b"a", b"b"])
        assert sorted(payloads(await task) + payloads(await thread)) == [b"a", b"b"]

    run(test)


def test_closing_sends_everybody_away_and_loses_nothing(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        task = await waiting(polls, 1)
        await polls.close()
        with pytest.raises(Closed):
            await task
        with pytest.raises(Closed):
            await polls.lease(1)
        queue.put(b"a")
        assert payloads(queue.lease(1)) == [b"a"]

    run(test)


def test_a_queue_that_is_deleted_sends_its_polls_away(disk_store: Store, queue: Queue) -> None:
    async def test() -> None:
        task = await waiting(AsyncLeases(queue), 1)
        await asyncio.to_thread(disk_store.delete_queue, "orders")
        with pytest.raises(Closed):
            await task

    run(test)


def test_a_queue_without_polls_is_not_listened_to_for_long(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.queue.async_lease.WATCH_S", 0.02)

    async def test() -> None:
        polls = AsyncLeases(queue)
        assert await polls.lease(1, wait=0) == []
        await until(lambda: not waiters_of(queue).listeners)
        task = await waiting(polls, 1)
        queue.put(b"a")
        assert payloads(await task) == [b"a"]

    run(test)


def test_no_more_bytes_are_taken_than_were_asked_for(disk_store: Store) -> None:
    async def test() -> None:
        queue = disk_store.queue("large", flush=Flush.sync())
        for _ in range(4):
            queue.put(bytes(1000))
        assert len(await AsyncLeases(queue).lease(4, most_bytes=1)) < 4

    run(test)


@pytest.mark.parametrize("options", [{"count": 0}, {"count": True}, {"lease": 0}, {"wait": -1}, {"lease": -1}])
def test_what_makes_no_sense_is_refused(queue: Queue, options: dict[str, Any]) -> None:
    async def test() -> None:
        with pytest.raises(InvalidArgument):
            await AsyncLeases(queue).lease(**options)

    run(test)


def test_many_delays_and_many_polls_meet_once_each(queue: Queue) -> None:
    async def test() -> None:
        polls = AsyncLeases(queue)
        tasks = [asyncio.create_task(polls.lease(1)) for _ in range(200)]
        queue.put_many([Message(b"%d" % number, delay=(number % 20) * 0.01) for number in range(200)])
        found = await asyncio.gather(*tasks)
        assert sorted(int(part[0].payload) for part in found) == list(range(200))

    run(test)
