"""The end of a queue: closing it under those who wait, closing twice, and a process that forks."""

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Closed, Flush, Queue, Store
from holdfast.testing import SimClock
from tests.queue.calls import Call, until, until_waiting


def ended(call: Call[object]) -> bool:
    """A call that waited was told that the queue is closed, or got nothing; it did not hang."""
    try:
        return call.result() in ([], None)
    except Closed:
        return True


def test_closing_wakes_all_who_wait(tmp_path: Path, flush: Flush) -> None:
    store = holdfast.open(tmp_path)
    queue = store.queue("orders", flush=flush)
    calls: list[Call[object]] = [Call(lambda: queue.lease(3, wait=600)) for _ in range(4)]
    calls.append(Call(lambda: queue.get(wait=None)))
    until_waiting(queue, 5)
    store.close()
    assert all(ended(call) for call in calls)


def test_closing_ends_those_who_consume(tmp_path: Path) -> None:
    store = holdfast.open(tmp_path)
    queue = store.queue("orders")
    queue.put_many([b"a", b"b", b"c"])
    seen: list[bytes] = []
    started = threading.Event()

    def consume() -> None:
        for message in queue.consume(batch=2):
            seen.append(message.payload)
            message.ack()
            if len(seen) == 3:
                started.set()

    call = Call(consume)
    assert started.wait(30)
    store.close()
    assert ended(call)  # type: ignore[arg-type]
    assert seen == [b"a", b"b", b"c"]


def test_what_a_consumer_had_not_been_handed_is_ready_after_it_was_closed_under_it(
    tmp_path: Path, flush: Flush
) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders", flush=flush, lease=3600)
        queue.put_many([b"%d" % n for n in range(5)])
        for message in queue.consume(batch=5):
            message.ack()
            break
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders", flush=flush)
        assert [(message.id, message.attempt) for message in queue.lease(9)] == [(n, 1) for n in range(1, 5)]


def test_closing_while_threads_put_and_take_loses_nothing_that_was_confirmed(tmp_path: Path, flush: Flush) -> None:
    store = holdfast.open(tmp_path)
    queue = store.queue("orders", flush=flush, lease=3600)
    put: list[int] = []
    acked: list[int] = []
    doubtful: list[int] = []

    def putting() -> None:
        while True:
            put.append(queue.put(b"x"))
            if not len(put) % 10:
                time.sleep(0.001)

    def taking() -> None:
        while True:
            for message in queue.lease(3, wait=1):
                doubtful.append(message.id)
                if message.ack():
                    acked.append(message.id)

    calls = [Call(putting), Call(putting), Call(taking), Call(taking)]
    until(lambda: len(acked) > 50)
    store.close()
    for call in calls:
        with pytest.raises(Closed):
            call.result()
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders", flush=flush)
        ready = {message.id for message in queue.lease(1_000_000)}
        leased = queue.stats().leased - len(ready)
        assert not ready & set(acked), "an acked message came back"
        missing = set(put) - ready - set(acked)
        assert len(missing) <= leased, "a message is nowhere"
        assert queue.stats().total_acked >= len(acked)


def test_closing_twice_and_leaving_a_with_block_are_one(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders")
        queue.put(b"x")
        store.close()
        store.close()
        queue.close()
    assert queue.closed
    with pytest.raises(Closed, match="closed"):
        store.queue("orders")
    with pytest.raises(Closed, match="closed"):
        store.queues()


def test_a_queue_that_was_closed_by_itself_can_be_opened_again(store: Store) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    queue.close()
    again = store.queue("orders")
    assert [message.payload for message in again.lease(9)] == [b"x"]


def test_a_lease_goes_on_after_its_queue_was_closed(
    store: Store, reopen: Callable[..., Store], clock: SimClock, flush: Flush
) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put(b"x")
    held = queue.get(lease=60)
    assert held is not None
    store.close()
    with pytest.raises(Closed):
        held.ack()
    again = reopen().queue("orders", flush=flush)
    assert again.stats().leased == 1
    clock.advance(61)
    assert again.lease()[0].attempt == 2


def test_closing_waits_for_no_one_who_waits_elsewhere(tmp_path: Path) -> None:
    """Another store, in the same process, is none of its business."""
    with holdfast.open(tmp_path / "a") as one:
        two = holdfast.open(tmp_path / "b")
        queue = one.queue("orders")
        call = Call(lambda: queue.lease(wait=600))
        until_waiting(queue)
        two.queue("orders").put(b"x")
        two.close()
        queue.put(b"y")
        assert call.result()[0].payload == b"y"


def test_a_store_that_is_never_closed_loses_nothing_under_sync(tmp_path: Path) -> None:
    code = f"""
        import os, holdfast
        queue = holdfast.open({str(tmp_path)!r}).queue("orders")
        queue.put_many([b"a", b"b", b"c"])
        queue.ack(queue.lease(1))
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
    with holdfast.open(tmp_path) as store:
        assert [waiting.payload for waiting in store.queue("orders").peek()] == [b"b", b"c"]


def test_an_interpreter_that_ends_with_an_open_store_ends(tmp_path: Path, flush: Flush) -> None:
    """With messages delayed and leased, so that the background has something to wait for."""
    code = f"""
        import threading, holdfast
        from holdfast import Flush
        queue = holdfast.open({str(tmp_path)!r}).queue("orders", flush={flush!r})
        queue.put(b"a", delay=600)
        queue.put(b"b")
        queue.lease(lease=600)
        threading.Thread(target=lambda: queue.lease(wait=600), daemon=True).start()
        print("end")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60, capture_output=True, text=True
    )
    assert (result.stdout, result.stderr) == ("end\n", "")


def test_a_daemon_thread_that_waits_only_when_the_store_is_closed_at_exit_says_nothing(tmp_path: Path) -> None:
    code = f"""
        import atexit, threading, time, holdfast
        atexit.register(time.sleep, 0.3)  # runs after the store is closed: the thread below has time to fail
        from holdfast import open_stores
        queue = holdfast.open({str(tmp_path)!r}).queue("orders")
        closed = threading.Event()
        def work():
            closed.wait()
            for message in queue.consume():
                pass
        threading.Thread(target=work, daemon=True).start()
        close_all = open_stores.close_all
        atexit.unregister(close_all)
        atexit.register(lambda: (close_all(), closed.set()))
        print("end")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60, capture_output=True, text=True
    )
    assert (result.stdout, result.stderr) == ("end\n", "")


FORK = """
import os, sys, holdfast
store = holdfast.open(sys.argv[1])
queue = store.queue("orders", max_attempts=1)
queue.put_many([b"a", b"b", b"c"])
queue.nack(queue.lease(), "no")
held = queue.lease(lease=600)[0]
uses = [
    lambda: queue.put(b"child"), lambda: queue.put(b"child", dedup="id"), lambda: queue.put_many([b"child"]),
    queue.lease, lambda: queue.lease(wait=600), queue.get, held.ack, held.nack, held.extend, held.release,
    lambda: queue.ack([held]), queue.peek, queue.stats, queue.dead_letters, queue.redrive, queue.purge,
    lambda: queue.seek(0), queue.sync, queue.checkpoint, lambda: next(queue.consume()), lambda: store.queue("orders"),
]
pid = os.fork()
if pid == 0:
    refused = 0
    for use in uses:
        try:
            use()
        except holdfast.Closed:
            refused += 1
        except BaseException as error:
            os.write(1, b"child: %r\\n" % repr(error).encode())
    store.close()
    try:
        holdfast.open(sys.argv[1])
    except holdfast.Locked:
        os.write(1, b"locked\\n")
    reader = holdfast.open(sys.argv[1], read_only=True).queue("orders")
    os.write(1, b"refused %d of %d, ready %d\\n" % (refused, len(uses), reader.stats().ready))
    os._exit(0)
os.waitpid(pid, 0)
assert held.ack()
queue.ack(queue.lease(9))
assert queue.redrive() == 1
store.close()
os.write(1, b"parent done\\n")
"""


def test_a_forked_child_can_do_nothing_with_the_parents_queue_and_harms_it_not(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.stdout.splitlines() == ["locked", "refused 21 of 21, ready 1", "parent done"]
    assert "Traceback" not in child.stderr
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders")
        assert [message.payload for message in queue.lease(9)] == [b"a"]
        assert queue.stats().total_acked == 2


FORK_WHILE_BUSY = """
import os, sys, threading, holdfast
store = holdfast.open(sys.argv[1])
queue = store.queue("orders")
threads = [threading.Thread(target=lambda: queue.lease(wait=600), daemon=True) for _ in range(3)]
stop = threading.Event()
def work():
    while not stop.is_set():
        queue.put(b"x", dedup=os.urandom(8))
        queue.ack(queue.lease(2))
threads += [threading.Thread(target=work, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        try:
            queue.lease(wait=600)
        except holdfast.Closed:
            store.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for thread in threads[3:]:
    thread.join(30)
store.close()
os.write(1, b"done\\n")
"""


def test_a_fork_in_the_middle_of_everything_does_not_hang_the_child(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK_WHILE_BUSY, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (child.stdout, child.returncode) == ("done\n", 0), child.stderr


def test_a_child_of_a_process_that_had_queues_is_told_to_fork_first(tmp_path: Path) -> None:
    """RocksDB would wait for ever for threads that only the parent has."""
    code = """
        import os, sys, holdfast
        with holdfast.open(sys.argv[1]) as store:
            store.queue("orders").put(b"from the parent")
        if os.fork() == 0:
            with holdfast.open(sys.argv[1]) as mine:
                assert [record.payload for record in mine.log("orders").read()] == [b"from the parent"]
                try:
                    mine.queue("orders")
                except holdfast.StorageError as error:
                    os.write(1, str(error).encode())
            os._exit(0)
        os.wait()
    """
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "fork first" in result.stdout, result.stderr


def test_a_child_that_was_forked_before_any_queue_was_opened_opens_them(tmp_path: Path) -> None:
    code = """
        import os, sys, holdfast
        if os.fork() == 0:
            with holdfast.open(sys.argv[1]) as mine:
                mine.queue("orders").put(b"from the child")
                os.write(1, mine.queue("orders").lease()[0].payload)
            os._exit(0)
        os.wait()
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stdout == "from the child", result.stderr


def test_queues_use_one_background_thread_and_no_more_after_closing(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # those of other tests may end meanwhile
    with holdfast.open(tmp_path) as store:
        for n in range(10):
            queue: Queue = store.queue(f"queue-{n}")
            queue.put(b"x", delay=600)
            queue.put(b"y")
            queue.lease(lease=600)
        assert len(set(threading.enumerate()) - before) <= 1
    assert not set(threading.enumerate()) - before


def test_file_descriptors_are_given_back(tmp_path: Path) -> None:
    def open_and_close() -> int:
        with holdfast.open(tmp_path) as store:
            for n in range(5):
                queue = store.queue(f"queue-{n}", max_attempts=1)
                queue.put(b"x")
                queue.nack(queue.lease(), "no")
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    open_and_close()
    before = open_and_close()
    for _ in range(3):
        assert open_and_close() <= before
