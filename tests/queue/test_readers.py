"""Read-only processes: what they see of a queue while another one works on it."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Message, ReadOnly, Retention, Roll, Store
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import until
from tests.queue.internals import journal_of

Reopen = Callable[..., Store]


def test_a_reader_sees_what_the_writer_does(store: Store, reopen: Reopen, flush: Flush, clock: SimClock) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=1, starvation=None)
    reader = reopen(read_only=True).queue("orders")

    def same() -> None:
        store.tick()
        queue.sync()
        mine, theirs = queue.stats(), reader.stats()
        for name in ("ready", "delayed", "leased", "dead", "moving", "total_acked", "total_leased", "total_dead"):
            assert getattr(mine, name) == getattr(theirs, name), name
        assert reader.peek(100) == queue.peek(100)
        assert reader.dead_letters() == queue.dead_letters()

    same()
    queue.put_many([Message(b"%d" % n, priority=n % 3, key=b"k") for n in range(20)])
    queue.put(b"later", delay=60)
    same()
    queue.ack(queue.lease(5))
    held = queue.lease(5)
    same()
    queue.nack(held[:2], "no")
    queue.release(held[2:4])
    same()
    clock.advance(61)
    same()
    queue.redrive()
    same()
    queue.purge()
    same()
    queue.seek(0)
    same()


def test_a_reader_that_is_opened_later_sees_the_same(store: Store, reopen: Reopen, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=1)
    queue.put_many([b"%d" % n for n in range(10)])
    queue.ack(queue.lease(2))
    queue.nack(queue.lease(1), "no")
    queue.lease(3)
    queue.checkpoint()
    queue.ack(queue.lease(1))
    queue.sync()
    reader = reopen(read_only=True).queue("orders")
    assert (reader.stats().ready, reader.stats().leased, reader.stats().dead) == (3, 3, 1)
    assert [waiting.id for waiting in reader.peek()] == [7, 8, 9]


def test_a_reader_changes_nothing_on_disk(store: Store, reopen: Reopen, files: SimFiles, clock: SimClock) -> None:
    queue = store.queue("orders", max_attempts=1, ttl=60)
    queue.put_many([b"a", b"b", b"c"])
    queue.nack(queue.lease(1), "no")
    queue.lease(1, lease=1)
    before = files.snapshot()
    reader = reopen(read_only=True)
    clock.advance(30)
    view = reader.queue("orders")
    view.peek()
    view.stats()
    view.dead_letters()
    reader.queues()
    reader.tick()
    reader.close()
    assert files.snapshot() == before


def test_a_reader_works_without_a_state(store: Store, reopen: Reopen, files: SimFiles) -> None:
    queue = store.queue("orders")
    queue.put_many([b"a", b"b", b"c"])
    queue.ack(queue.lease(1))
    store.close()
    for path in [path for path in files.snapshot() if path.startswith("data/state/")]:
        files.remove(Path(path))
    assert [waiting.payload for waiting in reopen(read_only=True).queue("orders").peek()] == [b"b", b"c"]


def test_a_reader_goes_on_when_the_journal_is_shortened(store: Store, reopen: Reopen, clock: SimClock) -> None:
    queue = store.queue("orders", history=2 * 86_400)
    reader = reopen(read_only=True).queue("orders")
    for n in range(10):
        queue.put(b"%d" % n)
        if n % 2:
            queue.ack(queue.lease(1))
        clock.advance(86_400)
        queue.checkpoint()
    assert journal_of(queue).log.start > 0
    assert [waiting.id for waiting in reader.peek(99)] == [waiting.id for waiting in queue.peek(99)]
    assert reader.stats().total_acked == 5


def test_a_reader_goes_on_when_the_log_is_shortened(store: Store, reopen: Reopen) -> None:
    queue = store.queue("orders", roll=Roll.count(2))
    reader = reopen(read_only=True).queue("orders")
    for n in range(10):
        queue.put(b"%d" % n)
    assert len(reader.peek(99)) == 10
    queue.ack(queue.lease(7))
    queue.checkpoint()
    queue.log.compact(retention=Retention(max_segments=1))
    assert [waiting.payload for waiting in reader.peek(99)] == [b"7", b"8", b"9"]


def test_what_happens_while_a_reader_looks_is_not_seen_twice(store: Store, reopen: Reopen) -> None:
    """The journal may speak of a message that came after the reader looked at the log."""
    queue = store.queue("orders")
    queue.put(b"0")
    reader = reopen(read_only=True).queue("orders")
    refresh = reader.log.refresh
    turns = iter([True])

    def refresh_and_be_overtaken() -> None:
        refresh()
        if next(turns, False):
            queue.put(b"1")
            queue.ack(queue.lease(2))

    reader.log.refresh = refresh_and_be_overtaken  # type: ignore[method-assign]
    for _ in range(2):
        stats = reader.stats()
        assert (stats.ready, stats.leased, stats.total_acked) == (0, 0, 2)
    assert reader.peek() == []


def test_every_reader_of_a_store_is_refused_every_change(store: Store, reopen: Reopen) -> None:
    store.queue("orders").put(b"x")
    reader = reopen(read_only=True).queue("orders")
    for change in (
        lambda: reader.put(b"y"),
        lambda: reader.put_many([b"y"]),
        reader.lease,
        lambda: reader.lease(wait=60),
        reader.get,
        reader.purge,
        lambda: reader.seek(0),
        reader.redrive,
        reader.checkpoint,
        reader.sync,
    ):
        with pytest.raises(ReadOnly):
            change()


def test_a_reader_may_name_settings_and_changes_none(store: Store, reopen: Reopen) -> None:
    store.queue("orders", lease=7)
    reopen(read_only=True).queue("orders", lease=9)
    store.close()
    assert reopen().queue("orders").settings.lease == 7


# Real processes.


def python(code: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


WATCH = """
    import sys, holdfast
    reader = holdfast.open(sys.argv[1], read_only=True).queue("orders")
    print("ready", flush=True)
    done = False
    while not done:
        fresh = holdfast.open(sys.argv[1], read_only=True)
        for queue in (reader, fresh.queue("orders")):
            queue.stats()
            assert all(waiting.payload.isdigit() for waiting in queue.peek(100))
        done = fresh.queue("orders").stats().total_acked == int(sys.argv[2])
        if done:
            for queue in (reader, fresh.queue("orders")):
                stats = queue.stats()
                assert (stats.ready, stats.leased, stats.dead) == (0, 0, 1), stats
                assert queue.peek(100) == []
                assert [letter.reason for letter in queue.dead_letters()] == ["no"]
        fresh.close()
    print("done", flush=True)
"""


def test_another_process_reads_a_queue_while_it_is_worked_on(tmp_path: Path, flush: Flush) -> None:
    """It opens the queue again and again while messages rush through; in the end nothing is there, and all see that."""
    rounds = 400
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders", flush=flush, max_attempts=1)
        queue.put(b"x")
        queue.nack(queue.lease(), "no")
        queue.sync()
        child = python(WATCH, tmp_path, 3 * rounds)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for n in range(rounds):
            queue.put_many([b"%d" % n] * 3)
            queue.ack(queue.lease(3))
            if not n % 50:
                queue.checkpoint()
        queue.sync()
        output, _ = child.communicate(timeout=60)
    assert output == "done\n"


def test_a_reader_of_a_killed_writer_sees_what_was_confirmed(tmp_path: Path) -> None:
    child = python(
        """
        import sys, holdfast
        queue = holdfast.open(sys.argv[1]).queue("orders")
        for n in range(10):
            queue.put(b"%d" % n)
        queue.ack(queue.lease(4))
        print("done", flush=True)
        sys.stdin.read()
        """,
        tmp_path,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "done\n"
    with holdfast.open(tmp_path, read_only=True) as reader:
        assert [waiting.id for waiting in reader.queue("orders").peek()] == [4, 5, 6, 7, 8, 9]
        child.kill()
        child.wait()
        assert [waiting.id for waiting in reader.queue("orders").peek()] == [4, 5, 6, 7, 8, 9]
    with holdfast.open(tmp_path, read_only=True) as reader:
        assert reader.queue("orders").stats().ready == 6
    with holdfast.open(tmp_path) as store:
        assert [message.id for message in store.queue("orders").lease(99)] == [4, 5, 6, 7, 8, 9]
    child.communicate()


def test_expired_leases_are_seen_by_a_reader_though_the_writer_is_not_asked(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders")
        queue.put_many([b"a", b"b"])
        queue.lease(2, lease=0.1)
        with holdfast.open(tmp_path, read_only=True) as reading:
            reader = reading.queue("orders")
            until(lambda: reader.stats().ready == 2)
            assert reader.stats().total_expired == 2


def test_a_folder_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue("orders", max_attempts=1)
        queue.put_many([b"a", b"b"])
        queue.nack(queue.lease(), "no")
    folders = [tmp_path / "data", *(path for path in (tmp_path / "data").rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with holdfast.open(tmp_path / "data", read_only=True) as reading:
            assert [waiting.payload for waiting in reading.queue("orders").peek()] == [b"b"]
            assert len(reading.queue("orders").dead_letters()) == 1
    finally:
        for folder in folders:
            folder.chmod(0o755)
