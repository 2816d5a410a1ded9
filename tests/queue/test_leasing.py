"""Leases: who holds what and for how long, acks, extensions, deliveries as context managers, and consuming."""

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from holdfast import Backoff, Closed, Delivery, Flush, InvalidArgument, LeaseLost, Message, Queue, ReadOnly, Store
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import Call, got
from tests.queue.internals import core_of, journal_of, state_of


@pytest.fixture
def queue(store: Store, flush: Flush) -> Queue:
    """Five messages, in each flush mode: the ways through the code differ."""
    queue = store.queue("orders", flush=flush, lease=30, backoff=Backoff(base=0, cap=0))
    queue.put_many([b"%d" % n for n in range(5)])
    return queue


def ids(messages: list[Delivery]) -> list[int]:
    return [message.id for message in messages]


def test_the_oldest_come_first_and_are_held(queue: Queue) -> None:
    assert ids(queue.lease(2)) == [0, 1]
    assert got(queue).id == 2
    assert ids(queue.lease(100)) == [3, 4]
    assert queue.lease(1) == []
    assert queue.get() is None
    assert (queue.stats().ready, queue.stats().leased, queue.stats().leases) == (0, 5, 3)


def test_a_delivery_says_what_it_is(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    before = clock.time_ns()
    queue.put(b"body", key=b"k", headers={"h": "v"}, priority=3)
    after = clock.time_ns()
    message = got(queue)
    assert (message.id, message.payload, message.key, message.headers) == (0, b"body", b"k", {"h": "v"})
    assert (message.attempt, message.priority, message.queue) == (1, 3, queue)
    assert before < message.enqueued_at < after
    assert message.lease > message.enqueued_at


def test_what_is_leased_together_shares_a_lease(queue: Queue) -> None:
    first, second = queue.lease(2)
    third = got(queue)
    assert first.lease == second.lease != third.lease


def test_an_acked_message_never_comes_back(queue: Queue, clock: SimClock) -> None:
    assert got(queue).ack()
    queue.ack(queue.lease(2))
    clock.advance(3600)
    assert ids(queue.lease(10)) == [3, 4]
    assert (queue.stats().total_acked, queue.stats().total_leased) == (3, 5)


def test_acks_survive_a_restart(
    queue: Queue, store: Store, reopen: Callable[..., Store], clock: SimClock, flush: Flush
) -> None:
    got(queue).ack()
    queue.ack(queue.lease(2))
    store.close()
    again = reopen().queue("orders", flush=flush)
    clock.advance(3600)
    assert ids(again.lease(10)) == [3, 4]
    assert again.stats().total_acked == 3


def test_an_ack_survives_a_power_cut_the_moment_it_returns(store: Store, files: SimFiles, clock: SimClock) -> None:
    import holdfast

    queue = store.queue("orders")
    queue.put_many([b"0", b"1", b"2"])
    got(queue).ack()
    queue.ack([got(queue)])
    for mode in ("dropped", "prefix", "torn", "reordered"):
        after = holdfast.open("data", files=files.after_crash(mode), clock=clock, background=False).queue("orders")
        assert [message.id for message in after.peek()] == [2]
        assert after.stats().leased == 0


def test_a_second_ack_says_no(queue: Queue) -> None:
    message = got(queue)
    assert message.ack()
    assert not message.ack()
    assert not message.nack("too late")
    assert not message.extend(5)
    assert not message.release()
    assert queue.stats().total_acked == 1


def test_a_lease_that_ran_out_gives_the_message_to_the_next(queue: Queue, clock: SimClock) -> None:
    held = got(queue, lease=10)
    clock.advance(9.9)
    assert 0 not in ids(queue.lease(10, lease=1))
    clock.advance(0.2)
    again = got(queue)
    assert (again.id, again.attempt) == (0, 2)
    for refused in (held.ack, lambda: held.nack("late"), lambda: held.extend(10), held.release):
        assert not refused()
    assert again.ack()


def test_a_lease_of_one_second_lasts_one_second(store: Store, clock: SimClock) -> None:
    """Whole-second clocks would let one that begins late in a second end after a tenth of it."""
    queue = store.queue("orders")
    queue.put(b"x")
    clock.advance(0.9 - clock.monotonic() % 1)
    held = got(queue, lease=1)
    clock.advance(0.99)
    assert queue.get() is None
    assert held.ack()


def test_the_queues_own_lease_counts_where_none_is_given(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", lease=7)
    queue.put_many([b"a", b"b"])
    queue.lease(1)
    got(queue)
    clock.advance(6.9)
    assert queue.stats().leased == 2
    clock.advance(0.2)
    assert (queue.stats().leased, queue.stats().total_expired) == (0, 2)


def test_messages_come_back_by_themselves_without_any_caller(
    queue: Queue, store: Store, reopen: Callable[..., Store], clock: SimClock
) -> None:
    """Seen by a reader, which itself lets nothing run out."""
    queue.lease(5, lease=10)
    reader = reopen(read_only=True).queue("orders")
    store.tick()
    clock.advance(11)
    assert reader.stats().ready == 0
    store.tick()
    clock.advance(1)
    store.tick()
    assert (reader.stats().ready, reader.stats().leased) == (5, 0)


def test_a_lease_goes_on_after_a_restart(
    queue: Queue, store: Store, reopen: Callable[..., Store], clock: SimClock, flush: Flush
) -> None:
    queue.lease(2, lease=100)
    store.close()
    again = reopen().queue("orders", flush=flush)
    assert ids(again.lease(10)) == [2, 3, 4]
    clock.advance(101)
    assert [(message.id, message.attempt) for message in again.lease(2)] == [(0, 2), (1, 2)]


def test_extend_lengthens_all_that_came_together(queue: Queue, clock: SimClock) -> None:
    first, second = queue.lease(2, lease=10)
    clock.advance(8)
    assert first.extend(100)
    clock.advance(99)
    assert second.ack()
    assert first.ack()


def test_extend_may_shorten(queue: Queue, clock: SimClock) -> None:
    message = got(queue, lease=1000)
    assert message.extend(5)
    clock.advance(5.1)
    assert not message.ack()
    assert got(queue).id == 0


def test_extend_without_a_length_means_the_queues_lease(queue: Queue, clock: SimClock) -> None:
    message = got(queue, lease=1)
    assert message.extend()
    clock.advance(29)
    assert message.ack()


def test_a_worker_that_extends_in_time_keeps_its_message(queue: Queue, clock: SimClock, store: Store) -> None:
    held = queue.lease(5, lease=10)
    for _ in range(50):
        clock.advance(9)
        queue.extend(held, 10)
        store.tick()
        assert queue.get() is None
    queue.ack(held)
    assert queue.stats().total_expired == 0


def test_an_extension_survives_a_restart(
    queue: Queue, store: Store, reopen: Callable[..., Store], clock: SimClock, flush: Flush
) -> None:
    got(queue, lease=10).extend(1000)
    store.close()
    again = reopen().queue("orders", flush=flush)
    clock.advance(500)
    assert ids(again.lease(10)) == [1, 2, 3, 4]


def test_what_is_released_is_ready_at_once_and_was_no_attempt(queue: Queue) -> None:
    message = got(queue)
    assert message.release()
    queue.release(queue.lease(2))
    assert [(message.id, message.attempt) for message in queue.lease(3)] == [(0, 1), (1, 1), (2, 1)]
    assert queue.stats().total_nacked == 0


def test_some_of_a_lease_may_be_lost_and_the_others_are_acked(queue: Queue, clock: SimClock) -> None:
    short = queue.lease(2, lease=5)
    long = queue.lease(2, lease=50)
    clock.advance(6)
    with pytest.raises(LeaseLost, match=r"2 messages of the queue 'orders'.*longer lease, or extend") as caught:
        queue.ack([*short, *long])
    assert caught.value.ids == [0, 1]
    assert (queue.stats().total_acked, queue.stats().ready) == (2, 3)


@pytest.mark.parametrize("act", ["ack", "nack", "extend", "release"])
def test_each_call_for_many_names_those_that_were_lost(queue: Queue, act: str) -> None:
    messages = queue.lease(3)
    messages[1].ack()
    with pytest.raises(LeaseLost) as caught:
        getattr(queue, act)(messages)
    assert caught.value.ids == [1]


@pytest.mark.parametrize("act", ["ack", "nack", "extend", "release"])
def test_each_call_for_many_takes_none_and_any_iterable(queue: Queue, act: str) -> None:
    getattr(queue, act)([])
    getattr(queue, act)(message for message in queue.lease(3))
    assert queue.stats().leased == (3 if act == "extend" else 0)


@pytest.mark.parametrize("act", ["ack", "nack", "extend", "release"])
def test_one_delivery_in_place_of_a_list_is_understood_or_refused_with_a_hint(queue: Queue, act: str) -> None:
    try:
        getattr(queue, act)(got(queue))
    except InvalidArgument as error:
        assert "list" in str(error)
    else:
        assert queue.stats().leased == (1 if act == "extend" else 0)


def test_many_acks_are_one_record_of_the_journal(store: Store) -> None:
    queue = store.queue("orders")
    queue.put_many([b"x"] * 1000)
    messages = queue.lease(600) + queue.lease(400)
    before = journal_of(queue).log.end
    queue.ack(messages)
    assert journal_of(queue).log.end == before + 1


def test_a_delivery_of_another_queue_is_not_ours(store: Store) -> None:
    mine, other = store.queue("mine"), store.queue("other")
    mine.put(b"x")
    other.put(b"x")
    got(mine)
    with pytest.raises(LeaseLost):
        mine.ack([got(other)])
    assert (mine.stats().leased, other.stats().leased) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"count": 0}, "count of at least 1"),
        ({"count": -1}, "count of at least 1"),
        ({"count": True}, "count of at least 1"),
        ({"count": 1.5}, "count of at least 1"),
        ({"count": "5"}, "count of at least 1"),
        ({"lease": 0}, "lease must be more than zero"),
        ({"lease": -1}, "lease must not be negative"),
        ({"lease": "30"}, "lease must be seconds or a timedelta"),
        ({"lease": 1e10}, "lease must not be more than 200 years"),
        ({"wait": -1}, "wait must not be negative"),
        ({"wait": "5"}, "wait must be seconds or a timedelta"),
        ({"wait": float("nan")}, "wait must be a finite"),
    ],
    ids=str,
)
def test_a_lease_that_makes_no_sense_is_refused_with_a_hint(queue: Queue, arguments: dict[str, Any], hint: str) -> None:
    with pytest.raises(InvalidArgument, match=hint):
        queue.lease(**arguments)
    if "count" not in arguments:
        with pytest.raises(InvalidArgument, match=hint):
            queue.get(**arguments)
    assert queue.stats().leased == 0


@pytest.mark.parametrize("duration", [-1, "5", float("nan"), 1e10], ids=str)
def test_an_extension_that_makes_no_sense_is_refused(queue: Queue, duration: Any) -> None:
    message = got(queue)
    with pytest.raises(InvalidArgument, match="duration"):
        message.extend(duration)
    assert message.ack()


def test_leaving_a_delivery_acks_it(queue: Queue) -> None:
    with got(queue) as message:
        assert message.payload == b"0"
    assert (queue.stats().total_acked, queue.stats().leased) == (1, 0)


def test_an_error_nacks_it_with_its_text_and_goes_on_up(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    queue.put(b"x")
    with pytest.raises(ZeroDivisionError), got(queue):
        _ = 1 / 0
    (letter,) = queue.dead_letters()
    assert letter.reason == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("text", ["\ud83d", "\udcff", "x" * 200_000, "\0", ""], ids=ascii)
def test_whatever_an_error_says_it_reaches_its_caller_and_the_message_is_given_back(store: Store, text: str) -> None:
    queue = store.queue("orders", backoff=Backoff(base=0, cap=0))
    queue.put(b"x")
    with pytest.raises(KeyError) as caught, got(queue):
        raise KeyError(text)
    assert caught.value.args == (text,)
    assert got(queue).attempt == 2


def test_leaving_after_the_lease_ran_out_says_so(queue: Queue, clock: SimClock) -> None:
    with pytest.raises(LeaseLost, match=r"message 0 of the queue 'orders' expired.*longer lease") as caught:  # noqa: SIM117
        with got(queue, lease=1):
            clock.advance(2)
    assert caught.value.ids == [0]


def test_an_error_after_the_lease_ran_out_stays_the_error(queue: Queue, clock: SimClock) -> None:
    with pytest.raises(ZeroDivisionError), got(queue, lease=1):
        clock.advance(2)
        _ = 1 / 0
    assert queue.stats().total_nacked == 0


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_says_nothing_about_the_message(queue: Queue, stop: type[BaseException]) -> None:
    with pytest.raises(stop), got(queue):
        raise stop
    again = got(queue)
    assert (again.id, again.attempt) == (0, 1)


def test_consume_gives_messages_until_the_event_is_set(queue: Queue) -> None:
    stop = threading.Event()
    seen = []
    for message in queue.consume(batch=2, stop=stop):
        seen.append(message.id)
        message.ack()
        if len(seen) == 5:
            stop.set()
    assert seen == [0, 1, 2, 3, 4]
    assert queue.stats().total_acked == 5


def test_consume_asks_a_callable_when_to_stop(queue: Queue) -> None:
    answers = iter([False, False, False, False, True, True])
    assert [message.id for message in queue.consume(stop=lambda: next(answers))] == [0, 1, 2]
    assert (queue.stats().leased, queue.stats().ready) == (3, 2)


def test_a_consumer_that_breaks_off_gives_back_what_it_was_not_handed(queue: Queue) -> None:
    for message in queue.consume(batch=5):
        if message.id == 1:
            break
        message.ack()
    assert (queue.stats().leased, queue.stats().ready) == (1, 3)
    assert [(message.id, message.attempt) for message in queue.lease(5)] == [(2, 1), (3, 1), (4, 1)]


def test_a_consumer_that_fails_gives_back_what_it_was_not_handed(queue: Queue) -> None:
    with pytest.raises(ZeroDivisionError):
        for message in queue.consume(batch=5):
            with message:
                _ = 1 / 0
    assert [(message.id, message.attempt) for message in queue.lease(5)] == [(0, 2), (1, 1), (2, 1), (3, 1), (4, 1)]


def test_a_slow_consumer_is_never_handed_what_others_may_have(queue: Queue, clock: SimClock) -> None:
    """It works so long that what waits behind runs out: each message is handed out, held, and done once."""
    seen: list[tuple[int, bool]] = []
    for message in queue.consume(batch=5, lease=10, stop=lambda: len(seen) == 5):
        clock.advance(8)
        seen.append((message.id, message.ack()))
    assert sorted(seen) == [(n, True) for n in range(5)]


def test_a_message_that_only_waited_in_a_batch_has_not_failed(queue: Queue, clock: SimClock) -> None:
    """Three attempts are for consumers that tried; nobody has tried what was never handed out."""
    seen: list[tuple[int, int]] = []
    for message in queue.consume(batch=5, lease=10, stop=lambda: len(seen) == 5 or clock.monotonic() > 1000):
        clock.advance(8)
        message.ack()
        seen.append((message.id, message.attempt))
    assert sorted(seen) == [(n, 1) for n in range(5)]
    assert queue.dead_letters() == []


def test_consume_refuses_what_makes_no_sense(queue: Queue) -> None:
    with pytest.raises(InvalidArgument):
        next(queue.consume(batch=0))
    with pytest.raises(InvalidArgument):
        next(queue.consume(lease=-1))
    with pytest.raises(InvalidArgument):
        next(queue.consume(stop=5))  # type: ignore[arg-type]
    assert queue.stats().leased == 0


def test_a_read_only_queue_leases_nothing_and_a_closed_one_neither(
    queue: Queue, store: Store, reopen: Callable[..., Store]
) -> None:
    held = queue.lease(2)
    reader = reopen(read_only=True).queue("orders")
    for refused in (
        reader.lease,
        reader.get,
        lambda: next(reader.consume()),
        lambda: reader.ack(held),
        lambda: reader.nack(held),
    ):
        with pytest.raises(ReadOnly, match="read_only=True"):
            refused()
    store.close()
    for closed in (
        queue.lease,
        queue.get,
        lambda: next(queue.consume()),
        lambda: queue.ack(held),
        held[0].ack,
        held[0].nack,
        held[0].extend,
        held[0].release,
    ):
        with pytest.raises(Closed, match="open the store again"):
            closed()


@pytest.mark.parametrize("one_by_one", [True, False], ids=["get", "lease"])
def test_threads_that_take_while_others_put_share_the_messages(
    disk_store: Store, flush: Flush, one_by_one: bool
) -> None:
    """Each message goes to one consumer, once, and none is left behind."""
    queue = disk_store.queue("orders", flush=flush)
    count = 300 if flush.mode == "sync" else 3000

    def put() -> None:
        for n in range(count):
            queue.put(b"%d" % n)

    over = threading.Event()

    def take() -> list[int]:
        mine: list[int] = []
        while True:
            last = over.is_set()  # asked before: what was put until then is found
            messages = ([one] if (one := queue.get(wait=0.5)) else []) if one_by_one else queue.lease(7, wait=0.5)
            if not messages and last:
                return mine
            mine += ids(messages)
            if one_by_one:
                assert all(message.ack() for message in messages)
            else:
                queue.ack(messages)

    eligible_consumers = [Call(take) for _ in range(3)]
    putters = [Call(put) for _ in range(2)]
    for putter in putters:
        putter.result()
    over.set()
    taken = [taker.result() for taker in eligible_consumers]
    assert all(mine == sorted(mine) for mine in taken)
    assert sorted(id for mine in taken for id in mine) == list(range(2 * count))
    assert (queue.stats().ready, queue.stats().leased, queue.stats().total_acked) == (0, 0, 2 * count)


@pytest.mark.slow
def test_any_number_of_leases_may_run_out_at_once(store: Store, reopen: Callable[..., Store], clock: SimClock) -> None:
    """As after a long stop: what is written of it does not fit into one record of the journal."""
    count = 165_000
    queue = store.queue("orders", flush=Flush.async_())
    queue.put_many([b""] * count)
    for _ in range(count):
        got(queue)
    store.close()
    clock.advance(3600)
    queue = reopen().queue("orders")
    assert (queue.stats().ready, queue.stats().total_expired) == (count, count)
    assert got(queue).attempt == 2


def test_everything_at_once_from_many_threads_keeps_the_queue_whole(disk_store: Store, flush: Flush) -> None:
    queue = disk_store.queue("orders", flush=flush, lease=0.05, max_attempts=2, backoff=Backoff(base=0, cap=0.01))
    stop = threading.Event()

    def work(seed: int) -> int:
        random = Random(seed)
        done = 0
        while not stop.is_set():
            messages = queue.lease(random.randrange(1, 5), wait=0.005)
            match random.randrange(14):
                case 0 | 1 | 2:
                    queue.put_many(
                        [Message(b"%d" % seed, priority=random.randrange(3), delay=random.choice([0, 0.01]))]
                    )
                case 3 | 4:
                    queue.put(b"plain", dedup=random.choice([None, f"{random.randrange(50)}"]))
                case 5 | 6:
                    done += sum(message.ack() for message in messages)
                case 7:
                    for message in messages:
                        message.nack("no")
                case 8:
                    for message in messages:
                        message.extend(random.choice([0.01, 0.1]))
                case 9:
                    queue.stats()
                    queue.peek(5)
                case 10:
                    queue.redrive([letter.id for letter in queue.dead_letters(3)])
                case 11:
                    queue.checkpoint()
                case 12 if not random.randrange(20):
                    queue.seek(max(0, queue.log.end - 20))
                case 13 if not random.randrange(20):
                    queue.purge()
        return done

    calls = [Call(lambda seed=seed: work(seed)) for seed in range(5)]  # type: ignore[misc]
    time.sleep(1.5)
    stop.set()
    assert sum(call.result() for call in calls) > 0
    with core_of(queue).lock:
        state_of(queue).check()
    while messages := queue.lease(100, lease=60, wait=1.5):
        queue.ack(messages)
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.leased, stats.moving) == (0, 0, 0, 0)


def test_taking_does_not_cost_more_the_more_there_is(store: Store) -> None:
    """A hundred times the backlog, and far less than a hundred times the time."""

    def seconds(backlog: int) -> float:
        queue = store.queue(f"of {backlog}", flush=Flush.async_())
        queue.put_many([Message(b"x", priority=n % 2) for n in range(backlog)])
        found = []
        for _ in range(7):
            start = time.thread_time()  # of this thread alone, as others share the machine
            for message in [got(queue) for _ in range(100)]:
                assert message.ack()
            found.append(time.thread_time() - start)
        return min(found)

    assert seconds(100_000) < 20 * seconds(1000)


@pytest.mark.parametrize("settle", [lambda message: message.nack("no"), lambda message: message.ack()])
def test_what_was_settled_inside_a_with_block_is_left_alone_at_its_end(
    queue: Queue, settle: Callable[[Delivery], bool]
) -> None:
    with got(queue) as message:
        assert settle(message)
    assert queue.stats().leased == 0
    assert queue.stats().total_acked + queue.stats().total_nacked == 1


def test_a_delivery_says_what_it_is_without_its_payload(queue: Queue) -> None:
    assert repr(got(queue)) == "Delivery(id=0, payload=1 bytes, attempt=1, priority=0, queue='orders')"
