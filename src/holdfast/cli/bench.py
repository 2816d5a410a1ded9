"""The `holdfast bench` command: measures logs and queues on this machine, compared with its disk alone."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

import holdfast
from holdfast.base.units import format_count, format_size
from holdfast.cli.options import JsonOption, size_option
from holdfast.cli.output import error_console, json_line, make_table, show, standard_output
from holdfast.log import Flush
from holdfast.log.log import Log
from holdfast.queue import Queue

__all__ = ["Figure", "bench", "figures"]

_SIZE = 100
_BATCH = 100
_THREADS = 16
_STEPS = 8
"""Steps between two reads of the clock."""

Step = Callable[[], int]
"""Performs one step of a workload; returns the number of messages."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The measurement of one workload."""

    id: str
    what: str
    a_second: float
    """Messages per second."""
    waits: bool
    """Whether each message waits for the disk."""


def bench(
    folder: Annotated[
        Path,
        typer.Option(
            "--folder",
            metavar="DIR",
            show_default="the current folder",
            help="Measure the disk of this folder; temporary files are removed.",
        ),
    ] = Path(),
    size: Annotated[
        int | None,
        typer.Option("--size", parser=size_option, metavar="SIZE", show_default="100", help="Size of a message."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="Seconds to measure each workload.")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Measure logs and queues on this machine, compared with the disk alone.

    Compare figures of the same run only: on a machine with other load, two runs differ.
    """
    size = _SIZE if size is None else size
    table = make_table("workload", "per second", "time each", "vs. disk", numbers=("per second", "time each"))
    disk = 0.0
    with error_console().status("measuring the disk") as status:
        for figure in figures(folder, size, seconds):
            disk = disk or figure.a_second
            status.update(f"measured: {figure.what}")
            if as_json:
                standard_output().write(json_line(asdict(figure)))
                standard_output().flush()
            ratio = f"{figure.a_second / disk:.2g} x" if figure.waits else ""
            table.add_row(figure.what, format_count(figure.a_second), f"{1e6 / figure.a_second:,.1f} us", ratio)
    if not as_json:
        show(table, f"\nmessages of {format_size(size)}, {seconds:g} s per workload, on the disk of {folder.resolve()}")


def figures(folder: Path, size: int, seconds: float) -> Iterator[Figure]:
    """Yield measurements, made in a temporary folder that is deleted at the end. The first is the disk alone."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=folder) as place:
        disk = os.open(Path(place) / "disk", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            with holdfast.open(Path(place) / "data") as store:
                body = os.urandom(size)
                safe = store.queue("safe")
                log = store.log("events", flush=Flush.async_())
                quick = store.queue("quick", flush=Flush.async_())
                steps: list[tuple[str, str, bool, int, Step]] = [
                    ("disk", "write and fdatasync, without Holdfast", True, 1, lambda: _write(disk, body)),
                    ("put_sync", "put, on disk when it returns", True, 1, lambda: _put(safe, body)),
                    ("put_sync_threads", f"the same, {_THREADS} threads", True, _THREADS, lambda: _put(safe, body)),
                    ("work_sync", "put, get and ack, each on disk", True, 1, lambda: _work(safe, body)),
                    ("work", "put, get and ack", False, 1, lambda: _work(quick, body)),
                    ("work_many", f"the same, {_BATCH} at a time", False, 1, lambda: _work_many(quick, body)),
                    ("append", "append to a log", False, 1, lambda: _append(log, body)),
                    ("append_many", f"the same, {_BATCH} at a time", False, 1, lambda: _append_many(log, body)),
                ]
                for name, what, waits, threads, step in steps:
                    if name == "work_sync":
                        safe.purge()  # the messages of the workloads above
                    yield Figure(name, what, _rate(step, seconds, threads), waits)
        finally:
            os.close(disk)


def _rate(step: Step, seconds: float, threads: int) -> float:
    """Return the messages per second of `threads` threads together."""
    step()  # the first step creates files
    began = time.perf_counter()

    def work(_: int) -> int:
        done = 0
        while True:  # at least once: on a busy machine, starting may take all the time
            for _ in range(_STEPS):
                done += step()
            if time.perf_counter() - began >= seconds:
                return done

    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(work, range(threads)))
    return done / (time.perf_counter() - began)


def _write(disk: int, body: bytes) -> int:
    os.write(disk, body)
    getattr(os, "fdatasync", os.fsync)(disk)
    return 1


def _put(queue: Queue, body: bytes) -> int:
    queue.put(body)
    return 1


def _work(queue: Queue, body: bytes) -> int:
    queue.put(body)
    message = queue.get()
    assert message is not None
    message.ack()
    return 1


def _work_many(queue: Queue, body: bytes) -> int:
    queue.put_many([body] * _BATCH)
    queue.ack(queue.lease(_BATCH))
    return _BATCH


def _append(log: Log, body: bytes) -> int:
    log.append(body)
    return 1


def _append_many(log: Log, body: bytes) -> int:
    return len(log.append_many([body] * _BATCH))
