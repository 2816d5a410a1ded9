"""Real disks that are full for a while: an ext4 and a tmpfs of a few megabytes, and where nobody may mount, a limit."""

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import DiskFull, Flush, LeaseLost, Message, StorageError
from tests.disks import PATIENCE_S


@contextlib.contextmanager
def mounted(command: list[str], folder: Path) -> Iterator[Path]:
    try:
        subprocess.run([*command, str(folder)], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True, timeout=60)


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """An empty ext4 of 30 MB."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4")
    with image.open("wb") as file:
        file.truncate(30 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True, timeout=60)
    folder.mkdir()
    with mounted(["mount", "-o", "loop", str(image)], folder) as found:
        yield found


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A store's folder `state` on a disk of 3 MB of its own."""
    folder = tmp_path / "data" / "state"
    folder.mkdir(parents=True)
    with mounted(["mount", "-t", "tmpfs", "-o", "size=3m", "none"], folder) as found:
        yield found


def fill(folder: Path, name: str = "ballast", *, but: int = 0) -> Path:
    """Fill the disk with a file, to its last byte or up to so many, and return the file."""
    ballast = folder / name
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while shutil.disk_usage(folder).free >= but + size or not but:
                    file.write(bytes(size))
    return ballast


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.batch(), Flush.async_()], ids=lambda flush: flush.mode)
def test_nothing_acked_returns_when_a_disk_was_full_for_a_while(ext4: Path, flush: Flush) -> None:
    """A queue that is younger than its first checkpoint: all that is known of its acks is in its journal."""
    fill(ext4, "others", but=2 << 20)  # else RocksDB takes 9 MB ahead, and can write when nobody else can
    store = holdfast.open(ext4 / "data")
    queue = store.queue("orders", flush=flush, lease=0.5, max_attempts=None)
    put = set(queue.put_many([b"%d" % n for n in range(8000)]))
    acked: set[int] = set()
    doubtful: set[int] = set()

    def work() -> None:
        """Ack two of five messages, and give the others back with much to write into the journal."""
        messages = queue.lease(5)
        again = {message.id for message in messages} & acked
        assert not again, f"{sorted(again)} were acked, and come again"
        for message in messages[:2]:
            doubtful.add(message.id)
            if message.ack():
                acked.add(message.id)
                doubtful.discard(message.id)
        with contextlib.suppress(LeaseLost):
            queue.nack(messages[2:], "no" * 400, delay=0)

    for _ in range(10):
        work()
    for _ in range(2):
        failures = 0
        ballast = fill(ext4)
        for _ in range(1500):
            if failures < 40:
                try:
                    work()
                except StorageError:
                    failures += 1
        ballast.unlink()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                work()
                put.add(queue.put(b"more"))
                break
            except StorageError:  # a log tries again a second after a failed sync
                assert time.monotonic() < deadline, "the queue does not work again"
                time.sleep(0.05)
        assert failures > 20
    eventually(lambda: queue.stats().leased == 0)
    left = {message.id for message in queue.lease(10_000, lease=600)}
    assert not left & acked
    assert put - acked - doubtful <= left
    store.close()
    with holdfast.open(ext4 / "data") as store:
        stats = store.queue("orders", flush=flush).stats()
        assert (stats.ready, stats.leased) == (0, len(left))


def test_checkpoints_resume_after_the_disk_of_the_state_was_full(state: Path) -> None:
    delayed = [Message(b"x", priority=n % 5, delay=3600 + n) for n in range(3000)]
    with holdfast.open(state.parent) as store:
        queue, other = store.queue("orders", flush=Flush.async_()), store.queue("others")
        other.put(b"y")
        queue.put_many(delayed)
        queue.checkpoint()
        ballast = fill(state)
        queue.put_many(delayed)
        with pytest.raises(DiskFull):
            queue.checkpoint()
        with pytest.raises(DiskFull, match="state"):
            queue.checkpoint()
        stats = queue.stats()
        assert stats.checkpoint_failures == 2
        assert "No space left on device" in (stats.checkpoint_error or "")
        assert store.failing_checkpoints().keys() == {"orders"}
        queue.put(b"goes on")
        message = queue.get()
        assert message is not None and message.payload == b"goes on" and message.ack()
        assert (queue.stats().delayed, other.stats().ready) == (6000, 1)
        ballast.unlink()
        queue.checkpoint()
        assert (queue.stats().checkpoint_error, queue.stats().checkpoint_failing_since) == (None, None)
        assert (queue.stats().delayed, queue.stats().total_acked) == (6000, 1)
        other.ack(other.lease())
        other.checkpoint()
    with holdfast.open(state.parent) as store:
        stats = store.queue("orders").stats()
        assert (stats.delayed, stats.total_acked, stats.orphans) == (6000, 1, 0)
        assert store.queue("others").stats().total_acked == 1


def test_the_background_makes_the_checkpoint_when_there_is_room_again(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.queue.checkpoint_store.CHECKPOINT_INTERVAL_S", 0.1)
    with holdfast.open(state.parent) as store:
        queue = store.queue("orders")
        queue.put_many([Message(b"x", delay=3600) for _ in range(3000)])
        ballast = fill(state)
        eventually(lambda: queue.stats().checkpoint_failing_since is not None)
        ballast.unlink()
        eventually(lambda: queue.stats().checkpoint_failing_since is None)
        assert queue.stats().delayed == 3000


LIMITED = """
import resource, sys
import holdfast
from holdfast import Message, StorageError

store = holdfast.open(sys.argv[1])
queue = store.queue("orders", flush=holdfast.Flush.async_())
queue.put(b"first")
queue.checkpoint()
queue.put_many([Message(b"x", priority=n % 5, delay=3600 + n) for n in range(3000)])
queue.sync()
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
failed = []
for _ in range(2):
    try:
        queue.checkpoint()
    except StorageError as error:
        failed.append(str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert len(failed) == 2, failed
assert queue.stats().checkpoint_failures == 2
assert "File too large" in queue.stats().checkpoint_error, queue.stats().checkpoint_error
assert queue.get().ack()
queue.checkpoint()
assert queue.stats().checkpoint_error is None
store.close()
with holdfast.open(sys.argv[1]) as store:
    stats = store.queue("orders").stats()
    assert (stats.delayed, stats.total_acked) == (3000, 1), stats
print("done")
"""


def test_checkpoints_resume_after_rocksdb_could_not_write(tmp_path: Path) -> None:
    """Everywhere: no file of the process may grow for a while."""
    child = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S * 2,
    )
    assert child.stdout == "done\n", child.stderr
