"""Work on two tables and a queue that may be cut off anywhere, with what must hold of it afterwards."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Flush, Roll, Store
from holdfast.table import Add, Change, Delete, ListEdit, SetEdit, Table, Undelete
from holdfast.table.operations import Operation
from holdfast.testing import SimClock, SimFiles
from tests.table.agreement import agree, described, no_trace_of
from tests.table.model import Paper, is_as_expected
from tests.table.things import KEYS, QUERIES, SLOT, SLOT_QUERIES, THING, Slot, Thing, for_table

__all__ = ["SCENARIOS", "TableWork"]

PATH = "data"
STATE = Path(PATH) / "table-state" / "state.flat"
FEW = [query for query in QUERIES if query.name in ("rank backwards", "tags", "email 'a'")]
Request = tuple[Any, Sequence[Operation]]


class TableWork:
    """A scenario: requests and transactions, one after the other, and the paper of what was promised."""

    def __init__(self, steps: Callable[["TableWork"], None], flush: Flush | None = None, **settings: bool) -> None:
        self.steps = steps
        self.mails = steps is outbox
        """Whether there is a queue."""
        self.flush = flush or Flush.sync()
        self.settings = {"keep_all_versions": True, "update_history": True, **settings}
        self.clock = SimClock()
        self.papers = {Thing: Paper(THING), Slot: Paper(SLOT)}
        self.before: dict[Any, list[Paper]] = {Thing: [], Slot: []}
        """How the tables stood after each step."""
        self.sent: list[bytes] = []
        self.together: list[tuple[int, list[Any], int]] = []
        """Of each transaction its version, its tables, and how many mails there were with it."""
        self.under_way: tuple[list[Request], list[bytes]] = ([], [])
        self.store: Store
        self.tables: dict[Any, Table[Any]]

    # steps ------------------------------------------------------------------

    def write(self, *operations: Operation, model: Any = Thing) -> None:
        """One request; the return confirms."""
        self.under_way = ([(model, operations)], [])
        outcomes = self.tables[model].write([for_table(model, operation) for operation in operations])
        self.confirm(outcomes)

    def transact(self, *requests: Request, mails: Sequence[bytes] = ()) -> None:
        """One transaction; the return confirms."""
        self.under_way = (list(requests), list(mails))
        outcomes: list[Any] = []
        with self.store.transaction() as transaction:
            for model, operations in requests:
                outcomes += self.tables[model].write([for_table(model, operation) for operation in operations])
            for mail in mails:
                self.store.queue("mails").put(mail)
        self.confirm(outcomes)
        models = [model for model in self.tables if self.tables[model].last_version == transaction.version]
        self.together.append((transaction.version, models, len(self.sent)))

    def confirm(self, outcomes: list[Any]) -> None:
        requests, mails = self.under_way
        expected = []
        for model, operations in requests:
            expected += self.papers[model].run(operations, self.tables[model].last_version)
        assert all(map(is_as_expected, outcomes, expected))
        self.sent += mails
        self.under_way = ([], [])
        for model, paper in self.papers.items():
            self.before[model].append(paper.copy())

    def restart(self) -> None:
        """So that the state on disk has something."""
        self.store.close()
        self.open_all(self.files)

    # Scenario ---------------------------------------------------------------

    def open(self, files: SimFiles) -> Store:
        return holdfast.open(PATH, files=files, clock=self.clock, background=False)

    def open_all(self, files: SimFiles) -> None:
        self.files = files
        self.store = self.open(files)
        self.tables = {
            model: self.store.table(model, flush=self.flush, roll=Roll.count(6), **self.settings)  # type: ignore[arg-type]
            for model in self.papers
        }
        if self.mails:
            self.store.queue("mails")

    def run(self, files: SimFiles) -> None:
        self.open_all(files)
        self.steps(self)
        self.store.close()

    def check(self, files: SimFiles) -> None:
        without_state = files.after_crash("prefix", 0)  # a copy
        crashed = self.clock
        first = self.check_disk(files)
        self.clock = crashed
        if without_state.exists(STATE):
            without_state.remove(STATE)
            self.open_all(without_state)
            assert [described(table) for table in self.tables.values()] == first

    def check_disk(self, files: SimFiles) -> list[Any]:
        self.clock = SimClock(self.clock.time_ns())
        self.clock.set_back(3600)  # versions rise all the same
        self.open_all(files)
        papers = self.found()
        sent = [message.payload for message in self.store.queue("mails").peek(1000)] if self.mails else []
        self.check_sent(sent)
        self.check_together(len(sent))
        for model, table in self.tables.items():
            self.check_table(table, papers[model], FEW if model is Thing else SLOT_QUERIES[-3:])
        seen = [described(table) for table in self.tables.values()]
        # The tables go on, and stand where they stood when they are opened again.
        for model, added in ((Thing, {"email": "after", "tags": {"a"}}), (Slot, {"place": "after", "day": 0})):
            last = self.tables[model].last_version
            assert self.tables[model].add(added).version > last
        after = [described(table) for table in self.tables.values()]
        self.store.close()
        self.open_all(files)
        assert [described(table) for table in self.tables.values()] == after
        self.store.close()
        return seen

    def found(self) -> dict[Any, Paper]:
        """What each table must hold, by how far it came: all that was confirmed, and what was under way or not."""
        found = {}
        for model, table in self.tables.items():
            paper = self.papers[model]
            if table.last_version != paper.last_version:
                paper = self.lost(model, table) or self.with_what_was_under_way(model, table)
            assert table.last_version == paper.last_version, "something that was confirmed is lost"
            found[model] = paper
        return found

    def with_what_was_under_way(self, model: Any, table: Table[Any]) -> Paper:
        paper = self.papers[model].copy()
        for one, operations in self.under_way[0]:
            if one is model:
                paper.run(operations, table.last_version)
        assert table.last_version > self.papers[model].last_version
        return paper

    def lost(self, model: Any, table: Table[Any]) -> Paper | None:
        """Without `sync` the last steps may be lost: the paper as it was before them."""
        if self.flush.mode == "sync":
            return None
        for paper in [Paper(self.papers[model].model), *self.before[model]]:
            if paper.last_version == table.last_version:
                return paper
        return None

    def check_sent(self, sent: list[bytes]) -> None:
        assert sent in (self.sent, self.sent + self.under_way[1]), "mails are lost, or came twice"

    def check_together(self, sent: int) -> None:
        """Of each transaction there is all, or nothing."""
        for version, models, before in self.together:
            assert all(self.tables[model].last_version >= version for model in models), "a transaction is lost"
            assert sent >= before
        requests, mails = self.under_way
        if len(requests) + bool(mails) > 1:
            came = {self.tables[model].last_version > self.papers[model].last_version for model, _ in requests}
            if mails:
                came.add(sent > len(self.sent))
            assert len(came) == 1, "a part of a transaction took place without the others"

    def check_table(self, table: Table[Any], paper: Paper, queries: Sequence[Any]) -> None:
        history = self.settings["keep_all_versions"]
        agree(table, paper, queries, [None, *(paper.versions()[-2:-1] if history else [])], 2)
        no_trace_of(table, paper.buried)
        before = described(table)
        table.rebuild()
        assert described(table) == before


A, B, C = KEYS[:3]


def lives(work: TableWork) -> None:
    """Every kind of change, one by one."""
    work.write(Add({"email": "a", "name": "Ada Lovelace", "tags": {"a", "b"}, "limits": {"x": 1}}, A))
    work.write(Change(A, {"email": "ab", "steps": [1, 2], "tags": SetEdit(remove=["a"])}))
    work.write(Delete(A))
    work.restart()
    work.write(Add({"email": "ab", "rank": 2}, B))
    work.write(Undelete(A), Change(B, {"email": None}), Undelete(A))
    work.write(Change(A, {"steps": ListEdit(append=[0]), ("limits", "x"): None, "note": "ada"}))
    work.write(Delete(A, hard=True))
    work.write(Add({"email": "ab", "name": "bob"}, A))


def requests(work: TableWork) -> None:
    """Several records in one request, some of which are refused."""
    work.write(Add({"email": "a", "tags": {"a"}}, A), Add({"email": "a"}, B), Add({"email": "ab", "rank": 1}, C))
    work.write(Change(A, {"email": None}), Change(C, {"email": "a"}), Add({"email": "ab", "code": 0}, B))
    work.restart()
    work.write(Delete(A, hard=True), Delete(B), Add({"name": "ÁDA", "code": 0}, A), Delete(A), Undelete(A))
    work.write(Delete(A, hard=True), Change(C, {"rank": 9}), Add({"email": "b\0"}, A), Delete(C, hard=True))


def outbox(work: TableWork) -> None:
    """Transactions over both tables and the queue, and requests between them."""
    slot = Add({"place": "a", "day": 1, "left": 2, "label": "l"})
    work.transact((Thing, [Add({"email": "a"}, A)]), (Slot, [slot]), mails=[b"1", b"2"])
    work.write(Change(A, {"rank": 1}))
    (key,) = work.papers[Slot].past
    work.transact((Thing, [Change(A, {"rank": 2}), Add({"email": "ab"}, B)]), (Slot, [Change(key, {"left": 1})]))
    work.restart()
    work.transact((Thing, [Delete(A, hard=True)]), mails=[b"3"])
    work.transact(
        (Slot, [Delete(key), Add({"place": "b", "day": 0, "label": "l"})]), (Thing, [Delete(B)]), mails=[b"4"]
    )
    work.write(Add({"email": "a"}, C))


SCENARIOS: dict[str, Callable[[], TableWork]] = {
    "lives": lambda: TableWork(lives),
    "lives without a past": lambda: TableWork(lives, keep_all_versions=False, update_history=False),
    "requests": lambda: TableWork(requests),
    "outbox": lambda: TableWork(outbox),
}
WEAK: dict[str, Callable[[], TableWork]] = {
    "lives": lambda: TableWork(lives, Flush.async_()),
    "requests": lambda: TableWork(requests, Flush.batch()),
    "outbox": lambda: TableWork(outbox, Flush.async_()),
}
