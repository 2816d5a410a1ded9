"""verify and inspect: every checksum, and what is at this byte."""

import logging
from collections.abc import Callable

import pytest

from holdfast import Flush, InvalidArgument, NotFound, Roll, Store
from holdfast.log.record import Damage
from holdfast.testing import SimFiles


def test_verify_counts_everything_and_shows_progress(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(10))
    for n in range(25):
        log.append(b"%d" % n)
    seen: list[tuple[int, int]] = []
    result = log.verify(progress=lambda done, total: seen.append((done, total)))
    assert (result.ok, result.segments, result.blocks, result.records) == (True, 3, 25, 25)
    assert seen == sorted(seen)
    assert seen[-1] == (result.bytes, result.bytes) == (log.stats().bytes, log.stats().bytes)


def test_verify_finds_a_hit_and_says_where(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.sync())
    for n in range(5):
        log.append(b"payload-%d" % n)
    path = next(path for path in files.snapshot() if path.endswith(".data"))
    at = files.content(path).index(b"payload-3")
    files.content(path)[at] ^= 1
    result = log.verify()
    assert not result.ok
    assert [(d.offset, d.length, d.first_lost, d.lost) for d in result.damage] == [(at, 9, 3, 1)]
    assert "record 3 lost" in str(result.damage[0])
    assert result.records == 4


def test_verify_finds_a_hit_in_the_index(store: Store, files: SimFiles, reopen: Callable[..., Store]) -> None:
    log = store.log("clicks", flush=Flush.sync(), index_interval=1)
    for n in range(5):
        log.append(b"%d" % n)
    store.close()
    path = next(path for path in files.snapshot() if path.endswith(".index"))
    files.content(path)[64 + 32 + 3] ^= 1
    log = reopen(read_only=True).log("clicks")
    assert [record.payload for record in log.read(1)] == [b"1", b"2", b"3", b"4"]
    (damage,) = log.verify().damage
    assert (damage.offset, damage.lost) == (96, 0)


def test_verify_on_open_reports_before_anything_is_read(
    store: Store, files: SimFiles, reopen: Callable[..., Store], caplog: pytest.LogCaptureFixture
) -> None:
    store.log("clicks").append(b"payload")
    store.close()
    path = next(path for path in files.snapshot() if path.endswith(".data"))
    files.content(path)[-3] ^= 1
    with caplog.at_level(logging.WARNING):
        log = reopen().log("clicks", verify_on_open=True)
    assert len(log.damage) == log.stats().damage == 1
    assert "damage found: log=clicks" in caplog.text


def test_inspect_names_what_is_at_each_byte(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(4))
    log.append_many([b"first", b"", b"third"])
    log.append(b"fourth!")
    (one, two) = log.blocks()
    payload = one.header.offset + 64 + one.header.columns_length
    found = {offset: log.inspect(offset) for offset in range(log.stats().bytes + 1)}
    assert {offset: look.what for offset, look in found.items() if offset < 64} == dict.fromkeys(
        range(64), "segment header"
    )
    assert found[64].what == found[127].what == "block header"
    assert found[128].what == "columns"
    assert found[64].details["first_sequence"] == 0
    assert [found[payload + at].record.payload for at in (0, 4, 5, 9)] == [b"first", b"first", b"third", b"third"]  # type: ignore[union-attr]
    assert found[payload + 10].what == "padding"
    assert found[two.header.offset].what == "block header"
    assert found[log.stats().bytes].what == "end"


def test_inspect_finds_segments_by_name(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(1))
    with pytest.raises(NotFound, match="nothing has been written"):
        log.inspect(0)
    log.append(b"a")
    log.append(b"b")
    assert log.inspect(64, "20260101-0001").details["first_sequence"] == 0
    assert log.inspect(64).details["first_sequence"] == 1
    with pytest.raises(NotFound, match="20260101-0002"):
        log.inspect(64, "nowhere")
    with pytest.raises(InvalidArgument, match="is outside of"):
        log.inspect(10_000)


def test_inspect_shows_damage_as_damage(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.sync())
    for _ in range(2):
        log.append(b"payload")
    path = next(path for path in files.snapshot() if path.endswith(".data"))
    files.content(path)[70] ^= 1
    assert log.inspect(70).what == "damage"
    files.content(path)[70] ^= 1
    at = files.content(path).index(b"payload")
    files.content(path)[at] ^= 1
    assert log.inspect(at).what == "damage"


@pytest.mark.parametrize(
    ("first_lost", "lost", "cost"),
    [
        (None, 0, "no record lost"),
        (3, 0, "no record lost"),
        (3, 1, "record 3 lost"),
        (3, 2, "records 3 to 4 lost"),
        (3, None, "records lost: unknown"),
        (None, 2, "records lost: unknown"),
    ],
)
def test_damage_is_reported_with_the_records_that_were_lost(
    first_lost: int | None, lost: int | None, cost: str
) -> None:
    damage = Damage("clicks/0.log", 64, 8, "wrong checksum", first_lost, lost)
    assert str(damage) == f"clicks/0.log at byte 64 (8 bytes): wrong checksum; {cost}"
