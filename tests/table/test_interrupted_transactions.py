"""Transactions that a signal's handler cuts off, at every place: nothing is half done, and the store goes on."""

import contextlib
import signal
import threading

import pytest

import holdfast
from holdfast import Flush, Queue, Store
from holdfast.table import Table
from holdfast.testing import SimClock, SimFiles
from tests.interrupts import Interrupted, Interrupts, handled_by
from tests.table.trouble import Account, Running
from tests.tiers import rounds


def simulated() -> Store:
    return holdfast.open("data", files=SimFiles(1), clock=SimClock(), background=False)


def put_in_transaction(store: Store, queue: Queue, payload: bytes) -> None:
    with store.transaction():
        queue.put(payload)


def named(accounts: Table[Account], key: bytes) -> str:
    found = accounts.get(key)
    assert found is not None
    return found.value.name


@pytest.mark.parametrize(
    ("handled", "times", "step"), [(True, 1, 1), (False, 1, 1), (False, 2, 5)], ids=["in the handler", "after", "twice"]
)
def test_a_transaction_that_is_cut_off_anywhere_blocks_no_other(handled: bool, times: int, step: int) -> None:
    for at in range(0, 100_000, rounds(step, 13 * step)):
        store = simulated()
        queue = store.queue("q")
        put_in_transaction(store, queue, b"first")

        def transact(store: Store = store, queue: Queue = queue) -> None:
            try:
                put_in_transaction(store, queue, b"x")
            except Interrupted:
                if handled:  # while the traceback refers to all that was cut off
                    queue.put(b"single")
                    put_in_transaction(store, queue, b"next")

        interrupts = Interrupts(at, times)
        interrupts.run(transact)
        put_in_transaction(store, queue, b"last")
        assert queue.stats().ready - 1 in ((3, 4) if handled and interrupts.raised else (1, 2)), interrupts.where
        store.close()
        if not interrupts.raised:
            break
    assert at > 100  # places, which are fewer where the background has done something before


@pytest.mark.usefixtures("without_gc_callbacks")
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


@pytest.mark.parametrize(("times", "step"), [(1, 3), (2, 23)])
@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_()], ids=["sync", "async"])
def test_a_transaction_that_is_cut_off_anywhere_is_whole_or_nothing_and_all_goes_on(
    flush: Flush, times: int, step: int
) -> None:
    for at in range(0, 100_000, rounds(step, 13 * step)):
        files, clock = SimFiles(1), SimClock()
        store = holdfast.open("data", files=files, clock=clock, background=False)
        accounts, queue = store.table(Account, flush=flush), store.queue("q", flush=flush)

        def transact(store: Store, accounts: Table[Account], queue: Queue, name: str) -> None:
            with store.transaction():
                accounts.add({"email": name, "name": name})
                queue.put(name.encode())

        def run(store: Store = store, accounts: Table[Account] = accounts, queue: Queue = queue) -> None:
            try:  # noqa: SIM105
                transact(store, accounts, queue, "cut off")
            except Interrupted:
                pass

        transact(store, accounts, queue, "before")
        interrupts = Interrupts(at, times)
        interrupts.run(run)
        accounts.add({"email": "single", "name": "single"})
        transact(store, accounts, queue, "after")
        clock.advance(2)
        found = []
        for _ in range(2):
            names = sorted(record.value.name for record in accounts.scan(allow_table_scan=True))
            puts = sorted(message.payload.decode() for message in queue.peek(9))
            assert names == sorted([*puts, "single"]), interrupts.where
            assert set(puts) >= {"before", "after"}
            found.append(puts)
            store.close()
            store = holdfast.open("data", files=files, clock=clock, background=False)
            accounts, queue = store.table(Account, flush=flush), store.queue("q", flush=flush)
        assert found[0] == found[1], interrupts.where
        store.close()
        if not interrupts.raised:
            break
    assert at > 100


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupts inside destructors
@pytest.mark.parametrize("times", [1, 2])
def test_a_write_that_is_cut_off_anywhere_leaves_the_table_in_use(times: int) -> None:
    for at in range(0, 100_000, rounds(1, 7)):
        store = simulated()
        accounts = store.table(Account)
        accounts.add({"email": "before", "name": "before"})

        def run(accounts: Table[Account] = accounts) -> None:
            try:  # noqa: SIM105
                accounts.add({"email": "cut off", "name": "cut off"})
            except Interrupted:
                pass

        interrupts = Interrupts(at, times)
        interrupts.run(run)
        accounts.add({"email": "after", "name": "after"})
        names = sorted(record.value.name for record in accounts.scan(allow_table_scan=True))
        assert names in (["after", "before"], ["after", "before", "cut off"]), interrupts.where
        accounts.rebuild()
        assert names == sorted(record.value.name for record in accounts.scan(allow_table_scan=True))
        store.close()
        if not interrupts.raised:
            break
    assert at > 100


def test_a_transaction_can_be_entered_by_an_exit_stack_and_by_hand() -> None:
    store = simulated()
    queue = store.queue("q")
    with contextlib.ExitStack() as stack:
        stack.enter_context(store.transaction())
        queue.put(b"stack")
        assert queue.stats().ready == 0
    by_hand = store.transaction()
    assert hasattr(by_hand, "__exit__")
    by_hand.__enter__()
    queue.put(b"hand")
    assert hasattr(by_hand, "__exit__")
    assert queue.stats().ready == 1
    by_hand.__exit__(None, None, None)
    assert [message.payload for message in queue.peek()] == [b"stack", b"hand"]
    store.close()
