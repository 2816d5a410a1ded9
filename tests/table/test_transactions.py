"""Does a transaction take place once, whole, and for its own calls alone? Whatever comes between."""

import asyncio
import errno
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import DiskFull, Flush, InvalidArgument, Message, MessageTooLarge, QueueFull, Roll, Store, WriterStopped
from holdfast.table import Addition, Record, Table
from holdfast.testing import SimClock, SimFiles
from tests.table.agreement import described
from tests.table.internals import DECISION_MAX, DECISIONS_FULL, decisions_of
from tests.table.trouble import Account, Entry, Held, Running, TroubledFiles, interrupt, killed

Reopen = Callable[..., Store]


class RolledBack(Exception):
    """The end of a transaction that is not to take place."""


@pytest.fixture
def troubled() -> TroubledFiles:
    return TroubledFiles()


@pytest.fixture
def real_store(tmp_path: Path, troubled: TroubledFiles) -> Iterator[Store]:
    """On the real disk, where trouble can be had."""
    with holdfast.open(tmp_path / "data", files=troubled) as store:
        yield store


@pytest.fixture
def accounts(store: Store) -> Table[Account]:
    return store.table(Account)


@pytest.fixture
def entries(store: Store) -> Table[Entry]:
    return store.table(Entry)


def names(table: Table[Account] | Table[Entry]) -> list[str]:
    return sorted(record.name for record in table.scan(allow_table_scan=True))


def after_kill(files: SimFiles, clock: SimClock) -> Store:
    """The store as the next process finds it: with all that the operating system was given."""
    return holdfast.open("data", files=SimFiles.holding(files.snapshot(), seed=5), clock=clock, background=False)


# Between the decision and its end


@pytest.mark.parametrize(
    "where", ["*/transactions/*.data", "*/tables/Account/*.data", "*/tables/Entry/*.data", "*/logs/mails/*.data"]
)
def test_a_transaction_that_is_interrupted_is_finished_before_anything_else(
    real_store: Store, troubled: TroubledFiles, where: str
) -> None:
    accounts, entries = real_store.table(Account), real_store.table(Entry)
    mails = real_store.queue("mails")
    with real_store.transaction():
        key = accounts.add({"email": "e", "name": "before"}).key
        entries.add({"name": "before"})
        mails.put(b"before")

    def transact(name: str) -> None:
        with real_store.transaction():
            accounts.change(key, {"name": name})
            entries.add({"name": name})
            mails.put(name.encode())

    troubled.before_sync(where, interrupt)
    with pytest.raises(KeyboardInterrupt):
        transact("decided")
    with killed(real_store) as again:
        assert names(again.table(Account)) == ["decided"]
        assert names(again.table(Entry)) == ["before", "decided"]
        assert [message.payload for message in again.queue("mails").peek()] == [b"before", b"decided"]
    # What is written now lies above it, in the same process.
    Running(lambda: entries.add({"name": "beside"})).result()
    Running(lambda: transact("later")).result()
    assert names(accounts) == ["later"]
    assert names(entries) == ["before", "beside", "decided", "later"]
    assert [message.payload for message in mails.peek()] == [b"before", b"decided", b"later"]


@pytest.mark.parametrize("where", ["data/tables/Account/*", "data/tables/Entry/*", "data/logs/mails/*"])
def test_a_transaction_that_cannot_be_carried_out_is_finished_at_the_next_opening(
    store: Store, accounts: Table[Account], entries: Table[Entry], files: SimFiles, clock: SimClock, where: str
) -> None:
    mails = store.queue("mails")
    files.fail("write", errno.ENOSPC, pattern=where, times=9)
    with pytest.raises(WriterStopped, match="finished when the disk works"), store.transaction():
        accounts.add({"name": "decided"})
        entries.add({"name": "decided"})
        mails.put(b"decided")
    for write in (lambda: accounts.add({}), lambda: entries.add({}), lambda: store.transaction().__enter__()):
        with pytest.raises(WriterStopped):
            Running(write).result()
    again = after_kill(files, clock)
    assert names(again.table(Account)) == names(again.table(Entry)) == ["decided"]
    assert [message.payload for message in again.queue("mails").peek()] == [b"decided"]


def test_a_transaction_of_one_table_that_is_interrupted_leaves_the_table_in_use(
    real_store: Store, troubled: TroubledFiles
) -> None:
    accounts = real_store.table(Account)
    key = accounts.add({"name": "before"}).key
    troubled.before_sync("*/tables/Account/*.data", interrupt)
    with pytest.raises(KeyboardInterrupt), real_store.transaction():
        accounts.change(key, {"name": "inside"})
    assert names(accounts) in (["before"], ["inside"])
    Running(lambda: accounts.change(key, {"name": "later"})).result()
    assert names(accounts) == ["later"]
    with killed(real_store) as again:
        table = again.table(Account)
        seen = described(table)
        table.rebuild()
        assert described(table) == seen


def test_a_transaction_of_queues_that_could_not_be_carried_out_is_finished_before_the_next(
    store: Store, files: SimFiles, clock: SimClock
) -> None:
    first, second = store.queue("first"), store.queue("second")
    files.fail("write", errno.ENOSPC, pattern="data/logs/second/*")
    with pytest.raises(WriterStopped), store.transaction():
        first.put(b"decided")
        second.put(b"decided")
    with store.transaction():
        first.put(b"next")
    for seen in (store, after_kill(files, clock)):
        assert [message.payload for message in seen.queue("first").peek()] == [b"decided", b"next"]
        assert [message.payload for message in seen.queue("second").peek()] == [b"decided"]


def test_a_transaction_that_cannot_be_decided_does_not_take_place_and_the_next_one_does(
    store: Store, accounts: Table[Account], entries: Table[Entry], files: SimFiles, clock: SimClock
) -> None:
    files.fail("write", errno.ENOSPC, pattern="data/transactions/*.data")
    with pytest.raises(DiskFull), store.transaction():
        accounts.add({"name": "undecided"})
        entries.add({"name": "undecided"})
    with store.transaction():
        accounts.add({"name": "next"})
        entries.add({"name": "next"})
    for one in (store, after_kill(files, clock)):
        assert names(one.table(Account)) == names(one.table(Entry)) == ["next"]


def test_a_transaction_with_something_too_large_is_refused_before_it_is_decided(store: Store) -> None:
    accounts, entries = store.table(Account, max_message=1000), store.table(Entry)
    for others in (0, 1):
        with pytest.raises(MessageTooLarge), store.transaction():
            entries.add_many([{"name": "with it"}] * others)
            accounts.add({"name": "x" * 2000})
    with store.transaction():
        accounts.add({"name": "next"})
        entries.add({"name": "next"})
    assert names(accounts) == names(entries) == ["next"]


# The log of decisions


def test_decisions_that_are_done_are_dropped_while_the_store_is_open(
    store: Store, accounts: Table[Account], entries: Table[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DECISIONS_FULL, 10_000)
    longest = 0
    for number in range(40):
        with store.transaction():
            accounts.add({"name": f"{number:03}" + "x" * 1000})
            entries.add({"name": "y"})
        longest = max(longest, len(list(decisions_of(store).read())))
    assert 10 <= longest <= 20
    assert accounts.count() == entries.count() == 40


def test_a_log_of_decisions_that_cannot_be_emptied_harms_no_transaction(
    store: Store,
    files: SimFiles,
    clock: SimClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(DECISIONS_FULL, 1)
    accounts, entries = store.table(Account), store.table(Entry)
    files.fail("remove", errno.EIO, pattern="data/transactions/*")
    for name in ("first", "second"):
        with store.transaction():
            accounts.add({"name": name})
            entries.add({"name": name})
    assert "not cleared" in caplog.text and list(decisions_of(store).read()) == []
    for one in (store, after_kill(files, clock)):
        assert names(one.table(Account)) == names(one.table(Entry)) == ["first", "second"]


# The room in a queue


@pytest.mark.parametrize("limit", [{"max_length": 3}, {"max_bytes": 6}], ids=["messages", "bytes"])
def test_a_queue_that_rejects_counts_all_that_the_transaction_puts(
    store: Store, accounts: Table[Account], limit: dict[str, int]
) -> None:
    small = store.queue("small", overflow="reject", **limit)  # type: ignore[arg-type]
    small.put(b"01")
    with pytest.raises(QueueFull), store.transaction():
        accounts.add({"name": "with it"})
        for _ in range(3):
            small.put(b"xx")
    assert small.waiting() == 1 and accounts.count() == 0
    with store.transaction():
        accounts.add({"name": "with it"})
        small.put_many([b"02", Message(b"03")])
        with pytest.raises(QueueFull):
            small.put(b"xx")
    assert [message.payload for message in small.peek()] == [b"01", b"02", b"03"] and accounts.count() == 1


# Whose calls are in it


def test_a_call_that_outlives_its_transaction_is_refused_and_nothing_is_lost_silently(
    store: Store, accounts: Table[Account], entries: Table[Entry]
) -> None:
    mails = store.queue("mails")

    async def work() -> list[object]:
        over = asyncio.Event()

        async def later(call: Callable[[], object]) -> None:
            await over.wait()
            call()

        with store.transaction():
            accounts.add({"name": "inside"})
            tasks = [
                asyncio.create_task(later(lambda: entries.add({}))),
                asyncio.create_task(later(lambda: mails.put(b"later"))),
            ]
            elsewhere = await asyncio.gather(
                asyncio.to_thread(entries.add, {}), asyncio.to_thread(mails.put, b"x"), return_exceptions=True
            )
        over.set()
        return [*elsewhere, *await asyncio.gather(*tasks, return_exceptions=True)]

    results = Running(lambda: asyncio.run(work())).result()
    assert [type(one) for one in results] == [InvalidArgument] * 4
    assert names(accounts) == ["inside"] and entries.count() == 0 and mails.waiting() == 0
    entries.add({})
    mails.put(b"outside")
    assert entries.count() == mails.waiting() == 1


def test_another_task_of_the_thread_is_refused_while_a_transaction_has_the_table(
    store: Store, accounts: Table[Account]
) -> None:
    store.table(Entry)

    def transact() -> None:
        with store.transaction():
            accounts.add({"name": "second"})

    key = accounts.add({"name": "here"}).key
    far = Addition(Record(b"k" * 16, Account(name="far"), accounts.last_version + 1, accounts.last_version + 1))

    async def work() -> list[object]:
        inside, over = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            with store.transaction():
                accounts.change(key, {"name": "first"})
                inside.set()
                await over.wait()

        async def second(call: Callable[[], object]) -> None:
            await inside.wait()
            call()

        calls: list[Callable[[], object]] = [
            lambda: accounts.change(key, {"name": "second"}),
            lambda: accounts.apply([far]),
            transact,
            lambda: store.delete_table("Account"),
            store.close,
        ]
        running = asyncio.create_task(first())
        results = await asyncio.gather(*map(second, calls), return_exceptions=True)
        over.set()
        await running
        return list(results)

    results = Running(lambda: asyncio.run(work())).result()
    assert [type(one) for one in results] == [InvalidArgument] * 5
    assert names(accounts) == ["first"]
    accounts.change(key, {"name": "after it"})
    accounts.apply([far])
    assert names(accounts) == ["after it", "far"]


def test_a_transaction_in_a_transaction_is_refused(store: Store, accounts: Table[Account]) -> None:
    with store.transaction():
        accounts.add({"name": "outer"})
        with pytest.raises(InvalidArgument, match="running transaction"), store.transaction():
            pass
    assert names(accounts) == ["outer"]


@pytest.mark.parametrize("rolls_back", [True, False])
def test_what_is_opened_while_a_transaction_runs_takes_part_at_its_first_use(
    disk_store: Store, rolls_back: bool
) -> None:
    accounts = disk_store.table(Account)

    def transact() -> None:
        with disk_store.transaction() as transaction:
            accounts.add({"name": "inside"})
            entries = Running(lambda: disk_store.table(Entry)).result()
            Running(lambda: disk_store.queue("others")).result()
            entries.add({"name": "inside"})
            disk_store.queue("mails").put(b"inside")
            disk_store.queue("others").put(b"inside")
            assert entries.count() == disk_store.queue("mails").waiting() == 0
            beside = Running(lambda: entries.add({"name": "beside"}))
            assert beside.is_waiting()
            if rolls_back:
                raise RolledBack
        assert accounts.last_version == transaction.version

    if rolls_back:
        with pytest.raises(RolledBack):
            Running(transact).result()
    else:
        Running(transact).result()
    entries = disk_store.table(Entry)
    entries.add({"name": "next"})  # behind the one that waited
    expected = [] if rolls_back else ["inside"]
    assert names(accounts) == expected
    assert [name for name in names(entries) if name == "inside"] == expected
    for queue in ("mails", "others"):
        assert disk_store.queue(queue).waiting() == len(expected)


@pytest.mark.parametrize("ending", ["close", "delete"])
def test_who_closes_or_deletes_waits_for_the_transaction_of_another_thread(tmp_path: Path, ending: str) -> None:
    store = holdfast.open(tmp_path / "data")
    accounts, entries = store.table(Account), store.table(Entry)
    inside = Held()

    def transact() -> None:
        with store.transaction():
            accounts.add({"name": "inside"})
            inside()
            store.queue("mails").put(b"inside")  # asks the store, which the other thread must not have yet
            store.table(Entry).add({"name": "inside"})

    transacting = Running(transact)
    inside.wait()
    done = Running(store.close if ending == "close" else lambda: store.delete_table("Account"))
    assert done.is_waiting()
    inside.release()
    transacting.result()
    done.result()
    if ending == "delete":
        assert store.tables() == ["Entry"] and names(entries) == ["inside"]
        Running(store.close).result()
    with holdfast.open(tmp_path / "data") as again:
        assert names(again.table(Entry)) == ["inside"] and again.queue("mails").waiting() == 1
        assert names(again.table(Account)) == (["inside"] if ending == "close" else [])


FORKED = """
import os, sys
import holdfast
from tests.table.trouble import Account, Entry

store = holdfast.open(sys.argv[1])
accounts, entries = store.table(Account), store.table(Entry)
with store.transaction():
    accounts.add({"name": "both"}), entries.add({"name": "both"})
try:
    with store.transaction():
        accounts.add({"name": "child"}), entries.add({"name": "child"})
        child = os.fork()
        if child:
            raise KeyError("the parent gives up")
except KeyError:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os.kill(os.getpid(), 9)
except holdfast.Closed:
    os._exit(3)
os._exit(0)
"""


def test_a_forked_child_cannot_decide_a_transaction_of_its_parent(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path / "data")],
        capture_output=True,
        check=False,
        text=True,
        cwd=root,
        timeout=120,
    )
    assert done.stdout == "3\n", done.stderr
    with holdfast.open(tmp_path / "data") as store:
        assert names(store.table(Account)) == names(store.table(Entry)) == ["both"]


# Never twice


def test_what_was_delivered_and_dropped_is_not_delivered_again_after_a_kill(
    store: Store,
    accounts: Table[Account],
    files: SimFiles,
    clock: SimClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mails = store.queue("mails", roll=Roll.count(2), history=1)
    with store.transaction():
        accounts.add({"name": "a"})
        mails.put(b"dear a")
    for _ in range(3):
        mails.put_many([b"x"] * 3)
        while (delivery := mails.get(wait=0)) is not None:
            delivery.ack()
        clock.advance(2)
        store.tick()
        mails.checkpoint()
    mails.log.compact()
    assert mails.log.start > 0
    with caplog.at_level(logging.INFO, "holdfast.store"):
        again = after_kill(files, clock)
    assert not [record for record in caplog.records if "finishing" in record.message]  # that it is done was kept
    assert again.queue("mails").get(wait=0) is None
    assert names(again.table(Account)) == ["a"]


def test_a_table_and_a_queue_made_anew_get_nothing_of_an_old_transaction(
    store: Store, accounts: Table[Account], entries: Table[Entry], files: SimFiles, clock: SimClock
) -> None:
    mails = store.queue("mails")
    with store.transaction():
        accounts.add({"name": "old", "email": "e"})
        entries.add({"name": "old"})
        mails.put(b"old")
    store.delete_table("Account")
    store.delete_queue("mails")
    store.table(Account).add({"name": "new", "email": "e"})
    store.queue("mails").put(b"new")
    again = after_kill(files, clock)
    assert names(again.table(Account)) == ["new"] and names(again.table(Entry)) == ["old"]
    assert [message.payload for message in again.queue("mails").peek()] == [b"new"]


@pytest.mark.parametrize("made_anew", [True, False])
def test_a_queue_deleted_after_the_decision_gets_nothing_at_the_next_opening(
    store: Store, accounts: Table[Account], files: SimFiles, clock: SimClock, made_anew: bool
) -> None:
    mails = store.queue("mails")
    files.fail("write", errno.ENOSPC, pattern="data/logs/mails/*", times=1)
    with pytest.raises(WriterStopped), store.transaction():
        accounts.add({"name": "decided"})
        mails.put(b"decided")
    store.delete_queue("mails")
    if made_anew:
        store.queue("mails").put(b"new")
    again = after_kill(files, clock)
    assert names(again.table(Account)) == ["decided"]
    assert again.queues() == ["mails"] * made_anew
    assert [message.payload for message in again.queue("mails").peek()] == [b"new"] * made_anew


# The next opening


@pytest.fixture
def cut_off(store: Store, accounts: Table[Account], files: SimFiles) -> SimFiles:
    """What a kill leaves of a transaction that is decided and not done."""
    mails = store.queue("mails")
    files.fail("write", errno.ENOSPC, pattern="data/*/[Am]*", skip=0, times=9)
    with pytest.raises(WriterStopped), store.transaction():
        accounts.add({"name": "decided"})
        mails.put(b"decided")
    return SimFiles.holding(files.snapshot(), seed=5)


def test_a_queue_can_be_opened_with_other_settings_after_a_transaction_was_finished(
    cut_off: SimFiles, clock: SimClock
) -> None:
    store = holdfast.open("data", files=cut_off, clock=clock, background=False)
    mails = store.queue("mails", flush=Flush.batch(), lease=5)
    assert mails.log.settings.flush == Flush.batch()
    assert [message.payload for message in mails.peek()] == [b"decided"]
    with store.transaction():
        store.table(Account).add({"name": "next"})
        mails.put(b"next")
    assert mails.waiting() == 2


def test_an_opening_that_cannot_finish_a_transaction_lets_the_lock_go(cut_off: SimFiles, clock: SimClock) -> None:
    cut_off.fail("write", errno.ENOSPC, pattern="data/tables/Account/*")
    with pytest.raises(DiskFull):
        holdfast.open("data", files=cut_off, clock=clock, background=False)
    again = holdfast.open("data", files=cut_off, clock=clock, background=False)
    assert names(again.table(Account)) == ["decided"]
    assert [message.payload for message in again.queue("mails").peek()] == [b"decided"]


def test_threads_that_transact_take_turns(disk_store: Store) -> None:
    accounts, entries = disk_store.table(Account), disk_store.table(Entry)
    key = accounts.add({"name": "0"}).key
    begin = threading.Barrier(4)

    def work() -> None:
        begin.wait(60)
        for _ in range(5):
            with disk_store.transaction():
                found = accounts.get(key)
                assert found is not None
                accounts.change(key, {"name": str(int(found.name) + 1)})
                entries.add({})

    for one in [Running(work) for _ in range(4)]:
        one.result()
    assert names(accounts) == ["20"] and entries.count() == 20


# Two stores in one process


def test_a_write_to_another_stores_table_or_queue_in_a_transaction_is_refused_and_says_what_to_do(
    tmp_path: Path,
) -> None:
    with holdfast.open(tmp_path / "one") as one, holdfast.open(tmp_path / "other") as other:
        key = b"k" * 16
        ours, theirs, queue = one.table(Account), other.table(Account), other.queue("q")
        ours.add({"name": "ours"}, key=key)
        theirs.add({"name": "theirs"}, key=key)
        with (
            pytest.raises(
                InvalidArgument, match=r"'Account' belongs to the store '.*other', the transaction to .*one'"
            ),
            one.transaction(),
        ):
            theirs.change(key, {"name": "wrong"})
        with pytest.raises(InvalidArgument, match=r"queue 'q' belongs to the store .*: write to it before"):  # noqa: SIM117
            with one.transaction():
                queue.put(b"x")
        with one.transaction():
            found = theirs.get(key)
            assert found is not None and found.name == "theirs", "it can be read"
            Running(lambda: theirs.change(key, {"name": "beside"})).result()  # and is not reserved
            ours.change(key, {"name": "changed"})
        theirs.change(key, {"name": "after"})
        queue.put(b"after")
        assert (names(ours), names(theirs), queue.stats().ready) == (["changed"], ["after"], 1)
    with holdfast.open(tmp_path / "one") as one, holdfast.open(tmp_path / "other") as other:
        assert (names(one.table(Account)), names(other.table(Account))) == (["changed"], ["after"])


def test_a_transaction_that_is_too_large_changes_nothing_and_leaves_its_tables_in_order(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(DECISION_MAX, 2000)
    accounts, queue = store.table(Account), store.queue("orders")
    with pytest.raises(MessageTooLarge, match="change less in one transaction"), store.transaction():
        for number in range(100):
            accounts.add({"name": f"a{number}"})
        queue.put(b"x")
    assert (len(list(accounts.scan())), queue.stats().ready) == (0, 0)
    accounts.add({"name": "next"})
    assert not caplog.records


def test_settings_that_an_open_table_does_not_have_are_refused_also_by_name(store: Store) -> None:
    accounts = store.table(Account)
    assert store.table("Account") is accounts is store.table("Account", keep_all_versions=False)
    with pytest.raises(InvalidArgument, match="open with other settings"):
        store.table("Account", keep_all_versions=True)
    with pytest.raises(InvalidArgument, match="open with another flush"):
        store.table("Account", flush=Flush.async_())
    with pytest.raises(InvalidArgument, match="no setting 'keepall'; there are: compression, flush"):
        store.table(Entry, keepall=True)  # type: ignore[call-arg]
