"""How much memory does Spark's view `messages` take, in the process that plans it and in a task?

Each in a process of its own. Figures are anonymous memory: the mapped segments are the page cache's. A thread looks
every ten milliseconds, so a peak that is shorter may be missed.
"""

import json
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.pandas.types import from_arrow_schema

import holdfast
from holdfast import Backoff, Flush
from holdfast.spark.options import ReadOptions
from holdfast.spark.reader import Reader
from holdfast.spark.sources import view_schema

__all__ = ["MessagesMemory", "fill_queue", "measure_messages"]

_AT_A_TIME = 10_000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MessagesMemory:
    """What one read of the view took."""

    messages: int
    plan_mib: float
    """The most that planning held at any time, with its imports."""
    plan_s: float
    plan_bytes: int
    """Of all tasks together, pickled."""
    tasks: int
    task_mib: float
    """The most that the first task held at any time, with its imports."""
    task_messages: int
    task_s: float


def fill_queue(store: Path, count: int) -> None:
    """Write a queue `q`: six of ten messages acked here and there, two failed, each for a reason of its own."""
    with holdfast.open(store) as opened:
        queue = opened.queue("q", flush=Flush.async_(), max_attempts=None, backoff=Backoff(3600, 3600))
        for start in range(0, count, _AT_A_TIME):
            queue.put_many([b"%016d" % number for number in range(start, start + _AT_A_TIME)])
            taken = queue.lease(_AT_A_TIME, lease=86_400)
            kinds = [one.id * 2_654_435_761 % (1 << 32) / (1 << 32) for one in taken]
            queue.ack([one for one, kind in zip(taken, kinds, strict=True) if kind < 0.6])
            for one, kind in zip(taken, kinds, strict=True):
                if 0.6 <= kind < 0.8:
                    one.nack(f"customer {one.id} has no account")
            queue.release([one for one, kind in zip(taken, kinds, strict=True) if 0.8 <= kind < 0.9])


def measure_messages(store: Path) -> MessagesMemory:
    """Plan a read of the messages of `q` in one fresh process, and run its first task in another."""
    plan = _child("plan", store)
    task = _child("task", store)
    return MessagesMemory(**(plan | task))  # type: ignore[arg-type]


def _child(part: str, store: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.message_memory", part, str(store.resolve())]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _anonymous() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


@contextmanager
def _peak() -> Iterator[Callable[[], float]]:
    """Watch the memory of this process; the result returns the most that was added, in MiB."""
    before = most = _anonymous()
    is_over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not is_over.wait(0.01):
            most = max(most, _anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: (max(most, _anonymous()) - before) / _MIB
    finally:
        is_over.set()
        watcher.join()


def _reader(store: str) -> Reader:
    options = {"path": store, "queue": "q", "view": "messages"}
    return Reader(options, from_arrow_schema(view_schema(ReadOptions.of(options))))


def _plan(store: str) -> dict[str, float]:
    with _peak() as peak:
        begin = time.perf_counter()
        tasks = _reader(store).partitions()
        took = time.perf_counter() - begin
        size = sum(len(pickle.dumps(task)) for task in tasks)
        return {"plan_mib": peak(), "plan_s": took, "plan_bytes": size, "tasks": len(tasks)}


def _run_task(store: str) -> dict[str, float]:
    reader = _reader(store)
    tasks = reader.partitions()
    with holdfast.open(store, read_only=True) as opened:
        messages = opened.log("q").end
    with _peak() as peak:
        begin = time.perf_counter()
        rows = sum(batch.num_rows for batch in reader.read(tasks[0]))
        took = time.perf_counter() - begin
        return {"messages": messages, "task_mib": peak(), "task_messages": rows, "task_s": took}


if __name__ == "__main__":
    print(json.dumps({"plan": _plan, "task": _run_task}[sys.argv[1]](sys.argv[2])))
