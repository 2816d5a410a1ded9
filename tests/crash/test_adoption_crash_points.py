"""Stop the adoption of batches from other processes at every I/O operation: each batch is in the log once, whole."""

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Log, Roll, Store
from holdfast.log import batch_inbox
from holdfast.log.batch_inbox import BatchInbox, Manifest, PartWriter
from holdfast.log.pending_block import PendingBlock
from holdfast.testing import Crash, SimClock, SimFiles, crash_points
from tests.tiers import crash_sample

PATH = Path("data")
PLACED = 1500
"""Parts from this size on are placed whole in these tests."""


@pytest.fixture(autouse=True)
def small_parts_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_inbox, "PLACE_BYTES", PLACED)


def hand_over(
    files: SimFiles, batch: int, sizes: tuple[int, ...], *, query: str = "q", queue: str | None = None
) -> bool:
    """What the tasks and the driver of a batch do: a part a task, then the manifest."""
    incoming = BatchInbox(files, PATH)
    manifest = Manifest("events", queue, query, batch, batch)
    parts = []
    for task, size in enumerate(sizes):
        writer = PartWriter(incoming, manifest, None, batch)
        for block in range(2):
            pending_block = PendingBlock(0, 0, 0)
            pending_block.payloads = [body(batch, task, block, n, size) for n in range(3)]
            pending_block.times = [0] * 3
            pending_block.extras = {"key": {1: b"key"}}
            writer.write(pending_block)
        parts += writer.finish()
    guard = incoming.guard()
    try:
        return incoming.hand_over(Manifest("events", queue, query, batch, batch, parts))
    finally:
        guard.release()


def body(batch: int, task: int, block: int, number: int, size: int) -> bytes:
    return b"%d.%d.%d.%d|" % (batch, task, block, number) + b"x" * size


def bodies(batch: int, sizes: tuple[int, ...]) -> list[bytes]:
    return [
        body(batch, task, block, n, size) for task, size in enumerate(sizes) for block in range(2) for n in range(3)
    ]


Sizes = tuple[int, ...]
BATCHES: dict[int, Sizes] = {0: (10,), 1: (400, 5), 2: (400, 400)}
LAST = 2


class Adoptions:
    """Batches come in between the appends of the owner."""

    def __init__(self, flush: Flush | None = None, roll: Roll | None = None) -> None:
        self.settings = {"flush": flush or Flush.sync(), "roll": roll or Roll.size(1 << 20)}
        self.clock = SimClock()
        self.appended: list[bytes] = []
        self.confirmed = 0
        self.handed: set[int] = set()

    def open(self, files: SimFiles) -> tuple[Store, Log]:
        store = holdfast.open(PATH, files=files, clock=SimClock(), background=False)
        return store, store.log("events", **self.settings)  # type: ignore[arg-type]

    def append(self, log: Log, payload: bytes) -> None:
        self.appended.append(payload)
        log.append(payload)
        if log.settings.flush.mode == "sync":
            self.confirmed = len(self.appended)

    def run(self, files: SimFiles) -> None:
        store, log = self.open(files)
        for batch, sizes in BATCHES.items():
            self.append(log, b"own %d" % batch)
            assert hand_over(files, batch, sizes)
            self.handed.add(batch)
            store.adopt()
            self.confirmed = len(self.appended)  # an adoption syncs what was there before
            self.append(log, b"after %d" % batch)
        assert not hand_over(files, LAST, BATCHES[LAST])
        store.close()

    def check(self, files: SimFiles) -> None:
        store, log = self.open(files)
        store.adopt()
        before = [record.payload for record in log.read()]
        for batch in self.handed:
            assert found(before, bodies(batch, BATCHES[batch])) == 1, f"batch {batch} was handed over"
        for batch, sizes in BATCHES.items():  # the query starts again, and repeats what it is not sure of
            hand_over(files, batch, sizes)
            store.adopt()
        payloads = [record.payload for record in log.read()]
        assert [record.sequence for record in log.read()] == list(range(log.end)), "sequences have a gap"
        for batch, sizes in BATCHES.items():
            assert found(payloads, bodies(batch, sizes)) == 1
        own = [payload for payload in payloads if payload.startswith((b"own", b"after"))]
        assert own == self.appended[: len(own)] and len(own) >= self.confirmed
        assert len(payloads) == len(own) + sum(len(bodies(*item)) for item in BATCHES.items())
        assert {record.key for record in log.read() if b".1|" in record.payload} == {b"key"}
        assert log.verify().ok and not log.damage
        assert log.append(b"on") == len(payloads)
        assert hand_over(files, LAST + 1, (1,))
        store.adopt()
        assert not files.list(PATH / "incoming" / "parts"), "parts are left"
        store.close()
        with holdfast.open(PATH, files=files, clock=SimClock(), background=False, read_only=True) as reader:
            assert [one.payload for one in reader.log("events").read()] == [*payloads, b"on", *bodies(LAST + 1, (1,))]


def found(payloads: list[bytes], batch: list[bytes]) -> int:
    """How often a batch is there, side by side and in order; no record of it may be anywhere else."""
    places = [at for at, payload in enumerate(payloads) if payload == batch[0]]
    assert sum(payloads.count(one) for one in set(batch)) == len(places) * len(batch)
    assert all(payloads[at : at + len(batch)] == batch for at in places)
    return len(places)


SCENARIOS: dict[str, Callable[[], Adoptions]] = {
    "sync": Adoptions,
    "async": lambda: Adoptions(Flush.async_()),
    "rolls": lambda: Adoptions(roll=Roll.count(5)),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_crash_loses_or_doubles_a_batch(name: str) -> None:
    assert crash_sample(SCENARIOS[name], seeds=(0,), every=5) > 500


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_suite_fails_when_fsync_does_nothing(name: str) -> None:
    with pytest.raises(AssertionError):
        crash_points(SCENARIOS[name], files=lambda seed: SimFiles(seed, lose_syncs=True), modes=("dropped",))


class Finishing(Adoptions):
    """Opening what a crash has left, and taking over what waits, is the whole of the work."""

    def __init__(self, work: Adoptions) -> None:
        self.__dict__ = work.__dict__

    def run(self, files: SimFiles) -> None:
        store, _ = self.open(files)
        store.adopt()


@pytest.mark.parametrize("name", SCENARIOS)
def test_finishing_may_be_cut_off_anywhere_too(name: str) -> None:
    whole = SimFiles()
    SCENARIOS[name]().run(whole)
    for stop in range(whole.operations // 5, whole.operations, max(1, whole.operations // 9)):
        work = SCENARIOS[name]()
        crashed = SimFiles(stop)
        crashed.crash_at(stop)
        with pytest.raises(Crash):
            work.run(crashed)
        crash_sample(
            lambda work=work: Finishing(work),  # type: ignore[misc]
            files=lambda _, crashed=crashed, stop=stop: crashed.after_crash("torn", stop),  # type: ignore[misc]
            modes=("dropped", "reordered"),
            seeds=(0,),
            confirms=False,
            every=5,
        )
