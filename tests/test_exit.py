"""What a process that ends without closing its stores leaves on disk, and what it says."""

import errno
import gc
import multiprocessing
import os
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Flush
from holdfast.base.files import SystemFiles
from holdfast.log.watermark import read_watermark
from holdfast.testing import SimClock, SimFiles

PATIENCE_S = 120
MODES = ["sync", "batch", "async_"]


def run(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(code)],
        check=False,
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
    )


def records(folder: Path, log: str = "l") -> int:
    """How many records a log holds for the next process."""
    with holdfast.open(folder) as store:
        return store.log(log).end


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("ending", "code"),
    [("pass", 0), ("sys.exit(3)", 3), ("raise RuntimeError('wrong')", 1)],
    ids=["end", "exit", "error"],
)
def test_a_normal_end_of_the_process_loses_nothing_that_was_appended(
    tmp_path: Path, mode: str, ending: str, code: int
) -> None:
    result = run(
        f"""
        import sys, holdfast
        store = holdfast.open({str(tmp_path)!r})
        log = store.log("l", flush=holdfast.Flush.{mode}())
        for number in range(1000):
            log.append(b"%d" % number)
        queue = store.queue("q", flush=holdfast.Flush.{mode}())
        queue.put_many([b"a", b"b"])
        queue.get().ack()
        {ending}
        """
    )
    assert result.returncode == code
    assert "ResourceWarning" not in result.stderr  # as for files: shown only to who asks for it
    with holdfast.open(tmp_path) as store:
        assert store.log("l").end == 1000
        assert [message.payload for message in store.queue("q").lease(9)] == [b"b"]


def test_a_store_that_is_open_at_the_end_is_warned_of_and_the_exit_code_stays(tmp_path: Path) -> None:
    code = f"""
        import holdfast
        first = holdfast.open({str(tmp_path / "a")!r})
        second = holdfast.open({str(tmp_path / "b")!r})
        closed = holdfast.open({str(tmp_path / "c")!r})
        closed.close()
        first.log("l").append(b"x")
        second.log("l").append(b"x")
        reader = holdfast.open({str(tmp_path / "a")!r}, read_only=True)
    """
    for flags in (["-W", "default"], ["-W", "error"]):
        result = run(code, *flags)
        assert result.returncode == 0, result.stderr
        named = result.stderr.split("ResourceWarning: 2 stores were open at the end of the process: ")[1]
        assert named.startswith(f"'{tmp_path / 'b'}', '{tmp_path / 'a'}'."), "the last one is closed first"
        assert "with holdfast.open(...)" in result.stderr
    assert (records(tmp_path / "a"), records(tmp_path / "b")) == (2, 2)


def test_a_store_that_cannot_be_closed_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    result = run(
        f"""
        import errno, os, holdfast
        from holdfast.base.files import SystemFile
        good = holdfast.open({str(tmp_path / "good")!r})
        bad = holdfast.open({str(tmp_path / "bad")!r})
        bad.log("l").append(b"x")
        bad.log("l").sync()
        good.log("l").append(b"x")
        bad.log("l").append(b"y")

        def full(self, parts, offset):
            if "/bad/" in os.readlink("/proc/self/fd/%d" % self._fd):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return os.pwritev(self._fd, parts, offset)

        SystemFile.write_parts = full
        """
    )
    assert result.returncode == 0
    assert f"closing a store at exit failed, unwritten messages are lost: store={tmp_path / 'bad'}" in result.stderr
    assert records(tmp_path / "good") == 1
    assert records(tmp_path / "bad") == 1


def test_a_forked_child_leaves_its_parents_store_alone_and_flushes_its_own(tmp_path: Path) -> None:
    result = run(
        f"""
        import os, sys, holdfast
        store = holdfast.open({str(tmp_path / "parent")!r}, background=False)
        log = store.log("l")
        log.append(b"before")
        child = os.fork()
        if child == 0:
            mine = holdfast.open({str(tmp_path / "child")!r})
            mine.log("l").append(b"x")
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        log.append(b"after")
        """
    )
    assert result.returncode == 0, result.stderr
    with holdfast.open(tmp_path / "parent") as store:
        assert [record.payload for record in store.log("l").read()] == [b"before", b"after"]
    assert records(tmp_path / "child") == 1


def _append_and_return(folder: str) -> None:
    store = holdfast.open(folder)
    globals()["kept"] = store
    store.log("l").append(b"x")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_flushes_its_stores(tmp_path: Path, method: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
        context: Any = multiprocessing.get_context(method)
        process = context.Process(target=_append_and_return, args=(str(tmp_path),))
        process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    assert records(tmp_path) == 1


def test_daemon_threads_neither_keep_the_process_nor_lose_what_they_appended(tmp_path: Path) -> None:
    result = run(
        f"""
        import threading, holdfast
        store = holdfast.open({str(tmp_path)!r})
        log, queue = store.log("l"), store.queue("q", flush=holdfast.Flush.async_())
        done = threading.Event()

        def work():
            for number in range(500):
                log.append(b"x")
            done.set()
            queue.get(wait=None)

        threading.Thread(target=work, daemon=True).start()
        done.wait()
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert records(tmp_path) == 500


def test_a_transaction_that_never_ends_does_not_keep_the_process(tmp_path: Path) -> None:
    result = run(
        f"""
        import threading, holdfast, holdfast.store
        holdfast.store.EXIT_PATIENCE_S = 0.2
        store = holdfast.open({str(tmp_path)!r})
        store.log("l").append(b"x")
        queue = store.queue("q", flush=holdfast.Flush.async_())
        queue.put_many([b"a", b"b"])
        holding = threading.Event()

        def hold():
            with store.transaction():
                holding.set()
                threading.Event().wait()

        threading.Thread(target=hold, daemon=True).start()
        holding.wait()
        queue.get().ack()
        """
    )
    assert (result.returncode, result.stderr) == (0, "")
    with holdfast.open(tmp_path) as store:
        assert store.log("l").end == 1
        assert [message.payload for message in store.queue("q").lease(9)] == [b"b"]


def test_a_store_that_nobody_has_any_more_loses_nothing_and_is_warned_of(tmp_path: Path) -> None:
    code = f"""
        import gc, holdfast

        def use(background):
            store = holdfast.open({str(tmp_path)!r} + "/" + str(background), background=background)
            store.log("l").append(b"x")
            queue = store.queue("q", flush=holdfast.Flush.async_())
            queue.put_many([b"a", b"b"])
            queue.get().ack()

        use(False)
        use(True)
        gc.collect()
        gc.collect()
    """
    result = run(code, "-W", "default")
    assert result.returncode == 0
    assert "ResourceWarning: 2 stores were open" in result.stderr
    for background in (True, False):
        with holdfast.open(tmp_path / str(background)) as store:
            assert store.log("l").end == 1
            assert [message.payload for message in store.queue("q").lease(9)] == [b"b"]


def test_readers_and_simulated_stores_may_be_dropped_without_a_word(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.log("l").append(b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader = holdfast.open(tmp_path, read_only=True)
        assert reader.log("l").end == 1
        simulated = holdfast.open("data", files=SimFiles(), clock=SimClock(), background=False)
        simulated.log("l").append(b"x")
        del reader, simulated
        gc.collect()


def test_what_is_appended_is_durable_soon_though_the_main_thread_computes(tmp_path: Path) -> None:
    """By the watermark, which a Spark stream goes by too: nobody calls sync, and the owner goes on computing."""
    code = f"""
        import os, holdfast
        store = holdfast.open({str(tmp_path)!r})
        log, queue = store.log("l"), store.queue("q", flush=holdfast.Flush.async_())
        queue.put(b"x")
        for number in range(300):
            log.append(b"x")
        queue.get().ack()
        while os.getppid() == {os.getpid()}:
            sum(range(1000))
    """
    owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    try:
        for folder, end in ((tmp_path / "logs/l", 300), (tmp_path / "logs/q", 1), (tmp_path / "journals/q", 1)):

            def is_durable(folder: Path = folder, end: int = end) -> bool:
                mark = read_watermark(SystemFiles(), folder)
                return mark is not None and mark.durable_end >= end

            until(is_durable, f"{folder} is never synced")
    finally:
        owner.kill()
        owner.wait()
    with holdfast.open(tmp_path, read_only=True) as store:
        assert store.log("l").end == 300


def test_a_log_is_synced_once_after_its_last_write_and_then_left_alone() -> None:
    files, clock = SimFiles(), SimClock()
    with holdfast.open("data", files=files, clock=clock, background=False) as store:
        busy, idle = store.log("busy"), store.log("idle")
        busy.append(b"x")
        idle.append(b"x")
        for _ in range(20):
            clock.advance(0.1)
            store.tick()
        for log in (busy, idle):
            mark = read_watermark(files, log.folder)
            assert mark is not None
            assert mark.durable_end == 1
        before = len(files.trace)
        for _ in range(50):
            clock.advance(0.1)
            busy.append(b"x")
            store.tick()
        later = files.trace[before:]
        assert not [entry for entry in later if "idle" in entry]
        syncs = [entry for entry in later if entry.startswith("sync") and "busy" in entry]
        assert 3 <= len(syncs) <= 7, syncs  # five seconds, a sync for each
        after = files.after_crash("dropped")
    with holdfast.open("data", files=after, clock=clock, background=False) as store:
        assert store.log("busy").end >= 40


def test_a_failed_background_sync_stops_the_log_and_says_so() -> None:
    files, clock = SimFiles(), SimClock()
    store = holdfast.open("data", files=files, clock=clock, background=False)
    log = store.log("l", flush=Flush.async_())
    log.append(b"x")
    log.appender.write_out()
    files.fail("sync", errno.EIO, pattern="*.data")
    for _ in range(20):
        clock.advance(0.1)
        store.tick()
    with pytest.raises(holdfast.WriterStopped, match="fdatasync failed"):
        log.append(b"y")
