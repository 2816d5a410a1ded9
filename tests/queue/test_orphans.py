"""What if the state holds entries that lead nowhere? They are put right, counted and told; nothing is lost."""

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack

import pytest

import holdfast
from holdfast import Flush, Store
from holdfast.state import RocksState, Transaction
from tests.queue.internals import core_of, state_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with a queue of which every family of the state has something, but for dedup."""
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue("work", flush=Flush.async_(), lease=3600, max_attempts=None)
        queue.put_many([b"%d" % number for number in range(10)])
        queue.put(b"10", delay=3600)
        queue.put(b"11", priority=5)
        held = queue.lease(4)
        held[0].nack("no", delay=0)
        queue.ack(held[1:2])
        assert (queue.stats().ready, queue.stats().delayed, queue.stats().leased) == (8, 1, 2)
    return tmp_path / "data"


def prefix_of(folder: Path) -> bytes:
    with holdfast.open(folder) as store:
        return core_of(store.queue("work", flush=Flush.async_())).checkpoints.prefix


def tamper(folder: Path, change: Callable[[RocksState, Transaction, bytes], None]) -> None:
    prefix = prefix_of(folder)
    state = RocksState(folder / "state")
    batch = state.transaction()
    change(state, batch, prefix)
    batch.commit()
    state.close()


def keys(state: RocksState, family: str) -> Iterator[bytes]:
    return (key for key, _ in state.scan(family))


def everything(store: Store) -> list[bytes]:
    """Every payload that is delivered or held, each as often as it is."""
    queue = store.queue("work", flush=Flush.async_())
    state_of(queue).check()
    held = [sequence for lease in state_of(queue).leases.by_id.values() for sequence in lease.left]
    waiting = [sequence for _, sequence, _ in state_of(queue).delayed]
    return sorted([b"%d" % sequence for sequence in held + waiting] + [message.payload for message in queue.peek(99)])


def lose_the_leases(state: RocksState, batch: Transaction, prefix: bytes) -> None:
    for key in keys(state, "leases"):
        batch.delete("leases", key)


def lose_what_is_held(state: RocksState, batch: Transaction, prefix: bytes) -> None:
    for key in keys(state, "lease_expiry"):
        batch.delete("lease_expiry", key)


def end_a_lease_that_is_not_there(state: RocksState, batch: Transaction, prefix: bytes) -> None:
    batch.put("lease_expiry", prefix + pack(">QQ", 5, 6), b"")


def lease_nothing(state: RocksState, batch: Transaction, prefix: bytes) -> None:
    batch.put("leases", prefix + pack(">Q", 77), pack("<q", 1 << 62))


def delay_what_is_ready(state: RocksState, batch: Transaction, prefix: bytes) -> None:
    batch.put("visibility_index", prefix + pack(">QQ", 1, 9), b"\0")


@pytest.mark.parametrize(
    "change",
    [lose_the_leases, lose_what_is_held, end_a_lease_that_is_not_there, lease_nothing, delay_what_is_ready],
    ids=lambda change: change.__name__,
)
def test_an_entry_that_leads_nowhere_is_put_right_and_told(
    folder: Path, change: Callable[[RocksState, Transaction, bytes], None], caplog: pytest.LogCaptureFixture
) -> None:
    tamper(folder, change)
    with caplog.at_level(logging.WARNING, "holdfast.queue"), holdfast.open(folder) as store:
        found = everything(store)
        assert len(found) == len(set(found)), "doubled"
        assert set(found) == {b"%d" % number for number in range(12) if number != 0}, "lost, or back after its ack"
        orphans = store.queue("work", flush=Flush.async_()).stats().orphans
    if change is not delay_what_is_ready:  # which is met when its time comes
        assert orphans == sum("dangling state entr" in record.message for record in caplog.records) > 0
    with holdfast.open(folder) as store:
        assert everything(store) == found
        assert store.queue("work", flush=Flush.async_()).stats().orphans == 0, "it was not put right for good"


def test_a_state_that_is_not_rocksdb_any_more_is_set_aside_and_built_anew(folder: Path) -> None:
    with holdfast.open(folder) as store:
        before = everything(store)
    for file in (folder / "state").glob("MANIFEST*"):
        file.write_bytes(b"\xff" * 100)
    with holdfast.open(folder) as store:
        assert everything(store) == before
    assert (folder / "state.damaged-1").is_dir()


def test_a_state_of_another_time_leads_to_the_same_end(folder: Path, tmp_path: Path) -> None:
    """An old copy of it is only further back in the journal."""
    shutil.copytree(folder / "state", tmp_path / "old")
    with holdfast.open(folder) as store:
        queue = store.queue("work", flush=Flush.async_())
        queue.ack(queue.lease(3))
        queue.put(b"12")
        after = everything(store)
    shutil.rmtree(folder / "state")
    shutil.copytree(tmp_path / "old", folder / "state")
    with holdfast.open(folder) as store:
        assert everything(store) == after
