"""The simulated disk fails for the files and operations that were chosen, for as long as was chosen, and heals."""

import contextlib
import errno
from pathlib import Path

import pytest

import holdfast
from holdfast import DiskFull, Flush, InvalidArgument, Store
from holdfast.table import Model, field
from holdfast.testing import FILE_KINDS, OPERATIONS, Operation, SimClock, SimFiles, kind_of


class Card(Model, id=1):
    name: str = field(1)


def test_every_file_of_a_store_has_a_kind(store: Store, files: SimFiles) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    queue.ack(queue.lease())
    tail = store.log("orders").tailer("audit")
    tail.read()
    tail.commit()
    cards = store.table(Card)
    with store.transaction():
        cards.add(Card(name="a"))
        queue.put(b"y")
    store.close()
    kinds = {kind_of(path) for path in files.snapshot() if path != "data/LOCK"}
    assert kinds == set(FILE_KINDS) - {"other", "incoming"}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("data/logs/orders/2026/01/01/20260101-0001.data", "segment"),
        ("data/logs/orders/2026/01/01", "segment"),
        ("data/logs/journals/2026/01/01/20260101-0001.data", "segment"),
        ("data/journals/orders/2026/01/01/20260101-0001.data", "journal"),
        ("data/journals/orders/2026/01/01/20260101-0001.index", "index"),
        ("data/journals/orders/queue.json.4711.tmp", "settings"),
        ("data/journals/orders/watermark", "watermark"),
        ("data/logs/orders/tailers/queue%3Aorders.json.1.tmp", "positions"),
        ("data/state/state.flat.1.tmp", "state"),
        ("data/table-state/state.flat", "state"),
        ("data/tables/card/table.json", "settings"),
        ("data/tables/card/2026/01/01/20260101-0001.data", "table"),
        ("data/LOCK", "other"),
    ],
)
def test_kinds_are_told_by_the_path(path: str, kind: str) -> None:
    assert kind_of(path) == kind


def test_an_outage_ends_after_so_many_failures() -> None:
    files = SimFiles()
    file = files.open(Path("a"), "x")
    outage = files.outage(["write"], error=errno.EIO, times=2)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            file.write(b"x", 0)
    assert file.write(b"x", 0) == 1
    assert outage.over and outage.failed == 2


def test_an_outage_ends_after_so_much_simulated_time() -> None:
    files, clock = SimFiles(), SimClock()
    file = files.open(Path("a"), "x")
    files.outage(["write"], seconds=30, clock=clock)
    clock.advance(29)
    with pytest.raises(OSError, match="No space left"):
        file.write(b"x", 0)
    clock.advance(2)
    assert file.write(b"x", 0) == 1


def act(files: SimFiles, operation: Operation) -> None:
    file = files.open(Path("there"), "w")
    match operation:
        case "write":
            file.write(b"x", 0)
        case "sync":
            file.sync()
        case "create":
            files.open(Path("new"), "x")
        case "rename":
            files.replace(Path("there"), Path("elsewhere"))
        case "truncate":
            file.truncate(0)
        case "remove":
            files.remove(Path("there"))
        case "read":
            file.read(1, 0)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one != "read"])
def test_each_operation_can_fail_alone_and_has_no_effect(operation: Operation) -> None:
    files = SimFiles()
    files.open(Path("there"), "x").write(b"content", 0)
    before = files.snapshot()
    outage = files.outage([operation], error=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        act(files, operation)
    assert files.snapshot() == before
    others = SimFiles()
    others.open(Path("there"), "x").write(b"content", 0)
    others.outage([one for one in OPERATIONS if one not in (operation, "read")])
    act(others, operation)
    outage.heal()
    act(files, operation)


def test_only_the_chosen_kind_of_file_fails(store: Store, files: SimFiles) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    outage = files.outage(["write"], ["segment"])
    with pytest.raises(DiskFull):
        queue.put(b"y")
    queue.ack(queue.lease())
    queue.checkpoint()
    files.heal()
    queue.put(b"y")
    assert outage.failed > 0


def test_a_part_of_the_operations_fails_as_the_seed_says() -> None:
    def run(seed: int) -> list[bool]:
        files = SimFiles(seed)
        file = files.open(Path("a"), "x")
        files.outage(["write"], chance=0.5)
        done = []
        for _ in range(50):
            with contextlib.suppress(OSError):
                file.write(b"x", 0)
                done.append(True)
                continue
            done.append(False)
        return done

    assert run(1) == run(1) != run(2)
    assert 5 < sum(run(1)) < 45


def test_what_is_not_known_is_refused() -> None:
    files = SimFiles()
    with pytest.raises(InvalidArgument, match="operations"):
        files.outage(["fsync"])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match="kinds of files"):
        files.outage(kinds=["journals"])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match="clock"):
        files.outage(seconds=3)
    with pytest.raises(InvalidArgument, match="not both"):
        files.outage(seconds=3, times=1, clock=SimClock())
    with pytest.raises(InvalidArgument, match="errno"):
        files.outage(error=-5)


def test_pages_of_a_failed_sync_are_gone_when_the_cache_is_emptied() -> None:
    files = SimFiles()
    file = files.open(Path("a"), "x")
    file.write(b"safe", 0)
    file.sync()
    file.write(b"lost", 0)
    files.outage(["sync"], times=1)
    with pytest.raises(OSError, match="No space"):
        file.sync()
    file.write(b"!", 4)
    assert file.read(9, 0) == b"lost!"
    files.evict()
    assert file.read(9, 0) == b"safe!"


def test_a_log_under_a_weaker_flush_keeps_what_it_accepted_during_an_outage(files: SimFiles, clock: SimClock) -> None:
    log = holdfast.open("data", files=files, clock=clock, background=False).log("clicks", flush=Flush.async_())
    files.outage(seconds=5, clock=clock)
    log.append(b"x")
    with pytest.raises(DiskFull):
        log.sync()
    clock.advance(6)
    log.sync()
    assert [record.payload for record in log.read()] == [b"x"]
