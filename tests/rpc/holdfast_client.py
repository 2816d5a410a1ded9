"""What a client of our own interface can do: each function is a scenario, run in a process of its own."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tests.rpc.queueber_client import PATIENCE_S, refused, waits

Connect = Callable[[], Awaitable[Any]]


async def entered(connect: Connect, user: str = "worker", name: str = "orders") -> Any:
    """A queue in the hands of a user."""
    session = (await (await connect()).login(user=user, password="secret")).session
    return (await session.queue(vhost="/", queueName=name)).queue


async def put(queue: Any, *payloads: bytes, **fields: Any) -> list[int]:
    return list((await queue.put(messages=[{"payload": payload, **fields} for payload in payloads])).ids)


async def lease(queue: Any, count: int = 10, **options: Any) -> list[Any]:
    return list((await queue.lease(count=count, **options)).deliveries)


def held(*deliveries: Any) -> list[dict[str, int]]:
    return [{"id": delivery.id, "lease": delivery.lease} for delivery in deliveries]


async def a_user_logs_in_by_password_or_token(connect: Connect) -> None:
    door = await connect()
    assert (await (await door.login(user="worker", password="secret")).session.whoami()).name == "worker"
    assert (await (await door.enter(token="hf_good")).session.whoami()).name == "worker"


async def a_wrong_password_or_token_is_refused(connect: Connect) -> None:
    door = await connect()
    assert "ACCESS_REFUSED" in await refused(door.login(user="worker", password="wrong"))
    assert "ACCESS_REFUSED" in await refused(door.enter(token="hf_bad"))
    text = await refused(door.login(user="worker", password="broken"))
    assert "InternalError" in text
    assert "secret thing" not in text


async def calls_can_be_made_on_a_session_that_is_still_on_its_way(connect: Connect) -> None:
    queue = (await connect()).login(user="worker", password="secret").session.queue(vhost="/", queueName="orders").queue
    assert list((await queue.put(messages=[{"payload": b"a"}])).ids) == [0]


async def a_message_keeps_all_that_was_put_with_it(connect: Connect) -> None:
    queue = await entered(connect)
    headers = [{"name": "text", "value": {"text": "ä"}}, {"name": "data", "value": {"data": b"\xff"}}]
    await put(queue, b"a", key={"some": b""}, headers=headers, priority=3)
    await put(queue, b"b")
    (first, second) = await lease(queue)
    assert (first.payload, first.key.which(), first.key.some, first.priority) == (b"a", "some", b"", 3)
    assert [header.name for header in first.headers] == ["text", "data"]
    assert (first.headers[0].value.text, first.headers[1].value.data) == ("ä", b"\xff")
    assert (second.key.which(), len(second.headers), second.attempt) == ("none", 0, 1)
    assert abs(first.enqueuedAt - time.time_ns()) < 60e9


async def acked_messages_are_gone_and_others_are_told(connect: Connect) -> None:
    queue = await entered(connect)
    ids = await put(queue, b"a", b"b", b"c")
    deliveries = await lease(queue, 2)
    wrong = {"id": ids[2], "lease": deliveries[0].lease}
    assert list((await queue.ack(held=[*held(*deliveries), wrong])).lost) == [ids[2]]
    assert list((await queue.ack(held=held(*deliveries))).lost) == ids[:2]
    assert [delivery.id for delivery in await lease(queue)] == ids[2:]


async def a_message_that_is_listed_twice_is_done_or_lost_once(connect: Connect) -> None:
    queue = await entered(connect)
    (id,) = await put(queue, b"a")
    (delivery,) = await lease(queue)
    twice = held(delivery, delivery)
    assert not list((await queue.extend(held=twice, seconds=60)).lost)
    assert not list((await queue.ack(held=twice)).lost)
    assert (await queue.stats()).stats.totalAcked == 1
    for settle in (queue.ack, queue.nack, queue.extend, queue.release):
        assert list((await settle(held=twice)).lost) == [id]


async def failed_messages_come_back_when_they_should(connect: Connect) -> None:
    queue = await entered(connect)
    await put(queue, b"a", b"b")
    one, other = await lease(queue)
    assert not list((await queue.nack(held=held(one), reason="why not", delay=0)).lost)
    assert not list((await queue.nack(held=held(other), reason="", delay=2)).lost)
    (again,) = await lease(queue)
    assert (again.payload, again.attempt) == (b"a", 2)
    (late,) = await lease(queue, wait=-1)
    assert (late.payload, late.attempt) == (b"b", 2)


async def released_messages_were_never_tried(connect: Connect) -> None:
    queue = await entered(connect)
    await put(queue, b"a")
    assert not list((await queue.release(held=held(*await lease(queue)))).lost)
    assert [delivery.attempt for delivery in await lease(queue)] == [1]


async def fractions_of_seconds_count(connect: Connect) -> None:
    queue = await entered(connect)
    begin = time.monotonic()
    await put(queue, b"a", delay=0.2)
    (delivery,) = await lease(queue, seconds=60, wait=60)
    assert time.monotonic() - begin > 0.19
    begin = time.monotonic()
    assert not list((await queue.extend(held=held(delivery), seconds=4.5)).lost)
    assert await lease(queue, wait=0.25) == []
    (again,) = await lease(queue, wait=-1)
    assert time.monotonic() - begin > 4.4
    assert again.attempt == 2
    assert list((await queue.extend(held=held(delivery), seconds=1)).lost) == [delivery.id]


async def a_put_wakes_a_lease_that_waits(connect: Connect) -> None:
    one, other = await entered(connect), await entered(connect)
    waiting = await waits(lease(one, wait=-1))
    await put(other, b"a")
    assert [delivery.payload for delivery in await waiting] == [b"a"]


async def the_same_message_is_put_once(connect: Connect) -> None:
    queue = await entered(connect)
    (id,) = await put(queue, b"a", dedup=b"1")
    assert await put(queue, b"a", b"a", dedup=b"1") == [id, id]


async def peeking_takes_nothing_and_stats_count(connect: Connect) -> None:
    queue = await entered(connect)
    await put(queue, b"a", b"b")
    await put(queue, b"c", delay=60)
    assert [waiting.payload for waiting in (await queue.peek()).messages] == [b"a", b"b"]
    await queue.ack(held=held(*await lease(queue, 1)))
    stats = (await queue.stats()).stats
    assert (stats.ready, stats.delayed, stats.leased, stats.totalAcked) == (1, 1, 0, 1)
    assert stats.oldestAge >= 0


async def what_makes_no_sense_is_refused(connect: Connect) -> None:
    queue = await entered(connect)
    assert "InvalidArgument" in await refused(queue.lease(count=0))
    assert "InvalidArgument" in await refused(queue.lease(count=1, seconds=-1))
    assert "InvalidArgument" in await refused(queue.lease(count=1, seconds=float("nan")))
    assert "InvalidArgument" in await refused(put(queue, b"a", delay=-1))
    assert "InvalidArgument" in await refused(put(queue, b"a", dedup=bytes(5000)))
    assert "InvalidArgument" in await refused(queue.peek(count=0))
    assert (await queue.stats()).stats.ready == 0


async def a_queue_that_is_not_there_is_not_found(connect: Connect) -> None:
    assert "NotFound" in await refused(entered(connect, name="nowhere"))


async def permissions_are_kept_to(connect: Connect) -> None:
    assert "ACCESS_REFUSED" in await refused(entered(connect, "stranger"))
    reader, writer = await entered(connect, "reader"), await entered(connect, "writer")
    assert "ACCESS_REFUSED" in await refused(put(reader, b"a"))
    await put(writer, b"a")
    calls: tuple[Callable[[], Awaitable[Any]], ...] = (
        lambda: writer.lease(count=1),
        lambda: writer.ack(held=[]),
        lambda: writer.nack(held=[]),
        lambda: writer.extend(held=[]),
        lambda: writer.release(held=[]),
        writer.peek,
        writer.stats,
    )
    for call in calls:
        assert "ACCESS_REFUSED" in await refused(call())
    (delivery,) = await lease(reader)
    assert not list((await reader.ack(held=held(delivery))).lost)


async def queuebers_methods_are_there_too(connect: Connect) -> None:
    door = await connect()
    assert len((await door.add(req={"items": [{"contents": b"a"}]})).resp.ids) == 1
    found = await door.poll(req={"leaseValiditySecs": 60, "numItems": 5, "timeoutSecs": 1})
    assert [item.contents for item in found.resp.items] == [b"a"]


async def a_queue_that_is_made_anew_is_found_by_who_holds_it(connect: Connect) -> None:
    queue = await entered(connect)
    await put(queue, b"a")
    print("put", flush=True)
    sys.stdin.readline()
    assert await put(queue, b"b") == [0]


def wait_for_the_test(say: str) -> None:
    print(say, flush=True)
    sys.stdin.readline()


async def entered_by_token(connect: Connect) -> tuple[Any, Any]:
    """A session by the token that the test gives, and a queue in it."""
    session = (await (await connect()).enter(token=sys.argv[3])).session
    return session, (await session.queue(vhost="/", queueName="orders")).queue


async def a_queue_of_one_connection_of_amqp_is_locked(connect: Connect) -> None:
    session = (await (await connect()).login(user="guest", password="guest")).session
    text = await refused(session.queue(vhost="/", queueName="mine"))
    assert "ResourceLocked" in text
    assert "is exclusive to the AMQP connection" in text
    assert await put((await session.queue(vhost="/", queueName="orders")).queue, b"a") == [0]


async def a_session_ends_with_its_token(connect: Connect) -> None:
    session, queue = await entered_by_token(connect)
    await put(queue, b"a", b"b")
    (delivery,) = await lease(queue, 1)
    wait_for_the_test("entered")
    calls: tuple[Callable[[], Awaitable[Any]], ...] = (
        session.whoami,
        lambda: session.queue(vhost="/", queueName="orders"),
        lambda: put(queue, b"c"),
        lambda: lease(queue),
        lambda: queue.ack(held=held(delivery)),
        lambda: queue.nack(held=held(delivery)),
        lambda: queue.extend(held=held(delivery)),
        lambda: queue.release(held=held(delivery)),
        queue.peek,
        queue.stats,
    )
    for call in calls:
        assert "expired or revoked" in await refused(call())


async def a_lease_that_waits_ends_with_its_token(connect: Connect) -> None:
    _, queue = await entered_by_token(connect)
    waiting = await waits(lease(queue, wait=-1))
    await asyncio.to_thread(wait_for_the_test, "waiting")
    assert "expired or revoked" in await refused(waiting)


def main() -> None:
    import capnp

    capnp.remove_import_hook()
    schema = capnp.load("src/holdfast/rpc/holdfast.capnp")

    async def run() -> None:
        async with capnp.kj_loop():
            clients: list[Any] = []

            async def connect() -> Any:
                stream = await capnp.AsyncIoStream.create_connection("127.0.0.1", int(sys.argv[2]))
                clients.append(capnp.TwoPartyClient(stream))
                return clients[-1].bootstrap().cast_as(schema.Holdfast)

            await asyncio.wait_for(globals()[sys.argv[1]](connect), PATIENCE_S)

    asyncio.run(run())


if __name__ == "__main__":
    main()
