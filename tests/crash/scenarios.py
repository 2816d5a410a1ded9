"""Work on a log that may be cut off anywhere, with what must hold of it afterwards."""

from collections.abc import Callable
from itertools import pairwise

import holdfast
from holdfast import Flush, Log, Message, Record, Retention, Roll, Store
from holdfast.testing import SimClock, SimFiles
from tests.log.internals import file_lock

PATH = "data"


def open_store(files: SimFiles, clock: SimClock | None = None) -> Store:
    return holdfast.open(PATH, files=files, clock=clock or SimClock(), background=False)


def disk_without_lock(files: SimFiles) -> dict[str, bytes]:
    return {path: content for path, content in files.snapshot().items() if not path.endswith("LOCK")}


class LogWork:
    """A scenario: steps on one log, and the ledger of what was handed in and what was confirmed."""

    def __init__(self, steps: Callable[["LogWork"], None], **settings: object) -> None:
        self.steps = steps
        self.settings = settings
        self.clock = SimClock()
        self.attempted: dict[int, Message] = {}
        self.confirmed: set[int] = set()
        self.may_drop_below = 0
        self.committed = 0
        self.committing = 0
        self.log: Log
        self.store: Store
        self.files: SimFiles

    # steps ------------------------------------------------------------------

    def append(self, *messages: Message | bytes) -> None:
        """Append as one; under `sync` the return confirms."""
        first = self.log.end
        for position, message in enumerate(messages):
            self.attempted[first + position] = message if isinstance(message, Message) else Message(message)
        if len(messages) == 1 and isinstance(messages[0], bytes):
            assert self.log.append(messages[0]) == first
        else:
            assert self.log.append_many(messages) == range(first, first + len(messages))
        if self.log.settings.flush.mode == "sync":
            self.confirmed.update(range(first, first + len(messages)))

    def sync(self) -> None:
        end = self.log.end
        self.log.sync()
        self.confirmed.update(range(end))

    def sync_beside(self, *others: bytes) -> None:
        """Sync, and while the disk works others append and write: that is not confirmed by it."""
        end, waiting = self.log.end, list(others)

        def write_more(path: str) -> None:
            if path.endswith(".data") and waiting and not file_lock(self.log).locked():
                self.append(waiting.pop())
                self.log.appender.write_out()

        self.files.meanwhile = write_more
        self.log.appender.sync_without_notifying()
        self.files.meanwhile = None
        assert not waiting
        self.confirmed.update(range(end))

    def pass_time(self, seconds: float) -> None:
        """Let the background work of a batch log fall due: what was appended before is confirmed by it."""
        end = self.log.end
        self.store.tick()
        self.clock.advance(seconds)
        self.store.tick()
        if self.log.settings.flush.mode == "batch":
            self.confirmed.update(range(end))

    def commit(self, name: str, count: int) -> None:
        tailer = self.log.tailer(name)
        tailer.read_many(count)
        self.committing = tailer.position
        tailer.commit()
        self.committed = self.committing

    def compact(self, retention: Retention) -> None:
        self.may_drop_below = max(self.may_drop_below, self.committing or self.log.end)
        self.log.compact(retention=retention)

    # Scenario ---------------------------------------------------------------

    def run(self, files: SimFiles) -> None:
        self.files = files
        self.store = open_store(files, self.clock)
        self.log = self.store.log("events", **self.settings)  # type: ignore[arg-type]
        self.steps(self)
        self.store.close()
        self.confirmed.update(self.attempted)

    def check(self, files: SimFiles) -> None:
        with open_store(files) as store:
            log = store.log("events", **self.settings)  # type: ignore[arg-type]
            records = list(log.read())
            self.check_records(log, records)
            assert log.verify().ok
            assert not log.damage, "a crash was taken for damage"
            tailer = log.tailer("reader")
            assert self.committed <= tailer.position <= max(self.committing, log.start)
        before = disk_without_lock(files)
        with open_store(files) as store:
            assert list(store.log("events", **self.settings).read()) == records  # type: ignore[arg-type]
        assert disk_without_lock(files) == before, "a second recovery changed something"
        with open_store(files) as store:
            log = store.log("events", **self.settings)  # type: ignore[arg-type]
            assert log.append(b"and on") == (records[-1].sequence + 1 if records else log.end - 1)
            log.sync()
            assert list(log.read())[-1].payload == b"and on"

    def check_records(self, log: Log, records: list[Record]) -> None:
        sequences = [record.sequence for record in records]
        assert sequences == list(range(log.start, log.end)), "sequences have a gap"
        lost = {sequence for sequence in self.confirmed if sequence >= self.may_drop_below} - set(sequences)
        assert not lost, f"confirmed records are lost: {sorted(lost)[:10]}"
        assert log.start <= self.may_drop_below
        for record in records:
            message = self.attempted.get(record.sequence)
            assert message is not None, f"record {record.sequence} was invented"
            assert (record.payload, record.key, dict(record.headers)) == (
                message.payload,
                message.key,
                dict(message.headers or {}),
            )
        assert all(earlier.timestamp <= later.timestamp for earlier, later in pairwise(records))


def payload(number: int, size: int) -> bytes:
    return (b"%d." % number * (size // 2 + 1))[:size]


def synced_appends(work: LogWork) -> None:
    for number, size in enumerate((5, 0, 100, 700, 5000, 1)):
        work.append(payload(number, size))
    work.append(Message(b"with all", key=b"k", headers={"a": "b", "raw": b"\xff" * 600}), b"", payload(9, 300))


def batches(work: LogWork) -> None:
    for number in range(4):
        work.append(*[payload(number * 10 + n, 90) for n in range(6)])
        work.append(payload(number, 400))
        if number % 2:
            work.pass_time(0.2)
    work.append(b"never waited for")


def unsynced_appends(work: LogWork) -> None:
    for number in range(6):
        work.append(payload(number, 3000))
        work.append(payload(number, 3000))
        work.pass_time(0.05)
        if number == 3:
            work.sync()
    work.sync()
    work.append(b"tail")


def appends_beside_syncs(work: LogWork) -> None:
    for number in range(8):
        work.append(payload(number, 300))
        work.sync_beside(payload(number, 900))
        if number % 2:
            work.log.appender.tell()
        if number == 5:
            work.sync()


def rolls(work: LogWork) -> None:
    for number in range(9):
        work.append(payload(number, 250))
    work.append(*[payload(number, 20) for number in range(9)])
    work.append(payload(1, 4000))
    work.append(b"after the large one")


def rolls_over_days(work: LogWork) -> None:
    for number in range(4):
        work.append(payload(number, 50))
        work.clock.advance(90_000)
    work.clock.set_back(200_000)
    work.append(b"the clock was set back")


def commits_and_compaction(work: LogWork) -> None:
    for number in range(8):
        work.append(payload(number, 200))
    work.commit("reader", 3)
    work.compact(Retention(max_segments=1))
    for number in range(4):
        work.append(payload(number, 200))
    work.commit("reader", 6)
    work.compact(Retention(max_bytes=600, min_segments=2))
    work.append(b"end")


def clearing(work: LogWork) -> None:
    for number in range(3):
        work.append(payload(number, 200))
    work.may_drop_below = work.log.end
    work.log.clear()
    work.append(b"after")


SCENARIOS: dict[str, Callable[[], LogWork]] = {
    "sync": lambda: LogWork(synced_appends, flush=Flush.sync(), index_interval=3),
    "batch": lambda: LogWork(batches, flush=Flush.batch(bytes=700, interval=0.1), index_interval=4),
    "async": lambda: LogWork(unsynced_appends, flush=Flush.async_(), index_interval=1),
    "beside": lambda: LogWork(appends_beside_syncs, flush=Flush.async_(), index_interval=2),
    "compressed": lambda: LogWork(batches, flush=Flush.batch(bytes=4000), compression="zstd"),
    "roll": lambda: LogWork(rolls, flush=Flush.sync(), roll=Roll.any(Roll.size(1000), Roll.count(4))),
    "roll async": lambda: LogWork(unsynced_appends, flush=Flush.async_(), roll=Roll.size(7000)),
    "days": lambda: LogWork(rolls_over_days, flush=Flush.sync(), roll=Roll.time(3600)),
    "compaction": lambda: LogWork(commits_and_compaction, flush=Flush.sync(), roll=Roll.count(2)),
    "clear": lambda: LogWork(clearing, flush=Flush.sync(), roll=Roll.count(2)),
}
