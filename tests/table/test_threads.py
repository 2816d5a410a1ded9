"""Many threads at one table: no change is lost, no unique value is doubled, and the past stands still."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Store
from holdfast.table import Add, Change, Delete, Done, Index, Model, Table, ValidationFailed, field
from tests.table.internals import position_of, state_of, view_of

THREADS = 8


class Counter(Model, id=1):
    """Something that many change."""

    name: str | None = field(1, unique=True, default=None)
    count: int = field(2, default=0)
    __indexes__ = [Index("count")]  # noqa: RUF012


@pytest.fixture
def counters(disk_store: Store) -> Table[Counter]:
    return disk_store.table(Counter, keep_all_versions=True)


def in_threads(work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


def test_a_counter_that_all_raise_ends_at_the_exact_sum(counters: Table[Counter]) -> None:
    key = counters.add(Counter()).key

    def work(_: int) -> None:
        for _ in range(25):
            while True:
                found = counters.get(key)
                assert found is not None
                try:
                    counters.change(key, {"count": found.count + 1}, if_version=found.version)
                    break
                except ValidationFailed as error:
                    assert [one.rule for one in error.violations] == ["version"]

    in_threads(work)
    found = counters.get(key)
    assert found is not None and found.count == THREADS * 25
    assert [row.version for row in view_of(counters).rows_of(key)] == sorted(
        (row.version for row in view_of(counters).rows_of(key)), reverse=True
    )
    assert len(list(view_of(counters).rows_of(key))) == THREADS * 25 + 1


def test_a_unique_value_has_one_owner_however_many_want_it(counters: Table[Counter]) -> None:
    won: list[tuple[str, bytes]] = []

    def work(number: int) -> None:
        for value in range(30):
            try:
                won.append((str(value), counters.add(Counter(name=str(value), count=number)).key))
            except ValidationFailed as error:
                assert [one.rule for one in error.violations] == ["unique"]

    in_threads(work)
    assert sorted(int(name) for name, _ in won) == list(range(30))
    for name, key in won:
        assert [record.key for record in counters.scan(Counter.name == name)] == [key]
    assert counters.count() == 30


def test_a_unique_value_that_goes_round_is_never_at_two_places(counters: Table[Counter]) -> None:
    keys = [counters.add(Counter()).key for _ in range(THREADS)]

    def work(number: int) -> None:
        for _ in range(20):
            try:
                counters.change(keys[number], {"name": "the one"})
            except ValidationFailed:
                continue
            counters.change(keys[number], {"name": None})

    in_threads(work)
    for version in sorted({row.version for key in keys for row in view_of(counters).rows_of(key)}):
        holders = [record for record in counters.scan(as_of=version) if record.name is not None]
        assert len(holders) <= 1
        assert [one.key for one in counters.scan(Counter.name == "the one", as_of=version)] == [
            one.key for one in holders
        ]


def test_threads_share_their_syncs(counters: Table[Counter]) -> None:
    before = state_of(counters).commits
    together = threading.Barrier(THREADS)

    def work(number: int) -> None:
        for _ in range(30):
            together.wait()
            counters.add(Counter(count=number))

    in_threads(work)
    assert counters.count() == THREADS * 30
    assert counters.log.end == THREADS * 30
    assert sum(1 for _ in counters.log.blocks(0, counters.log.end)) < THREADS * 30
    assert state_of(counters).commits - before < THREADS * 30


def test_the_past_stands_still_while_others_change_the_present(counters: Table[Counter]) -> None:
    keys = [counters.add(Counter(count=number)).key for number in range(10)]
    done = threading.Event()
    sums: dict[int, int] = {}

    def write(number: int) -> None:
        for step in range(40):
            key = keys[(number + step) % 10]
            while True:
                one = counters.get(key)
                assert one is not None
                outcomes = counters.write([Change(key, {"count": one.count + 1}, if_version=one.version)])
                if isinstance(outcomes[0], Done):
                    break

    def read(_: int) -> None:
        while not done.is_set():
            version = counters.last_version
            by_table = [(record.key, record.count) for record in counters.scan(as_of=version)]
            by_index = [(record.key, record.count) for record in counters.scan(order=["count"], as_of=version)]
            assert all(record.version <= version for record in counters.get_many(keys, as_of=version))
            assert sorted(by_index) == by_table
            total = sum(count for _, count in by_table)
            assert sums.setdefault(version, total) == total

    with ThreadPoolExecutor(THREADS) as pool:
        readers = [pool.submit(read, number) for number in range(3)]
        for writer in [pool.submit(write, number) for number in range(5)]:
            writer.result()
        done.set()
        for reader in readers:
            reader.result()
    assert sum(record.count for record in counters.scan()) == 45 + 5 * 40


def test_what_is_deleted_for_good_is_gone_from_the_past_at_once_for_all(counters: Table[Counter]) -> None:
    keys = [counters.add(Counter(name=str(number), count=number)).key for number in range(120)]
    version = counters.last_version
    gone: set[bytes] = set()
    done = threading.Event()

    def read(_: int) -> None:
        while not done.is_set():
            before = set(gone)
            found = {record.key for record in counters.scan(as_of=version)}
            assert not found & before
            assert not {record.key for record in counters.get_many(keys, as_of=version)} & before

    def forget(number: int) -> None:
        for key in keys[number::4]:
            counters.delete(key, hard=True)
            assert counters.get(key, as_of=version) is None
            gone.add(key)

    with ThreadPoolExecutor(THREADS) as pool:
        readers = [pool.submit(read, number) for number in range(4)]
        for one in [pool.submit(forget, number) for number in range(4)]:
            one.result()
        done.set()
        for reader in readers:
            reader.result()
    assert list(counters.scan(as_of=version)) == []


def test_a_rebuild_waits_for_those_who_write_and_they_for_it(counters: Table[Counter]) -> None:
    key = counters.add(Counter()).key

    def work(number: int) -> None:
        for step in range(15):
            if number < 2:
                counters.rebuild()
            else:
                counters.write([Add(Counter(count=number)), Change(key, {"count": number * 100 + step})])

    in_threads(work)
    assert counters.count() == 6 * 15 + 1
    assert position_of(counters) == counters.log.end


def test_a_transaction_is_alone_with_the_tables(disk_store: Store, counters: Table[Counter]) -> None:
    key = counters.add(Counter()).key
    mails = disk_store.queue("mails")

    def work(number: int) -> None:
        for _ in range(10):
            with disk_store.transaction():
                found = counters.get(key)
                assert found is not None
                counters.change(key, {"count": found.count + 1})
                mails.put(b"%d" % found.count)

    in_threads(work)
    assert sorted(int(message.payload) for message in mails.peek(1000)) == list(range(THREADS * 10))
    found = counters.get(key)
    assert found is not None and found.count == THREADS * 10


def test_deleting_and_adding_the_same_key_in_many_threads_leaves_one_or_none(counters: Table[Counter]) -> None:
    key = counters.add(Counter(name="x")).key

    def work(number: int) -> None:
        for step in range(20):
            counters.write([Delete(key, hard=step % 2 == 0), Add(Counter(name="x", count=number), key)])

    in_threads(work)
    owners = [record.key for record in counters.scan(Counter.name == "x")]
    assert owners == [record.key for record in counters.scan()]
