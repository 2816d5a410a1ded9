"""A queue worker of the demo: leases orders, ships and acknowledges them, and nacks those that fail.

Several workers run in one child process, and report every step to the parent.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import holdfast
from holdfast import Delivery, LeaseLost, Queue
from holdfast.cli.demo.shipping import open_queue, ship

__all__ = ["WORKERS", "work"]

WORKERS = 4
_BATCH = 20
_WAIT_S = 0.1
Report = Callable[..., None]


def work(report: Report, data: Path, hold: int) -> None:
    """Ship until the queue is empty. With `hold`, one more worker leases that many orders and hangs."""
    with holdfast.open(data) as store:
        queue = open_queue(store)
        report(ready=True)
        workers = [threading.Thread(target=_ship_all, args=(queue, report)) for _ in range(WORKERS)]
        if hold:
            workers.append(threading.Thread(target=_hang, args=(queue, report, hold)))
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    report(done=True)


def _ship_all(queue: Queue, report: Report) -> None:
    while True:
        held = queue.lease(_BATCH, wait=_WAIT_S)
        if held:
            _ship_some(queue, held, report)
        elif _is_empty(queue):
            return


def _ship_some(queue: Queue, held: list[Delivery], report: Report) -> None:
    report(leased=[(each.id, each.lease, each.attempt) for each in held])
    shipped: dict[int, int] = {}
    for each in held:
        try:
            shipped[each.id] = ship(each.payload)
        except ValueError as error:
            report(failed=each.id, attempt=each.attempt, at=time.time_ns())
            each.nack(f"{type(error).__name__}: {error}")
    try:
        queue.ack(each for each in held if each.id in shipped)
    except LeaseLost as error:  # on a very slow machine: they are redelivered, and count when they are acked
        for lost in error.ids:
            shipped.pop(lost, None)
    report(shipped=list(shipped.items()))


def _hang(queue: Queue, report: Report, count: int) -> None:
    held = queue.lease(count)
    report(leased=[(each.id, each.lease, each.attempt) for each in held])
    threading.Event().wait()


def _is_empty(queue: Queue) -> bool:
    figures = queue.stats()
    return not figures.ready + figures.delayed + figures.leased + figures.moving
