"""The demo's second part: a queue whose workers are killed, with a failing order and its dead letter."""

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast
from holdfast.base.clock import NS
from holdfast.base.units import format_count, format_duration, plural
from holdfast.cli.demo.children import WORKERS, next_report, running
from holdfast.cli.demo.orders import ATTEMPTS, BACKOFF, LEASE_S, QUEUE, number_of, open_queue, orders_to_ship, ship
from holdfast.cli.demo.stage import Stage, pace
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
    poison: int = 0
    """The id of the order that cannot be shipped."""
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


def run_queue_part(data: Path, orders: int, stage: Stage) -> None:
    """Run the second part in this folder."""
    ledger = Ledger()
    stage.line()
    _put(data, orders, ledger, stage)
    died_at, silently = _work_and_kill(data, ledger, stage)
    shipped = _continue(data, ledger, died_at, silently, stage)
    _redrive(data, ledger, shipped, stage)


def _put(data: Path, orders: int, ledger: Ledger, stage: Stage) -> None:
    stage.chapter(f"{format_count(orders)} orders are put into the queue {QUEUE!r}, by {_PRODUCERS} threads")
    payloads, poison = orders_to_ship(orders)
    with holdfast.open(data) as store:
        queue = open_queue(store)

        def produce(part: int) -> None:
            share = payloads[part::_PRODUCERS]
            for start in range(0, len(share), _PUT_BATCH):
                batch = share[start : start + _PUT_BATCH]
                ledger.orders.update(zip(queue.put_many(batch), map(number_of, batch), strict=True))

        began = time.perf_counter()
        with ThreadPoolExecutor(_PRODUCERS) as producers:
            list(producers.map(produce, range(_PRODUCERS)))
        seconds = time.perf_counter() - began
        ready = queue.counts().ready
    ledger.poison = next(id for id, number in ledger.orders.items() if number == poison)
    stage.say(f"{format_count(ready)} on disk, {pace(ready, seconds, 'orders')}, {_PUT_BATCH} per call")
    stage.promise("every order that was put is ready, with a unique id", ready == len(ledger.orders) == orders)
    stage.note(orders=orders, put_seconds=seconds)
    stage.line("orders put into a queue", format_count(orders), pace(orders, seconds, "orders"))


def _work_and_kill(data: Path, ledger: Ledger, stage: Stage) -> tuple[int, int]:
    """Return the time of the kill, and how many orders were acknowledged without a report."""
    stage.chapter(f"A process with {WORKERS} workers ships them, and is killed")
    orders = len(ledger.orders)
    deadly = round(orders * random.uniform(0.3, 0.5))
    with running("work", data, max(10, orders // 100)) as child:
        next_report(child)
        began = time.perf_counter()
        with stage.progress("shipped", orders) as advance:
            while len(ledger.shipped) < deadly and (report := next_report(child)) is not None:
                ledger.note(report)
                advance(len(ledger.shipped))
        child.send_signal(signal.SIGKILL)
        died_at = time.time_ns()
        while (report := next_report(child)) is not None:
            ledger.note(report)
        seconds = time.perf_counter() - began
        code = child.wait()
    shipped = len(ledger.shipped)
    in_doubt = len(ledger.leased.keys() - ledger.shipped.keys() - {id for id, _, _ in ledger.failed})
    with holdfast.open(data) as store:
        after = open_queue(store).stats()
    silently = after.total_acked - shipped
    stage.say(f"{format_count(shipped)} shipped, {pace(shipped, seconds, 'orders')}")
    stage.say(f"kill -9 {child.pid}: it had leased {plural(after.leased, 'order')}; one of its workers hung")
    stage.promise("the process with the workers was killed before it ended", code == -signal.SIGKILL)
    stage.promise("the queue kept every ack that was confirmed", 0 <= silently <= in_doubt)
    stage.note(shipped_before=shipped, shipped_before_seconds=seconds, in_doubt=in_doubt)
    stage.line("shipped before kill -9", format_count(shipped), pace(shipped, seconds, "orders"))
    return died_at, silently


def _continue(data: Path, ledger: Ledger, died_at: int, silently: int, stage: Stage) -> int:
    """Return how many orders are shipped."""
    stage.chapter("Another process continues, and gets these orders when their leases expire")
    before, doubtful = set(ledger.shipped), ledger.leased.keys() - ledger.shipped.keys()
    delivered = {id: times[-1] for id, times in ledger.leased.items()}
    ledger.again.clear()
    with running("work", data, 0) as child, stage.progress("shipped", len(ledger.orders)) as advance:
        while (report := next_report(child)) is not None:
            ledger.note(report)
            advance(len(ledger.shipped))
    again = {id: ledger.leased[id][-1] for id in ledger.again if id != ledger.poison}
    seconds = max(0, max(again.values(), default=died_at) - died_at) / NS
    unheard = ledger.orders.keys() - ledger.shipped.keys() - {ledger.poison}
    missing = abs(len(unheard) - silently)
    doubled = sum(count - 1 for count in ledger.shipped.values())
    shipped = len(ledger.shipped) + silently
    waited = all(time - delivered.get(id, 0) >= LEASE_S * NS for id, time in again.items())
    stage.say(f"{format_count(len(again))} were redelivered, the last {format_duration(seconds)} after the kill")
    if silently:
        stage.say(f"{format_count(silently)} that it had acked just before the kill were not")
    stage.say(f"{format_count(shipped)} orders are shipped; lost: {missing}, twice: {doubled}")
    stage.promise("no acked order was redelivered", not before & again.keys())
    stage.promise(f"no order was redelivered before its lease of {format_duration(LEASE_S)} had expired", waited)
    stage.promise(
        "no order is lost: each was shipped, at the first delivery or a later one",
        missing == 0 and unheard <= doubtful,
    )
    stage.promise("no order was shipped twice, and each payload was correct", doubled == ledger.strange == 0)
    stage.note(came_again=len(again), came_again_seconds=seconds, missing=missing, doubled=doubled)
    stage.line("leased then, redelivered", format_count(len(again)), f"within {format_duration(seconds)} of the kill")
    stage.line("lost, or shipped twice", format_count(missing + doubled), lost=missing + doubled)
    return shipped


def _redrive(data: Path, ledger: Ledger, shipped: int, stage: Stage) -> None:
    stage.chapter("One order cannot be shipped: it becomes a dead letter, and is redriven")
    number = ledger.orders[ledger.poison]
    with holdfast.open(data) as store:
        queue = open_queue(store)
        letters = queue.dead_letters()
        stage.show(dead_letter_table(letters, margin=stage.margin) if letters else "none")
        attempts = letters[0].attempts if letters else 0
        right = [(letter.original_id, letter.attempts) for letter in letters] == [(ledger.poison, ATTEMPTS)]
        stage.promise(
            f"only the order that cannot be shipped is a dead letter, after {ATTEMPTS} attempts",
            right and "cannot ship" in letters[0].reason,
        )
        stage.promise("after each failure it waited for its backoff", _waited(ledger))
        redriven = queue.redrive()
        mended = queue.get()
        done = mended is not None and ship(mended.payload, mended=True) == number and mended.ack()
        stage.say(f"the code is fixed and the dead letter redriven: order {number} is shipped")
        stage.promise(
            "the redriven order started at attempt 1, was shipped and acked",
            mended is not None and done and mended.attempt == 1 and redriven == 1,
        )
        after = queue.stats()
        stage.show(stats_panel(queue, after, watched=False))
    left = after.ready + after.delayed + after.leased + after.dead
    empty = left == 0 and after.total_acked == len(ledger.orders)
    stage.promise("the queue is empty, and counts one ack per order", empty)
    stage.note(shipped=shipped + done, attempts=attempts, redriven=redriven)
    stage.line("shipped in total", format_count(shipped + done))
    stage.line("dead letters redriven", format_count(redriven), f"after {attempts} attempts")


def _waited(ledger: Ledger) -> bool:
    """Return whether each redelivery after a failure came no sooner than its backoff allows."""
    return all(
        min((time for time in ledger.leased[id] if time > at), default=due) >= due
        for id, attempt, at in ledger.failed
        if id == ledger.poison and attempt < ATTEMPTS
        for due in [at + BACKOFF.delay_ns(attempt)]
    )
