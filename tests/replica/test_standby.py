"""A standby in one thread of simulated time: it follows, takes over by the rules, and goes on after any stop."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Locked, ReplicaError, ReplicaFenced, ReplicaUnavailable, Roll, StorageError, Store
from holdfast.replica import Standby
from holdfast.replica.owner import read_owner
from holdfast.replica.standbys import STANDBYS, read_standbys
from holdfast.testing import SimBucket, SimClock, SimFiles
from tests.replica.work import Account, described, restored

PATH = "data"


class Pair:
    """An owner and a standby on two machines, with one clock."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.bucket = SimBucket(clock=self.clock)
        self.files, self.other = SimFiles(1), SimFiles(2)
        self.owner = self.open(self.files)

    def open(self, files: SimFiles) -> Store:
        return holdfast.open(PATH, files=files, clock=self.clock, background=False, replica=self.bucket)

    def standby(self, files: SimFiles | None = None, path: str = "other") -> Standby:
        return Standby(self.bucket, path, files=files or self.other, clock=self.clock)

    def ship(self) -> None:
        """Ship, and let the standbys know at the next renewal."""
        self.owner.replica.ship()
        self.clock.advance(5)
        self.owner.replica.tick()

    def wait(self, standby: Standby, seconds: float, *, owner: bool = False) -> bool:
        """Let time pass; return whether the standby has taken over."""
        for _ in range(int(seconds)):
            self.clock.advance(1)
            if owner:
                self.owner.replica.tick()
            if standby.tick():
                return True
        return False


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    pair.owner.queue("work").put_many([b"one", b"two"])
    pair.owner.log("events", roll=Roll.count(3)).append(b"first")
    pair.ship()
    yield pair
    pair.owner.close()


def may_confirm(store: Store) -> bool:
    return store.replica.may_confirm


def yielding(pair: Pair, standby: Standby) -> None:
    """Let both work until the owner yields."""
    assert not pair.wait(standby, 15, owner=True)
    assert standby.status().yields


def test_a_standby_takes_over_when_the_claim_has_run_out(pair: Pair) -> None:
    standby = pair.standby()
    yielding(pair, standby)
    before = described(pair.owner)
    assert not pair.wait(standby, 14)
    assert pair.wait(standby, 5)
    with standby.open(background=False) as store:
        assert described(store) == before
        store.queue("work").put(b"of the second owner")
        store.replica.ship()
        assert store.replica.status().ok
    with pytest.raises(ReplicaFenced):
        pair.owner.replica.ship()


def test_what_is_new_is_fetched_and_nothing_else(pair: Pair) -> None:
    standby = pair.standby()
    standby.tick()
    first = standby.status().fetched_bytes
    assert first == standby.status().bytes
    pair.owner.log("events").append(b"x" * 1000)
    pair.ship()
    standby.tick()
    added = standby.status().fetched_bytes - first
    assert 1000 < added < 1500
    assert standby.status().bytes == standby.status().fetched_bytes
    gets = len([one for one in pair.bucket.trace if one.startswith("get logs/")])
    for _ in range(5):
        pair.clock.advance(1)
        standby.tick()
    assert len([one for one in pair.bucket.trace if one.startswith("get logs/")]) == gets
    standby.close()


def test_parts_that_were_put_together_are_not_fetched_again(pair: Pair) -> None:
    standby = pair.standby()
    for number in range(40):
        pair.owner.log("events").append(b"%d" % number * 50)
        pair.ship()
        standby.tick()
    status = standby.status()
    assert status.bytes * 1.05 > status.fetched_bytes
    standby.close()


def test_an_owner_without_a_standby_goes_on_confirming_and_with_one_it_stops(pair: Pair) -> None:
    pair.bucket.outage()
    pair.clock.advance(3600)
    assert may_confirm(pair.owner)
    pair.bucket.heal()
    pair.owner.replica.tick()
    standby = pair.standby()
    yielding(pair, standby)
    pair.bucket.outage()
    pair.clock.advance(13.9)
    assert may_confirm(pair.owner)
    pair.clock.advance(0.2)
    assert not may_confirm(pair.owner)
    with pytest.raises(ReplicaFenced, match="nothing is confirmed until it is renewed"):
        pair.owner.replica.ownership.check_confirm()
    pair.bucket.heal()
    pair.owner.replica.tick()
    assert may_confirm(pair.owner)
    standby.close()


def test_the_promise_to_yield_is_withdrawn_a_minute_after_the_last_sign_of_a_standby(pair: Pair) -> None:
    standby = pair.standby()
    yielding(pair, standby)
    for _ in range(50):
        pair.clock.advance(1)
        pair.owner.replica.tick()
    assert read_owner(pair.bucket).yields  # type: ignore[union-attr]
    for _ in range(20):
        pair.clock.advance(1)
        pair.owner.replica.tick()
    assert not read_owner(pair.bucket).yields  # type: ignore[union-attr]
    pair.bucket.outage()
    pair.clock.advance(3600)
    assert may_confirm(pair.owner)
    pair.bucket.heal()
    standby.close()


def test_a_lost_answer_to_the_withdrawal_keeps_the_promise(pair: Pair) -> None:
    standby = pair.standby()
    yielding(pair, standby)
    standby.close()  # withdraws its announcement, so that the next renewal withdraws the promise
    pair.clock.advance(5)
    pair.bucket.fail("compare_and_swap", pattern="owner.json", stop="after")
    with pytest.raises(ReplicaUnavailable):
        pair.owner.replica.ownership.renew()
    assert not read_owner(pair.bucket).yields  # type: ignore[union-attr]
    pair.bucket.outage()
    pair.clock.advance(30)
    assert not may_confirm(pair.owner)
    pair.bucket.heal()
    pair.owner.replica.tick()
    pair.bucket.outage()
    pair.clock.advance(3600)
    assert may_confirm(pair.owner)
    pair.bucket.heal()


def test_the_promise_holds_after_a_restart_while_the_bucket_is_away(pair: Pair) -> None:
    standby = pair.standby()
    yielding(pair, standby)
    machine = pair.files.after_crash("prefix")
    pair.bucket.outage()
    with pair.open(machine) as store:
        assert not may_confirm(store)
        pair.bucket.heal()
        pair.clock.advance(1)
        store.replica.tick()
        assert may_confirm(store)
        pair.bucket.outage()
    pair.bucket.heal()
    standby.close()


def test_a_standby_does_not_take_over_by_itself_from_an_owner_that_does_not_yield(pair: Pair) -> None:
    standby = pair.standby()
    assert not pair.wait(standby, 120)
    assert standby.status().owner_quiet_seconds > 100
    standby.promote()
    assert pair.wait(standby, 2)
    with standby.open(background=False) as store:
        assert store.queues() == ["work"]


def test_an_owner_that_is_restarted_within_its_ttl_keeps_the_replica(pair: Pair) -> None:
    standby = pair.standby()
    yielding(pair, standby)
    pair.owner.close()
    assert not pair.wait(standby, 10)
    pair.owner = pair.open(pair.files)
    assert not pair.wait(standby, 30, owner=True)
    assert standby.status().epoch == 2
    pair.owner.close()
    assert pair.wait(standby, 20)
    standby.close()


def test_of_two_standbys_one_takes_over_and_the_other_follows_it(pair: Pair) -> None:
    first, second = pair.standby(), pair.standby(SimFiles(3), "third")
    yielding(pair, first)
    second.tick()
    for _ in range(40):
        pair.clock.advance(1)
        done = [first.tick(), second.tick()]
        if any(done):
            break
    assert done == [True, False]
    with first.open(background=False) as store:
        store.queue("work").put(b"three")
        pair.owner.close()
        for _ in range(12):
            pair.clock.advance(1)
            store.replica.tick()
            assert not second.tick()
        status = second.status()
        assert (status.role, status.epoch, status.moment) == ("standby", 3, store.replica.status().moment)
        assert status.yields
    assert pair.wait(second, 20)
    with second.open(background=False) as store:
        assert store.queue("work").stats().ready == 3


def test_a_standby_goes_on_after_its_end_at_any_write(pair: Pair) -> None:
    """Each crash leaves another folder; the next life fetches what is missing, and has the same files as a restore."""
    files = SimFiles(5)
    for round_ in range(60):
        if round_ % 10 == 0:
            pair.owner.log("events").append(b"%d" % round_)
            pair.owner.queue("work").put(b"%d" % round_)
            if round_ == 30:
                pair.owner.delete_queue("work")
            pair.ship()
        files.crash_at(3 + round_)
        try:
            standby = Standby(pair.bucket, PATH, files=files, clock=pair.clock)
            standby.tick()
            standby.close()
        except BaseException as error:
            if type(error).__name__ != "Crash":
                raise
        files = files.after_crash("reordered" if round_ % 2 else "prefix", round_)
    standby = Standby(pair.bucket, PATH, files=files, clock=pair.clock)
    standby.promote()
    assert pair.wait(standby, 40)
    expected = described(pair.owner)
    copy = {name: content for name, content in files.snapshot().items() if name.endswith(".data")}
    plain = {name: content for name, content in restored(pair.bucket)[0].snapshot().items() if name.endswith(".data")}
    assert copy == plain
    with standby.open(background=False) as store:
        assert described(store) == expected


def test_the_folder_of_a_standby_is_no_store(pair: Pair) -> None:
    standby = pair.standby()
    standby.tick()
    with pytest.raises(Locked):
        pair.standby()
    standby.close()
    for read_only in (False, True):
        with pytest.raises(StorageError, match="copy of a standby"):
            holdfast.open("other", files=pair.other, clock=pair.clock, background=False, read_only=read_only)


def test_a_clean_old_owner_becomes_a_standby_without_fetching_what_it_has(pair: Pair) -> None:
    standby = pair.standby()
    yielding(pair, standby)
    pair.owner.close()
    assert pair.wait(standby, 40)
    with standby.open(background=False) as store:
        store.log("events").append(b"of the second owner")
        store.replica.ship()
        pair.clock.advance(5)
        store.replica.tick()
        old = Standby(pair.bucket, PATH, files=pair.files, clock=pair.clock)
        old.tick()
        status = old.status()
        assert status.moment == store.replica.status().moment
        assert status.fetched_bytes < status.bytes / 2
        for _ in range(12):  # until the new owner yields, too
            pair.clock.advance(1)
            store.replica.tick()
            old.tick()
        expected = described(store)
    assert pair.wait(old, 40)
    with old.open(background=False) as store:
        assert described(store) == expected


def test_an_old_owner_with_records_of_its_own_is_refused_and_keeps_them(pair: Pair) -> None:
    standby = pair.standby()
    yielding(pair, standby)
    pair.owner.queue("work").put(b"confirmed, and not shipped")
    machine = pair.files.after_crash("prefix")
    assert pair.wait(standby, 40)
    with standby.open(background=False) as store:
        store.log("events").append(b"of the second owner")
        store.replica.ship()
    with pytest.raises(ReplicaFenced, match=r"1 record of logs/work from 2026.*Nothing is merged"):
        pair.open(machine)
    old = Standby(pair.bucket, PATH, files=machine, clock=pair.clock)
    with pytest.raises(ReplicaError, match=r"cannot become a standby.*1 record of logs/work from"):
        old.tick()
    old.close()
    with holdfast.open(PATH, files=machine, clock=pair.clock, background=False) as store:
        assert [message.payload for message in store.queue("work").peek(9)][-1] == b"confirmed, and not shipped"


def test_the_folder_of_another_store_is_refused(pair: Pair) -> None:
    files = SimFiles(7)
    with holdfast.open("other", files=files, clock=pair.clock, background=False) as store:
        store.queue("mine").put(b"1")
    standby = pair.standby(files)
    with pytest.raises(ReplicaError, match="was never shipped to"):
        standby.tick()
    standby.close()


def test_a_damaged_object_is_not_taken_over(pair: Pair) -> None:
    part = next(key for key in pair.bucket.snapshot() if key.startswith("logs/events"))
    pair.bucket.change(part, b"x" * len(pair.bucket.snapshot()[part]))
    standby = pair.standby()
    with pytest.raises(holdfast.Corrupt, match="checksum does not match"):
        standby.tick()
    status = standby.status()
    assert not status.is_warm
    assert status.error is not None
    standby.close()


def test_tables_and_transactions_are_taken_over(pair: Pair) -> None:
    table = pair.owner.table(Account)
    with pair.owner.transaction():
        table.add({"name": "ann", "balance": 5})
        pair.owner.queue("mails").put(b"ann")
    pair.ship()
    standby = pair.standby()
    yielding(pair, standby)
    before = described(pair.owner)
    assert pair.wait(standby, 40)
    with standby.open(background=False) as store:
        assert described(store) == before


def test_announcements_are_renewed_withdrawn_and_forgotten(pair: Pair) -> None:
    first, second = pair.standby(), pair.standby(SimFiles(3), "third")
    first.tick()
    second.tick()
    assert len(read_standbys(pair.bucket)) == 2
    second.close()
    assert [one.place.rpartition("/")[2] for one in read_standbys(pair.bucket).values()] == ["other"]
    first.tick()
    assert STANDBYS in pair.bucket.snapshot()
    first.close()
    assert read_standbys(pair.bucket) == {}
