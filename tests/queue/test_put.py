"""Putting: ids, payloads, keys and headers, all or nothing, delays, and what is refused."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Closed, Flush, InvalidArgument, Message, MessageTooLarge, Queue, QueueFull, ReadOnly, Roll, Store
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import ALL_MODES, Call


def by_mode(flush: Flush) -> str:
    return flush.mode


@pytest.mark.parametrize("flush", ALL_MODES, ids=by_mode)
def test_ids_are_the_sequences_of_the_log(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    assert [queue.put(b"a"), queue.put(b"b", priority=5)] == [0, 1]
    assert list(queue.put_many([b"c", Message(b"d", key=b"k"), b"e"])) == [2, 3, 4]
    assert [record.payload for record in store.log("orders").read()] == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("flush", ALL_MODES, ids=by_mode)
def test_what_was_put_is_delivered_at_once_whatever_the_flush_mode(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put(b"plain")
    queue.put(b"with a key", key=b"k")
    queue.put_many([b"one", b"two"])
    assert [message.payload for message in queue.lease(10)] == [b"plain", b"with a key", b"one", b"two"]


def test_a_put_survives_a_power_cut_the_moment_it_returns(store: Store, files: SimFiles, clock: SimClock) -> None:
    queue = store.queue("orders")
    queue.put(b"plain")
    queue.put(b"special", priority=1, delay=5, headers={"k": "v"})
    for mode in ("dropped", "prefix", "torn", "reordered"):
        after = holdfast.open("data", files=files.after_crash(mode), clock=clock, background=False).queue("orders")
        assert (after.stats().ready, after.stats().delayed) == (1, 1)


def test_key_headers_and_payload_come_back_as_they_were(store: Store) -> None:
    queue = store.queue("orders")
    queue.put(b"\x00\xff", key=b"user-1", headers={"source": "web", "raw": b"\x00\xff", "": "ü"})
    queue.put(b"", key=b"")
    queue.put(b"plain")
    first, empty, plain = queue.lease(3)
    assert (first.payload, first.key) == (b"\x00\xff", b"user-1")
    assert first.headers == {"source": "web", "raw": b"\x00\xff", "": "ü"}
    assert (empty.payload, empty.key, empty.headers) == (b"", b"", {})
    assert (plain.payload, plain.key, plain.headers) == (b"plain", None, {})


def test_a_header_value_beyond_64_kib_is_never_cut(store: Store) -> None:
    queue = store.queue("orders")
    queue.put(b"x", headers={"long": "ü" * 200_000, "bytes": b"\xff" * 70_000})
    (message,) = queue.lease()
    assert message.headers == {"long": "ü" * 200_000, "bytes": b"\xff" * 70_000}


def test_a_buffer_may_be_changed_after_it_was_put(store: Store) -> None:
    queue = store.queue("orders")
    buffer = bytearray(b"before")
    queue.put(buffer)  # type: ignore[arg-type]
    queue.put_many([memoryview(buffer), Message(buffer, key=buffer)])  # type: ignore[list-item, arg-type]
    buffer[:] = b"after!"
    assert {message.payload for message in queue.lease(3)} == {b"before"}


def test_put_many_takes_any_iterable_and_an_empty_one_writes_nothing(store: Store) -> None:
    queue = store.queue("orders")
    assert list(queue.put_many(b"%d" % n for n in range(3))) == [0, 1, 2]
    assert list(queue.put_many([])) == []
    assert list(store.queue("short", max_length=5).put_many([])) == []
    assert store.log("orders").end == 3


def test_put_many_is_one_block_and_so_all_or_nothing(store: Store) -> None:
    queue = store.queue("orders", roll=Roll.size(4096))
    queue.put_many([Message(b"x" * 100, priority=n % 10) for n in range(1000)])
    assert [block.count for block in queue.log.blocks()] == [1000]


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        None,
        5,
        Message("text"),  # type: ignore[arg-type]
        Message(b"x", priority=256),
        Message(b"x", delay=-1),
        Message(b"x", ttl=0),
        Message(b"x", dedup=""),
        Message(b"x", headers={"n": 5}),  # type: ignore[dict-item]
        Message(b"x" * 101),
    ],
    ids=repr,
)
@pytest.mark.parametrize("settings", [{}, {"max_length": 100}], ids=["unbounded", "bounded"])
def test_one_wrong_message_keeps_the_whole_batch_out(store: Store, wrong: Any, settings: dict[str, Any]) -> None:
    queue = store.queue("orders", max_message=100, **settings)
    with pytest.raises(InvalidArgument):
        queue.put_many([b"right", Message(b"right", dedup="id"), wrong])
    assert (queue.log.end, queue.stats().ready, queue.stats().dedup_ids) == (0, 0, 0)
    assert queue.put(b"next", dedup="id") == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"payload": "text"}, "encode it first"),
        ({"payload": None}, "must be bytes"),
        ({"key": "text"}, "key must be bytes"),
        ({"headers": {"n": 5}}, "header 'n'"),
        ({"headers": ["n"]}, "mapping"),
        ({"headers": {"n": "\ud800"}}, "UTF-8"),
        ({"priority": -1}, "from 0 to 255"),
        ({"priority": 256}, "from 0 to 255"),
        ({"priority": True}, "from 0 to 255"),
        ({"priority": 1.5}, "from 0 to 255"),
        ({"priority": "9"}, "from 0 to 255"),
        ({"delay": -1}, "delay must not be negative"),
        ({"delay": "5"}, "delay must be seconds or a timedelta"),
        ({"delay": float("nan")}, "delay must be a finite"),
        ({"delay": float("inf")}, "delay must be a finite"),
        ({"delay": 1e10}, "delay must not be more than 200 years"),
        ({"ttl": 0}, "ttl must be more than zero"),
        ({"ttl": -1}, "ttl must not be negative"),
        ({"ttl": "5"}, "ttl must be seconds or a timedelta"),
        ({"ttl": 1e10}, "ttl must not be more than 200 years"),
        ({"dedup": ""}, "dedup id must have 1 to 1024 bytes"),
        ({"dedup": b""}, "dedup id must have 1 to 1024 bytes"),
        ({"dedup": "ü" * 513}, "dedup id must have 1 to 1024 bytes, not 1026"),
        ({"dedup": "\ud800"}, "dedup"),
        ({"dedup": 17}, "dedup"),
        ({"dedup": 1.5}, "dedup"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_with_a_hint(store: Store, arguments: dict[str, Any], hint: str) -> None:
    queue = store.queue("orders")
    with pytest.raises(InvalidArgument, match=hint):
        queue.put(**{"payload": b"x", **arguments})
    assert queue.log.end == 0


def test_bytes_given_to_put_many_by_mistake_are_refused(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="must be bytes, not int"):
        store.queue("orders").put_many(b"abc")  # type: ignore[arg-type]


def test_a_message_over_the_limit_is_refused_and_nothing_is_written(store: Store) -> None:
    queue = store.queue("orders", max_message=100)
    queue.put(b"x" * 100)
    for attempt in (
        lambda: queue.put(b"x" * 101),
        lambda: queue.put(b"x" * 50, key=b"k" * 51),
        lambda: queue.put(b"", headers={"h": "v" * 100}),
        lambda: queue.put(b"x" * 50, dedup="d" * 51),
        lambda: queue.put_many([b"fits", b"x" * 101]),
    ):
        with pytest.raises(MessageTooLarge, match="limit of 100"):
            attempt()
    assert queue.stats().ready == 1


def test_a_log_refuses_what_only_a_queue_understands(store: Store) -> None:
    for message in (Message(b"x", priority=1), Message(b"x", delay=1), Message(b"x", ttl=1), Message(b"x", dedup="d")):
        with pytest.raises(InvalidArgument, match="put the message into a queue"):
            store.log("orders").append_many([message])


def test_what_is_appended_to_the_log_is_in_the_queue(store: Store) -> None:
    queue = store.queue("orders")
    queue.put(b"put")
    store.log("orders").append(b"appended", key=b"k")
    assert [(message.payload, message.key) for message in queue.lease(5)] == [(b"put", None), (b"appended", b"k")]


@pytest.mark.parametrize("flush", ALL_MODES, ids=by_mode)
@pytest.mark.parametrize("delay", [5, 5.0, timedelta(seconds=5)], ids=str)
def test_a_delayed_message_is_not_delivered_before_its_time(
    store: Store, clock: SimClock, flush: Flush, delay: float | timedelta
) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put(b"later", delay=delay)
    queue.put(b"now")
    assert [message.payload for message in queue.lease(5)] == [b"now"]
    clock.advance(4.9)
    assert queue.get() is None
    clock.advance(0.2)
    assert [message.payload for message in queue.lease(5)] == [b"later"]


def test_a_delay_of_zero_is_no_delay(store: Store) -> None:
    queue = store.queue("orders")
    queue.put(b"x", delay=0)
    assert queue.get() is not None


def test_a_delay_survives_a_restart(store: Store, clock: SimClock, reopen: Callable[..., Store]) -> None:
    store.queue("orders").put_many([Message(b"%d" % n, delay=n) for n in (30, 10, 20)])
    store.close()
    queue = reopen().queue("orders")
    assert (queue.stats().ready, queue.stats().delayed) == (0, 3)
    clock.advance(15)
    assert [message.payload for message in queue.lease(5)] == [b"10"]
    clock.advance(20)
    assert [message.payload for message in queue.lease(5)] == [b"30", b"20"]  # by id, now that both are ready


def test_a_message_that_is_due_is_where_its_id_is(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    queue.put(b"first", delay=5)
    queue.put(b"second")
    clock.advance(6)
    assert [message.payload for message in queue.lease(5)] == [b"first", b"second"]


def test_a_closed_and_a_read_only_queue_take_nothing(store: Store, reopen: Callable[..., Store]) -> None:
    queue = store.queue("orders")
    queue.put(b"x", dedup="id")
    store.close()
    reader = reopen(read_only=True).queue("orders")
    refusals: list[tuple[Queue, type[Exception]]] = [(queue, Closed), (reader, ReadOnly)]
    for refused, error in refusals:
        for arguments in ({}, {"dedup": "new"}, {"dedup": "id"}, {"priority": 3}):
            with pytest.raises(error, match="open the store"):
                refused.put(b"y", **arguments)
        with pytest.raises(error, match="open the store"):
            refused.put_many([b"y"])


@pytest.mark.parametrize("flush", ALL_MODES, ids=by_mode)
def test_many_threads_that_put_lose_and_invent_nothing(disk_store: Store, flush: Flush) -> None:
    queue = disk_store.queue("orders", flush=flush, roll=Roll.size(100_000))
    rounds = 50 if flush.mode == "sync" else 500

    def work(thread: int) -> dict[int, bytes]:
        ledger: dict[int, bytes] = {}
        for n in range(rounds):
            payload = b"%d:%d" % (thread, n)
            if n % 5:
                ledger[queue.put(payload)] = payload
            else:
                for id in queue.put_many([Message(payload, priority=n % 10, dedup=payload), payload]):
                    ledger[id] = payload
        return ledger

    calls = [Call(lambda thread=thread: work(thread)) for thread in range(6)]  # type: ignore[misc]
    put = {id: payload for call in calls for id, payload in call.result().items()}
    taken = {message.id: message.payload for message in queue.lease(100_000)}
    assert taken == put
    assert len(put) == 6 * rounds * 6 // 5


def test_messages_that_are_alike_differ_in_their_payloads_only(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    assert list(
        queue.intake.put_similar([b"a", b"b"], Message(b"", key=b"k", headers={"source": "web"}, priority=3))
    ) == [
        0,
        1,
    ]
    found = [(one.payload, one.key, one.headers, one.priority) for one in queue.lease(5)]
    assert found == [(b"a", b"k", {"source": "web"}, 3), (b"b", b"k", {"source": "web"}, 3)]


def test_a_full_queue_takes_no_messages_that_are_alike(store: Store) -> None:
    queue = store.queue("orders", max_length=2, overflow="reject")
    with pytest.raises(QueueFull):
        queue.intake.put_similar([b"a", b"b", b"c"], Message(b"", key=b"k"))
    assert len(queue.intake.put_similar([b"a", b"b"], Message(b"", key=b"k"))) == 2


def test_of_messages_that_are_alike_those_with_a_known_dedup_id_are_dropped(store: Store) -> None:
    queue = store.queue("orders", dedup_window=60)
    queue.put(b"a", dedup="order-1")
    queue.intake.put_similar([b"b"], Message(b"", dedup="order-1"))
    assert [one.payload for one in queue.lease(5)] == [b"a"]


def test_messages_that_are_alike_leave_with_the_transaction_that_they_were_put_in(store: Store) -> None:
    queue = store.queue("orders")
    with pytest.raises(RuntimeError), store.transaction():
        queue.intake.put_similar([b"a", b"b"], Message(b"", key=b"k"))
        raise RuntimeError
    assert queue.lease(5) == []
