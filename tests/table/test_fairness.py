"""Transactions beside single writers: which tables they reserve, and that neither side starves the other."""

import threading
import time
from collections.abc import Callable

import pytest

from holdfast import Flush, Store
from holdfast.base.hlc import version_of
from holdfast.table import Addition, Record, Table
from holdfast.table.storage.row_codec import decode_event
from tests.table.trouble import Account, Entry, Held, Running

WRITERS = 6
ROUNDS = 40
PATIENCE = 120.0


def log_versions(table: Table[Account] | Table[Entry]) -> list[int]:
    return [decode_event(record.payload).version for record in table.log.read()]


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_()], ids=["sync", "async"])
def test_transactions_and_many_writers_of_one_table_all_make_progress(disk_store: Store, flush: Flush) -> None:
    accounts, entries = disk_store.table(Account, flush=flush), disk_store.table(Entry, flush=flush)
    keys = [accounts.add({"name": "0"}).key for _ in range(WRITERS)]
    done = [0] * (WRITERS + 2)
    deadline = time.monotonic() + PATIENCE

    def loop(number: int, work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            # Until all have done their part: who is through goes on, and so never makes it easier for the others.
            while min(done) < ROUNDS and time.monotonic() < deadline:
                work()
                done[number] += 1

        return run

    def transact() -> None:
        with disk_store.transaction():
            accounts.add({"name": "t"})
            entries.add({"name": "t"})

    def writer(key: bytes) -> Callable[[], object]:
        return lambda: accounts.change(key, {"name": str(time.monotonic_ns())})

    running = [Running(loop(number, writer(key))) for number, key in enumerate(keys)]
    running += [Running(loop(number, transact)) for number in (WRITERS, WRITERS + 1)]
    for one in running:
        one.result()
    assert min(done) >= ROUNDS, f"somebody starved: {done}"
    assert max(done) <= 50 * min(done), f"somebody hardly got on: {done}"
    assert accounts.count() == WRITERS + done[-1] + done[-2] and entries.count() == done[-1] + done[-2]
    assert log_versions(accounts) == sorted(log_versions(accounts))


def test_a_transaction_reserves_only_the_tables_that_it_touches(disk_store: Store) -> None:
    accounts, entries = disk_store.table(Account), disk_store.table(Entry)
    with disk_store.transaction() as transaction:
        inside = accounts.add({"name": "inside"})
        beside = [Running(lambda: entries.add({"name": "beside"})).result() for _ in range(3)]
        waiting = Running(lambda: accounts.add({"name": "waits"}))
        entries.add({"name": "inside"})
        second = Running(lambda: entries.add({"name": "waits"}))
        assert waiting.is_waiting() and second.is_waiting()
    assert inside.version == transaction.version == accounts.get(inside.key).version  # type: ignore[union-attr]
    assert sorted([*(one.version for one in beside), transaction.version]) == log_versions(entries)[:4]
    assert waiting.result().version > transaction.version < second.result().version


def test_what_a_transaction_has_read_nobody_else_changes_until_its_end(disk_store: Store) -> None:
    accounts, entries = disk_store.table(Account), disk_store.table(Entry)
    key = accounts.add({"name": "1"}).key
    with disk_store.transaction():
        found = accounts.get(key)
        other = Running(lambda: accounts.change(key, {"name": "other"}))
        assert other.is_waiting()
        assert found is not None
        entries.add({"name": found.name})
        assert entries.count() == 0
    other.result()
    assert [record.name for record in accounts.scan()] == ["other"]
    assert [record.name for record in entries.scan()] == ["1"]


def test_a_request_that_waits_for_another_keeps_out_of_the_table_once_a_transaction_has_it(disk_store: Store) -> None:
    """The writer waits for a record that is on its way to the disk; when it goes on, the table is reserved."""
    accounts = disk_store.table(Account)
    key = accounts.add({"name": "0"}).key
    rounds, stop = 30, threading.Event()

    def work() -> None:
        while not stop.is_set():
            accounts.change(key, {"email": None, "name": str(time.monotonic_ns())})

    writers = [Running(work) for _ in range(4)]
    try:
        for number in range(rounds):
            with disk_store.transaction():
                before = accounts.get(key)
                accounts.add({"email": str(number)})
                assert accounts.get(key) == before
    finally:
        stop.set()
    for one in writers:
        one.result()
    versions = log_versions(accounts)
    assert versions == sorted(set(versions))
    accounts.rebuild()
    assert accounts.count() == rounds + 1


def test_updates_from_ahead_wait_for_a_transaction_which_can_touch_their_table_still(disk_store: Store) -> None:
    accounts, entries = disk_store.table(Account), disk_store.table(Entry)
    inside = Held()

    def transact() -> int:
        with disk_store.transaction() as transaction:
            accounts.add({"name": "inside"})
            inside()
            entries.add({"name": "inside"})
        return transaction.version

    running = Running(transact)
    inside.wait()
    ahead = entries.add({"name": "beside"}).version + (60_000 << 20)
    applied = Running(lambda: entries.apply([Addition(Record(b"k" * 16, Entry(name="ahead"), ahead, ahead))]))
    assert applied.is_waiting()
    inside.release()
    assert running.result() < ahead
    applied.result()
    assert [record.name for record in entries.scan()].count("inside") == 1 and entries.last_version >= ahead


def test_what_is_written_beside_a_transaction_has_a_version_of_its_time(disk_store: Store) -> None:
    accounts, entries = disk_store.table(Account), disk_store.table(Entry)
    began = version_of(time.time_ns())
    with disk_store.transaction() as transaction:
        accounts.add({"name": "inside"})
        while version_of(time.time_ns()) <= transaction.version:  # the clock passes the transaction's version
            time.sleep(0.001)
        beside = Running(lambda: entries.add({"name": "beside"})).result()
    assert began <= beside.version < transaction.version
