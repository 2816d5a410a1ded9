"""Child processes of the demo: a writer that is killed, a reader that follows it, and queue workers.

Each is a new Python that calls `run`, and reports to its parent by lines of JSON through a pipe.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import holdfast
from holdfast import Delivery, LeaseLost, Queue
from holdfast.cli.demo.orders import LOG, open_queue, order, orders, ship
from holdfast.log import Flush

__all__ = ["WORKERS", "next_report", "run", "running"]

WORKERS = 4
_BATCH = 20
_WAIT_S = 0.1
_SAMPLE = 97
"""The follower measures the age of every 97th record that it reads."""
_TIMEOUT_S = 30
_report_lock = threading.Lock()


@contextlib.contextmanager
def running(role: str, data: Path, *numbers: int) -> Iterator["subprocess.Popen[str]"]:
    """Run a child process of this module, which is killed at the end of the block."""
    program = "from holdfast.cli.demo.children import run; run()"
    command = [sys.executable, "-c", program, role, str(data), *map(str, numbers)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches only the parent, which then kills the child
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def next_report(child: "subprocess.Popen[str]") -> dict[str, Any] | None:
    """Return the child's next report; None at its end. A line that the kill truncated does not count."""
    assert child.stdout is not None
    line = child.stdout.readline()
    return dict(json.loads(line)) if line.endswith("\n") else None


def run() -> None:
    """Run the role that the command line names."""
    role, data, *numbers = sys.argv[1:]
    roles: dict[str, Callable[..., None]] = {"write": _write, "follow": _follow, "work": _work}
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        roles[role](Path(data), *map(int, numbers))


def _report(**facts: object) -> None:
    with _report_lock:
        print(json.dumps(facts), flush=True)


def _write(data: Path, records: int, sync_every: int) -> None:
    """Append orders, and report how many are confirmed to be on disk, until the parent kills the process."""
    with holdfast.open(data) as store:
        log = store.log(LOG, flush=Flush.batch())
        _report(confirmed=0)
        for start in range(0, records, sync_every):
            stop = min(start + sync_every, records)
            for payload in orders(start, stop):
                log.append(payload)
            log.sync()
            _report(confirmed=stop)
        sys.stdin.read()  # a process that finished first waits to be killed, or for the end of its parent


def _follow(data: Path, start: int, stop: int) -> None:
    """Read records as another process writes them; report how many were correct, and how old they were when read."""
    seen = right = 0
    delays: list[int] = []
    with holdfast.open(data, read_only=True) as store, store.log(LOG).tailer() as tailer:
        tailer.seek(start)
        _report(ready=True)
        for record in tailer.follow(wait=_TIMEOUT_S):
            right += record.sequence == start + seen and record.payload == order(record.sequence)
            seen += 1
            if seen % _SAMPLE == 1:
                delays.append(time.time_ns() - record.timestamp)
            if record.sequence + 1 >= stop:
                break
    _report(right=right, delay_ms=round(median(delays) / 1e6, 3) if delays else None)


def _work(data: Path, hold: int) -> None:
    """Ship, with several workers, until the queue is empty. With `hold`, one more leases that many orders and hangs."""
    with holdfast.open(data) as store:
        queue = open_queue(store)
        _report(ready=True)
        workers = [threading.Thread(target=_ship_all, args=(queue,)) for _ in range(WORKERS)]
        if hold:
            workers.append(threading.Thread(target=_hang, args=(queue, hold)))
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def _ship_all(queue: Queue) -> None:
    """Lease orders, ship and acknowledge them, nack those that fail, and report every step."""
    while True:
        held = _lease(queue, _BATCH)
        if held:
            _ship_some(queue, held)
        elif not sum(queue.counts()):
            return


def _ship_some(queue: Queue, held: list[Delivery]) -> None:
    shipped: dict[int, int] = {}
    for each in held:
        try:
            shipped[each.id] = ship(each.payload)
        except ValueError as error:
            _report(failed=each.id, attempt=each.attempt, at=time.time_ns())
            each.nack(f"{type(error).__name__}: {error}")
    try:
        queue.ack(each for each in held if each.id in shipped)
    except LeaseLost as error:  # on a very slow machine: they are redelivered, and count when they are acked
        for lost in error.ids:
            shipped.pop(lost, None)
    _report(shipped=list(shipped.items()))


def _hang(queue: Queue, count: int) -> None:
    _lease(queue, count)
    threading.Event().wait()


def _lease(queue: Queue, count: int) -> list[Delivery]:
    held = queue.lease(count, wait=_WAIT_S)
    if held:
        _report(leased=[(each.id, each.lease, each.attempt) for each in held])
    return held
