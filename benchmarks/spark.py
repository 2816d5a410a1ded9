"""How fast is the pipeline? Beside Spark's own Parquet, in one run: `python -m benchmarks.spark`.

Records of 100 random bytes in a log with the default settings, and the same rows in Parquet files that Spark wrote.
Reading goes to Spark's noop sink. A source and a sink that do nothing at all show what any in Python can reach. All
jobs of a session are measured in turns; the first turn is not counted. Raw rounds are in seconds a record.
`local[1]` and `local[2]` are two sessions, one right after the other, several times.
"""

import json
import random
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.status import Status

import holdfast
from benchmarks.command import run
from benchmarks.harness import Line, Workshop
from benchmarks.message_memory import fill_queue, measure_messages
from benchmarks.report import PeerColumns
from holdfast.spark.log_rows import LogRows
from holdfast.spark.options import ReadOptions
from holdfast.spark.partitions import Wanted, plan, read_stretches
from holdfast.spark.sources import View

__all__ = ["main"]

_COLUMNS = PeerColumns({"records/s": "record_s"}, {"note": "note"})


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each part measures."""

    records: int
    rounds: int
    sessions: int
    messages: int


FULL = Sizes(5_000_000, 7, 3, 1_000_000)
QUICK = Sizes(500_000, 2, 1, 100_000)


def main() -> int:
    """Measure, show and keep; 1 only where `--check` finds a miss."""
    return run("spark", __doc__ or "", _measure, _COLUMNS)


def _measure(workshop: Workshop, quick: bool, status: Status) -> tuple[list[Line], list[dict[str, Any]]]:
    sizes = QUICK if quick else FULL
    status.update("writing a log")
    store = workshop.place()
    _fill(store, sizes.records)
    bench = _Bench(workshop, store, sizes)
    status.update("reading, beside Parquet")
    reading = bench.session(
        ["read", "parquet read", "read nothing", "read all columns", "parquet read all columns"], sizes.rounds
    )
    lines = [
        bench.line("read", "read into Spark, against its Parquet reader", 0.75, reading, "parquet read", "read"),
        bench.line(
            "read_limit",
            "the limit: a Python source that sends one batch from memory",
            None,
            reading,
            "parquet read",
            "read nothing",
        ),
        bench.line(
            "read_all",
            "the same with all ten columns of the log",
            None,
            reading,
            "parquet read all columns",
            "read all columns",
        ),
    ]
    status.update("reading, beside a source that yields tuples")
    tuples = bench.session(["read", "tuples"], max(2, sizes.rounds // 2))
    lines.append(bench.line("tuples", "against a source that yields tuples", 3, tuples, "tuples", "read"))
    status.update("writing, beside Parquet")
    writing = bench.session(["write", "parquet write", "write nothing"], max(2, sizes.rounds // 2))
    lines.append(bench.line("write", "sink, against Spark's Parquet writer", 1, writing, "parquet write", "write"))
    limit = "the limit: a Python sink that keeps nothing"
    lines.append(bench.line("write_limit", limit, None, writing, "parquet write", "write nothing"))
    status.update("archiving, beside a copy of Parquet")
    archive = bench.session(["archive", "parquet copy"], max(2, sizes.rounds // 2))
    lines.append(
        bench.line("archive", "archive, against copying Parquet", 1.3, archive, "parquet copy", "archive", "at most")
    )
    status.update("one core and two")
    scaling = {
        "read": Line("cores", "local[2] against local[1]", "at least", 1.6),
        "parquet read": Line("parquet_cores", "the same of Spark's Parquet reader", "at least"),
    }
    for _ in range(sizes.sessions):
        one, two = bench.session([*scaling], 3, "local[1]"), bench.session([*scaling], 3)
        for job, line in scaling.items():
            line.add({"floor": min(one[job]) / sizes.records, "subject": min(two[job]) / sizes.records})
    lines += scaling.values()
    status.update("a time range")
    lines.append(_time_range(store))
    status.update("the states of messages")
    lines.append(_message_memory(workshop, sizes.messages))
    peers = [
        {"name": name, "record_s": min(seconds) / sizes.records, "note": note}
        for name, seconds, note in (
            ("Spark's Parquet reader", reading["parquet read"], "the same rows: offset, timestamp, key, value"),
            ("Spark's Parquet reader, all columns", reading["parquet read all columns"], "all columns of the log"),
            ("tuples", tuples["tuples"], "a Python source with a loop"),
            ("Spark's Parquet writer", writing["parquet write"], "key and value, snappy"),
            ("Parquet copied", archive["parquet copy"], "read and written by Spark"),
        )
    ]
    return lines, peers


class _Bench:
    """Sessions over one store."""

    def __init__(self, workshop: Workshop, store: Path, sizes: Sizes) -> None:
        self._store = store
        self._parquet = workshop.place()
        self._out = workshop.place()
        self._sizes = sizes

    def session(self, jobs: list[str], rounds: int, master: str = "local[2]") -> dict[str, list[float]]:
        """The seconds that each job took, round by round."""
        orders = {
            "master": master,
            "store": str(self._store.absolute()),
            "parquet": str(self._parquet.absolute()),
            "out": str(self._out.absolute()),
            "records": self._sizes.records,
            "jobs": jobs,
            "rounds": rounds,
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.spark_child", json.dumps(orders)],
            check=True,
            capture_output=True,
            text=True,
        )
        found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
        return found

    def line(
        self,
        name: str,
        title: str,
        target: float | None,
        measured: dict[str, list[float]],
        floor: str,
        subject: str,
        sense: Any = "at least",
    ) -> Line:
        """A line from two jobs of one session."""
        line = Line(name, title, sense, target)
        for one, other in zip(measured[floor], measured[subject], strict=True):
            line.add({"floor": one / self._sizes.records, "subject": other / self._sizes.records})
        return line


def _fill(store: Path, records: int) -> None:
    source = random.Random(1)
    with holdfast.open(store) as opened:
        log = opened.log("bench")
        for _ in range(records // 1000):
            raw = source.randbytes(100_000)
            log.append_many([raw[at : at + 100] for at in range(0, 100_000, 100)])


def _time_range(store: Path) -> Line:
    """How much of the log is read for one percent of its time."""
    line = Line("time_range", "bytes read for one percent of the time", "at most", 3.0, unit="%")
    view = View(ReadOptions.of({"path": str(store.absolute()), "log": "bench"}))
    (track,) = view.tracks()
    picture = track.look(durable=False)
    first, last = (next(track.log.read(at, at + 1)).timestamp for at in (picture.start, picture.end - 1))
    whole = sum(segment.limit for segment in track.log.reader.segments())
    for percent in (5, 30, 50, 77, 98):
        since = first + (last - first) * percent // 100
        start, stop = (track.log.sequence_at(when) for when in (since, since + (last - first) // 100))
        wanted = Wanted()
        for _ in LogRows("bench", ["value"]).gather(read_stretches(plan(picture, start, stop), wanted)):
            pass
        line.rounds.append({"bytes": float(wanted.bytes_read), "of": float(whole)})
        line.values.append(100 * wanted.bytes_read / whole)
    view.close()
    return line


def _message_memory(workshop: Workshop, messages: int) -> Line:
    """How much memory planning the view `messages` takes for eight times as many messages."""
    line = Line("messages_memory", "driver memory of `messages` for 8 times as many", "at most", 1.5)
    found = {}
    for count in (messages, 8 * messages):
        with workshop.borrowed() as store:
            fill_queue(store, count)
            found[count] = asdict(measure_messages(store))
    few, many = found[messages], found[8 * messages]
    line.add({"floor": few["plan_mib"], "subject": many["plan_mib"]})
    line.rounds[0] |= {
        f"{name}_{of}": value for of, one in (("few", few), ("many", many)) for name, value in one.items()
    }
    return line


if __name__ == "__main__":
    raise SystemExit(main())
