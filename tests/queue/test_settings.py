"""Settings: their defaults, what is kept, what is refused, names, history and two stores at once."""

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Backoff, Corrupt, Flush, InvalidArgument, InvalidName, Locked, NotFound, Retention, Roll, Store
from holdfast.testing import SimClock, SimFiles
from tests.queue.internals import journal_of, state_of

DAY = 86_400


def test_the_defaults_are_those_that_are_promised(store: Store) -> None:
    settings = store.queue("orders").settings
    assert (settings.log, settings.dead_letter) == ("orders", "orders.dead")
    assert (settings.lease, settings.max_attempts, settings.backoff) == (30, 3, Backoff(base=1, cap=300))
    assert (settings.dedup_window, settings.starvation, settings.ttl) == (300, 30, None)
    assert (settings.max_length, settings.overflow, settings.history) == (None, "drop-head", 7 * DAY)
    assert store.queue("orders").log.settings.flush == Flush.sync()


def test_what_was_chosen_is_kept(store: Store, reopen: Callable[..., Store]) -> None:
    chosen: dict[str, Any] = {
        "log": "events",
        "lease": timedelta(seconds=7),
        "max_attempts": None,
        "backoff": Backoff(base=timedelta(seconds=2), cap=60, factor=3),
        "dead_letter": "graveyard",
        "dedup_window": 0.5,
        "dedup_limit": 17,
        "starvation": None,
        "ttl": timedelta(days=1),
        "expired": "dead-letter",
        "max_length": 99,
        "overflow": "reject",
        "history": 3600,
    }
    store.queue("orders", **chosen)
    store.close()
    settings = reopen().queue("orders").settings
    for name in ("lease", "ttl", "dedup_window", "history"):
        assert timedelta(seconds=settings.nanoseconds(name) / 1e9) == (  # type: ignore[operator]
            chosen[name] if isinstance(chosen[name], timedelta) else timedelta(seconds=chosen[name])
        )
    for name in (
        "log",
        "max_attempts",
        "dead_letter",
        "dedup_limit",
        "starvation",
        "expired",
        "max_length",
        "overflow",
    ):
        assert getattr(settings, name) == chosen[name]
    assert [settings.backoff.delay_ns(n) / 1e9 for n in (1, 2, 9)] == [2, 6, 60]


def test_a_setting_that_is_given_replaces_the_kept_one_and_leaves_the_others(
    store: Store, reopen: Callable[..., Store]
) -> None:
    store.queue("orders", lease=7, ttl=60)
    store.close()
    again = reopen()
    again.queue("orders", lease=9)
    again.close()
    settings = reopen().queue("orders").settings
    assert (settings.lease, settings.ttl) == (9, 60)


def test_a_kept_setting_can_be_taken_back(store: Store, reopen: Callable[..., Store]) -> None:
    store.queue("orders", ttl=60, max_length=5, dead_letter="graveyard")
    store.close()
    again = reopen()
    again.queue("orders", ttl=None, max_length=None, dead_letter=None)
    again.close()
    settings = reopen().queue("orders").settings
    assert (settings.ttl, settings.max_length, settings.dead_letter) == (None, None, None)


def test_an_open_queue_is_the_same_one_and_has_one_set_of_settings(store: Store) -> None:
    queue = store.queue("orders", lease=7)
    assert store.queue("orders") is store.queue("orders", lease=7) is queue
    assert store.queue("orders", lease=timedelta(seconds=7)) is queue
    with pytest.raises(InvalidArgument, match=r"'orders' is open with other settings.*close the store"):
        store.queue("orders", lease=8)
    with pytest.raises(InvalidArgument, match=r"'orders' is open.*close the store"):
        store.queue("orders", flush=Flush.async_())
    assert queue.settings.lease == 7


def test_opening_that_is_refused_keeps_nothing(store: Store, reopen: Callable[..., Store]) -> None:
    store.queue("orders", lease=7)
    store.close()
    again = reopen()
    with pytest.raises(InvalidArgument):
        again.queue("orders", lease=8, overflow="nonsense")
    with pytest.raises(InvalidArgument):
        again.queue("fresh", ttl=0)
    assert again.queues() == ["orders"]
    assert again.queue("orders").settings.lease == 7


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease": 0},
        {"lease": -1},
        {"lease": None},
        {"lease": "30"},
        {"lease": 1e10},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": 1.5},
        {"backoff": 5},
        {"backoff": None},
        {"dead_letter": ""},
        {"dead_letter": 5},
        {"dead_letter": "orders"},
        {"dedup_window": -1},
        {"dedup_window": None},
        {"dedup_limit": 0},
        {"dedup_limit": None},
        {"starvation": -1},
        {"ttl": 0},
        {"ttl": -5},
        {"expired": "maybe"},
        {"max_length": 0},
        {"max_length": "5"},
        {"overflow": "explode"},
        {"overflow": None},
        {"history": -1},
        {"history": "week"},
        {"log": ""},
        {"log": 5},
        {"no_such": 1},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_by_name(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong)).replace("dead_letter", "dead letter|dead_letter")):
        store.queue("orders", **wrong)
    assert (store.queues(), store.logs()) == ([], [])


@pytest.mark.parametrize("wrong", [{"overflow": "dead-letter"}, {"expired": "dead-letter"}], ids=str)
def test_dead_letters_need_a_queue_to_go_to(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="set dead_letter"):
        store.queue("orders", dead_letter=None, **wrong)


def test_an_unknown_setting_is_answered_with_those_there_are(store: Store) -> None:
    with pytest.raises(InvalidArgument, match=r"no setting 'retries'; there are: .*max_attempts"):
        store.queue("orders", retries=5)  # type: ignore[call-arg]


STRANGE = ["../x", "a/b", "..", ".", "/etc/passwd", "a\\b", "nul\0", "ü€🦀", " ", "CON", "%2e", "x" * 195, "x" * 200]


@pytest.mark.parametrize("name", STRANGE, ids=lambda name: ascii(name)[:20])
def test_a_strange_name_works_and_is_never_a_path(tmp_path: Path, name: str) -> None:
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue(name, max_attempts=1)
        queue.put(b"x")
        queue.nack(queue.lease(), "no")
        assert store.queues() == sorted([name, str(queue.settings.dead_letter)])
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue(name)
        assert queue.redrive() == 1
        assert queue.lease()[0].payload == b"x"
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


@pytest.mark.parametrize("size", [200, 201, 230, 255])
def test_a_name_for_dead_letters_is_refused_at_once_or_works(store: Store, size: int) -> None:
    try:
        queue = store.queue("orders", max_attempts=1, dead_letter="x" * size)
    except InvalidName:
        assert store.queues() == []
    else:
        queue.put(b"x")
        queue.nack(queue.lease(), "no")
        assert len(queue.dead_letters()) == 1


def test_names_never_share_a_queue(store: Store) -> None:
    names = ["a", "A", "a/b", "a%2Fb", "x" * 189, "x" * 190, "🦀" * 48, "🦀" * 49]
    for name in names:
        store.queue(name).put(name.encode())
    for name in names:
        assert [message.payload for message in store.queue(name).lease(9)] == [name.encode()]
    assert store.queues() == sorted(names)


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800", None, 5, b"bytes"], ids=lambda name: ascii(name)[:20])
def test_a_name_that_cannot_be_is_refused(store: Store, name: Any) -> None:
    with pytest.raises(InvalidName, match="queue name"):
        store.queue(name)


def test_settings_that_are_not_legible_are_an_error_and_open_anew_without_their_file(
    store: Store, files: SimFiles, reopen: Callable[..., Store], caplog: pytest.LogCaptureFixture
) -> None:
    store.queue("orders", lease=7).put(b"x")
    store.close()
    files.content("data/journals/orders/queue.json")[:] = b"{"
    said = r"settings of the queue 'orders'.*restore it from a backup, or delete this file"
    with reopen() as again, pytest.raises(Corrupt, match=said):
        again.queue("orders")
    files.remove(Path("data/journals/orders/queue.json"))
    with caplog.at_level(logging.WARNING):
        queue = reopen().queue("orders")
    assert "queue.json is missing" in caplog.text
    assert (queue.settings.lease, queue.stats().ready) == (30, 1)


def test_reading_a_queue_that_is_not_there_says_what_is(store: Store, reopen: Callable[..., Store]) -> None:
    store.queue("orders")
    store.log("clicks")
    with pytest.raises(NotFound, match=r"no queue 'ordres'.*there are: 'orders'"):
        reopen(read_only=True).queue("ordres")
    with pytest.raises(NotFound, match="no queue 'clicks'"):
        reopen(read_only=True).queue("clicks")


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.queue("orders").put(b"x")
        with pytest.raises(Locked):
            holdfast.open(tmp_path)


def test_two_stores_do_not_know_each_other(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "a") as one, holdfast.open(tmp_path / "b") as two:
        left, right = one.queue("orders", lease=7), two.queue("orders", lease=9)
        left.put(b"left", dedup="id")
        assert right.put(b"right", dedup="id") == 0
        held = right.lease()
        with pytest.raises(holdfast.LeaseLost):
            left.ack(held)
        assert held[0].ack()
        assert [message.payload for message in left.lease(9)] == [b"left"]
        assert (left.settings.lease, right.settings.lease) == (7, 9)


# What retention may take, and what is kept for `history`.


def test_retention_never_passes_what_is_yet_to_be_delivered(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", roll=Roll.count(2), history=3600)
    for n in range(10):
        queue.put(b"%d" % n)
    held = queue.lease(3, lease=100 * DAY)
    queue.ack(queue.lease(5))
    clock.advance(30 * DAY)
    queue.put_many([b"new", b"newer", b"newest"])
    queue.checkpoint()
    queue.log.compact()
    assert queue.log.start == 0
    queue.ack(held)
    queue.checkpoint()
    queue.log.compact()
    assert queue.log.start == 8
    assert [message.id for message in queue.lease(99)] == [8, 9, 10, 11, 12]


def test_it_is_held_back_also_while_the_queue_is_not_open(
    store: Store, clock: SimClock, reopen: Callable[..., Store]
) -> None:
    queue = store.queue("orders", roll=Roll.count(2))
    for n in range(10):
        queue.put(b"%d" % n)
    queue.ack(queue.lease(5))
    store.close()
    clock.advance(100 * DAY)
    again = reopen()
    log = again.log("orders", roll=Roll.count(2), retention=Retention(max_age=1))
    log.append(b"makes it roll")
    log.append(b"makes it roll")
    log.compact()
    log.clear()
    assert log.start == 4
    assert [message.id for message in again.queue("orders").lease(99)] == [5, 6, 7, 8, 9, 10, 11]


def test_a_delayed_message_is_held_back_until_it_was_delivered(
    store: Store, clock: SimClock, reopen: Callable[..., Store]
) -> None:
    queue = store.queue("orders", roll=Roll.count(2))
    queue.put(b"later", delay=90 * DAY)
    for n in range(10):
        queue.put(b"%d" % n)
    queue.ack(queue.lease(10))
    store.close()
    clock.advance(50 * DAY)
    again = reopen()
    again.log("orders").compact(retention=Retention(max_segments=1))
    clock.advance(50 * DAY)
    assert [message.payload for message in again.queue("orders").lease(99)] == [b"later"]


def test_a_queue_that_was_only_just_made_holds_everything_back(store: Store, reopen: Callable[..., Store]) -> None:
    log = store.log("orders", flush=Flush.sync(), roll=Roll.count(2))
    for n in range(10):
        log.append(b"%d" % n)
    store.queue("orders")
    log.compact(retention=Retention(max_segments=1))
    assert log.start == 0
    assert store.queue("orders").stats().ready == 10


def test_what_was_dropped_by_force_is_left_out_and_counted(store: Store, reopen: Callable[..., Store]) -> None:
    queue = store.queue("orders", roll=Roll.count(10))
    for n in range(100):
        queue.put(b"%d" % n)
    queue.log.compact(retention=Retention(max_segments=1), force=True)
    store.close()
    queue = reopen().queue("orders")
    assert [message.id for message in queue.lease(1)] == [90]
    assert [message.id for message in queue.lease(100)] == list(range(91, 100))
    assert queue.stats().total_dropped == 90


def test_what_is_done_goes_after_the_history(store: Store, clock: SimClock, files: SimFiles) -> None:
    """Log and journal both: a queue that is worked off does not grow for ever."""
    queue = store.queue("orders", history=3 * DAY, roll=Roll.time(DAY))
    sizes = []
    for _ in range(30):
        for _ in range(20):
            queue.put(bytes(500))
            queue.ack(queue.lease())
            clock.advance(DAY / 20)
        queue.checkpoint()
        store.tick()
        sizes.append(sum(map(len, files.snapshot().values())))
    assert max(sizes) < 2 * sizes[5]
    assert queue.log.start > 0
    assert 2 <= len(journal_of(queue).log.segments()) <= 6


def test_the_lifecycle_is_kept_as_long_as_was_asked_for(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", history=5 * DAY)
    acked_at = []
    for _ in range(20):
        queue.put(b"x")
        queue.ack(queue.lease())
        acked_at.append(clock.time_ns())
        clock.advance(DAY)
        queue.checkpoint()
    journal = journal_of(queue)
    replayed = journal.replay(journal.log.start, journal.log.end)
    kept = {event.time for _, events in replayed for event in events}
    cutoff = clock.time_ns() - 5 * DAY * 10**9
    for at in acked_at:
        if at >= cutoff:
            assert any(abs(time - at) < 10**9 for time in kept)
    assert min(kept) > acked_at[5]


def test_a_queue_whose_journal_was_shortened_is_rebuilt_from_its_snapshot(
    store: Store, clock: SimClock, files: SimFiles, reopen: Callable[..., Store]
) -> None:
    queue = store.queue("orders", history=2 * DAY, max_attempts=None, starvation=None)
    for n in range(10):
        queue.put(b"%d" % n, priority=n % 3, delay=50 * DAY if n % 4 == 0 else None)
        queue.nack(queue.lease(1), "no", delay=DAY)
        clock.advance(DAY)
        queue.checkpoint()
    assert journal_of(queue).log.start > 0
    before = state_of(queue).describe()
    store.close()
    files.remove(Path("data/state/state.flat"))
    queue = reopen().queue("orders")
    assert state_of(queue).describe() == before


def test_the_history_of_a_queue_that_falls_idle_goes_by_itself(
    store: Store, clock: SimClock, reopen: Callable[..., Store], files: SimFiles, flush: Flush
) -> None:
    queue = store.queue("orders", history=100, flush=flush)
    queue.put_many([b"%d" % n for n in range(50)])
    queue.ack(queue.lease(50))
    for _ in range(40):
        clock.advance(5)
        store.tick()
    assert (queue.log.start, queue.log.end) == (50, 50)
    left = {path: len(content) for path, content in files.snapshot().items() if path.endswith(".data")}
    assert len(left) == 2, "a segment of the log, one of the journal"
    for _ in range(100):
        clock.advance(5)
        store.tick()
    after = {path: len(content) for path, content in files.snapshot().items() if path.endswith(".data")}
    assert after == left, "an idle journal is written again and again"
    assert queue.put(b"next") == 50
    held = queue.lease(1, lease=DAY)
    store.close()
    again = reopen().queue("orders", history=100, flush=flush)
    assert again.lease(9) == []
    assert held[0].id == 50
    assert again.put(b"last") == 51
    assert [message.id for message in again.lease(9)] == [51]


def test_a_journal_that_was_renewed_is_enough_without_the_state(
    store: Store, clock: SimClock, reopen: Callable[..., Store], files: SimFiles
) -> None:
    queue = store.queue("orders", history=100)
    queue.put_many([b"%d" % n for n in range(5)])
    queue.ack(queue.lease(2))
    held = queue.lease(1, lease=100 * DAY)
    for _ in range(60):
        clock.advance(5)
        store.tick()
    assert queue.log.start == 0, "messages that wait are never too old"
    store.close()
    for path in [path for path in files.snapshot() if "/state" in path]:
        files.remove(Path(path))
    again = reopen().queue("orders")
    assert [message.id for message in again.lease(9)] == [3, 4]
    assert held[0].id == 2
