"""Claims and entries at a turnstile that interrupts cut off: whoever comes next goes on."""

import threading
import time

import pytest

from holdfast.base.critical_section import Condition
from holdfast.base.fair_lock import FairLock, Ticket
from tests.interrupts import Interrupted, Interrupts
from tests.table.trouble import Running


class NotedCondition(Condition):
    """A condition that notes when somebody begins to wait."""

    def __init__(self, lock: "threading.RLock") -> None:
        super().__init__(lock)
        self.begun = threading.Event()

    def wait(self, seconds: float | None = None) -> bool:
        self.begun.set()
        return super().wait(seconds)


def claim_and_leave(gate: FairLock) -> None:
    ticket = Ticket()
    try:
        gate.claim(ticket)
    finally:
        ticket.over = True
        gate.tidy()


def enter(gate: FairLock, lock: "threading.RLock") -> None:
    with lock:
        gate.enter()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_claim_that_is_cut_off_anywhere_keeps_nobody_out(times: int) -> None:
    at = 0
    while True:
        lock = threading.RLock()
        gate = FairLock(Condition(lock))

        def claim(gate: FairLock = gate) -> None:
            try:  # noqa: SIM105 - `suppress` is Python code, where the handler would raise, too
                claim_and_leave(gate)
            except Interrupted:
                pass

        interrupts = Interrupts(at, times)
        interrupts.run(claim)
        if not interrupts.raised:
            break
        for work in (lambda: claim_and_leave(gate), lambda: enter(gate, lock)):  # noqa: B023
            Running(work).result()
        assert gate.is_free_within(0), interrupts.where
        at += 1
    assert at > 10


@pytest.mark.parametrize("times", [1, 2])
def test_an_entry_that_is_cut_off_anywhere_keeps_no_claim_waiting(times: int) -> None:
    at = 0
    while True:
        lock = threading.RLock()
        changed = NotedCondition(lock)
        gate = FairLock(changed)
        held = Ticket()
        gate.claim(held)
        held.thread = 0  # of another thread

        def end(gate: FairLock = gate, held: Ticket = held, changed: NotedCondition = changed) -> None:
            assert changed.begun.wait(60)
            held.over = True
            gate.tidy()

        ending = Running(end)

        def come_in(gate: FairLock = gate, lock: "threading.RLock" = lock) -> None:
            try:  # noqa: SIM105
                enter(gate, lock)
            except Interrupted:
                pass

        interrupts = Interrupts(at, times)
        interrupts.run(come_in)
        changed.begun.set()  # also if it was cut off before it waited
        ending.result()
        if not interrupts.raised:
            break
        Running(lambda: claim_and_leave(gate)).result()  # noqa: B023
        at += 1
    assert at > 10


def test_a_claim_that_was_never_granted_lets_nobody_in_when_it_is_given_up() -> None:
    lock = threading.RLock()
    gate = FairLock(Condition(lock))
    holder, given_up = Ticket(), Ticket()
    gate.claim(holder)
    entry = Running(lambda: enter(gate, lock))
    assert entry.is_waiting()
    gate.line.append(given_up)  # as who waits for the holder, and is then interrupted
    given_up.over = True
    gate.tidy()
    time.sleep(0.3)
    assert entry.is_waiting(), "it came in beside the holder"
    holder.over = True
    gate.tidy()
    entry.result()
