"""The log against a list: random operations with restarts and crashes between any two."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import holdfast
from holdfast import Flush, Log, Message, Retention, Roll, Store
from holdfast.log.record import HeaderValue
from holdfast.testing import CRASH_MODES, SimClock, SimFiles
from tests.tiers import rounds

PAYLOADS = st.binary(max_size=40) | st.integers(0, 3000).map(bytes)
HEADERS = st.dictionaries(st.text(max_size=3), st.text(max_size=5) | st.binary(max_size=5), max_size=2)
MESSAGES = st.builds(Message, PAYLOADS, key=st.none() | st.binary(max_size=4), headers=st.none() | HEADERS)
FLUSHES = st.sampled_from([Flush.sync(), Flush.batch(bytes=800, interval=0.1), Flush.async_()])
ROLLS = st.sampled_from([Roll.count(3), Roll.size(2500), Roll.time(30), Roll.any(Roll.count(5), Roll.size(4000))])

Row = tuple[bytes, bytes | None, dict[str, HeaderValue]]


def row(message: Message) -> Row:
    return (message.payload, message.key, dict(message.headers or {}))


class LogMachine(RuleBasedStateMachine):
    """`model` is what a log is: a list. `durable` is how much of it no crash may take."""

    store: Store
    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.files = SimFiles()
        self.clock = SimClock()
        self.model: list[Row] = []
        self.durable = 0
        self.start = 0
        self.positions: dict[str, int] = {}

    @initialize(
        flush=FLUSHES, roll=ROLLS, compression=st.sampled_from([None, "zstd", "lz4", "gzip"]), seed=st.integers(0, 99)
    )
    def begin(self, flush: Flush, roll: Roll, compression: str | None, seed: int) -> None:
        self.files = SimFiles(seed, short_writes=0.1)
        self.flush, self.roll, self.compression = flush, roll, compression
        self.open()

    def open(self) -> None:
        self.store = holdfast.open("data", files=self.files, clock=self.clock, background=False)
        self.log = self.store.log(
            "events", flush=self.flush, roll=self.roll, compression=self.compression, index_interval=2
        )

    def note(self, *messages: Message) -> None:
        self.model += map(row, messages)
        if self.flush.mode == "sync":
            self.durable = len(self.model)

    @rule(message=MESSAGES)
    def append(self, message: Message) -> None:
        assert self.log.append(message.payload, message.key, message.headers) == len(self.model)
        self.note(message)

    @rule(messages=st.lists(MESSAGES, max_size=6))
    def append_many(self, messages: list[Message]) -> None:
        first = len(self.model)
        assert self.log.append_many(messages) == range(first, first + len(messages))
        self.note(*messages)

    @rule()
    def sync(self) -> None:
        self.log.sync()
        self.durable = len(self.model)

    @rule(seconds=st.floats(0, 60))
    def pass_time(self, seconds: float) -> None:
        self.store.tick()
        self.clock.advance(seconds)
        self.store.tick()

    @rule(seconds=st.integers(1, 100_000))
    def set_the_clock_back(self, seconds: int) -> None:
        self.clock.set_back(seconds)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.durable = len(self.model)
        self.open()
        assert self.log.end == len(self.model)

    @rule(mode=st.sampled_from(CRASH_MODES), seed=st.integers(0, 99))
    def crash(self, mode: str, seed: int) -> None:
        self.files = self.files.after_crash(mode, seed)  # type: ignore[arg-type]
        self.open()
        assert self.durable <= self.log.end <= len(self.model)
        del self.model[self.log.end :]
        self.durable = len(self.model)

    @rule(name=st.sampled_from(["a", "b"]), count=st.integers(1, 9))
    def tail_and_commit(self, name: str, count: int) -> None:
        tailer = self.log.tailer(name)
        position = max(self.positions.get(name, self.start), self.start)
        assert tailer.position == min(position, len(self.model))
        records = tailer.read_many(count)
        assert [record.sequence for record in records] == list(range(position, min(position + count, len(self.model))))
        self.log.sync()  # a position that is kept must not point at what a crash can take
        self.durable = len(self.model)
        tailer.commit()
        self.positions[name] = tailer.position

    @rule(keep=st.integers(1, 3), force=st.booleans())
    def compact(self, keep: int, force: bool) -> None:
        self.log.compact(retention=Retention(max_segments=keep), force=force)
        held = min(self.positions.values(), default=len(self.model))
        if not force:
            assert self.log.start <= max(held, self.start)
        assert self.log.start >= self.start
        self.start = self.log.start

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def seek_and_read(self, data: st.DataObject) -> None:
        target = data.draw(st.integers(0, len(self.model)))
        tailer = self.log.tailer()
        tailer.seek(target)
        target = max(target, self.start)
        assert [(r.payload, r.key, dict(r.headers)) for r in tailer.read_many(4)] == self.model[target : target + 4]

    @precondition(lambda self: len(self.model) > self.start)
    @rule(data=st.data())
    def seek_by_time(self, data: st.DataObject) -> None:
        records = list(self.log.read())
        when = data.draw(st.sampled_from(records)).timestamp + data.draw(st.integers(-1, 1))
        expected = [record.sequence for record in records if record.timestamp >= when]
        assert self.log.sequence_at(when) == (expected[0] if expected else len(self.model))

    @invariant()
    def the_log_is_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        records = list(self.log.read())
        assert (self.log.start, self.log.end) == (self.start, len(self.model))
        assert [record.sequence for record in records] == list(range(self.start, len(self.model)))
        assert [(r.payload, r.key, dict(r.headers)) for r in records] == self.model[self.start :]
        assert list(self.log.read(reverse=True)) == records[::-1]
        assert [r.timestamp for r in records] == sorted(r.timestamp for r in records)
        assert not self.log.damage


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=rounds(400, 50), stateful_step_count=30)
