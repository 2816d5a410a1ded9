"""Two versions of the source measured in turns, in one run: `python -m benchmarks.compare REVISION`.

The old version is a revision of this repository (its `src` is unpacked into a temporary folder) or a folder that has a
`src`; the new one is this working tree. Each version runs in a process of its own that stays alive; a round measures
both, one right after the other, in an order that changes. A line is judged by the median over the rounds of new
divided by old, by processor time: that of the process (for the broker: of the server), which other work on the machine
hardly changes. The ratio of wall times stands beside it.
"""

import argparse
import gc
import io
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from benchmarks.amqp_load import Load, Wire
from benchmarks.harness import payloads_of

__all__ = ["main"]

_ROOT = Path(__file__).resolve().parent.parent
_LIMIT = 1.03
"""The ratio of processor time above which a line counts as slower."""
_START_S = 60.0
_LOAD_S = 180.0
_BATCH = 100


@dataclass(slots=True)
class Line:
    """One kind of work, and what each round took: (old, new) in seconds a record."""

    name: str
    cpu: list[tuple[float, float]] = field(default_factory=list)
    wall: list[tuple[float, float]] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """New divided by old by processor time; the median of the rounds."""
        return statistics.median(new / old for old, new in self.cpu)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Between which the middle half of the rounds lies."""
        low, _, high = statistics.quantiles([new / old for old, new in self.cpu], n=4)
        return low, high

    @property
    def wall_ratio(self) -> float:
        """New divided by old by the clock."""
        return statistics.median(new / old for old, new in self.wall)

    def as_json(self) -> dict[str, Any]:
        """All of it, raw rounds included."""
        return {"name": self.name, "cpu_ratio": self.ratio, "quartiles": self.quartiles,
                "wall_ratio": self.wall_ratio, "cpu": self.cpu, "wall": self.wall}  # fmt: skip


Sample = tuple[float, float]
"""Seconds of processor time and by the clock, a record."""


def main() -> int:
    """Measure and show; 1 only where `--check` finds a line that is slower by more than 3 %."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", help="a revision, or a folder with a src of another version")
    parser.add_argument("--only", default="", help="lines whose name begins with one of these, separated by commas")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a line is slower by more than 3 %%")
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on a real disk (default: this one)")
    parser.add_argument("--output", type=Path, help="where the JSON goes")
    options = parser.parse_args()
    wanted = tuple(filter(None, options.only.split(","))) or ("",)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.dir) as temporary, console.status("") as status:
        folder = Path(temporary).resolve()
        sources = (_source_of(options.old, folder), _ROOT / "src")
        lines = []
        for name in [*WORKS, *LOADS]:
            if not name.startswith(wanted):
                continue
            status.update(name)
            with _sampled(name, sources, folder) as (old, new):
                lines.append(_measure(name, old, new, options.rounds))
    _show(console, lines)
    if options.output is not None:
        options.output.write_text(json.dumps([line.as_json() for line in lines], indent=1) + "\n")
    return 1 if options.check and any(line.ratio > _LIMIT for line in lines) else 0


def _source_of(old: str, folder: Path) -> Path:
    if (Path(old) / "src").is_dir():
        return (Path(old) / "src").resolve()
    archive = subprocess.run(["git", "archive", old, "src"], cwd=_ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder / "old", filter="data")
    return folder / "old" / "src"


def _measure(name: str, old: Callable[[], Sample], new: Callable[[], Sample], rounds: int) -> Line:
    line = Line(name)
    old(), new()  # the first time pays for imports, page cache and clock speed
    for number in range(rounds):
        if number % 2:
            (new_cpu, new_wall), (old_cpu, old_wall) = new(), old()
        else:
            (old_cpu, old_wall), (new_cpu, new_wall) = old(), new()
        line.cpu.append((old_cpu, new_cpu))
        line.wall.append((old_wall, new_wall))
    return line


def _show(console: Console, lines: list[Line]) -> None:
    grid = Grid("line", "old us", "new us", "new / old", "quartiles", "by the clock")
    for line in lines:
        old, new = (statistics.median(pair[side] for pair in line.cpu) * 1e6 for side in (0, 1))
        low, high = line.quartiles
        colour = "red" if line.ratio > _LIMIT else "green" if line.ratio < 1 / _LIMIT else ""
        ratio = f"[{colour}]{line.ratio:.3f}[/]" if colour else f"{line.ratio:.3f}"
        clock = f"{line.wall_ratio:.3f}"
        grid.add_row(line.name, f"{old:.3f}", f"{new:.3f}", ratio, f"{low:.3f} to {high:.3f}", clock)
    console.print(grid)


# Work in a process of its own.


@contextmanager
def _sampled(
    name: str, sources: tuple[Path, Path], folder: Path
) -> Iterator[tuple[Callable[[], Sample], Callable[[], Sample]]]:
    with ExitStack() as running:
        begin = _served if name in LOADS else _worker
        old, new = (running.enter_context(begin(name, source, folder)) for source in sources)
        yield old, new


def _environment(source: Path) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return plain | {"PYTHONPATH": f"{source}{os.pathsep}{_ROOT}"}


@contextmanager
def _worker(name: str, source: Path, folder: Path) -> Iterator[Callable[[], Sample]]:
    command = [sys.executable, "-m", "benchmarks.compare_worker", name, str(folder), str(source)]
    with subprocess.Popen(
        command, env=_environment(source), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        asked, answered = process.stdin, process.stdout

        def sample() -> Sample:
            asked.write("\n")
            asked.flush()
            cpu, wall = json.loads(answered.readline())
            return cpu, wall

        yield sample
        asked.close()


def work(name: str, folder: Path) -> None:
    """Do a work of `WORKS` once for each line on standard input, and print what it took a record."""
    place = folder / f"{name}-{os.getpid()}"
    for _ in sys.stdin:
        gc.collect()
        os.sync()
        with WORKS[name](place) as (act, records):
            wall, cpu = time.perf_counter(), time.process_time()
            act()
            took = time.process_time() - cpu, time.perf_counter() - wall
        shutil.rmtree(place, ignore_errors=True)
        print(json.dumps([took[0] / records, took[1] / records]), flush=True)


Work = Callable[[Path], Any]
"""A context manager that sets up in a folder and gives what is to be measured, and for how many records."""
_PAYLOADS = payloads_of(60_000)


def _log_work(flush: str, count: int, act: Callable[[Any, list[bytes]], object], filled: bool = False) -> Work:
    @contextmanager
    def prepared(place: Path) -> Iterator[tuple[Callable[[], object], int]]:
        import holdfast  # noqa: PLC0415 (the version that is measured)

        with holdfast.open(place) as store:
            log = store.log("bench", flush=getattr(holdfast.Flush, flush)())
            if filled:
                log.append_many(_PAYLOADS[:count])
                log.sync()
            else:
                log.append(b"")
            yield lambda: act(log, _PAYLOADS[:count]), count

    return prepared


def _append(log: Any, payloads: list[bytes]) -> None:
    for payload in payloads:
        log.append(payload)


def _append_many(log: Any, payloads: list[bytes]) -> None:
    for start in range(0, len(payloads), _BATCH):
        log.append_many(payloads[start : start + _BATCH])


def _read_many(log: Any, payloads: list[bytes]) -> None:
    tailer = log.tailer()
    taken = 0
    while records := tailer.read_many(1000):
        taken += len(records)
    assert taken == len(payloads)


def _queue_work(flush: str, count: int, act: Callable[[Any, list[bytes]], object]) -> Work:
    @contextmanager
    def prepared(place: Path) -> Iterator[tuple[Callable[[], object], int]]:
        import holdfast  # noqa: PLC0415

        with holdfast.open(place) as store:
            queue = store.queue("bench", flush=getattr(holdfast.Flush, flush)())
            queue.put(b"")
            queue.ack(queue.lease(1))
            yield lambda: act(queue, _PAYLOADS[:count]), count

    return prepared


def _one_by_one(queue: Any, payloads: list[bytes]) -> None:
    for payload in payloads:
        queue.put(payload)
        queue.get().ack()


def _in_batches(queue: Any, payloads: list[bytes]) -> None:
    for start in range(0, len(payloads), _BATCH):
        queue.put_many(payloads[start : start + _BATCH])
        queue.ack(queue.lease(_BATCH))


def _table_work(count: int, act: Callable[[Any, int], object], durable: bool = False, filled: bool = False) -> Work:
    @contextmanager
    def prepared(place: Path) -> Iterator[tuple[Callable[[], object], int]]:
        from benchmarks.table_peers import HoldfastTable, row_of  # noqa: PLC0415

        table = HoldfastTable(place, durable=durable)
        if filled:
            for first in range(0, 10_000, _BATCH):
                table.add_many([row_of(number) for number in range(first, first + _BATCH)])
        yield lambda: act(table, count), count
        table.close()

    return prepared


def _table_add(table: Any, count: int) -> None:
    from benchmarks.table_peers import row_of  # noqa: PLC0415

    for first in range(0, count, _BATCH):
        table.add_many([row_of(number) for number in range(first, first + _BATCH)])


def _table_add_single(table: Any, count: int) -> None:
    from benchmarks.table_peers import row_of  # noqa: PLC0415

    for number in range(count):
        table.add_many([row_of(number)])


def _table_keys(count: int) -> list[bytes]:
    from benchmarks.table_peers import row_of  # noqa: PLC0415

    return [row_of(number)[0] for number in random.Random(2).choices(range(10_000), k=count)]


def _table_get(table: Any, count: int) -> None:
    for key in _table_keys(count):
        table.get(key)


def _table_change(table: Any, count: int) -> None:
    for number, key in enumerate(_table_keys(count)):
        table.change(key, -number - 1)


WORKS: dict[str, Work] = {
    "log.append": _log_work("async_", 60_000, _append),
    "log.append_many": _log_work("async_", 60_000, _append_many),
    "log.append.sync": _log_work("sync", 300, _append),
    "log.read_many": _log_work("async_", 60_000, _read_many, filled=True),
    "queue.one_by_one": _queue_work("async_", 20_000, _one_by_one),
    "queue.batches": _queue_work("async_", 60_000, _in_batches),
    "queue.sync": _queue_work("sync", 200, _one_by_one),
    "table.add_batches": _table_work(10_000, _table_add),
    "table.add": _table_work(3_000, _table_add_single),
    "table.add.sync": _table_work(200, _table_add_single, durable=True),
    "table.change": _table_work(3_000, _table_change, filled=True),
    "table.get": _table_work(30_000, _table_get, filled=True),
}


# The broker, with loads from outside.

LOADS: dict[str, Load] = {
    "amqp.1_1": Load(60_000),
    "amqp.varied": Load(10_000, varied=True),
    "amqp.64_kib": Load(2_000, size=65_536, window=100, prefetch=100, ack_every=10, block=5),
    "amqp.lone_confirm": Load(300, consumers=0, block=1, window=1),
    "amqp.transient": Load(60_000, persistent=False, confirms=False),
}


@contextmanager
def _served(name: str, source: Path, folder: Path) -> Iterator[Callable[[], Sample]]:
    place = folder / f"{name}-{source.parent.name}-served"
    place.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "holdfast", "serve", "--data", str(place / "data"), "--amqp-port", str(port)]
    command += ["--http-port", "none", "--rpc-port", "none"]
    with (place / "output").open("wb") as output:
        process = subprocess.Popen(command, env=_environment(source), cwd=place, stdout=output, stderr=output)
    url = f"amqp://guest:guest@127.0.0.1:{port}/"
    load = LOADS[name]
    try:
        _await(url, process)
        yield lambda: _load(url, load, process.pid)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(place, ignore_errors=True)


def _await(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_S
    while True:
        with suppress(OSError):
            Wire(url).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} does not serve")
        time.sleep(0.1)


def _load(url: str, load: Load, pid: int) -> Sample:
    os.sync()
    cpu = _cpu_of(pid)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.amqp_load", url, load.as_json()],
        cwd=_ROOT, capture_output=True, text=True, timeout=_LOAD_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the load failed:\n{done.stderr[-3000:]}")
    return (_cpu_of(pid) - cpu) / load.messages, float(json.loads(done.stdout)["seconds"]) / load.messages


def _cpu_of(pid: int) -> float:
    """Processor seconds that a process has used, all of its threads; Linux only."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


if __name__ == "__main__":
    sys.exit(main())
