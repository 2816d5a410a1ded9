"""Does aio-pika find what it expects?"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import aio_pika
import pytest
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustConnection
from aio_pika.exceptions import ChannelPreconditionFailed, DeliveryError, QueueEmpty
from aio_pika.patterns import RPC, Master

from tests.interop.serving import DEADLINE_S, Door, Served


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE_S))


async def connect(door: Door) -> AbstractRobustConnection:
    return await aio_pika.connect_robust(door.url, reconnect_interval=0.1)


def test_what_is_published_with_confirms_is_iterated_over(door: Door, name: Callable[..., str]) -> None:
    async def work() -> None:
        async with await connect(door) as connection, connection.channel() as channel:
            await channel.set_qos(prefetch_count=7)
            queue = await channel.declare_queue(name(), durable=True)
            bodies = [b"message %d" % number for number in range(100)]
            for body in bodies:
                message = Message(body, delivery_mode=DeliveryMode.PERSISTENT)
                confirmation = await channel.default_exchange.publish(message, queue.name)
                assert type(confirmation).__name__ == "Ack"
            got = []
            async with queue.iterator() as messages:
                async for incoming in messages:
                    async with incoming.process():
                        got.append(incoming.body)
                    if len(got) == len(bodies):
                        break
            assert got == bodies
            assert (await queue.declare()).message_count == 0
            await queue.delete()

    run(work())


def test_many_publishers_wait_for_their_confirms_at_once(door: Door, name: Callable[..., str]) -> None:
    async def work() -> None:
        async with await connect(door) as connection, connection.channel() as channel:
            queue = await channel.declare_queue(name(), durable=True)
            message = Message(b"x" * 100, delivery_mode=DeliveryMode.PERSISTENT)
            await asyncio.gather(*(channel.default_exchange.publish(message, queue.name) for _ in range(300)))
            declared = await queue.declare()
            assert declared.message_count == 300
            await queue.purge()
            assert (await queue.declare()).message_count == 0

    run(work())


def test_properties_arrive_as_they_were_sent(door: Door, name: Callable[..., str]) -> None:
    sent: dict[str, Any] = {
        "headers": {
            "text": "fünf",
            "number": 5,
            "list": [1, "two"],
            "table": {"a": True},
            "bytes": bytearray(b"\xff"),
            "none": None,
        },
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "delivery_mode": DeliveryMode.PERSISTENT,
        "priority": 3,
        "correlation_id": "c-1",
        "reply_to": "answers",
        "expiration": 600.0,
        "message_id": "m-1",
        "timestamp": datetime(2024, 2, 29, 12, tzinfo=UTC),
        "type": "order",
        "user_id": "guest",
        "app_id": "tests",
    }

    async def work() -> None:
        async with await connect(door) as connection, connection.channel() as channel:
            queue = await channel.declare_queue(name(), exclusive=True)
            body = os.urandom(1_000_000)
            await channel.default_exchange.publish(Message(body, **sent), queue.name)
            incoming = await queue.get(no_ack=True, timeout=DEADLINE_S)
            assert incoming.body == body
            assert {key: getattr(incoming, key) for key in sent} == sent

    run(work())


def test_exchanges_of_each_type_send_to_the_right_queues(door: Door, name: Callable[..., str]) -> None:
    async def work() -> None:
        async with await connect(door) as connection, connection.channel() as channel:

            async def reached(
                kind: ExchangeType, key: str, binding: str, sent: dict[str, Any], match: dict[str, Any]
            ) -> bool:
                exchange = await channel.declare_exchange(name("exchange"), kind, auto_delete=True)
                queue = await channel.declare_queue("", exclusive=True)
                await queue.bind(exchange, binding, arguments=match)
                await exchange.publish(Message(b"x", headers=sent), key, mandatory=False)
                found = await queue.get(fail=False, no_ack=True)
                await queue.unbind(exchange, binding, arguments=match)
                return found is not None

            assert await reached(ExchangeType.DIRECT, "a", "a", {}, {})
            assert not await reached(ExchangeType.DIRECT, "b", "a", {}, {})
            assert await reached(ExchangeType.FANOUT, "b", "a", {}, {})
            assert await reached(ExchangeType.TOPIC, "a.b", "*.b", {}, {})
            assert not await reached(ExchangeType.TOPIC, "a.b.c", "*.b", {}, {})
            assert await reached(ExchangeType.HEADERS, "", "", {"a": "1"}, {"x-match": "all", "a": "1"})
            assert not await reached(ExchangeType.HEADERS, "", "", {"a": "2"}, {"x-match": "all", "a": "1"})

    run(work())


def test_an_exchange_bound_to_another_gets_its_messages(door: Door, name: Callable[..., str]) -> None:
    async def work() -> None:
        async with await connect(door) as connection, connection.channel() as channel:
            front = await channel.declare_exchange(name("front"), ExchangeType.TOPIC, auto_delete=True)
            back = await channel.declare_exchange(name("back"), ExchangeType.FANOUT, auto_delete=True)
            queue = await channel.declare_queue("", exclusive=True)
            await back.bind(front, "a.*")
            await queue.bind(back)
            await front.publish(Message(b"through"), "a.b")
            assert (await queue.get(no_ack=True)).body == b"through"
            await back.unbind(front, "a.*")

    run(work())


def test_a_message_for_nobody_fails_its_publish(door: Door, name: Callable[..., str]) -> None:
    async def work() -> None:
        async with await connect(door) as connection, connection.channel(on_return_raises=True) as channel:
            with pytest.raises(DeliveryError):
                await channel.default_exchange.publish(Message(b"x"), name("nowhere"))

    run(work())


def test_an_error_closes_its_channel_only(door: Door, name: Callable[..., str]) -> None:
    async def work() -> None:
        async with await connect(door) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name(), exclusive=True)
            other = await connection.channel()
            with pytest.raises(ChannelPreconditionFailed):
                await other.declare_queue(queue.name, exclusive=True, arguments={"x-max-length": 5})
            with pytest.raises(QueueEmpty):
                await queue.get()
            await channel.close()

    run(work())


def test_a_message_that_is_given_back_comes_again(door: Door, name: Callable[..., str]) -> None:
    async def work() -> None:
        async with await connect(door) as connection, connection.channel() as channel:
            queue = await channel.declare_queue(name(), exclusive=True)
            await channel.default_exchange.publish(Message(b"x"), queue.name)
            seen: asyncio.Queue[bool | None] = asyncio.Queue()

            async def take(message: AbstractIncomingMessage) -> None:
                await seen.put(message.redelivered)
                await (message.ack() if message.redelivered else message.nack(requeue=True))

            tag = await queue.consume(take)
            assert [await seen.get(), await seen.get()] == [False, True]
            await queue.cancel(tag)
            await queue.delete(if_empty=True, if_unused=True)

    run(work())


def test_a_transaction_takes_effect_when_it_is_committed(door: Door, name: Callable[..., str]) -> None:
    async def work() -> None:
        async with await connect(door) as connection, connection.channel(publisher_confirms=False) as channel:
            queue = await channel.declare_queue(name(), exclusive=True)
            async with channel.transaction():
                await channel.default_exchange.publish(Message(b"in"), queue.name)
                assert (await queue.declare()).message_count == 0
            assert (await queue.declare()).message_count == 1
            with pytest.raises(ZeroDivisionError):
                async with channel.transaction():
                    await channel.default_exchange.publish(Message(b"out"), queue.name)
                    raise ZeroDivisionError
            assert (await queue.declare()).message_count == 1

    run(work())


def test_a_procedure_is_called_from_afar(door: Door, name: Callable[..., str]) -> None:
    async def work() -> None:
        procedure = name("multiply")

        async def multiply(*, x: int, y: int) -> int:
            return x * y

        async with await connect(door) as near, await connect(door) as far:
            server = await RPC.create(await far.channel())
            await server.register(procedure, multiply, auto_delete=True)
            client = await RPC.create(await near.channel())
            calls = [client.call(procedure, {"x": number, "y": 2}) for number in range(20)]
            assert await asyncio.gather(*calls) == [2 * number for number in range(20)]
            with pytest.raises(TypeError):
                await client.call(procedure, {"z": 1})
            await client.close()
            await server.close()

    run(work())


def test_a_master_hands_out_tasks_to_workers(door: Door, name: Callable[..., str]) -> None:
    async def work() -> None:
        tasks = name("tasks")
        done: asyncio.Queue[int] = asyncio.Queue()

        async def task(*, number: int) -> None:
            await done.put(number)

        async with await connect(door) as connection, connection.channel() as channel:
            master = Master(channel)
            workers = [await master.create_worker(tasks, task, auto_delete=True) for _ in range(2)]
            for number in range(10):
                await master.create_task(tasks, {"number": number})
            assert sorted([await done.get() for _ in range(10)]) == list(range(10))
            for worker in workers:
                await worker.close()

    run(work())


def test_a_robust_program_goes_on_after_a_restart(
    restartable: Served, restarted_door: Door, name: Callable[..., str]
) -> None:
    async def work() -> None:
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(message: AbstractIncomingMessage) -> None:
            async with message.process():
                await got.put(message.body)

        async with await connect(restarted_door) as connection:
            returned = asyncio.Event()
            connection.reconnect_callbacks.add(lambda *_: returned.set())
            channel = await connection.channel()
            durable = await channel.declare_queue(name("durable"), durable=True)
            exchange = await channel.declare_exchange(name("transient"), ExchangeType.FANOUT)
            transient = await channel.declare_queue(name("transient"), auto_delete=True)
            await transient.bind(exchange)
            kept = Message(b"kept", delivery_mode=DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(kept, durable.name)
            await transient.consume(take)
            await exchange.publish(Message(b"before"), "")
            assert await got.get() == b"before"
            await asyncio.to_thread(restartable.restart)
            await returned.wait()
            await exchange.publish(Message(b"after"), "")  # it was declared, bound and consumed anew by the client
            assert await got.get() == b"after"
            assert (await durable.get(no_ack=True)).body == b"kept"

    run(work())
