"""Transactions that a signal's handler cuts off, at every place: nothing is half done, and the store goes on."""

import signal
import threading

import pytest

import holdfast
from holdfast import Queue, Store
from holdfast.table import Table
from holdfast.testing import SimClock, SimFiles
from tests.interrupts import Interrupted, Interrupts, handled_by
from tests.table.trouble import Account, Running


def simulated() -> Store:
    return holdfast.open("data", files=SimFiles(1), clock=SimClock(), background=False)


def put_in_transaction(store: Store, queue: Queue, payload: bytes) -> None:
    with store.transaction():
        queue.put(payload)


def named(accounts: Table[Account], key: bytes) -> str:
    found = accounts.get(key)
    assert found is not None
    return found.value.name


@pytest.mark.parametrize(("times", "step"), [(1, 1), (2, 5)])
@pytest.mark.parametrize("handled", [True, False], ids=["in the handler", "after it"])
def test_a_transaction_that_is_cut_off_anywhere_blocks_no_other(handled: bool, times: int, step: int) -> None:
    for at in range(0, 100_000, step):
        store = simulated()
        queue = store.queue("q")
        put_in_transaction(store, queue, b"first")

        def transact(store: Store = store, queue: Queue = queue) -> None:
            try:
                put_in_transaction(store, queue, b"x")
            except Interrupted:
                if handled:  # while the traceback refers to all that was cut off
                    put_in_transaction(store, queue, b"next")

        interrupts = Interrupts(at, times)
        interrupts.run(transact)
        put_in_transaction(store, queue, b"last")
        assert queue.stats().ready - 1 in ((2, 3) if handled and interrupts.raised else (1, 2)), interrupts.where
        store.close()
        if not interrupts.raised:
            break
    assert at > 300


def test_a_rebuild_that_gives_up_waiting_lets_no_writer_into_a_table_of_a_transaction(disk_store: Store) -> None:
    accounts = disk_store.table(Account)
    key = accounts.add(Account(name="0")).key
    reading, going_on = threading.Event(), threading.Event()

    def transact() -> None:
        with disk_store.transaction():
            number = int(named(accounts, key))
            reading.set()
            assert going_on.wait(60)
            assert int(named(accounts, key)) == number, "somebody has written to it meanwhile"
            accounts.change(key, {"name": str(number + 1)})

    def write() -> None:
        accounts.change(key, {"name": "100"})

    transaction = Running(transact)
    assert reading.wait(60)
    writer = Running(write)
    assert writer.is_waiting()

    def give_up(*_: object) -> None:
        raise Interrupted

    with handled_by(give_up), pytest.raises(Interrupted):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        accounts.rebuild()
    assert writer.is_waiting()
    going_on.set()
    transaction.result()
    writer.result()
    assert named(accounts, key) == "100", "an update is lost"
