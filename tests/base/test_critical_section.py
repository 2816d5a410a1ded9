"""A change that is cut off is repaired by the next one; who waits has its lock again, whatever a handler raises."""

import threading

import pytest

from holdfast import InvalidArgument
from holdfast.base.critical_section import Condition, CriticalSection
from tests.interrupts import Interrupted, Interrupts

PATIENCE_S = 60.0


class Pair:
    """Two numbers that are always the same, but for a change that was cut off."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.section = CriticalSection(self.repair)
        self.left = self.right = 0
        self.repairs = 0

    def repair(self) -> None:
        self.right = self.left
        self.repairs += 1

    def change(self) -> None:
        with self.lock, self.section:
            assert self.left == self.right
            self.left = sum((self.left, 1))
            self.right = sum((self.right, 1))

    def read(self) -> tuple[int, int]:
        with self.lock:
            if self.section.open:
                self.section.mend()
            return self.left, self.right


def attempt(call: object) -> None:
    try:
        call()  # type: ignore[operator]
    except Interrupted:
        return


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_wherever_a_change_is_cut_off_the_next_one_finds_it_whole(times: int) -> None:
    at = repaired = 0
    while True:
        pair = Pair()
        interrupts = Interrupts(at, times)
        interrupts.run(lambda pair=pair: attempt(pair.change))  # type: ignore[misc]
        assert not pair.lock.locked()
        pair.change()
        assert pair.left == pair.right
        repaired += pair.repairs
        if not interrupts.raised:
            break
        at += 1
    assert repaired > 0


@pytest.mark.parametrize("times", [1, 2, 3])
def test_who_only_reads_mends_what_was_cut_off_and_may_be_cut_off_in_that(times: int) -> None:
    at = mended = 0
    while True:
        pair = Pair()
        pair.left, pair.section.open = 1, True  # a change was cut off
        interrupts = Interrupts(at, times)
        interrupts.run(lambda pair=pair: attempt(pair.read))  # type: ignore[misc]
        assert not pair.lock.locked()
        mended += not pair.section.open
        assert pair.read() == (1, 1) and not pair.section.open
        if not interrupts.raised:
            break
        at += 1
    assert mended > 0


def test_an_error_of_ours_is_raised_where_all_is_whole() -> None:
    pair = Pair()
    for error, repairs in ((InvalidArgument, 0), (ValueError, 1)):
        with pytest.raises(error), pair.lock, pair.section:
            raise error
        pair.change()
        assert pair.repairs == repairs


@pytest.mark.parametrize("times", [1, 2, 3])
def test_who_is_interrupted_while_it_waits_has_the_lock_and_loses_it_once(times: int) -> None:
    at = 0
    while True:
        lock = threading.RLock()
        condition = Condition(lock)

        def wait(lock: "threading.RLock" = lock, condition: Condition = condition) -> None:
            with lock, lock:
                try:
                    condition.wait(0.001)
                except Interrupted:
                    assert lock._is_owned()  # type: ignore[attr-defined]
                    return

        interrupts = Interrupts(at, times)
        interrupts.run(lambda wait=wait: attempt(wait))  # type: ignore[misc]
        free: list[bool] = []
        other = threading.Thread(target=lambda free=free, lock=lock: free.append(lock.acquire(timeout=PATIENCE_S)))
        other.start()
        other.join()
        assert free == [True]
        if not interrupts.raised:
            break
        at += 1
    assert at > 5


def test_a_notification_wakes_all_who_wait() -> None:
    lock = threading.RLock()
    condition = Condition(lock)
    woken: list[bool] = []
    waiting = threading.Semaphore(0)

    def wait() -> None:
        with lock:
            waiting.release()
            woken.append(condition.wait(PATIENCE_S))

    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
        waiting.acquire()
    with lock:  # which the last of them has until it waits
        condition.notify_all()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert woken == [True] * 5


def test_without_a_notification_waiting_ends_when_the_time_is_over() -> None:
    lock = threading.RLock()
    condition = Condition(lock)
    with lock:
        assert not condition.wait(0.001)
        condition.notify_all()  # to nobody
        assert not condition.wait(0)
