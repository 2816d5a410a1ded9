"""What a client of Queueber sees: each function is a scenario, run in a process of its own by `test_queueber.py`.

The schema is written down here from what is known of Queueber's interface, and our own is not loaded: if ours had
another id, ordinal or type anywhere, these would not understand each other.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

SCHEMA = """
@0xbab6e22de0402699;
interface Queue {
    add @0 (req :AddRequest) -> (resp :AddResponse);
    remove @1 (req :RemoveRequest) -> (resp :RemoveResponse);
    poll @2 (req :PollRequest) -> (resp :PollResponse);
    extend @3 (req :ExtendRequest) -> (resp :ExtendResponse);
}
struct AddRequest { items @0 :List(Item); }
struct AddResponse { ids @0 :List(Data); }
struct Item { contents @0 :Data; visibilityTimeoutSecs @1 :UInt64; }
struct RemoveRequest { id @0 :Data; lease @1 :Data; }
struct RemoveResponse { removed @0 :Bool; }
struct PollRequest { leaseValiditySecs @0 :UInt64; numItems @1 :UInt32; timeoutSecs @2 :UInt64; }
struct PollResponse { items @0 :List(PolledItem); lease @1 :Data; }
struct PolledItem { contents @0 :Data; id @1 :Data; }
struct ExtendRequest { lease @0 :Data; leaseValiditySecs @1 :UInt64; }
struct ExtendResponse { extended @0 :Bool; }
"""
PATIENCE_S = 180.0
FOREVER = 0
LARGEST = 2**64 - 1


class Client:
    """One connection, with Queueber's four methods as one would like to write them."""

    def __init__(self, capnp: Any, schema: Any, stream: Any) -> None:
        self._network = capnp.TwoPartyClient(stream)
        self._stream = stream
        self.queue = self._network.bootstrap().cast_as(schema.Queue)

    async def reaches(self) -> None:
        """What was done before, here or by a connection that hung up, has come to the server: it has answered since."""
        for _ in range(2):
            assert not await self.extend(bytes(16), 60)

    def hang_up(self) -> None:
        self._stream.close()

    async def add(self, *items: bytes | tuple[bytes, int]) -> list[bytes]:
        pairs = [(item, 0) if isinstance(item, bytes) else item for item in items]
        request = {"items": [{"contents": data, "visibilityTimeoutSecs": delay} for data, delay in pairs]}
        return list((await self.queue.add(req=request)).resp.ids)

    async def poll(
        self, validity: int = 60, count: int = 1, timeout: int = 1
    ) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """The lease, and the contents and ids of the items."""
        request = {"leaseValiditySecs": validity, "numItems": count, "timeoutSecs": timeout}
        found = (await self.queue.poll(req=request)).resp
        return found.lease, [(item.contents, item.id) for item in found.items]

    async def contents(self, validity: int = 60, count: int = 1, timeout: int = 1) -> list[bytes]:
        return [data for data, _ in (await self.poll(validity, count, timeout))[1]]

    async def remove(self, id: bytes, lease: bytes) -> bool:
        return bool((await self.queue.remove(req={"id": id, "lease": lease})).resp.removed)

    async def extend(self, lease: bytes, validity: int) -> bool:
        return bool((await self.queue.extend(req={"lease": lease, "leaseValiditySecs": validity})).resp.extended)


Connect = Callable[[], Awaitable[Client]]


async def refused(call: Awaitable[Any]) -> str:
    """The text of the error that a call ends with."""
    try:
        await call
    except Exception as error:
        return str(getattr(error, "description", error))
    raise AssertionError("it was not refused")


async def waits(call: Awaitable[Any]) -> "asyncio.Task[Any]":
    """A call that has reached the server, and is not answered."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0.2)
    assert not task.done(), "it was answered at once"
    return task


# What the methods do.


async def an_item_that_is_added_is_polled_and_removed(connect: Connect) -> None:
    client = await connect()
    (id,) = await client.add(b"a")
    lease, items = await client.poll()
    assert items == [(b"a", id)]
    assert len(id) == len(lease) == 16
    assert await client.remove(id, lease)
    assert not await client.remove(id, lease)
    assert await client.poll() == (b"", [])


async def ids_sort_as_items_were_added(connect: Connect) -> None:
    client = await connect()
    ids = [id for _ in range(20) for id in await client.add(b"a", b"b", b"")]
    assert ids == sorted(ids)
    assert len(set(ids)) == 60
    _, items = await client.poll(count=100)
    assert [id for _, id in items] == ids
    assert items[2][0] == b""


async def leases_are_never_given_twice_and_ascend(connect: Connect) -> None:
    client = await connect()
    await client.add(*[b"x"] * 50)
    leases = [(await client.poll())[0] for _ in range(50)]
    assert leases == sorted(set(leases))


async def adding_nothing_adds_nothing(connect: Connect) -> None:
    client = await connect()
    assert await client.add() == []
    assert await client.poll() == (b"", [])


async def adding_is_all_or_nothing(connect: Connect) -> None:
    client = await connect()
    one_by_one = [client.add(b"good"), client.add(b"bad", bytes(40 << 20)), client.add(b"fine")]
    found = await asyncio.gather(*one_by_one, return_exceptions=True)
    assert isinstance(found[1], Exception)
    assert sorted(await client.contents(count=10)) == [b"fine", b"good"]


async def no_items_asked_for_is_one(connect: Connect) -> None:
    client = await connect()
    await client.add(b"a", b"b")
    assert await client.contents(count=0) == [b"a"]


async def a_poll_without_validity_is_refused(connect: Connect) -> None:
    client = await connect()
    await client.add(b"a")
    text = await refused(client.poll(validity=0))
    assert "leaseValiditySecs" in text
    assert ".py" not in text, "the server's insides are shown"
    assert "Traceback" not in text
    assert await client.contents() == [b"a"]


async def time_that_is_up_gives_no_items_and_no_lease(connect: Connect) -> None:
    begin = time.monotonic()
    assert await (await connect()).poll(timeout=1) == (b"", [])
    assert time.monotonic() - begin >= 0.99


async def the_largest_numbers_are_only_long_times(connect: Connect) -> None:
    client = await connect()
    await client.add((b"never", LARGEST), b"now")
    lease, items = await client.poll(validity=LARGEST, count=2**32 - 1, timeout=LARGEST)
    assert [data for data, _ in items] == [b"now"]
    assert await client.extend(lease, LARGEST)


async def what_is_not_held_is_not_removed(connect: Connect) -> None:
    client, other = await connect(), await connect()
    ids = await client.add(b"a", b"b")
    lease, _ = await client.poll()
    foreign, _ = await other.poll()
    assert not await client.remove(ids[0], foreign)
    assert not await client.remove(ids[1], lease)
    assert not await client.remove(ids[0], bytes(16))
    assert not await client.remove(ids[0], ids[0])
    assert not await client.remove(bytes(16), lease)
    assert not await client.remove(b"short", lease)
    assert not await client.remove(lease, lease)
    assert await client.remove(ids[0], lease)
    assert await other.remove(ids[1], foreign)


async def two_removals_at_once_succeed_once(connect: Connect) -> None:
    client = await connect()
    for _ in range(20):
        (id,) = await client.add(b"a")
        lease, _ = await client.poll()
        both = await asyncio.gather(client.remove(id, lease), client.remove(id, bytes(16)), client.remove(id, lease))
        assert sorted(both) == [False, False, True]


async def a_lease_that_has_run_out_holds_nothing(connect: Connect) -> None:
    client = await connect()
    (id,) = await client.add(b"a")
    lease, _ = await client.poll(validity=1)
    await asyncio.sleep(1.1)
    assert not await client.remove(id, lease)
    assert not await client.extend(lease, 60)
    newer, items = await client.poll()
    assert items == [(b"a", id)]
    assert newer != lease
    assert not await client.remove(id, lease)
    assert await client.remove(id, newer)


async def a_lease_lasts_as_long_as_it_should(connect: Connect) -> None:
    """Queueber counts whole seconds, so that a second may last a tenth of one."""
    client = await connect()
    for _ in range(2):
        await client.add(b"a")
        begin = time.monotonic()
        await client.poll(validity=1)
        lease, items = await client.poll(timeout=60)
        assert time.monotonic() - begin >= 0.99
        assert await client.remove(items[0][1], lease)
        await asyncio.sleep(0.3)


async def a_lease_of_another_size_is_refused(connect: Connect) -> None:
    client = await connect()
    (id,) = await client.add(b"a")
    for size in (0, 8, 15, 17, 100):
        assert "16 bytes" in await refused(client.remove(id, bytes(size)))
        assert "16 bytes" in await refused(client.extend(bytes(size), 60))


async def an_extended_lease_is_held_from_now_on(connect: Connect) -> None:
    client = await connect()
    ids = await client.add(b"a", b"b")
    lease, _ = await client.poll(validity=3, count=2)
    assert await client.remove(ids[0], lease)
    assert await client.extend(lease, 60)
    await asyncio.sleep(3.2)
    assert await client.remove(ids[1], lease)
    assert not await client.extend(lease, 60)
    assert not await client.extend(bytes(16), 60)


async def a_lease_can_be_shortened_and_wakes_who_waits(connect: Connect) -> None:
    client = await connect()
    await client.add(b"a", b"b")
    lease, _ = await client.poll(validity=3600, count=2)
    waiting = await waits(client.contents(count=2, timeout=FOREVER))
    assert await client.extend(lease, 1)
    assert sorted(await waiting) == [b"a", b"b"]


async def a_large_item_comes_back_whole(connect: Connect) -> None:
    client = await connect()
    content = os.urandom(9 << 20)
    await client.add(content)
    assert await client.contents() == [content]


async def an_answer_is_not_larger_than_clients_take(connect: Connect) -> None:
    client = await connect()
    for _ in range(12):
        await client.add(bytes(2 << 20))
    taken = 0
    while taken < 12:
        found = await client.contents(count=12)
        assert found
        assert sum(map(len, found)) <= 16 << 20
        taken += len(found)
    assert taken == 12


async def large_items_that_come_faster_than_they_are_written_all_arrive(connect: Connect) -> None:
    client, other = await connect(), await connect()
    adding = asyncio.gather(*[client.add(bytes([number]) * (4 << 20)) for number in range(20)])
    assert len(await other.add(b"small")) == 1
    assert len({id for ids in await adding for id in ids}) == 20
    sizes: list[int] = []
    while found := await client.contents(count=100):
        sizes += map(len, found)
    assert sorted(sizes) == [5, *[4 << 20] * 20]


# Waiting.


async def an_add_wakes_a_poll_of_another_client(connect: Connect) -> None:
    one, other = await connect(), await connect()
    waiting = await waits(one.contents(timeout=FOREVER))
    await other.add(b"a")
    assert await waiting == [b"a"]


async def a_delayed_item_comes_when_its_time_has_come(connect: Connect) -> None:
    client = await connect()
    waiting = await waits(client.contents(timeout=FOREVER))
    begin = time.monotonic()
    await client.add((b"late", 1))
    assert await waiting == [b"late"]
    assert time.monotonic() - begin >= 0.99


async def an_item_that_is_visible_sooner_wakes_a_poll_that_waits_for_a_later_one(connect: Connect) -> None:
    client = await connect()
    await client.add((b"far", 3600))
    waiting = await waits(client.contents(count=2, timeout=FOREVER))
    await client.add((b"near", 1))
    assert await waiting == [b"near"]


async def a_lease_that_runs_out_wakes_a_poll(connect: Connect) -> None:
    one, other = await connect(), await connect()
    await one.add(b"a")
    await one.poll(validity=3)
    waiting = await waits(other.contents(timeout=FOREVER))
    assert await waiting == [b"a"]


async def six_items_are_dealt_to_demands_of_five_three_and_one(connect: Connect) -> None:
    clients = [await connect() for _ in range(3)]
    waiting = []
    for client, count in zip(clients, (5, 3, 1), strict=True):
        waiting.append(await waits(client.poll(count=count, timeout=FOREVER)))
        await client.reaches()
    await clients[0].add(*[bytes([number]) for number in range(6)])
    found = await asyncio.gather(*waiting)
    assert [len(items) for _, items in found] == [3, 2, 1]
    assert len({lease for lease, _ in found}) == 3


async def a_thousand_polls_wait_on_four_connections(connect: Connect) -> None:
    clients = [await connect() for _ in range(4)]
    waiting = [asyncio.ensure_future(client.contents(timeout=FOREVER)) for client in clients for _ in range(250)]
    await asyncio.sleep(0.5)
    assert not any(task.done() for task in waiting)
    for start in range(0, 1000, 100):
        await clients[0].add(*[b"%d" % number for number in range(start, start + 100)])
    found = await asyncio.gather(*waiting)
    assert sorted(int(data) for (data,) in found) == list(range(1000))


async def a_poll_that_hangs_up_takes_nothing(connect: Connect) -> None:
    one, other = await connect(), await connect()
    for _ in range(5):
        await waits(one.poll(count=100, timeout=FOREVER))
        one.hang_up()
        await asyncio.sleep(0.05)
        await other.reaches()
        (id,) = await other.add(b"a")
        lease, items = await other.poll(count=10)
        assert items == [(b"a", id)]
        assert await other.remove(id, lease)
        one = await connect()


async def a_poll_that_is_cancelled_takes_nothing(connect: Connect) -> None:
    client = await connect()
    for _ in range(5):
        waiting = await waits(client.poll(count=100, timeout=FOREVER))
        waiting.cancel()
        await asyncio.sleep(0.05)
        await client.add(b"a")
        lease, items = await client.poll()
        assert await client.remove(items[0][1], lease)


async def many_clients_share_the_work_and_each_item_is_done_once(connect: Connect) -> None:
    done: list[bytes] = []

    async def work(client: Client) -> None:
        while len(done) < 600:
            lease, items = await client.poll(count=7, timeout=1)
            for data, id in items:
                assert await client.remove(id, lease)
                done.append(data)

    async def give(client: Client, name: int) -> None:
        for number in range(100):
            await client.add(b"%d-%d" % (name, number), (b"%d-%d-late" % (name, number), number % 2))

    workers = [asyncio.ensure_future(work(await connect())) for _ in range(4)]
    await asyncio.gather(*[give(await connect(), name) for name in range(3)])
    await asyncio.gather(*workers)
    assert len(done) == len(set(done)) == 600


# Parts of what `test_queueber.py` does.


async def wait_until_the_server_ends(connect: Connect) -> None:
    clients = [await connect() for _ in range(20)]
    waiting = [asyncio.ensure_future(client.poll(count=10, timeout=FOREVER)) for client in clients]
    await asyncio.sleep(0.3)
    for client in clients:
        await client.reaches()
    print("waiting", flush=True)
    for task in waiting:
        print((await refused(task)).splitlines()[0], flush=True)


async def add_items_until_the_server_is_killed(connect: Connect) -> None:
    client = await connect()
    number = 0

    async def give() -> None:
        nonlocal number
        while True:
            number += 1
            mine = number
            (id,) = await client.add(b"%d" % mine)
            print(mine, id.hex(), flush=True)

    await asyncio.gather(*[give() for _ in range(20)])


async def hold_two_and_remove_one(connect: Connect) -> None:
    client = await connect()
    ids = await client.add(b"removed", b"held", b"free")
    lease, _ = await client.poll(validity=3600, count=2)
    assert await client.remove(ids[0], lease)
    print(lease.hex(), *(id.hex() for id in ids), flush=True)


async def list_all(connect: Connect) -> None:
    client = await connect()
    while items := (await client.poll(count=1000, timeout=1))[1]:
        for data, id in items:
            print(data.decode(), id.hex(), flush=True)


async def remove_what_was_held(connect: Connect) -> None:
    lease, removed, held, free = map(bytes.fromhex, sys.argv[3:])
    client = await connect()
    assert await client.contents(count=10) == [b"free"]
    assert not await client.remove(removed, lease)
    assert not await client.remove(free, lease)
    assert await client.extend(lease, 60)
    assert await client.remove(held, lease)


async def die_while_polls_wait(connect: Connect) -> None:
    client = await connect()
    for _ in range(50):
        asyncio.ensure_future(client.poll(count=10, timeout=FOREVER))  # noqa: RUF006 - it ends with the process
    await asyncio.sleep(0.3)
    print("waiting", flush=True)
    sys.stdin.readline()
    os._exit(0)


async def is_turned_away(connect: Connect) -> None:
    print(await refused((await connect()).add(b"a")))


def main() -> None:
    import capnp

    capnp.remove_import_hook()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "facts.capnp"
        path.write_text(SCHEMA)
        schema = capnp.load(str(path))

    async def run() -> None:
        async with capnp.kj_loop():

            async def connect() -> Client:
                stream = await capnp.AsyncIoStream.create_connection("127.0.0.1", int(sys.argv[2]))
                return Client(capnp, schema, stream)

            scenario = globals()[sys.argv[1]]
            await asyncio.wait_for(scenario(connect), PATIENCE_S)

    asyncio.run(run())


if __name__ == "__main__":
    main()
