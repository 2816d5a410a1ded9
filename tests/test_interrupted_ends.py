"""Opening and closing a store, and the end of the process, cut off by a signal's handler at every place."""

import gc
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Closed, Flush, Locked, Store
from holdfast.open_stores import close_all
from holdfast.table import Model, field
from holdfast.testing import SimClock, SimFiles
from tests.interrupts import Interrupted, Interrupts
from tests.tiers import rounds

RECORDS = 30
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of files, in `__del__`


class Thing(Model, id=1):
    name: str = field(1)


def fill(store: Store) -> None:
    log, queue, things = store.log("l"), store.queue("q", flush=Flush.async_()), store.table(Thing)
    for _ in range(RECORDS):
        log.append(b"x" * 50)
    queue.put_many([b"a", b"b"])
    message = queue.get()
    assert message is not None and message.ack()
    with store.transaction():
        things.add(Thing(name="t"))
        queue.put(b"c")


def check(store: Store, where: str) -> None:
    assert store.log("l").end == RECORDS, where
    assert [message.payload for message in store.queue("q").lease(9)] == [b"b", b"c"], where
    assert store.table(Thing).count() == 1, where


def cut_off(at: int, times: int, call: Callable[[], object]) -> Interrupts:
    def run() -> None:
        try:  # noqa: SIM105 - `suppress` is Python code, where the handler would raise, too
            call()
        except Interrupted:
            pass

    interrupts = Interrupts(at, times)
    interrupts.run(run)
    return interrupts


@pytest.mark.parametrize(("times", "step"), [(1, 7), (2, 53)])
def test_a_close_that_is_cut_off_anywhere_loses_nothing_and_is_resumed(times: int, step: int) -> None:
    for at in range(0, 1_000_000, rounds(step, 7 * step)):
        files, clock = SimFiles(1), SimClock()
        store = holdfast.open("data", files=files, clock=clock, background=False)
        fill(store)
        interrupts = cut_off(at, times, store.close)
        store.close()
        with pytest.raises(Closed):
            store.log("other")
        with holdfast.open("data", files=files, clock=clock, background=False) as again:
            check(again, interrupts.where)
        if not interrupts.raised:
            break
    assert at > 1  # how many places there are depends on what the background does meanwhile


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_while_the_process_ends_loses_nothing(tmp_path: Path, times: int) -> None:
    for at in range(1, 1_000_000, 397):  # 0 is the call itself
        folder = tmp_path / str(at)
        fill(holdfast.open(folder))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            interrupts = cut_off(at, times, close_all)
        with holdfast.open(folder) as store:
            check(store, interrupts.where)
        if not interrupts.raised:
            break
    assert at > 1  # how many places there are depends on what the background does meanwhile


@pytest.mark.parametrize("times", [1, 2])
def test_an_opening_that_is_cut_off_anywhere_leaves_the_store_free(tmp_path: Path, times: int) -> None:
    with holdfast.open(tmp_path) as store:
        fill(store)
    gc.disable()  # what is left must not count on being collected
    try:
        for at in range(0, 1_000_000, rounds(5 - times, 41)):
            kept: list[Store] = []
            interrupts = cut_off(at, times, lambda: kept.append(holdfast.open(tmp_path)))  # noqa: B023
            for one in kept:
                one.close()
            try:
                holdfast.open(tmp_path).close()
            except Locked as error:
                raise AssertionError(f"the lock was left by an interrupt at{interrupts.where}") from error
            if not interrupts.raised:
                break
    finally:
        gc.enable()
    assert at > 10
    with holdfast.open(tmp_path) as store:
        check(store, "")
