"""Can a log be written, read, followed and looked after from afar?"""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, InvalidArgument, InvalidName, Message, NotFound, RemoteStore, Retention, Roll
from holdfast.log.settings import LogSettings
from tests.cli.terminal import damage_segment
from tests.web.serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A served store with a log of many pages, one of many segments, and one that is damaged."""
    folder = tmp_path_factory.mktemp("logs") / "data"
    with holdfast.open(folder) as store:
        store.log("long").append_many([b"record %d" % number for number in range(1234)])
        for name in ("segments", "compacted", "damaged"):
            log = store.log(name, roll=Roll.count(10))
            for number in range(45):
                log.append(b"record %02d" % number)
    damage_segment(folder, "damaged", 1, b"record 13")
    with Served(folder) as one:
        yield one


@pytest.mark.parametrize("name", ["plain", "with/slash and space", "100%25", "üñï-😀"])
def test_a_log_of_any_name_is_made_by_the_first_append(remote: RemoteStore, name: str) -> None:
    log = remote.log(name)
    assert log.append(b"\xff\x00", key=b"\x80", headers={"a": "b", "raw": b"\xfe"}) == 0
    assert log.append_many([b"1", Message(b"2", key=b"k")]) == range(1, 3)
    assert name in remote.logs()
    first, second, third = log.read()
    assert (first.payload, first.key, dict(first.headers)) == (b"\xff\x00", b"\x80", {"a": "b", "raw": b"\xfe"})
    assert (second.payload, third.key) == (b"1", b"k")
    assert log.readable() == (0, 3) and (log.start, log.end) == (0, 3)
    assert log.append_many([]) == range(3, 3)


def test_all_pages_of_a_log_are_read_forwards_and_backwards(remote: RemoteStore) -> None:
    log = remote.log("long")
    whole = [b"record %d" % number for number in range(1234)]
    assert [record.payload for record in log.read()] == whole
    assert [record.payload for record in log.read(reverse=True)] == whole[::-1]
    assert [record.sequence for record in log.read(700, 703)] == [700, 701, 702]
    assert [record.sequence for record in log.read(700, 703, reverse=True)] == [702, 701, 700]
    assert list(log.read(2000)) == [] and list(log.read(5, 5)) == []


def test_a_log_says_the_same_of_itself_as_in_its_folder(remote: RemoteStore, served: Served) -> None:
    with holdfast.open(served.store.path, read_only=True) as store:
        near = store.log("segments")
        far = remote.log("segments")
        assert far.stats() == near.stats()
        assert far.segments() == near.segments() and len(far.segments()) == 5
        assert far.verify() == near.verify()
        assert far.inspect(0) == near.inspect(0)
        assert far.inspect(70, far.segments()[1].name) == near.inspect(70, near.segments()[1].name)
        record = next(near.read(17, 18))
        assert far.locate(17).record == record
        assert far.sequence_at(record.timestamp) == near.sequence_at(record.timestamp) <= 17
        assert far.sequence_at(datetime.now(UTC)) == 45


def test_damage_is_passed_and_told(remote: RemoteStore) -> None:
    log = remote.log("damaged")
    sequences = [record.sequence for record in log.read()]
    assert 13 not in sequences and sequences[-1] == 44
    assert len(log.damage) == 1 and "record 13 lost" in str(log.damage[0])
    assert not log.verify().ok
    with log.tailer() as tailer:
        assert [record.sequence for record in tailer] == sequences


def test_old_segments_are_dropped(remote: RemoteStore) -> None:
    log = remote.log("compacted")
    assert log.compact(retention=Retention(max_segments=3), dry_run=True) == 2
    assert log.start == 0
    assert log.compact(retention=Retention(max_segments=3)) == 2
    assert log.start == 20 and next(log.read()).payload == b"record 20"
    log.clear()
    assert log.readable() == (45, 45)


def test_a_named_tailer_goes_on_where_it_stopped(remote: RemoteStore) -> None:
    log = remote.log("long")
    with log.tailer("name/with slash") as tailer:
        assert len(tailer.read_many(700)) == 700
        assert (tailer.position, tailer.lag) == (700, 534)
        tailer.commit()
    with log.tailer("name/with slash") as again:
        assert again.read().sequence == 700  # type: ignore[union-attr]
    assert [one.name for one in log.stats().tailers] == ["name/with slash"]
    assert log.positions.remove("name/with slash") and not log.positions.remove("name/with slash")


def test_a_tailer_is_sent_anywhere_in_its_log(remote: RemoteStore) -> None:
    log = remote.log("segments")
    with log.tailer() as tailer:
        tailer.to_end()
        assert tailer.read() is None
        tailer.seek(40)
        assert [record.sequence for record in tailer] == [40, 41, 42, 43, 44]
        tailer.seek_time(log.stats().first_timestamp or 0)
        assert tailer.position == 0
        tailer.to_start()
        with pytest.raises(InvalidArgument, match="cannot seek to 46"):
            tailer.seek(46)
        with pytest.raises(InvalidArgument, match="named"):
            tailer.commit()
    with pytest.raises(InvalidName):
        log.tailer("queue:x")


def test_a_follower_gets_what_is_appended_meanwhile(remote: RemoteStore) -> None:
    log = remote.log("followed")
    log.append(b"0")

    def write() -> None:
        for number in range(1, 4):
            time.sleep(0.1)
            log.append(b"%d" % number)

    writer = threading.Thread(target=write)
    writer.start()
    found = []
    for record in log.tailer().follow(wait=30):
        found.append(record.payload)
        if len(found) == 4:
            break
    writer.join()
    assert found == [b"0", b"1", b"2", b"3"]
    assert list(log.tailer().follow(wait=0.2)) == list(log.read())
    assert log.wait_for(3, 0.1) and not log.wait_for(4, 0.1)


def test_a_log_that_is_not_there_is_not_found(remote: RemoteStore) -> None:
    for ask in (remote.log("no").stats, lambda: list(remote.log("no").read()), remote.log("no").verify):
        with pytest.raises(NotFound, match="'no'"):
            ask()
    assert "no" not in remote.logs()


def test_the_server_decides_how_its_logs_are_written(remote: RemoteStore) -> None:
    with pytest.raises(InvalidArgument, match="chosen by the server"):
        remote.log("x", compression="zstd")
    with pytest.raises(InvalidArgument, match="for queues"):
        remote.log("x").append_many([Message(b"x", delay=3)])


def test_a_log_has_the_settings_with_which_the_server_opened_it(served: Served, remote: RemoteStore) -> None:
    remote.log("opened by a request").append(b"x")
    chosen = {
        "roll": Roll.any(Roll.size(1 << 20), Roll.time(60)),
        "flush": Flush.batch(4096, 0.25),
        "retention": Retention(max_age=timedelta(days=1), max_segments=3),
        "local_retention": Retention(max_bytes=1 << 20),
        "compression": "zstd",
        "index_interval": 7,
        "verify_on_open": True,
    }
    for name, settings in (("opened by a request", {}), ("opened here", chosen)):
        log = served.store.open_log(name) or served.store.log(name, **settings)  # type: ignore[arg-type]
        found = remote.log(name).settings
        assert replace(found, retention=None) == replace(log.settings, retention=None)
        assert (found.retention is None) == (log.settings.retention is None)
    assert found.retention == Retention(max_age=86400.0, max_segments=3)
    assert remote.log("never opened").settings == LogSettings()


def test_the_first_sequence_of_a_time_may_be_in_a_damaged_block(folder: Path) -> None:
    with holdfast.open(folder, background=False) as store:  # the background would write a block every 20 ms
        log = store.log("torn", roll=Roll.count(10))
        for number in range(30):
            log.append(b"x", key=b"key %02d" % number)
            time.sleep(0.001)
        (record,) = log.read(15, 16)
    damage_segment(folder, "torn", 1, b"key 13")  # keys are in the columns, without which no record can be read
    with Served(folder) as served, holdfast.connect(served.url) as remote:
        found = {past: remote.log("torn").sequence_at(record.timestamp, past_damage=past) for past in (True, False)}
        assert found[False] <= 15 < found[True]


def test_what_was_appended_from_afar_is_there_when_the_folder_is_opened_again(folder: Path) -> None:
    with Served(folder) as served, holdfast.connect(served.url) as remote:
        remote.log("kept").append(b"x")
    with holdfast.open(folder, read_only=True) as store:
        assert [record.payload for record in store.log("kept").read()] == [b"x"]
