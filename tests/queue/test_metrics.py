"""Can a queue be watched? Its numbers are in the store's registry, and stats reads the same."""

from collections.abc import Callable

from holdfast import Store
from holdfast.base.metrics import Distribution
from holdfast.testing import SimClock
from tests.queue.internals import state_of


def values(store: Store, queue: str) -> dict[str, float | Distribution]:
    return {sample.name: sample.value for sample in store.metrics.collect() if ("queue", queue) in sample.labels}


def test_what_happens_to_messages_is_counted(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", max_attempts=1)
    queue.put_many([b"a", b"b", b"c"])
    queue.put(b"d", delay=60)
    clock.advance(2)
    first, second, third = queue.lease(3)
    first.ack()
    second.nack("no")
    seen = values(store, "orders")
    assert (seen["holdfast_queue_ready"], seen["holdfast_queue_delayed"], seen["holdfast_queue_leased"]) == (0, 1, 1)
    assert (seen["holdfast_queue_leased_total"], seen["holdfast_queue_acked_total"]) == (3, 1)
    assert (seen["holdfast_queue_dead_total"], values(store, "orders.dead")["holdfast_queue_ready"]) == (1, 1)
    assert third.id == 2


def test_how_long_messages_wait_and_are_held_is_measured(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    queue.put_many([b"a", b"b"])
    clock.advance(8)
    deliveries = queue.lease(2)
    clock.advance(2)
    queue.ack(deliveries)
    stats = queue.stats()
    assert stats.wait_p50 is not None
    assert stats.hold_p50 is not None
    assert 7 < stats.wait_p50 < 9  # to an eighth
    assert 1.7 < stats.hold_p50 < 2.3
    waits = values(store, "orders")["holdfast_queue_wait_seconds"]
    assert isinstance(waits, Distribution)
    assert waits.count == 1


def test_rates_are_of_the_last_minute(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    assert queue.stats().put_rate == 0
    queue.put_many([b"x"] * 600)
    clock.advance(30)
    assert 15 < queue.stats().put_rate <= 20
    clock.advance(120)
    queue.stats()
    clock.advance(120)
    assert queue.stats().put_rate == 0


def test_totals_go_on_after_a_restart_and_a_closed_queue_is_no_longer_collected(
    store: Store, reopen: Callable[..., Store]
) -> None:
    queue = store.queue("orders")
    queue.put(b"a")
    queue.ack(queue.lease(1))
    store.close()
    assert values(store, "orders") == {}
    again = reopen()
    assert again.queue("orders").stats().total_acked == 1
    assert values(again, "orders")["holdfast_queue_acked_total"] == 1


def test_outstanding_messages_are_those_that_are_ready_delayed_or_leased(store: Store) -> None:
    queue = store.queue("orders")
    queue.put_many([b"acknowledged", b"leased", b"ready"])
    queue.put(b"delayed", delay=60)
    queue.ack(queue.lease(2)[:1])
    assert state_of(queue).outstanding() == [(1, 4)]
