"""A table can be deleted: all of it, also if a crash comes between."""

from pathlib import Path

import pytest

import holdfast
from holdfast import Index, InvalidArgument, Model, NotFound, Retention, field
from holdfast.testing import SimClock, SimFiles, crash_points


class Thing(Model, id=7):
    name: str = field(1, unique=True)
    __indexes__ = (Index("name"),)


def test_a_deleted_table_leaves_nothing(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        things = store.table(Thing, keep_all_versions=True)
        key = things.add(Thing(name="a")).key
        store.delete_table("Thing")
        assert store.tables() == []
        with pytest.raises(holdfast.Closed):
            things.get(key)
        again = store.table(Thing)
        assert list(again.scan()) == []
        again.add(Thing(name="a"))
    with holdfast.open(tmp_path / "data") as store:
        assert store.table(Thing).count() == 1


def test_a_table_that_is_not_there_cannot_be_deleted(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store, pytest.raises(NotFound, match="Thing"):
        store.delete_table("Thing")


def test_a_table_keeps_its_whole_log(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store, pytest.raises(InvalidArgument, match="retention"):
        store.table(Thing, retention=Retention(max_segments=1))


class Deletion:
    """A table is deleted; the machine stops somewhere."""

    def __init__(self) -> None:
        self.begun = self.done = False

    def run(self, files: SimFiles) -> None:
        store = open_sim(files)
        things = store.table(Thing, keep_all_versions=True)
        things.add_many([Thing(name=str(number)) for number in range(3)])
        self.begun = True
        store.delete_table("Thing")
        self.done = True
        store.close()

    def check(self, files: SimFiles) -> None:
        store = open_sim(files)
        count = store.table(Thing, keep_all_versions=True).count()
        assert count == 0 if self.done else count in (0, 3) if self.begun else count <= 3
        assert store.table(Thing).scan(Thing.name == "1").first() is None or count == 3
        store.table(Thing).add(Thing(name="new"))
        store.close()
        store = open_sim(files)
        assert store.table(Thing).count() == count + 1
        store.close()


def open_sim(files: SimFiles) -> holdfast.Store:
    return holdfast.open("data", files=files, clock=SimClock(), background=False)


def test_no_crash_leaves_half_of_a_table() -> None:
    assert crash_points(Deletion, seeds=(0,)) > 50
