"""Tables against a model on paper, at any version: random requests and transactions, with restarts, crashes, rebuilds
and readers between any two."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import holdfast
from holdfast import Flush, Roll, Store
from holdfast.table import Table
from holdfast.table.operations import Operation
from holdfast.testing import CRASH_MODES, SimClock, SimFiles
from holdfast.testing.files import CrashMode
from tests.table.agreement import agree, described, no_trace_of
from tests.table.model import Paper, is_as_expected
from tests.table.things import (
    QUERIES,
    SLOT,
    SLOT_QUERIES,
    THING,
    Slot,
    Thing,
    for_table,
    operations,
    slot_operations,
)
from tests.tiers import examples

PATH = "data"
NO_VERSION = -1
"""Stands for the version of a request that changed nothing: no operation names it, as some name the last version."""


class TableMachine(RuleBasedStateMachine):
    """With history. Under `sync` what is confirmed stays, whatever happens."""

    history = True
    store: Store
    reader: Store | None = None

    def __init__(self) -> None:
        super().__init__()
        self.clock = SimClock()
        self.files = SimFiles()
        self.papers = {Thing: Paper(THING), Slot: Paper(SLOT)}
        self.sent: list[bytes] = []
        self.highest = 0

    @initialize(seed=st.integers(0, 99), roll=st.sampled_from([2, 50]), updates=st.booleans())
    def begin(self, seed: int, roll: int, updates: bool) -> None:
        self.files = SimFiles(seed)
        self.roll = Roll.count(roll)
        self.settings = {"keep_all_versions": self.history, "update_history": self.history and updates}
        self.open()

    def open_store(self, *, read_only: bool = False) -> Store:
        return holdfast.open(PATH, files=self.files, clock=self.clock, background=False, read_only=read_only)

    def open(self) -> None:
        self.reader = None
        self.store = self.open_store()
        self.tables: dict[Any, Table[Any]] = {
            model: self.store.table(model, flush=Flush.sync(), roll=self.roll, **self.settings)  # type: ignore[arg-type]
            for model in (Thing, Slot)
        }
        self.mails = self.store.queue("mails")
        for model, table in self.tables.items():
            assert table.last_version == self.papers[model].last_version

    # Requests

    def write(self, model: Any, asked: Sequence[Operation]) -> None:
        table, paper = self.tables[model], self.papers[model]
        outcomes = table.write([for_table(model, operation) for operation in asked])
        changed = any(isinstance(one, holdfast.table.Done) and one.changed for one in outcomes)
        self.compare(model, asked, outcomes, table.last_version if changed else NO_VERSION)
        assert table.last_version == paper.last_version
        self.highest = max(self.highest, paper.last_version)

    def compare(
        self,
        model: Any,
        asked: Sequence[Operation],
        outcomes: Sequence[Any],
        version: int,
        base: Paper | None = None,
    ) -> None:
        done = [one.version for one in outcomes if isinstance(one, holdfast.table.Done) and one.changed]
        assert set(done) <= {version}, "one request, one version"
        assert not done or version > self.highest, "versions rise"
        expected = self.papers[model].run(asked, version, base)
        for operation, outcome, wanted in zip(asked, outcomes, expected, strict=True):
            assert is_as_expected(outcome, wanted), f"{operation}: {outcome!r}, and not {wanted}"

    @rule(data=st.data())
    def one(self, data: st.DataObject) -> None:
        self.write(Thing, [data.draw(self.operations())])

    @rule(data=st.data())
    def several(self, data: st.DataObject) -> None:
        self.write(Thing, data.draw(st.lists(self.operations(), min_size=2, max_size=8)))

    @rule(data=st.data())
    def many(self, data: st.DataObject) -> None:
        """One request after the other, so that records get a past."""
        for _ in range(8):
            self.write(Thing, [data.draw(self.operations())])

    @rule(asked=st.lists(slot_operations(), min_size=1, max_size=5))
    def slots(self, asked: list[Operation]) -> None:
        self.write(Slot, asked)

    def operations(self) -> st.SearchStrategy[Operation]:
        paper = self.papers[Thing]
        return operations(sorted(paper.past), paper.versions()[-4:])

    @rule(data=st.data(), slots=st.lists(slot_operations(), max_size=3), mails=st.integers(0, 3), fails=st.booleans())
    def together(self, data: st.DataObject, slots: list[Operation], mails: int, fails: bool) -> None:
        """A transaction, in several requests; an error in it undoes all of it."""
        things = data.draw(st.lists(self.operations(), max_size=4))
        parts: list[tuple[Any, list[Operation]]] = [(Thing, things[:2]), (Slot, slots), (Thing, things[2:])]
        sent = [b"%d" % (len(self.sent) + number) for number in range(mails)]
        before = {model: paper.copy() for model, paper in self.papers.items()}
        try:
            with self.store.transaction() as transaction:
                for model, asked in parts:
                    outcomes = self.tables[model].write([for_table(model, operation) for operation in asked])
                    self.compare(model, asked, outcomes, transaction.version, before[model])
                for mail in sent:
                    self.mails.put(mail)
                if fails:
                    raise RuntimeError
        except RuntimeError:
            self.papers = before
        else:
            self.sent += sent
        for model, table in self.tables.items():
            assert table.last_version == self.papers[model].last_version
            self.highest = max(self.highest, table.last_version)

    @rule(seconds=st.sampled_from([0.001, 5, -3]))
    def time_passes(self, seconds: float) -> None:
        if seconds > 0:
            self.clock.advance(seconds)
        else:
            self.clock.set_back(-seconds)

    # Restarts

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()

    @rule(mode=st.sampled_from(CRASH_MODES), seed=st.integers(0, 99))
    def crash(self, mode: CrashMode, seed: int) -> None:
        self.files = self.files.after_crash(mode, seed)
        self.open()

    @rule()
    def rebuild(self) -> None:
        """The log alone leads to the same state, to the byte."""
        for table in self.tables.values():
            before = described(table)
            table.rebuild()
            assert described(table) == before

    # Looking

    def past(self, data: st.DataObject, model: Any) -> list[int | None]:
        if not self.history:
            return [None]
        known = self.papers[model].versions() or [1]
        chosen = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=2))
        return [None, known[0] - 1, *chosen, *(version - 1 for version in chosen[:1])]

    @rule(data=st.data(), page=st.integers(1, 3))
    def look(self, data: st.DataObject, page: int) -> None:
        self.look_at(self.tables, data, page)

    @precondition(lambda self: self.reader is None)
    @rule()
    def open_reader(self) -> None:
        """Beside the writer; it follows from here on."""
        self.reader = self.open_store(read_only=True)
        self.readers = {model: self.reader.table(model) for model in (Thing, Slot)}

    @precondition(lambda self: self.reader is not None)
    @rule(data=st.data(), page=st.integers(1, 3))
    def look_beside(self, data: st.DataObject, page: int) -> None:
        disk = self.files.snapshot()
        self.look_at(self.readers, data, page)
        for model, table in self.readers.items():
            assert described(table) == described(self.tables[model])
        assert self.files.snapshot() == disk

    def look_at(self, tables: dict[Any, Table[Any]], data: st.DataObject, page: int) -> None:
        for model, queries in ((Thing, QUERIES), (Slot, SLOT_QUERIES)):
            agree(tables[model], self.papers[model], queries, self.past(data, model), page)
            no_trace_of(tables[model], self.papers[model].buried)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            for model, queries in ((Thing, QUERIES), (Slot, SLOT_QUERIES)):
                versions = self.papers[model].versions()[-3:] if self.history else []
                agree(self.tables[model], self.papers[model], queries, [None, *versions], 2)
            assert [message.payload for message in self.mails.peek(1000)] == self.sent
            self.store.close()


class PresentMachine(TableMachine):
    """Without history."""

    history = False


class DiskMachine(TableMachine):
    """On a real disk, in RocksDB; what a kill leaves is what a copy of the folder has."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.copies = 0
        self.path = Path(self.folder.name) / "0"

    def open_store(self, *, read_only: bool = False) -> Store:
        return holdfast.open(self.path, clock=self.clock, background=False, read_only=read_only)

    @rule(mode=st.just("dropped"), seed=st.just(0))
    def crash(self, mode: CrashMode, seed: int) -> None:
        self.copies += 1
        copy = self.path.with_name(str(self.copies))
        while True:
            try:
                shutil.copytree(self.path, copy)
                break
            except shutil.Error:  # RocksDB removed a file that it had compacted meanwhile
                shutil.rmtree(copy)
        self.close_reader()
        self.store.close()
        self.path = copy
        self.open()

    @rule()
    def restart(self) -> None:
        self.close_reader()
        super().restart()

    def close_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def teardown(self) -> None:
        self.close_reader()
        super().teardown()
        self.folder.cleanup()


TestTables = TableMachine.TestCase
TestTables.settings = settings(max_examples=examples(16), stateful_step_count=25)
TestPresent = PresentMachine.TestCase
TestPresent.settings = settings(max_examples=examples(8), stateful_step_count=25)
TestOnDisk = DiskMachine.TestCase
TestOnDisk.settings = settings(max_examples=examples(3), stateful_step_count=20)
