"""`confirm="replica"`: what waits for the bucket, what does not, and what those who wait are told."""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdfast
from holdfast import Flush, InvalidArgument, NotConfirmed, ReplicaFenced, StorageError, Store
from holdfast.amqp.settings import load
from holdfast.base.bucket import Bucket
from holdfast.base.clock import SystemClock
from holdfast.base.confirm_gate import ConfirmGate
from holdfast.base.errors import HoldfastError
from holdfast.base.files import File, Mode, SystemFile, SystemFiles
from holdfast.replica import restore
from holdfast.replica.folder_bucket import FolderBucket
from holdfast.replica.manifest import list_moments, read_manifest
from holdfast.testing import SimBucket, SimClock, SimFiles
from tests.base.internals import descriptor_of
from tests.interrupts import Interrupted, Interrupts, handled_by
from tests.replica.work import Account

_PATIENCE_S = 120.0


class Simulated:
    """A store on a simulated disk that confirms by a simulated bucket, without threads."""

    def __init__(self) -> None:
        self.clock, self.files = SimClock(), SimFiles()
        self.bucket = SimBucket(clock=self.clock)

    def open(self, **settings: Any) -> Store:
        settings = {"replica": self.bucket, "confirm": "replica", **settings}
        return holdfast.open("data", files=self.files, clock=self.clock, background=False, **settings)

    @property
    def restored(self) -> dict[str, int]:
        """The messages of each queue in the newest moment."""
        return restore(self.bucket.after_stop(), "restored", files=SimFiles()).queues


@pytest.fixture
def simulated() -> Simulated:
    return Simulated()


def test_a_put_returns_when_its_message_is_in_the_bucket(simulated: Simulated) -> None:
    with simulated.open() as store:
        for number in range(5):
            store.queue("work").put(b"%d" % number)
            assert simulated.restored == {"work": number + 1}


def test_a_weaker_flush_mode_waits_for_nothing_until_it_is_synced(simulated: Simulated) -> None:
    with simulated.open() as store:
        queue = store.queue("work", flush=Flush.async_())
        before = simulated.bucket.operations
        queue.put_many([b"1", b"2"])
        queue.lease(1)[0].ack()
        assert simulated.bucket.operations == before
        queue.sync()
        assert simulated.restored == {"work": 1}


def test_a_lease_and_a_read_wait_for_nothing(simulated: Simulated) -> None:
    with simulated.open() as store:
        queue = store.queue("work")
        queue.put(b"1")
        before = simulated.bucket.operations
        assert [one.payload for one in queue.lease(1)] == [b"1"]
        queue.stats()
        assert simulated.bucket.operations == before


def test_a_put_in_a_transaction_waits_only_at_the_end(simulated: Simulated) -> None:
    with simulated.open() as store:
        queue, accounts = store.queue("work"), store.table(Account)
        queue.put(b"before")
        with store.transaction():
            before = simulated.bucket.operations
            queue.put(b"1")
            queue.put_many([b"2", b"3"])
            accounts.add({"name": "ann"})
            assert simulated.bucket.operations == before
        found = restore(simulated.bucket, "restored", files=SimFiles())
        assert (found.queues, found.tables) == ({"work": 4}, {"Account": 1})


def test_a_duplicate_waits_for_the_message_that_was_put_before(simulated: Simulated) -> None:
    with simulated.open(confirm_timeout=5) as store:
        queue = store.queue("work")
        queue.put(b"0")
        simulated.bucket.outage()
        for _ in range(2):
            with pytest.raises(NotConfirmed):
                queue.put(b"1", dedup="a")
        simulated.bucket.heal()
        queue.put(b"1", dedup="a")
        assert simulated.restored == {"work": 2}


def test_a_call_waits_until_the_bucket_answers_again(simulated: Simulated) -> None:
    with simulated.open() as store:
        store.queue("work").put(b"1")
        simulated.bucket.outage(10)
        store.queue("work").put(b"2")
        assert simulated.restored == {"work": 2}


def test_after_the_timeout_the_message_is_here_and_is_shipped_later(simulated: Simulated) -> None:
    with simulated.open(confirm_timeout=5) as store:
        queue = store.queue("work")
        queue.put(b"1")
        simulated.bucket.outage()
        began = simulated.clock.monotonic()
        with pytest.raises(NotConfirmed, match="on the local disk and is not confirmed; it is shipped when") as late:
            queue.put(b"2")
        assert "no answer" in str(late.value)
        assert 5 <= simulated.clock.monotonic() - began < 7
        assert queue.stats().ready == 2
        assert simulated.restored == {"work": 1}
        simulated.bucket.heal()
        store.tick()
        simulated.clock.advance(60)
        store.tick()
        assert simulated.restored == {"work": 2}


def test_without_a_timeout_a_call_waits_for_an_hour(simulated: Simulated) -> None:
    with simulated.open(confirm_timeout=None) as store:
        store.queue("work").put(b"1")
        simulated.bucket.outage(3600)
        store.queue("work").put(b"2")
        assert simulated.restored == {"work": 2}


def test_an_owner_that_lost_the_replica_confirms_nothing_and_writes_nothing(simulated: Simulated) -> None:
    with simulated.open() as store:
        queue, log = store.queue("work"), store.log("events", flush=Flush.sync())
        accounts: Any = store.table(Account)
        queue.put(b"1")
        owner = simulated.bucket.snapshot()["owner.json"]
        restore(simulated.bucket, "other", files=(other := SimFiles()), verify=False)
        clock = SimClock(simulated.clock.time_ns())
        with holdfast.open("other", files=other, clock=clock, background=False, replica=simulated.bucket):
            assert simulated.bucket.snapshot()["owner.json"] != owner
        simulated.clock.advance(30)
        with pytest.raises(ReplicaFenced):
            queue.put(b"2")
        ends = queue.log.end, log.end, accounts.log.end
        for write in (
            lambda: queue.put(b"3"),
            lambda: queue.put_many([b"3"]),
            lambda: log.append(b"3"),
            lambda: log.append_many([b"3"]),
            lambda: accounts.add({"name": "ann"}),
            queue.purge,
        ):
            with pytest.raises(ReplicaFenced):
                write()
        assert (queue.log.end, log.end, accounts.log.end) == ends
        assert store.replica.status().role == "fenced"


def test_a_moment_that_arrives_after_the_claim_has_run_out_confirms_nothing(simulated: Simulated) -> None:
    class Slow(SimBucket):
        """A bucket whose answer to a manifest takes longer than the claim is valid."""

        slow = False

        def put_if_absent(self, key: str, content: bytes) -> str | None:
            done = super().put_if_absent(key, content)
            if self.slow:
                simulated.clock.advance(30)
            return done

        def compare_and_swap(self, key: str, content: bytes, etag: str) -> str | None:
            if self.slow:
                raise holdfast.ReplicaUnavailable("cut off")
            return super().compare_and_swap(key, content, etag)

    simulated.bucket = bucket = Slow(clock=simulated.clock)
    with simulated.open(confirm_timeout=20) as store:
        store.queue("work").put(b"1")
        bucket.slow = True
        with pytest.raises(NotConfirmed):
            store.queue("work").put(b"2")


def test_a_gate_that_only_checks_refuses_before_anything_is_written(simulated: Simulated) -> None:
    lost: list[HoldfastError] = []

    def check() -> None:
        if lost:
            raise lost[0]

    with simulated.open(confirm="local") as store:
        store.gate.begin(check=check, waits=False)
        queue = store.queue("work")
        before = simulated.bucket.operations
        queue.put(b"1")
        assert simulated.bucket.operations == before
        lost.append(ReplicaFenced("another process may own the replica"))
        with pytest.raises(ReplicaFenced):
            queue.put(b"2")
        assert queue.log.end == 1
        told: list[HoldfastError | None] = []
        store.gate.then(told.append)
        assert told == lost


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"replica": None}, "needs a replica"),
        ({"confirm_timeout": 0}, "confirm_timeout must be more than zero"),
        ({"confirm_timeout": "soon"}, "confirm_timeout must be seconds"),
    ],
)
def test_settings_that_cannot_be_are_refused(simulated: Simulated, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        simulated.open(**settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"HOLDFAST_CONFIRM": "replica"}, "no replica is set"),
        ({"HOLDFAST_CONFIRM": "soon"}, "must be local or replica"),
        ({"HOLDFAST_CONFIRM_TIMEOUT": "-1"}, "must not be negative"),
    ],
)
def test_settings_of_a_server_that_cannot_be_are_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        load(None, settings, {})


def test_small_changes_are_in_the_manifest_and_become_objects_of_their_own_later(simulated: Simulated) -> None:
    with simulated.open() as store:
        queue, other = store.queue("work"), store.queue("other")
        other.put(b"x" * 20_000)
        sizes = []
        for _ in range(80):
            queue.put(os.urandom(1000))
            newest = list_moments(simulated.bucket)[-1]
            sizes.append(len(simulated.bucket.snapshot()[newest.key]))
        manifest = read_manifest(simulated.bucket, newest)
        assert any(part.inline for log in manifest.logs for _, part in log.parts())
        assert any(key.startswith("logs/work/") for key in simulated.bucket.snapshot())
        assert max(sizes) < 80_000
    assert simulated.restored == {"work": 80, "other": 1}


def test_inline_parts_of_many_quiet_logs_become_objects(simulated: Simulated) -> None:
    with simulated.open() as store:
        for number in range(12):
            store.queue(f"q{number}").put(os.urandom(20_000))
            newest = list_moments(simulated.bucket)[-1]
            assert len(simulated.bucket.snapshot()[newest.key]) < 200_000
    assert simulated.restored == {f"q{number}": 1 for number in range(12)}


# With threads, and a folder as the bucket.


class Held(FolderBucket):
    """A bucket that keeps manifests waiting until it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.arrived, self.free = threading.Event(), threading.Event()
        self.free.set()
        self.manifests = 0

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        if key.startswith("manifest/"):
            self.arrived.set()
            assert self.free.wait(_PATIENCE_S)
            self.manifests += 1
        return super().put_if_absent(key, content)


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path / "replica")


@pytest.fixture
def served(tmp_path: Path, held: Held) -> Iterator[Store]:
    with confirming(tmp_path, held) as store:
        store.queue("work").put(b"first")
        yield store
        held.free.set()


def confirming(tmp_path: Path, bucket: Bucket, timeout: float | None = _PATIENCE_S) -> Store:
    return holdfast.open(tmp_path / "data", replica=bucket, confirm="replica", confirm_timeout=timeout)


def started(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Run something on a thread; what it returns or raises is in the list."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never happens"
        time.sleep(0.005)


def hold(held: Held) -> None:
    held.arrived.clear()
    held.free.clear()


def test_a_put_does_not_return_before_its_manifest_is_there(served: Store, held: Held) -> None:
    hold(held)
    thread, results = started(lambda: served.queue("work").put(b"second"))
    assert held.arrived.wait(_PATIENCE_S)
    assert served.queue("work").stats().ready == 2, "it is visible here already"
    status = served.replica.status()
    assert (status.confirm, status.waiting, results) == ("replica", 1, [])
    assert status.waiting_seconds > 0
    held.free.set()
    thread.join()
    assert results == [1]
    assert served.replica.status().waiting == 0


def test_those_who_come_during_a_round_share_the_next_one(served: Store, held: Held) -> None:
    hold(held)
    first, _ = started(lambda: served.queue("work").put(b"0"))
    assert held.arrived.wait(_PATIENCE_S)
    before = held.manifests
    others = [started(lambda: served.queue("work").put(b"x"))[0] for _ in range(20)]
    until(lambda: served.replica.status().waiting == 21)
    held.free.set()
    for thread in [first, *others]:
        thread.join()
    assert held.manifests == before + 2


def test_a_put_that_waits_for_too_long_raises_while_the_bucket_hangs(tmp_path: Path, held: Held) -> None:
    with confirming(tmp_path, held, timeout=0.2) as store:
        hold(held)
        with pytest.raises(NotConfirmed, match="the bucket is slow"):
            store.queue("work").put(b"first")
        assert store.replica.status().waiting == 0
        held.free.set()
    assert restore(held, tmp_path / "restored").queues == {"work": 1}


def test_closing_ships_what_others_wait_for(tmp_path: Path, held: Held) -> None:
    store = confirming(tmp_path, held)
    queue = store.queue("work")
    queue.put(b"first")
    hold(held)
    waiting = [started(lambda: queue.put(b"x")) for _ in range(5)]
    until(lambda: store.replica.status().waiting == 5)
    closing, _ = started(store.close)
    held.free.set()
    for thread, results in waiting:
        thread.join()
        assert results[0] in range(1, 6)
    closing.join()
    assert restore(held, tmp_path / "restored").queues == {"work": 6}


class Broken(Held):
    """A bucket to which nothing can be written any more."""

    broken = False

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        if self.broken:
            raise holdfast.ReplicaUnavailable("broken")
        return super().put_if_absent(key, content)


def test_closing_without_the_bucket_answers_those_who_wait(tmp_path: Path) -> None:
    bucket = Broken(tmp_path / "replica")
    store = confirming(tmp_path, bucket, timeout=None)
    queue = store.queue("work")
    queue.put(b"first")
    bucket.broken = True
    thread, results = started(lambda: queue.put(b"second"))
    until(lambda: store.replica.status().waiting == 1)
    store.close()
    thread.join()
    assert isinstance(results[0], NotConfirmed)
    assert "shipped when the store is opened again" in str(results[0])
    bucket.broken = False
    with confirming(tmp_path, bucket) as store:
        store.replica.ship()
    assert restore(bucket, tmp_path / "restored").queues == {"work": 2}


def test_calls_that_wait_go_on_when_a_broken_bucket_works_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = Broken(tmp_path / "replica")
    with confirming(tmp_path, bucket) as store:
        queue = store.queue("work")
        queue.put(b"first")
        bucket.broken = True
        thread, results = started(lambda: queue.put(b"second"))
        until(lambda: store.replica.status().error is not None)
        bucket.broken = False
        thread.join(_PATIENCE_S)
        assert results == [1]
    assert "shipping failed, will retry" in caplog.text


class SlowParts(FolderBucket):
    """A bucket that keeps parts waiting until it is let go, and puts manifests at once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.arrived, self.free = threading.Event(), threading.Event()

    def put(self, key: str, content: bytes) -> None:
        self.arrived.set()
        assert self.free.wait(_PATIENCE_S)
        super().put(key, content)


def inlined(bucket: Bucket, folder: str) -> int:
    """How many bytes of a log are in the newest manifest itself."""
    logs = read_manifest(bucket, list_moments(bucket)[-1]).logs
    return sum(len(content) for log in logs if log.folder == folder for content in log.inlined)


def test_no_call_waits_for_the_upload_of_what_manifests_repeat(tmp_path: Path) -> None:
    bucket = SlowParts(tmp_path / "replica")
    expected: dict[str, list[bytes]] = {"work": [], "other": []}

    def put(name: str, size: int) -> None:
        expected[name].append(os.urandom(size))
        store.queue(name).put(expected[name][-1])

    with confirming(tmp_path, bucket) as store:
        while not bucket.arrived.is_set():
            put("work", 20_000)
        put("work", 5_000)  # behind the part that is being uploaded
        put("other", 1_000)
        before = inlined(bucket, "logs/work")
        bucket.free.set()
        until(lambda: any("logs/work" in one.key for one in bucket.list("logs/")))
        until(lambda: put("other", 10) or inlined(bucket, "logs/work") < before)  # type: ignore[func-returns-value]
        assert inlined(bucket, "logs/work") > 5_000, "what came later is still in the manifest"
        for moment in list_moments(bucket):
            assert {one.key for one in bucket.list("")} >= set(read_manifest(bucket, moment).keys())
    restore(bucket, tmp_path / "restored")
    with holdfast.open(tmp_path / "restored") as store:
        for name, payloads in expected.items():
            assert [one.payload for one in store.queue(name).peek(len(payloads) + 1)] == payloads


def test_many_threads_put_parts_behind_each_other_and_lose_nothing(tmp_path: Path) -> None:
    bucket = FolderBucket(tmp_path / "replica")
    with confirming(tmp_path, bucket) as store:
        threads = [
            started(lambda number=number: [store.queue(f"q{number % 3}").put(os.urandom(6_000)) for _ in range(40)])  # type: ignore[misc]
            for number in range(12)
        ]
        for thread, results in threads:
            thread.join()
            assert isinstance(results[0], list)
        for moment in list_moments(bucket):
            assert {one.key for one in bucket.list("")} >= set(read_manifest(bucket, moment).keys())
        assert restore(bucket, tmp_path / "restored").queues == {"q0": 160, "q1": 160, "q2": 160}


class BadDisk(SystemFiles):
    """Real files. The next sync of a segment waits until it is let go, and fails if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived, self.let_go = threading.Event(), threading.Event()
        self.fails = False
        self.let_go.set()

    def open(self, path: Path, mode: Mode) -> File:
        found = super().open(path, mode)
        if path.suffix != ".data" or mode == "r":
            return found
        other = _BadFile(os.dup(descriptor_of(found)), self)
        found.close()
        return other


class _BadFile(SystemFile):
    __slots__ = ("_disk",)

    def __init__(self, fd: int, disk: BadDisk) -> None:
        super().__init__(fd)
        self._disk = disk

    def sync(self) -> None:
        if not self._disk.let_go.is_set():
            self._disk.arrived.set()
            assert self._disk.let_go.wait(_PATIENCE_S)
            if self._disk.fails:
                raise OSError(errno.EIO, "the disk is broken")
        super().sync()


@pytest.fixture
def bad_disk(tmp_path: Path) -> Iterator[tuple[Store, BadDisk]]:
    files, bucket = BadDisk(), FolderBucket(tmp_path / "replica")
    with holdfast.open(tmp_path / "data", files=files, replica=bucket, confirm="replica") as store:
        store.queue("work").put(b"first")
        files.let_go.clear()
        yield store, files
        files.let_go.set()


def test_all_who_share_a_block_get_the_error_of_the_disk(bad_disk: tuple[Store, BadDisk], tmp_path: Path) -> None:
    store, disk = bad_disk
    disk.fails = True
    first = started(lambda: store.queue("work").put(b"0"))
    assert disk.arrived.wait(_PATIENCE_S)
    others = [started(lambda: store.queue("work").put(b"x")) for _ in range(8)]
    until(lambda: store.replica.status().waiting >= 1)
    disk.let_go.set()
    for thread, results in [first, *others]:
        thread.join()
        assert isinstance(results[0], StorageError | int), results
    failed = [results[0] for _, results in [first, *others] if isinstance(results[0], StorageError)]
    assert failed
    put = 1 + sum(isinstance(results[0], int) for _, results in [first, *others])
    disk.fails = False
    until(store.queue("work").log.appender.recover)
    assert store.queue("work").put(b"last") == put
    assert restore(FolderBucket(tmp_path / "replica"), tmp_path / "restored").queues == {"work": put + 1}


def test_a_put_that_was_not_confirmed_is_on_the_disk_when_it_raises(tmp_path: Path) -> None:
    files, bucket = BadDisk(), Held(tmp_path / "replica")
    with holdfast.open(tmp_path / "data", files=files, replica=bucket, confirm="replica", confirm_timeout=0.3) as store:
        queue = store.queue("work")
        queue.put(b"first")
        hold(bucket)
        files.let_go.clear()
        leader, _ = started(lambda: queue.put(b"0"))
        assert files.arrived.wait(_PATIENCE_S)
        follower, results = started(lambda: queue.put(b"1"))
        follower.join(0.8)
        assert follower.is_alive() and not results, "it must not say that the message is on the disk"
        files.let_go.set()
        for thread in (leader, follower):
            thread.join()
        assert isinstance(results[0], NotConfirmed)
        assert queue.stats().ready == 3
        bucket.free.set()


def test_metrics_say_how_many_wait_and_for_how_long(served: Store, held: Held) -> None:
    hold(held)
    thread, _ = started(lambda: served.queue("work").put(b"second"))
    until(lambda: served.replica.status().waiting == 1)
    until(lambda: value(served, "holdfast_replica_waiting") == 1)
    assert value(served, "holdfast_replica_waiting_seconds") > 0
    held.free.set()
    thread.join()
    assert served.metrics.histogram("holdfast_replica_confirm_seconds", "").count == 2


def value(store: Store, name: str) -> float:
    return next(float(str(one.value)) for one in store.metrics.collect() if one.name == name)


# The gate alone.


def test_a_callback_is_called_once_and_expires() -> None:
    clock = SimClock()
    gate = ConfirmGate(clock)
    gate.begin(check=lambda: None, waits=True, timeout=5)
    told: list[tuple[str, HoldfastError | None]] = []
    gate.then(lambda error: told.append(("first", error)))
    round_ = gate.waiting()
    clock.advance(3)
    gate.then(lambda error: told.append(("second", error)))
    gate.release(round_)
    gate.release(round_)
    assert told == [("first", None)]
    clock.advance(4)
    gate.expire()
    assert len(told) == 1
    clock.advance(2)
    gate.expire()
    assert told[1][0] == "second"
    assert isinstance(told[1][1], NotConfirmed)
    assert gate.count == 0
    gate.end("closed")
    gate.then(lambda error: told.append(("third", error)))
    assert isinstance(told[2][1], NotConfirmed)


def test_a_callback_that_fails_does_not_keep_others_waiting(caplog: pytest.LogCaptureFixture) -> None:
    gate = ConfirmGate(SimClock())
    gate.begin(check=lambda: None, waits=True)
    told: list[HoldfastError | None] = []
    gate.then(lambda error: 1 / 0)  # type: ignore[arg-type]
    gate.then(told.append)
    gate.release(gate.waiting())
    assert told == [None]
    assert "answering a caller that waited for the replica failed" in caplog.text


def answering() -> ConfirmGate:
    """A gate that answers each call at once."""
    gate = ConfirmGate(SystemClock())
    gate.begin(check=lambda: None, waits=True, timeout=_PATIENCE_S, wake=lambda: gate.release(gate.waiting()))
    return gate


def test_a_wait_that_a_signal_handler_cuts_off_anywhere_leaves_nothing_behind() -> None:
    counting = Interrupts(1 << 60)
    counting.run(answering().confirm)
    raised = 0
    for place in range(counting.count):
        gate = answering()
        interrupts = Interrupts(place)

        def interrupted(gate: ConfirmGate = gate) -> None:
            try:  # noqa: SIM105 - `suppress` is Python code, which would be interrupted itself
                gate.confirm()
            except Interrupted:
                pass

        interrupts.run(interrupted)
        raised += interrupts.raised
        gate.release(gate.waiting())
        assert gate.count == 0
        gate.confirm()
    assert raised > 5


def test_a_thread_that_is_cut_off_before_it_wakes_the_next_ones_keeps_nobody_waiting() -> None:
    def waiting_gate() -> tuple[ConfirmGate, list[tuple[threading.Thread, list[object]]]]:
        gate = ConfirmGate(SystemClock())
        gate.begin(check=lambda: None, waits=True, timeout=_PATIENCE_S)
        return gate, [started(gate.confirm) for _ in range(6)]

    def cut_off(place: int) -> Interrupts:
        gate, threads = waiting_gate()
        until(lambda: gate.count == 6)
        interrupts = Interrupts(place)

        def wake() -> None:
            round_ = gate.waiting()
            gate.release([*round_[-1:], *round_[:-1]])  # the main thread is the first

        gate.begin(check=lambda: None, waits=True, timeout=_PATIENCE_S, wake=wake)

        def interrupted() -> None:
            try:  # noqa: SIM105 - see below
                gate.confirm()
            except Interrupted:
                pass

        interrupts.run(interrupted)
        gate.release(gate.waiting())
        for thread, results in threads:
            thread.join(_PATIENCE_S)
            assert results == [None], f"a thread waits after {interrupts.where}"
        return interrupts

    count = cut_off(1 << 60).count
    assert sum(cut_off(place).raised for place in range(0, count, 7)) > 3


def test_ctrl_c_ends_a_put_that_waits(served: Store, held: Held) -> None:
    hold(held)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    def alarm() -> None:
        until(lambda: served.replica.status().waiting == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    with handled_by(interrupt):
        thread, _ = started(alarm)
        with pytest.raises(Interrupted):
            served.queue("work").put(b"second")
        thread.join()
    assert served.replica.status().waiting == 0
    held.free.set()
    assert served.queue("work").put(b"third") == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_wait_for_the_parents_threads(tmp_path: Path, held: Held) -> None:
    with confirming(tmp_path, held) as store:
        log = store.log("events", flush=Flush.sync())
        log.append(b"1")
        child = os.fork()
        if not child:
            try:
                log.append(b"2")
            except holdfast.Closed:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        log.append(b"3")
