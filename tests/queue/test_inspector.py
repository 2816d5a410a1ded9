"""What can those do who look after a queue? Pause it, look at what it holds, drop what must go, try a seek."""

import errno
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import holdfast
from holdfast import Backoff, Closed, Flush, InvalidArgument, Message, NotFound, Queue, ReadOnly, StorageError, Store
from holdfast.base.clock import NS
from holdfast.queue import Counts
from holdfast.queue.ranges import Ranges
from holdfast.testing import SimClock, SimFiles, crash_points
from tests.queue.calls import Call, got, until_waiting
from tests.queue.internals import (
    core_of,
    cut_off,
    described,
    journal_of,
    resident_chunks,
    state_of,
    tiny_limits,
    without_state,
)

Reopen = Callable[..., Store]


def payloads(queue: Queue) -> list[bytes]:
    return [message.payload for message in queue.lease(100)]


# Pausing.


def test_a_paused_queue_takes_messages_and_hands_out_none(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put(b"before")
    queue.pause()
    queue.put(b"after")
    assert queue.paused
    assert queue.stats().paused
    assert queue.get() is None
    assert queue.lease(5) == []
    assert [waiting.payload for waiting in queue.peek()] == [b"before", b"after"]
    queue.resume()
    assert not queue.stats().paused
    assert got(queue).payload == b"before"
    assert payloads(queue) == [b"after"]


def test_what_is_held_when_a_queue_is_paused_can_be_settled(store: Store, flush: Flush, clock: SimClock) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=1, lease=10)
    queue.put_many([b"done", b"failed", b"forgotten", b"given back"])
    done, failed, _, back = [got(queue) for _ in range(4)]
    queue.pause()
    assert done.ack()
    assert failed.nack("no")
    assert back.release()
    clock.advance(11)
    store.tick()
    assert [letter.payload for letter in queue.dead_letters()] == [b"failed", b"forgotten"]
    assert queue.counts() == Counts(ready=1, delayed=0, leased=0, moving=0)
    queue.resume()
    assert payloads(queue) == [b"given back"]


def test_who_waits_goes_on_waiting_until_the_queue_is_resumed(disk_store: Store) -> None:
    queue = disk_store.queue("orders")
    queue.pause()
    calls = [Call(lambda: queue.get(wait=None)), Call(lambda: queue.get(wait=None))]
    until_waiting(queue, 2)
    queue.put_many([b"a", b"b"])
    assert queue.get(wait=0.05) is None
    assert all(call.runs for call in calls)
    queue.resume()
    found = [call.result() for call in calls]
    assert {message.payload for message in found if message is not None} == {b"a", b"b"}


def test_who_listens_is_called_when_the_queue_is_resumed(store: Store) -> None:
    queue = store.queue("orders")
    called: list[bool] = []
    queue.pause()
    queue.listen(lambda: called.append(queue.paused))
    queue.resume()
    assert called == [False]


def test_a_queue_stays_paused_over_a_restart_and_new_settings(store: Store, reopen: Reopen, flush: Flush) -> None:
    queue = store.queue("orders", lease=5, flush=flush)
    queue.put(b"a")
    queue.pause()
    store.close()
    again = reopen()
    queue = again.queue("orders", lease=7, flush=flush)
    assert queue.paused
    assert [queue.get() for _ in range(3)] == [None] * 3  # the short way opens once the long one has looked
    again.close()
    last = reopen()
    queue = last.queue("orders")
    assert (queue.paused, queue.settings.lease) == (True, 7)
    queue.resume()
    last.close()
    assert got(reopen().queue("orders")).payload == b"a"


def test_pausing_changes_no_setting(store: Store, reopen: Reopen) -> None:
    queue = store.queue("audit", log="events", backoff=Backoff(base=3), ttl=60)
    settings = queue.settings
    queue.pause()
    store.close()
    again = reopen().queue("audit")
    assert again.settings == settings
    again.resume()
    assert again.settings == settings


def test_a_queue_that_is_made_anew_is_not_paused(store: Store) -> None:
    gone = store.queue("orders")
    gone.pause()
    store.delete_queue("orders")
    queue = store.queue("orders")
    with pytest.raises(Closed):
        gone.resume()
    assert not queue.paused
    with pytest.raises(Closed):
        gone.pause()
    queue.put(b"a")
    assert got(queue).payload == b"a"


def test_a_reader_sees_at_once_that_a_queue_is_paused_and_cannot_change_it(store: Store, reopen: Reopen) -> None:
    queue = store.queue("orders")
    reader = reopen(read_only=True).queue("orders")
    queue.pause()
    assert reader.stats().paused
    assert reader.paused
    queue.resume()
    assert not reader.stats().paused
    for call in (reader.pause, reader.resume, lambda: reader.discard([0]), lambda: reader.void_lease(1, "no")):
        with pytest.raises(ReadOnly):
            call()


@pytest.mark.parametrize("kind", ["write", "replace"])
def test_a_pause_that_cannot_be_kept_does_not_happen(store: Store, files: SimFiles, kind: str) -> None:
    queue = store.queue("orders", flush=Flush.async_())
    queue.put(b"a")
    files.fail(kind, errno.ENOSPC, pattern="*queue.json*")
    with pytest.raises(StorageError):
        queue.pause()
    assert not queue.paused
    assert got(queue).payload == b"a"
    queue.pause()
    assert queue.stats().paused


def test_a_queue_is_quick_again_after_a_pause(store: Store) -> None:
    """Where messages go out one by one, the short way is open again, and closed while the queue is paused."""
    queue = store.queue("orders", flush=Flush.async_())
    queue.pause()
    cut_off(queue)  # what was cut off makes it begin again from its journal
    queue.put(b"a")
    assert queue.get() is None
    queue.resume()
    assert core_of(queue).fast_path
    assert got(queue).payload == b"a"


def test_a_pause_outlives_kill_9(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    script = f"""
import holdfast, os, signal
queue = holdfast.open({str(folder)!r}).queue("orders")
queue.put(b"a")
queue.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == -signal.SIGKILL
    with holdfast.open(folder) as store:
        queue = store.queue("orders")
        assert queue.paused
        assert queue.get() is None
        queue.resume()
        assert got(queue).payload == b"a"


class PauseWork:
    """Pauses, resumes and discards, cut off anywhere: what was promised holds, and what was begun happened or not."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.paused: set[bool] = {False}
        self.must: set[bytes] = set()
        self.may: set[bytes] = set()

    def open(self, files: SimFiles) -> Store:
        return holdfast.open("data", files=files, clock=self.clock, background=False)

    def run(self, files: SimFiles) -> None:
        store = self.open(files)
        queue = store.queue("work", max_attempts=None)
        self.put(queue, b"a", Message(b"b", delay=50), b"c", Message(b"d", delay=70), Message(b"e", priority=3))
        self.set(queue, True)
        self.discard(queue, {b"a": 0, b"b": 1})
        queue.checkpoint()
        self.discard(queue, {b"d": 3, b"e": 4})
        self.put(queue, b"f")
        self.set(queue, False)
        self.set(queue, True)
        self.discard(queue, {b"c": 2})
        store.close()

    def put(self, queue: Queue, *messages: bytes | Message) -> None:
        names = {one if isinstance(one, bytes) else one.payload for one in messages}
        self.may |= names
        queue.put_many(messages)
        self.must |= names

    def discard(self, queue: Queue, gone: dict[bytes, int]) -> None:
        self.must -= gone.keys()
        assert queue.discard(gone.values()) == len(gone)
        self.may -= gone.keys()

    def set(self, queue: Queue, paused: bool) -> None:
        self.paused.add(paused)
        (queue.pause if paused else queue.resume)()
        self.paused = {paused}

    def check(self, files: SimFiles) -> None:
        store = self.open(files)
        queue = store.queue("work", max_attempts=None)
        state_of(queue).check()
        assert queue.paused in self.paused
        assert bool(queue.paused) is not bool(queue.lease(1, lease=1)) or not queue.waiting()
        queue.resume()
        self.clock.advance(100)
        there = {message.payload for message in queue.lease(100)}
        assert self.must <= there <= self.may


def test_no_crash_loses_a_pause_or_a_message_or_brings_back_what_was_discarded() -> None:
    assert crash_points(PauseWork, seeds=(0,)) > 100


def test_the_suite_fails_when_fsync_does_nothing() -> None:
    with pytest.raises(AssertionError):
        crash_points(PauseWork, files=lambda seed: SimFiles(seed, lose_syncs=True), seeds=(0, 1))


# Leases.


def test_leases_are_told_oldest_first_with_what_is_left_of_them(store: Store, flush: Flush, clock: SimClock) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([b"%d" % n for n in range(6)])
    first = queue.lease(3, lease=100)
    clock.advance(1)
    second = queue.lease(2, lease=5)
    first[1].ack()
    one, two = queue.leases()
    assert (one.id, one.ids, one.since) == (first[0].lease, (0, 2), first[0].lease)
    assert (two.id, two.ids) == (second[0].lease, (3, 4))
    assert two.expires_at - two.since == 5 * NS
    assert one.since < two.since < two.expires_at < one.expires_at
    assert queue.leases(1) == [one]
    clock.advance(6)
    assert queue.leases() == [one]
    with pytest.raises(InvalidArgument):
        queue.leases(0)


def test_one_lease_can_be_made_void(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([b"a", b"b", b"c"])
    stuck, other = queue.lease(2), queue.lease(1)
    stuck[0].ack()
    assert queue.void_lease(stuck[0].lease, "its worker is gone") == 1
    assert queue.void_lease(stuck[0].lease, "again") == 0
    assert not stuck[1].ack()
    (back,) = queue.lease(5)
    assert (back.payload, back.attempt) == (b"b", 2)
    assert state_of(queue).failures.get(1).reason == "its worker is gone"  # type: ignore[union-attr]
    assert other[0].ack()
    with pytest.raises(InvalidArgument):
        queue.void_lease("1", "no")  # type: ignore[arg-type]


def test_who_waits_gets_what_a_void_lease_gives_back(disk_store: Store) -> None:
    queue = disk_store.queue("orders")
    queue.put(b"a")
    held = got(queue)
    call = Call(lambda: queue.get(wait=None))
    until_waiting(queue)
    assert queue.void_lease(held.lease) == 1
    again = call.result()
    assert again is not None
    assert again.attempt == 2


def test_a_lease_that_is_void_for_the_last_time_makes_dead_letters(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    queue.put(b"a")
    queue.void_lease(got(queue).lease, "stuck")
    assert [(letter.payload, letter.reason) for letter in queue.dead_letters()] == [(b"a", "stuck")]


# Delays.


def test_delayed_messages_are_told_soonest_first(store: Store, flush: Flush, clock: SimClock) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([Message(b"late", delay=90), b"now", Message(b"soon", delay=30, key=b"k", headers={"h": "1"})])
    now = got(queue)
    now.nack("not yet", delay=60)
    soon, again, late = queue.delayed()
    assert (soon.id, soon.payload, soon.key, soon.headers, soon.attempts) == (2, b"soon", b"k", {"h": "1"}, 0)
    assert (again.id, again.payload, again.attempts) == (1, b"now", 1)
    assert (late.id, (late.due_at - late.enqueued_at) // NS) in {(0, 89), (0, 90)}
    assert soon.due_at < again.due_at < late.due_at
    assert queue.delayed(2) == [soon, again]
    clock.advance(31)
    assert queue.delayed() == [again, late]
    with pytest.raises(InvalidArgument):
        queue.delayed(0)


def test_the_histogram_of_delays_counts_each_message_once(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    assert queue.delayed_histogram() == []
    queue.put_many([Message(b"x", delay=10 + n) for n in range(100)])
    found = queue.delayed_histogram(10)
    assert [count for _, _, count in found] == [10] * 10
    assert all(end == start for (_, end, _), (start, _, _) in pairwise(found))
    dues = [message.due_at for message in queue.delayed(100)]
    assert (found[0][0], found[-1][1]) == (dues[0], dues[-1] + 1)
    assert [count for _, _, count in queue.delayed_histogram(1)] == [100]
    with pytest.raises(InvalidArgument):
        queue.delayed_histogram(0)


def test_messages_that_are_due_together_are_one_bucket(store: Store) -> None:
    queue = store.queue("orders")
    queue.put_many([Message(b"x", delay=10)] * 7)
    assert [count for _, _, count in queue.delayed_histogram(60)] == [7]


def test_delays_that_are_not_in_memory_are_told_too(store: Store, reopen: Reopen, clock: SimClock) -> None:
    with tiny_limits():
        queue = store.queue("orders")
        for n in range(40):
            queue.put(b"%d" % n, delay=100 + 7 * n % 40)
            if n % 9 == 5:
                queue.checkpoint()
        queue.discard([7, 8, 30])
        for view in (queue, reopen(read_only=True).queue("orders")):
            found = view.delayed(100)
            assert len(found) == 37
            assert sorted(found, key=lambda message: (message.due_at, message.id)) == found
            assert sum(count for _, _, count in view.delayed_histogram(5)) == 37
            assert view.delayed(3) == found[:3]
        clock.advance(105)
        assert sum(count for _, _, count in queue.delayed_histogram(5)) == queue.stats().delayed < 37
        queue.purge()
        assert (queue.delayed_histogram(), queue.delayed()) == ([], [])


# Dropping.


def test_messages_that_wait_can_be_discarded(store: Store, flush: Flush, clock: SimClock) -> None:
    queue = store.queue("orders", flush=flush, lease=1000)
    queue.put_many(
        [b"0", b"1", Message(b"2", delay=5), Message(b"3", priority=4), b"4", Message(b"5", delay=9), b"6", b"7"]
    )
    high, held = got(queue), got(queue)
    assert (high.payload, held.payload) == (b"3", b"0")
    got(queue).nack("later", delay=20)
    queue.sync()
    records = journal_of(queue).log.end
    assert queue.discard([0, 1, 2, 4, 4, 99, 7]) == 4  # 0 is held, 99 is nobody
    queue.sync()
    assert journal_of(queue).log.end == records + 1
    assert queue.counts() == Counts(ready=1, delayed=1, leased=2, moving=0)
    assert queue.stats().total_dropped == 4
    assert held.ack()
    clock.advance(30)
    assert payloads(queue) == [b"5", b"6"]


@pytest.mark.parametrize("gone", [False, True])
def test_what_was_discarded_stays_away_after_a_restart(
    store: Store, files: SimFiles, clock: SimClock, flush: Flush, gone: bool
) -> None:
    with tiny_limits():
        queue = store.queue("orders", flush=flush, max_attempts=None)
        queue.put_many([Message(b"%d" % n, delay=n % 3 * 10, priority=n % 2) for n in range(30)])
        queue.nack(queue.lease(4), "later", delay=50)
        queue.checkpoint()
        left = {message.id for message in queue.delayed(100)} | {message.id for message in queue.peek(100)}
        queue.discard(range(5, 17))
        queue.discard(message.id for message in queue.delayed(3))
        state_of(queue).check()
        before = described(queue)
        queue.sync()
        disk = without_state(files, 7) if gone else files.after_crash("dropped", 7)
        again = holdfast.open("data", files=disk, clock=clock, background=False).queue("orders")
        state_of(again).check()
        assert described(again) == before
        clock.advance(100)
        assert {message.id for message in again.lease(100)} < left - set(range(5, 17))


def test_what_is_gone_already_is_not_discarded_again(store: Store, clock: SimClock) -> None:
    """Though the state, which a checkpoint has yet to put right, still tells of its delay."""
    queue = store.queue("orders")
    queue.put_many([Message(b"%d" % n, delay=5 if n == 0 else 50) for n in range(4)])
    queue.checkpoint()
    assert queue.discard([1]) == 1
    assert queue.discard([1]) == 0
    clock.advance(6)
    (done,) = queue.lease(5)
    assert queue.discard([0]) == 0
    assert done.ack()
    assert queue.discard([0]) == 0
    state_of(queue).check()
    assert queue.counts() == Counts(ready=0, delayed=2, leased=0, moving=0)
    assert queue.stats().total_dropped == 1


def test_what_is_discarded_makes_room(store: Store) -> None:
    queue = store.queue("orders", max_length=2, max_bytes=100, overflow="reject")
    queue.put(b"x" * 40)
    queue.put(b"y" * 40, delay=60)
    assert queue.discard([1]) == 1
    queue.put(b"z" * 60)
    state_of(queue).check()
    assert queue.discard([0, 2]) == 2
    assert state_of(queue).waiting_bytes == 0


def test_ids_are_whole_numbers(store: Store) -> None:
    queue = store.queue("orders")
    for wrong in (3, "3", ["3"], [True], b"3"):
        with pytest.raises(InvalidArgument, match=r"peek\(\)"):
            queue.discard(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"dead_letters\(\)"):
            queue.delete_dead_letters(wrong)  # type: ignore[arg-type]
    assert queue.discard([]) == 0
    assert queue.discard([-1, 5]) == 0


def test_only_its_own_dead_letters_are_deleted(store: Store, flush: Flush) -> None:
    mine = store.queue("orders", flush=flush, max_attempts=1, dead_letter="dead")
    theirs = store.queue("bills", flush=flush, max_attempts=1, dead_letter="dead")
    for queue in (mine, theirs, mine):
        queue.put_many([b"a", b"b"])
        queue.nack(queue.lease(2), "no")
    letters = [letter.id for letter in mine.dead_letters()]
    foreign = [letter.id for letter in theirs.dead_letters()]
    assert (len(letters), len(foreign)) == (4, 2)
    assert mine.delete_dead_letters([letters[0], foreign[0], 99]) == 1
    assert [letter.id for letter in mine.dead_letters()] == letters[1:]
    assert mine.delete_dead_letters() == 3
    assert mine.dead_letters() == []
    assert [letter.id for letter in theirs.dead_letters()] == foreign
    assert mine.redrive() == 0
    assert store.queue("alone", dead_letter=None).delete_dead_letters() == 0


# Trying a seek.


def test_a_preview_tells_what_a_seek_does(store: Store, flush: Flush, clock: SimClock) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=None)
    queue.put_many([b"%d" % n for n in range(6)])
    clock.advance(10)
    moment = clock.time_ns()
    queue.put_many([Message(b"6", delay=50), Message(b"7", key=b"k", priority=2), b"8", b"9"])
    queue.ack(queue.lease(3))
    queue.lease(1)
    for position in range(11):
        preview = queue.preview(position)
        assert (preview.log_start, preview.log_end, preview.delivered) == (0, 10, 10 - position)
        assert preview.waiting_now == 7
        assert preview.dropped == sum(1 for place in (2, 3, 4, 5, 6, 8, 9) if place < position)
        assert [message.id for message in preview.sample(100)] == list(range(position, 10))
    by_time = queue.preview(when=moment)
    assert by_time.position == 6
    (six, seven) = by_time.sample(2)
    assert (six.payload, seven.key, seven.priority, seven.attempts) == (b"6", b"k", 2, 0)
    assert queue.stats().leased == 1
    queue.seek(by_time.position)
    assert queue.waiting() == by_time.delivered
    assert queue.preview(10).sample() == []


def test_a_preview_refuses_what_a_seek_would(store: Store) -> None:
    queue = store.queue("orders")
    queue.put(b"a")
    for wrong in (-1, 2, True, "0"):
        with pytest.raises(InvalidArgument):
            queue.preview(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        queue.preview()
    with pytest.raises(InvalidArgument):
        queue.preview(0, when=0)
    with pytest.raises(InvalidArgument):
        queue.preview(0).sample(0)


def test_a_sample_leaves_out_what_would_not_be_delivered(store: Store, clock: SimClock) -> None:
    work = store.queue("work", max_attempts=1)
    audit = store.queue("audit", log="work")
    work.put(b"overdue", ttl=5)
    work.put(b"poison")
    clock.advance(6)
    work.nack(work.lease(1), "no")
    work.redrive()
    assert [message.payload for message in work.preview(0).sample()] == [b"poison", b"poison"]
    assert [message.payload for message in audit.preview(0).sample()] == [b"poison"]


def test_a_preview_counts_across_what_is_away_in_the_state(store: Store) -> None:
    with tiny_limits():
        queue = store.queue("orders", max_attempts=None)
        queue.put_many([b"%d" % n for n in range(60)])
        held = queue.lease(60)
        queue.release(held[::2])
        queue.ack(held[1::2])
        queue.checkpoint()
        resident = resident_chunks(queue)
        for position in range(61):
            assert queue.preview(position).dropped == (position + 1) // 2
        assert resident_chunks(queue) == resident


def test_ranges_count_what_is_below() -> None:
    found = Ranges()
    assert found.count_before(9) == 0
    for start, stop in ((3, 6), (10, 11), (20, 40)):
        found.add(start, stop)
    inside = {*range(3, 6), 10, *range(20, 40)}
    for sequence in range(50):
        assert found.count_before(sequence) == sum(one < sequence for one in inside)


# Looking.


def test_counts_tell_what_stands_where(store: Store, flush: Flush, clock: SimClock) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([b"a", b"b", Message(b"c", delay=5), Message(b"d", delay=50)])
    assert queue.counts() == Counts(ready=2, delayed=2, leased=0, moving=0)
    queue.lease(1)
    clock.advance(6)
    assert queue.counts() == Counts(ready=2, delayed=1, leased=1, moving=0)
    store.close()
    with pytest.raises(Closed):
        queue.counts()


def test_counts_wait_for_nobody(store: Store) -> None:
    queue = store.queue("orders")
    queue.put(b"a")
    with core_of(queue).lock:
        assert queue.counts().ready == 1


def test_who_waits_gets_what_a_count_finds_due(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    called: list[int] = []
    queue.listen(lambda: called.append(1))
    queue.put(b"a", delay=5)
    queue.counts()
    called.clear()
    clock.advance(6)
    assert queue.counts().ready == 1
    assert called


def test_a_reader_counts_what_the_writer_did(store: Store, reopen: Reopen) -> None:
    queue = store.queue("orders")
    reader = reopen(read_only=True).queue("orders")
    queue.put_many([b"a", b"b"])
    queue.lease(1)
    assert reader.counts() == queue.counts() == Counts(1, 0, 1, 0)
    assert [lease.ids for lease in reader.leases()] == [(0,)]
    assert reader.message(1) == queue.message(1)
    assert reader.preview(1) == queue.preview(1)


def test_any_message_that_the_log_still_has_can_be_looked_at(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([b"done", Message(b"failed", key=b"k", headers={"h": "1"}, priority=3), Message(b"late", delay=9)])
    failed, done = queue.lease(2)
    done.ack()
    failed.nack("no")
    found = [queue.message(id) for id in range(3)]
    assert [one.payload for one in found if one is not None] == [b"done", b"failed", b"late"]
    assert found[1] is not None
    assert (found[1].id, found[1].key, found[1].headers, found[1].priority, found[1].attempts) == (
        1, b"k", {"h": "1"}, 3, 1,
    )  # fmt: skip
    assert queue.message(3) is queue.message(-1) is None
    with pytest.raises(InvalidArgument):
        queue.message("1")  # type: ignore[arg-type]


def test_all_that_is_ready_is_seen_by_its_id_however_much_it_is(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([Message(b"%d" % n, priority=n % 3, delay=60 if n == 7 else None) for n in range(2500)])
    held = queue.lease(5)
    seen = queue.each_ready(3)
    first = next(seen)
    queue.put(b"too late")
    away = {7, *(one.id for one in held)}
    assert [first.id, *(one.id for one in seen)] == [id for id in range(3, 2500) if id not in away]
    assert (first.payload, first.priority, first.attempts) == (b"3", 0, 0)
    assert list(queue.each_ready(2501)) == []


def test_a_reader_sees_what_came_to_be_ready_since_it_looked(store: Store, reopen: Reopen) -> None:
    queue = store.queue("orders")
    with reopen(read_only=True) as reader:
        seen = reader.queue("orders")
        queue.put(b"new")
        queue.sync()
        assert [one.payload for one in seen.each_ready()] == [b"new"]


# Finding.


def test_a_queue_is_found_if_it_is_there(store: Store, reopen: Reopen) -> None:
    assert store.find_queue("orders") is None
    assert store.queues() == []
    queue = store.queue("orders", lease=5)
    assert store.find_queue("orders") is queue
    queue.put(b"a")
    store.close()
    again = reopen()
    found = again.find_queue("orders")
    assert found is not None
    assert found.settings.lease == 5
    assert got(found).payload == b"a"
    with pytest.raises(Closed):
        store.find_queue("orders")


def test_who_only_found_a_queue_does_not_keep_others_from_choosing(store: Store, reopen: Reopen) -> None:
    store.queue("orders", lease=5)
    store.close()
    again = reopen()
    looked = again.find_queue("orders")
    chosen = again.queue("orders", lease=9, flush=Flush.async_())
    assert looked is not None
    assert looked.closed
    assert again.find_queue("orders") is chosen
    with pytest.raises(InvalidArgument):
        again.queue("orders", lease=11)


def test_a_queue_that_someone_opened_is_not_taken_from_them_by_a_look(store: Store) -> None:
    store.queue("orders", lease=5)
    store.find_queue("orders")
    with pytest.raises(InvalidArgument):
        store.queue("orders", lease=6)


def test_a_reader_finds_queues_too(store: Store, reopen: Reopen) -> None:
    reader = reopen(read_only=True)
    assert reader.find_queue("orders") is None
    store.queue("orders").put(b"a")
    found = reader.find_queue("orders")
    assert found is not None
    assert [message.payload for message in found.peek()] == [b"a"]
    store.delete_queue("orders")
    with pytest.raises(NotFound):
        store.delete_queue("orders")
    assert store.find_queue("orders") is None
