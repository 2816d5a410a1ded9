"""The demo's second part: a queue whose workers are killed, with a failing order and its dead letter."""

import random
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast
from holdfast.base.clock import NS
from holdfast.base.units import format_count, format_duration, plural
from holdfast.cli.demo.children import next_report, running
from holdfast.cli.demo.output import Stage
from holdfast.cli.demo.results import Figures
from holdfast.cli.demo.shipping import (
    ATTEMPTS,
    BACKOFF,
    LEASE_S,
    QUEUE,
    number_of,
    open_queue,
    orders_to_ship,
    parts,
    ship,
)
from holdfast.cli.demo.worker import WORKERS
from holdfast.cli.queue.dead_letters import dead_letter_table
from holdfast.cli.queue.overview import stats_panel

__all__ = ["run_queue_part"]

_PRODUCERS = 4
_PUT_BATCH = 50


@dataclass(slots=True)
class Ledger:
    """The reports of the workers, step by step, against which the queue is checked."""

    orders: dict[int, int] = field(default_factory=dict)
    """The number of each order by its id in the queue."""
    leased: dict[int, list[int]] = field(default_factory=dict)
    """The times of each delivery, by id."""
    again: set[int] = field(default_factory=set)
    """Ids that were delivered more than once."""
    shipped: dict[int, int] = field(default_factory=dict)
    """How often each was shipped, by id."""
    failed: list[tuple[int, int, int]] = field(default_factory=list)
    """Id, attempt and time of each failure."""
    strange: int = 0
    """Deliveries whose payload was not the one that was put under that id."""

    def note(self, report: dict[str, Any]) -> None:
        """Record one report."""
        for id, lease, attempt in report.get("leased", ()):
            self.leased.setdefault(id, []).append(lease)  # a lease's id is the time of the delivery
            if attempt > 1:
                self.again.add(id)
        for id, number in report.get("shipped", ()):
            self.shipped[id] = self.shipped.get(id, 0) + 1
            self.strange += self.orders.get(id) != number
        if "failed" in report:
            self.failed.append((report["failed"], report["attempt"], report["at"]))


def run_queue_part(data: Path, orders: int, figures: Figures, stage: Stage) -> None:
    """Run the second part in this folder."""
    figures.orders = orders
    ledger = Ledger()
    poison = _put(data, ledger, figures, stage)
    died_at, silently = _work_and_kill(data, ledger, figures, stage)
    _continue(data, ledger, died_at, silently, poison, figures, stage)
    _redrive(data, ledger, poison, figures, stage)


def _put(data: Path, ledger: Ledger, figures: Figures, stage: Stage) -> int:
    """Put the orders; return the id of the one that cannot be shipped."""
    stage.chapter(f"{format_count(figures.orders)} orders are put into the queue {QUEUE!r}, by {_PRODUCERS} threads")
    payloads, poison = orders_to_ship(figures.orders)
    with holdfast.open(data) as store:
        queue = open_queue(store)

        def produce(share: list[bytes]) -> None:
            for start in range(0, len(share), _PUT_BATCH):
                batch = share[start : start + _PUT_BATCH]
                ledger.orders.update(zip(queue.put_many(batch), map(number_of, batch), strict=True))

        began = time.perf_counter()
        producers = [threading.Thread(target=produce, args=(share,)) for share in parts(payloads, _PRODUCERS)]
        for producer in producers:
            producer.start()
        for producer in producers:
            producer.join()
        figures.put_seconds = time.perf_counter() - began
        ready = queue.stats().ready
    stage.say(f"{format_count(ready)} on disk, {_pace(ready, figures.put_seconds)}, {_PUT_BATCH} per call")
    figures.promise(
        "every order that was put is ready, with a unique id", ready == len(ledger.orders) == figures.orders
    )
    return next(id for id, number in ledger.orders.items() if number == poison)


def _work_and_kill(data: Path, ledger: Ledger, figures: Figures, stage: Stage) -> tuple[int, int]:
    """Return the time of the kill, and how many orders were acknowledged without a report."""
    stage.chapter(f"A process with {WORKERS} workers ships them, and is killed")
    deadly = round(figures.orders * random.uniform(0.3, 0.5))
    with running("work", data, max(10, figures.orders // 100)) as child:
        next_report(child)
        began = time.perf_counter()
        with stage.progress("shipped", figures.orders, in_bytes=False) as advance:
            while len(ledger.shipped) < deadly and (report := next_report(child)) is not None:
                ledger.note(report)
                advance(len(ledger.shipped))
        child.send_signal(signal.SIGKILL)
        died_at = time.time_ns()
        while (report := next_report(child)) is not None:
            ledger.note(report)
        figures.shipped_before_seconds = time.perf_counter() - began
        code = child.wait()
    figures.shipped_before = len(ledger.shipped)
    figures.in_doubt = len(ledger.leased.keys() - ledger.shipped.keys() - {id for id, _, _ in ledger.failed})
    with holdfast.open(data) as store:
        after = open_queue(store).stats()
    silently = after.total_acked - figures.shipped_before
    pace = _pace(figures.shipped_before, figures.shipped_before_seconds)
    stage.say(f"{format_count(figures.shipped_before)} shipped, {pace}")
    stage.say(f"kill -9 {child.pid}: it had leased {plural(after.leased, 'order')}; one of its workers hung")
    figures.promise("the process with the workers was killed before it ended", code == -signal.SIGKILL)
    figures.promise("the queue kept every ack that was confirmed", 0 <= silently <= figures.in_doubt)
    return died_at, silently


def _continue(
    data: Path, ledger: Ledger, died_at: int, silently: int, poison: int, figures: Figures, stage: Stage
) -> None:
    stage.chapter("Another process continues, and gets these orders when their leases expire")
    before, doubtful = set(ledger.shipped), ledger.leased.keys() - ledger.shipped.keys()
    delivered = {id: times[-1] for id, times in ledger.leased.items()}
    ledger.again.clear()
    with running("work", data, 0) as child:
        began = time.perf_counter()
        with stage.progress("shipped", figures.orders, in_bytes=False) as advance:
            while (report := next_report(child)) is not None:
                ledger.note(report)
                advance(len(ledger.shipped))
        figures.shipped_seconds = time.perf_counter() - began
    again = {id: ledger.leased[id][-1] for id in ledger.again if id != poison}
    figures.came_again = len(again)
    figures.came_again_seconds = max(0, max(again.values(), default=died_at) - died_at) / NS
    unheard = ledger.orders.keys() - ledger.shipped.keys() - {poison}
    figures.missing = abs(len(unheard) - silently)
    figures.doubled = sum(count - 1 for count in ledger.shipped.values())
    figures.shipped = len(ledger.shipped) + silently
    waited = all(time - delivered.get(id, 0) >= LEASE_S * NS for id, time in again.items())
    when = format_duration(figures.came_again_seconds)
    stage.say(f"{format_count(figures.came_again)} were redelivered, the last {when} after the kill")
    if silently:
        stage.say(f"{format_count(silently)} that it had acked just before the kill were not")
    stage.say(f"{format_count(figures.shipped)} orders are shipped; lost: {figures.missing}, twice: {figures.doubled}")
    figures.promise("no acked order was redelivered", not before & again.keys())
    figures.promise(f"no order was redelivered before its lease of {format_duration(LEASE_S)} had expired", waited)
    figures.promise(
        "no order is lost: each was shipped, at the first delivery or a later one",
        figures.missing == 0 and unheard <= doubtful,
    )
    figures.promise("no order was shipped twice, and each payload was correct", figures.doubled == ledger.strange == 0)


def _redrive(data: Path, ledger: Ledger, poison: int, figures: Figures, stage: Stage) -> None:
    stage.chapter("One order cannot be shipped: it becomes a dead letter, and is redriven")
    with holdfast.open(data) as store:
        queue = open_queue(store)
        letters = queue.dead_letters()
        stage.show(dead_letter_table(letters, margin=stage.margin) if letters else "none")
        figures.attempts = letters[0].attempts if letters else 0
        right = [(letter.original_id, letter.attempts) for letter in letters] == [(poison, ATTEMPTS)]
        figures.promise(
            f"only the order that cannot be shipped is a dead letter, after {ATTEMPTS} attempts",
            right and "cannot ship" in letters[0].reason,
        )
        figures.promise("after each failure it waited for its backoff", _waited(ledger, poison))
        figures.redriven = queue.redrive()
        mended = queue.get()
        shipped = mended is not None and ship(mended.payload, mended=True) == ledger.orders[poison] and mended.ack()
        stage.say(f"the code is fixed and the dead letter redriven: order {ledger.orders[poison]} is shipped")
        first = mended is not None and mended.attempt == 1
        figures.promise(
            "the redriven order started at attempt 1, was shipped and acked",
            shipped and first and figures.redriven == 1,
        )
        figures.shipped += shipped
        after = queue.stats()
        stage.show(stats_panel(queue, after, watched=False))
        left = after.ready + after.delayed + after.leased + after.dead
        figures.promise(
            "the queue is empty, and counts one ack per order", left == 0 and after.total_acked == figures.orders
        )


def _waited(ledger: Ledger, poison: int) -> bool:
    """Return whether each redelivery after a failure came no sooner than its backoff allows."""
    return all(
        min((time for time in ledger.leased[poison] if time > at), default=at + BACKOFF.delay_ns(attempt))
        >= at + BACKOFF.delay_ns(attempt)
        for id, attempt, at in ledger.failed
        if id == poison and attempt < ATTEMPTS
    )


def _pace(count: int, seconds: float) -> str:
    return f"{format_count(count / max(seconds, 1e-9))} orders/s"
