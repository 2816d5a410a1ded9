"""What becomes of a table when something goes wrong in the middle? All of a request or nothing, and nobody waits."""

import errno
import signal
import types
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

import holdfast
from holdfast import Corrupt, DiskFull, Flush, HoldfastError, InvalidArgument, Store, WriterStopped
from holdfast.base.hlc import VERSION_MAX
from holdfast.table import Addition, Index, Model, Record, Table, ValidationFailed, field
from holdfast.testing import SimClock, SimFiles
from tests.interrupts import HANDLERS, BlockedFiles, LimitExceeded, handled_by
from tests.table.agreement import described
from tests.table.internals import changelog_of, on_next_commit, position_of
from tests.table.trouble import Account, Entry, Held, Running, TroubledFiles, interrupt, killed

Reopen = Callable[..., Store]
NOTE = {"__annotations__": {"note": str}, "note": field(1)}
ACCOUNT_LOG = "*/tables/Account/*.data"


@pytest.fixture
def troubled() -> TroubledFiles:
    return TroubledFiles()


@pytest.fixture
def real_store(tmp_path: Path, troubled: TroubledFiles) -> Iterator[Store]:
    """On the real disk, where trouble can be had."""
    with holdfast.open(tmp_path / "data", files=troubled) as store:
        yield store


def names(table: Table[Account]) -> list[str]:
    return sorted(record.name for record in table.scan(allow_table_scan=True))


def refuse_once(monkeypatch: pytest.MonkeyPatch, table: Table[Account]) -> None:
    """The state's next commit finds the disk full."""

    def full(apply: Callable[[], None]) -> None:
        raise DiskFull("full once")

    on_next_commit(monkeypatch, table, full)


# Interrupts


def test_a_request_that_is_interrupted_is_finished_all_the_same(real_store: Store, troubled: TroubledFiles) -> None:
    accounts = real_store.table(Account)
    accounts.add({"email": "a", "name": "a"})
    troubled.before_sync(ACCOUNT_LOG, interrupt)
    with pytest.raises(KeyboardInterrupt):
        accounts.add({"email": "x", "name": "x"})
    accounts.add({"email": "b", "name": "b"})
    assert names(accounts) == ["a", "b", "x"]
    with pytest.raises(ValidationFailed):
        accounts.add({"email": "x"})
    before = described(accounts)
    accounts.rebuild()
    assert described(accounts) == before


@pytest.mark.parametrize("raising", HANDLERS)
def test_a_handler_that_raises_while_a_table_syncs_does_not_stop_it(tmp_path: Path, raising: str) -> None:
    disk = BlockedFiles()
    with holdfast.open(tmp_path, files=disk, background=False) as store:
        accounts = store.table(Account)
        accounts.add({"email": "a", "name": "a"})
        disk.blocked = True
        with (
            handled_by(HANDLERS[raising]()),
            pytest.raises((LimitExceeded, TimeoutError, OSError, KeyboardInterrupt)) as raised,
        ):
            accounts.add({"email": "b", "name": "b"})
        assert not isinstance(raised.value, HoldfastError)
        assert not disk.blocked
        accounts.add({"email": "c", "name": "c"})
        assert names(accounts) == ["a", "b", "c"]  # what was under way is brought to its end


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "behind it"])
def test_an_interrupt_while_the_state_follows_loses_nothing_and_lets_nobody_wait(
    real_store: Store, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    accounts = real_store.table(Account)
    accounts.add({"email": "a", "name": "a"})

    def interrupted(apply: Callable[[], None]) -> None:
        if not before:
            apply()
        raise KeyboardInterrupt

    on_next_commit(monkeypatch, accounts, interrupted)
    with pytest.raises(KeyboardInterrupt):
        accounts.add({"email": "x", "name": "x"})
    with pytest.raises((ValidationFailed, WriterStopped)):  # it has the value, or nobody knows until it is reopened
        Running(lambda: accounts.add({"email": "x"})).result()
    with killed(real_store) as again:
        table = again.table(Account)
        assert names(table) == ["a", "x"]
        seen = described(table)
        table.rebuild()
        assert described(table) == seen


def test_a_request_under_way_arrives_though_the_store_is_closed_meanwhile(
    tmp_path: Path, real_store: Store, troubled: TroubledFiles
) -> None:
    accounts = real_store.table(Account)
    accounts.add({"name": "a"})
    disk = Held()
    troubled.before_sync(ACCOUNT_LOG, disk)
    adding = Running(lambda: accounts.add({"name": "b"}))
    disk.wait()
    closing = Running(real_store.close)
    assert closing.is_waiting()
    disk.release()
    assert adding.result().changed
    closing.result()
    with holdfast.open(tmp_path / "data") as again:
        assert names(again.table(Account)) == ["a", "b"]


# A state that cannot follow


def test_a_table_whose_state_failed_goes_on_with_what_its_log_has(
    real_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = real_store.table(Account)
    accounts.add({"email": "a", "name": "a"})
    refuse_once(monkeypatch, accounts)
    with pytest.raises(DiskFull):
        accounts.add({"email": "b", "name": "b"})

    def transact() -> None:
        with real_store.transaction():
            accounts.add({"email": "d", "name": "d"})

    with pytest.raises(ValidationFailed, match="another record has this email"):  # it is in the log
        Running(lambda: accounts.add({"email": "b"})).result()
    Running(lambda: accounts.add({"email": "c", "name": "c"})).result()
    Running(transact).result()
    assert names(accounts) == ["a", "b", "c", "d"]
    with killed(real_store) as again:
        assert names(again.table(Account)) == ["a", "b", "c", "d"]


def test_a_request_that_waits_for_one_whose_state_fails_finds_what_the_log_has(
    real_store: Store, troubled: TroubledFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = real_store.table(Account)
    accounts.add({"email": "a"})
    refuse_once(monkeypatch, accounts)
    disk = Held()
    troubled.before_sync(ACCOUNT_LOG, disk)
    first = Running(lambda: accounts.add({"email": "b"}))
    disk.wait()
    second = Running(lambda: accounts.add({"email": "b"}))
    assert second.is_waiting()
    disk.release()
    with pytest.raises(DiskFull):
        first.result()
    with pytest.raises(ValidationFailed, match="another record has this email"):
        second.result()


def test_a_hard_delete_waits_for_who_takes_a_unique_value_that_the_record_had(
    real_store: Store, troubled: TroubledFiles
) -> None:
    accounts = real_store.table(Account)
    hidden = accounts.add({"email": "x", "name": "hidden"}).key
    accounts.delete(hidden)
    disk = Held()
    troubled.before_sync(ACCOUNT_LOG, disk)
    adding = Running(lambda: accounts.add({"email": "x", "name": "new"}))
    disk.wait()
    deleting = Running(lambda: accounts.delete(hidden, hard=True))
    assert deleting.is_waiting()
    disk.release()
    assert adding.result().changed and deleting.result().changed
    assert [record.name for record in accounts.scan(Account.email == "x")] == ["new"]
    before = described(accounts)
    accounts.rebuild()
    assert described(accounts) == before


@pytest.mark.parametrize("flush", [Flush.batch(), Flush.async_()], ids=["batch", "async"])
@pytest.mark.parametrize(("kind", "error"), [("write", errno.ENOSPC), ("write", errno.EIO)], ids=["full", "broken"])
def test_without_sync_a_write_that_fails_is_told_and_the_state_is_not_ahead(
    files: SimFiles, clock: SimClock, flush: Flush, kind: str, error: int
) -> None:
    store = holdfast.open("data", files=files, clock=clock, background=False)
    accounts = store.table(Account, flush=flush)
    accounts.add({"email": "a", "name": "a"})
    files.fail(kind, error, pattern="data/tables/*.data", times=99)
    for _ in range(2):
        with pytest.raises(HoldfastError):
            Running(lambda: accounts.add({"email": "b", "name": "b"})).result()
    assert names(accounts) == ["a"] and position_of(accounts) == 1
    after = SimFiles.holding(files.snapshot(), seed=5)
    again = holdfast.open("data", files=after, clock=clock, background=False).table(Account)
    assert names(again) == ["a"]


@pytest.mark.parametrize("flush", [Flush.batch(), Flush.async_()], ids=["batch", "async"])
def test_without_sync_a_log_that_stops_before_the_request_lands_is_told(
    files: SimFiles, clock: SimClock, flush: Flush, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = holdfast.open("data", files=files, clock=clock, background=False)
    accounts = store.table(Account, flush=flush)
    accounts.add({"email": "a", "name": "a"})
    commit = changelog_of(accounts).commit

    def fails_behind_our_back(pending_block: object) -> None:
        monkeypatch.setattr(changelog_of(accounts), "commit", commit)
        files.fail("sync", errno.EIO, pattern="data/tables/*.data")
        with pytest.raises(WriterStopped):
            changelog_of(accounts).sync()  # as the background does

    monkeypatch.setattr(changelog_of(accounts), "commit", fails_behind_our_back)
    for email in ("b", "b", "c"):
        with pytest.raises(WriterStopped):
            Running(lambda email=email: accounts.add({"email": email})).result()  # type: ignore[misc]
    assert names(accounts) == ["a"]


# Settings, and what the state is built from


def test_a_change_of_settings_that_fails_halfway_loses_nothing_of_the_past(reopen: Reopen, files: SimFiles) -> None:
    with reopen() as store:
        accounts = store.table(Account, keep_all_versions=True)
        first = accounts.add({"name": "old"})
        accounts.change(first.key, {"name": "new"})
    with reopen() as store:
        files.fail("write", errno.ENOSPC, pattern="*table.json*")
        with pytest.raises(DiskFull):
            store.table(Account, keep_all_versions=False)
    with reopen() as store:
        accounts = store.table(Account)
        assert accounts.settings.keep_all_versions
        found = accounts.get(first.key, as_of=first.version)
        assert found is not None and found.name == "old"


def test_a_damaged_log_is_not_what_a_whole_state_is_given_up_for(reopen: Reopen, files: SimFiles) -> None:
    with reopen() as store:
        accounts = store.table(Account)
        for number in range(5):
            accounts.add({"name": f"name {number}"})
    (data,) = (path for path in files.snapshot() if path.endswith(".data") and "/Account/" in path)
    content = files.content(data)
    content[bytes(content).index(b"name 2")] ^= 0xFF
    with reopen() as store:
        with pytest.raises(Corrupt, match="force=True"):
            store.table(Account, keep_all_versions=True)
        accounts = store.table(Account)
        assert accounts.count() == 5
        with pytest.raises(Corrupt, match="force=True"):
            accounts.rebuild()
        assert accounts.count() == 5
        accounts.rebuild(force=True)
        assert accounts.count() == 4


def test_a_table_that_is_open_is_not_opened_with_other_settings(store: Store) -> None:
    accounts = store.table(Account, keep_all_versions=True)
    with pytest.raises(InvalidArgument, match="other settings"):
        store.table(Account, keep_all_versions=False)
    with pytest.raises(InvalidArgument, match="flush"):
        store.table(Account, flush=Flush.batch())
    assert store.table(Account) is store.table(Account, keep_all_versions=True) is accounts


# Ends of what there can be


def test_a_version_of_the_far_future_is_refused(store: Store, clock: SimClock) -> None:
    accounts, entries = store.table(Account), store.table(Entry)
    now = entries.add({}).version
    hour = int(timedelta(hours=1) / timedelta(milliseconds=1)) << 20

    def arrival(version: int) -> Addition[Account]:
        return Addition(Record(version.to_bytes(8, "big") * 2, Account(), version, version))

    for version in (now + hour + hour // 10, VERSION_MAX - 1):
        with pytest.raises(InvalidArgument, match="an hour ahead"):
            accounts.apply([arrival(version)])
    assert accounts.count() == 0 and entries.add({}).version < now + hour
    accounts.apply([arrival(now + hour // 2)])
    assert accounts.count() == 1 and entries.add({}).version > now + hour // 2


def test_the_past_can_be_asked_for_at_any_time_there_is(store: Store) -> None:
    accounts = store.table(Account, keep_all_versions=True)
    key = accounts.add({"email": "a", "name": "1"}).key
    for number in range(12):
        accounts.change(key, {"name": str(number % 2)})
    for late in (2**64 - 1, datetime(9999, 1, 1, tzinfo=UTC)):
        found = accounts.get(key, as_of=late)
        assert found is not None and found.name == "1"
        assert [record.key for record in accounts.scan(Account.name == "1", as_of=late)] == [key]
        assert accounts.scan(Account.email == "nobody", as_of=late).first() is None
    early = datetime(1900, 1, 1, tzinfo=UTC)
    assert accounts.get(key, as_of=early) is None
    assert list(accounts.scan(Account.name == "1", as_of=early)) == []


def test_a_table_may_be_named_as_the_mark_of_a_deleted_one(reopen: Reopen) -> None:
    with reopen() as store:
        store.table(Entry).add({})
        for name, number in (("deleted-Entry", 8), ("~deleted-Entry", 9)):
            named = types.new_class(name, (Model,), {"id": number}, lambda body: body.update(NOTE))
            store.table(named).add({"note": "here"})
    with reopen() as store:
        assert store.tables() == ["Entry", "deleted-Entry", "~deleted-Entry"]
        assert all(store.table(name).count() == 1 for name in store.tables())
        store.delete_table("deleted-Entry")
        assert store.tables() == ["Entry", "~deleted-Entry"]


def test_the_largest_id_is_as_good_as_any_and_there_is_none_above(store: Store) -> None:
    class Last(Model, id=2**32 - 2):
        name: str = field(1, default="")
        __indexes__ = (Index("name"),)

    last = store.table(Last)
    last.add({"name": "a"})
    last.rebuild()
    assert [record.name for record in last.scan(Last.name == "a")] == ["a"]
    for number in (0, 2**32 - 1):
        with pytest.raises(HoldfastError, match="id"):
            type("Wrong", (Model,), {"__annotations__": {}}, id=number)


# What a handler raises in a destructor or in the callback of a weak reference is dropped by the interpreter.
@pytest.mark.usefixtures("without_gc_callbacks")
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_()], ids=lambda flush: str(flush.mode))
def test_interrupts_anywhere_lose_nothing_and_leave_nobody_waiting(tmp_path: Path, flush: Flush) -> None:
    """Signals come between any two bytecodes of the main thread; a table may stop, and never goes wrong."""
    random, armed, interrupts = Random(0), False, 0

    def strike(*_: object) -> None:
        if armed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    try:
        for number in range(12):
            folder = tmp_path / str(number)
            done: list[bytes] = []
            with holdfast.open(folder) as store:
                table = store.table(Account, keep_all_versions=True, flush=flush)
                for at in range(20):
                    try:
                        armed = True
                        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.0015))
                        done.append(table.add(Account(name=f"n{at}", email=f"{at}@x")).key)
                        armed = False
                    except KeyboardInterrupt:
                        armed = False
                        interrupts += 1
                    except HoldfastError:  # it stopped: what it was at is known when it is opened again
                        armed = False
                        break
            with holdfast.open(folder) as store:
                table = store.table(Account, keep_all_versions=True)
                assert all(table.get(key) for key in done)
                held = described(table)
                table.rebuild()
                assert described(table) == held
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts, "nothing was interrupted"
