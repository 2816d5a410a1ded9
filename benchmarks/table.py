"""How fast is a table? Beside sqlite3 with a history table and beside ZODB, in one run: `python -m benchmarks.table`.

Each round measures everyone once, one right after the other, and gives the ratio to the faster peer; a line is judged
by the median of its rounds. Raw rounds are in seconds a record. "Durable" is on disk when the call returns (sqlite3
with synchronous=FULL); otherwise the disk is left to the operating system. ZODB syncs every commit, and is compared
where the others do so too. Records have a unique e-mail and an index on the name, and every version can be read.
"""

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.status import Status

from benchmarks.command import run
from benchmarks.harness import Line, Workshop, quiet
from benchmarks.report import PeerColumns
from benchmarks.table_peers import PEERS, HoldfastTable, PeerTable, SqliteHistory, row_of
from holdfast.table import Change

__all__ = ["main"]

_BATCH = 1000
_POINTS = 20
_ALL: tuple[type[PeerTable], ...] = (HoldfastTable, *PEERS)
_COLUMNS = PeerColumns(
    {
        "add, batches/s": "add_batches_s",
        "add, durable/s": "add_durable_s",
        "change, durable/s": "change_durable_s",
        "get/s": "get_s",
        "get as of/s": "as_of_s",
        "indexed scan/s": "scan_s",
    },
    {"set up": "note"},
)
Work = Callable[[PeerTable], float]
"""Does something with an open table, and says how many seconds a record took."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each part measures."""

    records: int
    durable: int
    changes: int
    reads: int
    rounds: int
    versions: tuple[int, int]


FULL = Sizes(50_000, 300, 5_000, 20_000, 9, (10, 10_000))
QUICK = Sizes(10_000, 60, 1_000, 5_000, 3, (10, 1_000))


def main() -> int:
    """Measure, show and keep; 1 only where `--check` finds a miss."""
    return run("table", __doc__ or "", _measure, _COLUMNS)


def _measure(workshop: Workshop, quick: bool, status: Status) -> tuple[list[Line], list[dict[str, Any]]]:
    sizes = QUICK if quick else FULL
    best: dict[str, dict[str, float]] = {}
    lines: list[Line] = []
    parts: list[tuple[str, Line, Work, bool, Sequence[type[PeerTable]]]] = [
        ("add_batches", Line("add_batches", f"add in batches of {_BATCH}, durable", "at least", 1.0),
         lambda table: _add(table, sizes.records), True, PEERS),
        ("add_durable", Line("add_durable", "add one by one, durable", "at least", 1.0),
         lambda table: _add_durable(table, sizes.durable), True, PEERS),
        ("change_durable", Line("change_durable", "change one by one, durable", "at least", 1.0),
         lambda table: _change(table, sizes.durable), True, PEERS),
        ("change", Line("change", "  not waiting for the disk", "at least"),
         lambda table: _change(table, sizes.changes), False, (SqliteHistory,)),
    ]  # fmt: skip
    for name, line, work, durable, peers in parts:
        status.update(line.title)
        lines.append(_compare(workshop, line, work, durable, peers, sizes, best.setdefault(name, {})))
    status.update("filling tables to read")
    with _filled(workshop, sizes) as tables:
        keys = [row_of(number)[0] for number in random.Random(2).choices(range(sizes.records), k=sizes.reads)]
        points = random.Random(3).choices(range(_POINTS), k=sizes.reads)
        then = {name: [(key, marks[point]) for key, point in zip(keys, points, strict=True)]
                for name, (_, marks) in tables.items()}  # fmt: skip
        reads: list[tuple[str, Line, Callable[[PeerTable], float]]] = [
            ("get", Line("get", "get by key", "at least"), lambda table: _each(table.get, keys)),
            ("as_of", Line("as_of", f"get by key as of {_POINTS} points in the past", "at least", 2.0),
             lambda table: _each(lambda pair: table.get_as_of(*pair), then[table.name])),
            ("scan", Line("scan", "scan by an index, a record", "at least"),
             lambda table: _scan(table, sizes.reads, sizes.records)),
        ]  # fmt: skip
        for name, line, work in reads:
            status.update(line.title)
            found = best.setdefault(name, {})
            for number in range(sizes.rounds + 1):
                measured = {one: quiet(partial(work, table)) for one, (table, _) in tables.items()}
                if number:
                    _note(line, measured, found)
                elif name != "scan":  # nothing of it was read before
                    first = Line(f"{name}_first", "  for the first time", "at least")
                    _note(first, measured, {})
                    lines.append(first)
            lines.insert(len(lines) - (name != "scan"), line)
            if name == "get":
                rate = Line("get_rate", "  gets a second in one process, in thousands", "at least", 150.0, unit="k")
                rate.rounds = line.rounds
                rate.values = [1 / measured["holdfast"] / 1000 for measured in line.rounds]
                lines.append(rate)
    status.update("a long history")
    lines.append(_long_history(workshop, sizes))
    return lines, [
        {"name": peer.name, "note": peer.note} | {f"{way}_s": seconds.get(peer.name) for way, seconds in best.items()}
        for peer in _ALL
    ]


def _compare(
    workshop: Workshop,
    line: Line,
    work: Work,
    durable: bool,
    peers: Sequence[type[PeerTable]],
    sizes: Sizes,
    best: dict[str, float],
) -> Line:
    for number in range(sizes.rounds + 1):
        measured = {}
        kinds: list[type[PeerTable]] = [HoldfastTable, *peers]
        for kind in kinds if number % 2 else reversed(kinds):
            with workshop.borrowed() as folder:
                table = kind(folder, durable=durable)
                measured[kind.name] = quiet(partial(work, table))
                table.close()
        if number:  # the first time pays for imports, page cache and clock speed
            _note(line, measured, best)
    return line


def _note(line: Line, measured: dict[str, float], best: dict[str, float]) -> None:
    fastest = min(seconds for name, seconds in measured.items() if name != HoldfastTable.name)
    line.add({"floor": fastest, "subject": measured[HoldfastTable.name]})
    line.rounds[-1] |= measured
    for name, seconds in measured.items():
        best[name] = min(seconds, best.get(name, seconds))


def _add(table: PeerTable, count: int) -> float:
    start = time.perf_counter()
    for first in range(0, count, _BATCH):
        table.add_many([row_of(number) for number in range(first, first + _BATCH)])
    return (time.perf_counter() - start) / count


def _add_durable(table: PeerTable, count: int) -> float:
    rows = [row_of(number) for number in range(count)]
    start = time.perf_counter()
    for row in rows:
        table.add_many([row])
    return (time.perf_counter() - start) / count


def _change(table: PeerTable, count: int) -> float:
    table.add_many([row_of(number) for number in range(_BATCH)])
    keys = [row_of(number * 7919 % _BATCH)[0] for number in range(count)]
    start = time.perf_counter()
    for number, key in enumerate(keys):
        table.change(key, -number - 1)
    return (time.perf_counter() - start) / count


def _each(get: Callable[[Any], Any], keys: Sequence[Any]) -> float:
    start = time.perf_counter()
    for key in keys:
        if get(key) is None:
            raise AssertionError("a record is missing")
    return (time.perf_counter() - start) / len(keys)


def _each_anew(table: HoldfastTable, keys: Sequence[Any]) -> float:
    """As `_each`, from the state: the rows that are cached would be the same however long the past is."""
    spent = 0.0
    for key in keys:
        table.table.engine.state.cache.clear()
        start = time.perf_counter()
        found = table.get(key)
        spent += time.perf_counter() - start
        if found is None:
            raise AssertionError("a record is missing")
    return spent / len(keys)


def _scan(table: PeerTable, reads: int, records: int) -> float:
    count, number = 0, 0
    start = time.perf_counter()
    while count < reads:
        found = table.named(f"name {number % 1000}")
        assert found == records // 1000, "every name has as many records"
        count += found
        number += 1
    return (time.perf_counter() - start) / count


@contextmanager
def _filled(workshop: Workshop, sizes: Sizes) -> Iterator[dict[str, tuple[PeerTable, list[Any]]]]:
    """Everyone's table with all records, and marks in the midst of a change of each record."""
    tables: dict[str, tuple[PeerTable, list[Any]]] = {}
    for kind in _ALL:
        table = kind(workshop.place(), durable=False)
        _add(table, sizes.records)
        changed = sizes.records if kind is not PEERS[1] else min(sizes.records, sizes.durable)  # ZODB syncs each
        marks = []
        for number in range(changed):
            if number % (changed // _POINTS) == 0:
                marks.append(table.now())
            table.change(row_of(number)[0], -number - 1)
        tables[kind.name] = (table, marks)
    try:
        yield tables
    finally:
        for table, _ in tables.values():
            table.close()


def _long_history(workshop: Workshop, sizes: Sizes) -> Line:
    """What the present costs as the past grows: records with few versions beside records with many."""
    few, many = sizes.versions
    line = Line("history", f"get the present uncached, {many} versions a record against {few}", "at most", 1.5)
    tables = {}
    for versions, records in ((few, 20 * many // few), (many, 20)):
        table = HoldfastTable(workshop.place(), durable=False)
        table.add_many([row_of(number) for number in range(records)])
        for version in range(versions - 1):
            table.table.write([_bump(row_of(number)[0], version) for number in range(records)])
        # As many look-ups of as many records: what else the two tables hold is then the same.
        tables[versions] = (table, [row_of(number % 20)[0] for number in range(sizes.reads)])
    for number in range(sizes.rounds + 1):
        measured = {
            "floor": quiet(lambda: _each_anew(*tables[few])),
            "subject": quiet(lambda: _each_anew(*tables[many])),
        }
        if number:
            line.add(measured)
    for table, _ in tables.values():
        table.close()
    return line


def _bump(key: bytes, version: int) -> Any:
    return Change(key, {"balance": -version - 1})


if __name__ == "__main__":
    sys.exit(main())
