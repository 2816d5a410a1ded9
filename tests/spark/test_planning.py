"""How much a plan over many segments costs, counted in files opened."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import holdfast
from holdfast import Retention, Roll
from holdfast.spark.options import ReadOptions
from holdfast.spark.partitions import DataLoss, Wanted, plan, read_stretches
from holdfast.spark.reader import Reader
from holdfast.spark.sources import View, view_schema

FEW, MANY = 16, 1024
_counting: list[str] | None = None
_thread = 0


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if _counting is not None and event == "open" and threading.get_ident() == _thread:
        _counting.append(str(arguments[0]))


sys.addaudithook(_note)


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The paths that this thread opens meanwhile."""
    global _counting, _thread  # noqa: PLW0603 - an audit hook cannot be taken away
    _counting, _thread = [], threading.get_ident()
    try:
        yield _counting
    finally:
        _counting = None


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two logs, of few and of many segments with two records each."""
    path = tmp_path_factory.mktemp("segments")
    with holdfast.open(path, background=False) as store:
        for name, count in (("few", FEW), ("many", MANY)):
            log = store.log(name, roll=Roll.count(2))
            for number in range(count):
                log.append_many([b"%d" % number] * 2)
            assert len(log.segments()) == count
    return path


def reader(path: Path, name: str, **options: str) -> Reader:
    given = {"path": str(path), "log": name, **options}
    return Reader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))


def segments_opened(made: Reader) -> tuple[int, list[int]]:
    """How many files of segments a plan opens, and the offsets that it reads."""
    with opened_files() as opened:
        parts = made.partitions()
    read = [offset for part in parts for batch in made.read(part) for offset in batch["offset"].to_pylist()]
    return sum(path.endswith((".data", ".index")) for path in opened), read


def test_the_last_record_of_many_segments_is_planned_like_that_of_few(logs: Path) -> None:
    counts = {}
    for name, segments in (("few", FEW), ("many", MANY)):
        last = json.dumps({name: 2 * segments - 1})
        counts[name], read = segments_opened(reader(logs, name, startingOffsets=last))
        assert read == [2 * segments - 1]
    assert counts["many"] <= 2 * counts["few"] < FEW


def test_a_time_is_found_among_many_segments_without_opening_them_all(logs: Path) -> None:
    with holdfast.open(logs, read_only=True) as store:
        when = next(store.log("many").read(2 * MANY - 2)).timestamp
    count, read = segments_opened(reader(logs, "many", startingTimestamp=str(when // 1_000_000)))
    assert read[-1] == 2 * MANY - 1
    assert count <= 40 + 2 * len(read)


def test_a_plan_of_all_segments_opens_each_once(logs: Path) -> None:
    for name, segments in (("few", FEW), ("many", MANY)):
        count, read = segments_opened(reader(logs, name))
        assert read == list(range(2 * segments))
        assert count <= segments + 4


def test_one_record_is_read_without_opening_all_segments(logs: Path) -> None:
    with holdfast.open(logs, read_only=True) as store, opened_files() as opened:
        assert next(store.log("many").read(MANY, MANY + 1)).sequence == MANY
        assert next(store.log("many").read(MANY, MANY + 1, reverse=True)).sequence == MANY
    assert sum(path.endswith(".data") for path in opened) < 40


@pytest.mark.parametrize("refreshed", [False, True])
def test_what_retention_drops_between_look_and_plan_is_an_error(tmp_path: Path, refreshed: bool) -> None:
    with holdfast.open(tmp_path, background=False) as store:
        log = store.log("x", roll=Roll.count(2))
        for _ in range(20):
            log.append_many([b"x"] * 2)
        log.sync()
        for strict in (True, False):
            given = {"path": str(tmp_path), "log": "x", "failOnDataLoss": str(strict).lower()}
            view = View(ReadOptions.of(given))
            (track,) = view.tracks()
            picture = track.look(durable=False)
            start = picture.start + 3
            log.compact(retention=Retention(max_segments=10 if strict else 5))
            log.append_many([b"x"] * 2)
            log.sync()
            if refreshed:
                track.log.refresh()
            wanted = Wanted(fail_on_data_loss=strict)
            if strict:
                with pytest.raises(DataLoss, match="dropped by retention"):
                    list(read_stretches(view.stretches(track, picture, start, 40), wanted))
            else:
                pieces = list(read_stretches(view.stretches(track, picture, start, 40), wanted))
                found = [block.sequence + at for block, first, stop in pieces for at in range(first, stop)]
                assert found == list(range(log.start, 40))
            view.close()


def test_a_file_in_the_middle_that_nothing_identifies_does_not_hide_the_others(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, background=False) as store:
        log = store.log("x", roll=Roll.count(2))
        for _ in range(9):
            log.append_many([b"x"] * 2)
    for path in sorted((tmp_path / "logs").rglob("*.data"))[3:6]:
        path.write_bytes(bytes(path.stat().st_size))
        path.with_suffix(".index").unlink()
    with holdfast.open(tmp_path, read_only=True) as store:
        log = store.log("x")
        for start in range(18):
            expected = [at for at in range(start, 18) if not 6 <= at < 12]
            assert [record.sequence for record in log.read(start)] == expected
        assert [record.sequence for record in log.read(reverse=True)][:6] == [17, 16, 15, 14, 13, 12]
        assert sum("nothing in this file can be identified" in damage.reason for damage in log.damage) == 3
        picture = View(ReadOptions.of({"path": str(tmp_path), "log": "x"})).tracks()[0].look(durable=False)
        assert [(one.start, one.stop) for one in plan(picture, 13, 18)] == [(13, 14), (14, 16), (16, 18)]
