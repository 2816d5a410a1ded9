"""Consumer groups: several queues on one log, each with a state of its own."""

from collections.abc import Callable

import pytest

import holdfast
from holdfast import Backoff, Delivery, Flush, InvalidArgument, Message, Queue, Retention, Roll, Store
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import Call, until_waiting


@pytest.fixture
def groups(store: Store, flush: Flush) -> tuple[Queue, Queue]:
    """Two groups on one log."""
    return tuple(  # type: ignore[return-value]
        store.queue(name, log="events", flush=flush, max_attempts=1) for name in ("billing", "mailing")
    )


def payloads(messages: list[Delivery]) -> list[bytes]:
    return [message.payload for message in messages]


def test_each_group_gets_every_message(groups: tuple[Queue, Queue], store: Store) -> None:
    billing, mailing = groups
    billing.put(b"a")
    mailing.put(b"b", priority=1)
    store.log("events").append(b"c")
    assert payloads(billing.lease(9)) == payloads(mailing.lease(9)) == [b"b", b"a", b"c"]
    assert billing.log is mailing.log is store.log("events")


def test_what_one_group_does_is_nothing_to_the_other(groups: tuple[Queue, Queue], clock: SimClock) -> None:
    billing, mailing = groups
    billing.put_many([b"%d" % n for n in range(6)])
    billing.ack(billing.lease(2))
    billing.nack(billing.lease(1), "no")
    billing.lease(1, lease=1000)
    assert mailing.stats().ready == 6
    mailing.purge()
    assert (billing.stats().ready, billing.stats().leased) == (2, 1)
    mailing.seek(3)
    assert [message.id for message in mailing.lease(9)] == [3, 4, 5]
    assert [message.id for message in billing.lease(9)] == [4, 5]


def test_each_group_has_dead_letters_of_its_own(groups: tuple[Queue, Queue]) -> None:
    billing, mailing = groups
    billing.put(b"x")
    billing.nack(billing.lease(), "not billed")
    mailing.nack(mailing.lease(), "not mailed")
    assert [letter.reason for letter in billing.dead_letters()] == ["not billed"]
    assert [letter.reason for letter in mailing.dead_letters()] == ["not mailed"]


def test_what_one_group_redrives_does_not_come_to_the_other_again(groups: tuple[Queue, Queue], store: Store) -> None:
    billing, mailing = groups
    billing.put(b"x")
    mailing.ack(mailing.lease())
    billing.nack(billing.lease(), "no")
    assert billing.redrive() == 1
    store.tick()
    assert (billing.stats().ready, mailing.stats().ready) == (1, 0)
    assert mailing.lease(5) == []
    assert mailing.peek() == []
    assert payloads(billing.lease(5)) == [b"x"]


def test_a_redriven_message_is_still_its_groups_alone_after_a_restart(
    groups: tuple[Queue, Queue], store: Store, reopen: Callable[..., Store], flush: Flush, files: SimFiles
) -> None:
    billing, mailing = groups
    billing.put(b"x")
    mailing.ack(mailing.lease())
    billing.nack(billing.lease(), "no")
    billing.redrive()
    store.close()
    again = reopen()
    billing, mailing = (again.queue(name, flush=flush) for name in ("billing", "mailing"))
    assert (billing.stats().ready, mailing.stats().ready) == (1, 0)


def test_a_replay_leaves_out_what_was_redriven_for_another_group(
    groups: tuple[Queue, Queue], store: Store, reopen: Callable[..., Store], flush: Flush
) -> None:
    billing, mailing = groups
    billing.put(b"x")
    billing.nack(billing.lease(), "no")
    billing.redrive()
    mailing.seek(0)
    billing.seek(0)
    assert (payloads(mailing.lease(9)), payloads(billing.lease(9))) == ([b"x"], [b"x", b"x"])
    assert payloads(store.queue("late", log="events").lease(9)) == [b"x"]
    mailing.sync()
    reader = reopen(read_only=True).queue("mailing")
    assert (reader.stats().ready, reader.stats().leased) == (0, 1)


def test_a_delay_holds_for_each_group(groups: tuple[Queue, Queue], clock: SimClock) -> None:
    billing, mailing = groups
    billing.put(b"later", delay=10)
    assert (billing.stats().delayed, mailing.stats().delayed) == (1, 1)
    clock.advance(11)
    assert payloads(billing.lease(9)) == payloads(mailing.lease(9)) == [b"later"]


def test_a_put_through_one_wakes_who_waits_at_the_other(disk_store: Store, flush: Flush) -> None:
    billing, mailing = (disk_store.queue(name, log="events", flush=flush) for name in ("billing", "mailing"))
    call = Call(lambda: mailing.lease(wait=600))
    until_waiting(mailing)
    billing.put(b"x")
    assert payloads(call.result()) == [b"x"]
    call = Call(lambda: mailing.lease(wait=600))
    until_waiting(mailing)
    billing.put_many([Message(b"y", delay=0.05)])
    assert payloads(call.result()) == [b"y"]


def test_a_new_group_begins_with_all_that_the_log_has(groups: tuple[Queue, Queue], store: Store) -> None:
    billing, _ = groups
    billing.put_many([b"a", b"b"])
    billing.ack(billing.lease(9))
    late = store.queue("late", log="events")
    assert payloads(late.lease(9)) == [b"a", b"b"]
    last = store.queue("last", log="events")
    last.seek(last.log.end)
    billing.put(b"c")
    assert payloads(last.lease(9)) == [b"c"]


def test_groups_keep_their_places_over_a_restart(
    groups: tuple[Queue, Queue], store: Store, reopen: Callable[..., Store], flush: Flush
) -> None:
    billing, mailing = groups
    billing.put_many([b"a", b"b", b"c"])
    billing.ack(billing.lease(2))
    mailing.ack(mailing.lease(1))
    store.close()
    again = reopen()
    assert [message.id for message in again.queue("billing", flush=flush).lease(9)] == [2]
    assert [message.id for message in again.queue("mailing", flush=flush).lease(9)] == [1, 2]
    assert again.queue("billing").log.name == "events"


def test_the_groups_are_listed_and_the_log_once(groups: tuple[Queue, Queue], store: Store) -> None:
    assert store.queues() == ["billing", "mailing"]
    assert store.logs() == ["events"]


def test_retention_waits_for_the_slowest_group(store: Store) -> None:
    billing, mailing = (store.queue(name, log="events", roll=Roll.count(2)) for name in ("billing", "mailing"))
    for n in range(20):
        billing.put(b"%d" % n)
    billing.ack(billing.lease(18))
    mailing.ack(mailing.lease(5))
    billing.checkpoint()
    mailing.checkpoint()
    store.log("events").compact(retention=Retention(max_segments=1))
    assert store.log("events").start == 4
    assert [message.id for message in mailing.lease(99)] == list(range(5, 20))


def test_the_groups_share_dedup_ids_because_they_share_messages(groups: tuple[Queue, Queue]) -> None:
    billing, mailing = groups
    assert billing.put(b"first", dedup="id") == mailing.put(b"second", dedup="id") == 0
    assert (billing.stats().ready, mailing.stats().ready) == (1, 1)


def test_each_group_has_its_own_settings(store: Store, clock: SimClock) -> None:
    quick = store.queue("quick", log="events", lease=5, ttl=60, backoff=Backoff(base=0, cap=0))
    patient = store.queue("patient", log="events", lease=500, max_attempts=None)
    quick.put_many([b"a", b"b"])
    quick.lease(1)
    patient.lease(1)
    clock.advance(10)
    assert (quick.stats().leased, patient.stats().leased) == (0, 1)
    clock.advance(60)
    assert (quick.lease(9), payloads(patient.lease(9))) == ([], [b"b"])


def test_a_groups_length_is_limited_whoever_puts(store: Store) -> None:
    free = store.queue("free", log="events")
    short = store.queue("short", log="events", max_length=2)
    for n in range(5):
        free.put(b"%d" % n)
    store.tick()
    assert (free.stats().ready, short.stats().ready) == (5, 2)
    assert payloads(short.lease(9)) == [b"3", b"4"]


def test_groups_may_name_the_settings_of_their_log_again(store: Store) -> None:
    store.log("events", flush=Flush.batch())
    one = store.queue("one", log="events", flush=Flush.batch(), history=3600)
    two = store.queue("two", log="events", flush=Flush.batch(), history=7200)
    assert one.log is two.log
    with pytest.raises(InvalidArgument, match="close the store to change"):
        store.queue("three", log="events", flush=Flush.sync())


def test_a_group_cannot_change_its_log(store: Store, reopen: Callable[..., Store]) -> None:
    """Its journal speaks of the sequences of one log: of another it would say what is not true."""
    store.queue("billing", log="events").put(b"x")
    store.log("others").append(b"y")
    store.close()
    with pytest.raises(InvalidArgument, match="events"):
        reopen().queue("billing", log="others")


def test_two_threads_may_put_the_same_id_through_two_groups(disk_store: Store) -> None:
    groups = [disk_store.queue(name, log="events") for name in ("billing", "mailing")]
    for n in range(50):
        calls = [Call(lambda queue=queue, n=n: queue.put(b"x", dedup=f"{n}")) for queue in groups]  # type: ignore[misc]
        assert len({call.result() for call in calls}) == 1
    assert disk_store.log("events").end == 50


def test_a_power_cut_leaves_each_group_where_it_was(store: Store, files: SimFiles, clock: SimClock) -> None:
    billing, mailing = (store.queue(name, log="events") for name in ("billing", "mailing"))
    billing.put_many([b"a", b"b", b"c"])
    billing.ack(billing.lease(1))
    mailing.ack(mailing.lease(2))
    for mode in ("dropped", "prefix", "torn", "reordered"):
        after = holdfast.open("data", files=files.after_crash(mode), clock=clock, background=False)
        assert [message.id for message in after.queue("billing").peek()] == [1, 2]
        assert [message.id for message in after.queue("mailing").peek()] == [2]
