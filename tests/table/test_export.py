"""A table comes back from its backup with all its history; what is cut off, damaged or out of order is refused."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Corrupt, Flush, InvalidArgument, NotFound, Retention, Roll, Store
from holdfast.base.errors import DiskFull, NewerFormat
from holdfast.base.hlc import HybridLogicalClock
from holdfast.state import TABLE_FAMILIES, open_state
from holdfast.table import Model, ValidationFailed, describe, field
from holdfast.table.engine import TableEngine
from holdfast.table.model.indexes import Index
from holdfast.table.settings import TableSettings
from holdfast.table.storage.export import BackupReport, backup_table, check_restored, restore_table, verify_backup
from holdfast.table.storage.export_file import BackupReader, BackupWriter
from holdfast.table.storage.field_encryption import check_tokens, images_of
from holdfast.table.storage.keyring import KeyMissing, Keyring
from holdfast.table.storage.row_codec import decode_event
from holdfast.table.table import Table
from holdfast.testing import SimClock, SimFiles, crash_points
from tests.table.internals import BACKUP_FRAME_RECORDS, changelog_of, state_of


class Account(Model, id=7):
    __indexes__ = (Index("town"),)
    name: str = field(1)
    email: str | None = field(2, unique=True, default=None)
    town: str | None = field(3, default=None)


@pytest.fixture
def table(store: Store) -> Table[Account]:
    """Records that were added, changed, deleted softly and for good, and brought back."""
    table = store.table(Account, keep_all_versions=True, update_history=True)
    keys = [table.add(Account(name=f"a{n}", email=f"{n}@x")).key for n in range(4)]
    table.change(keys[0], {"name": "changed", "town": "Delft"})
    table.change(keys[0], {"town": "Leiden"})
    table.delete(keys[1])
    table.undelete(keys[1])
    table.delete(keys[2])
    table.delete(keys[3], hard=True)
    return table


@pytest.fixture
def other(files: SimFiles, clock: SimClock) -> Store:
    """An empty store beside the first one."""
    return holdfast.open("other", files=files, clock=clock, background=False)


def events(table: Table[Any]) -> list[tuple[bytes | None, Any]]:
    return [(record.key, decode_event(record.payload)) for record in table.log.read()]


def contents(table: Table[Any]) -> dict[str, list[tuple[bytes, bytes]]]:
    """All that the state holds of a table, but for its place in the log."""
    families = [family for family in TABLE_FAMILIES if family != "model"]
    return {family: list(state_of(table).scan(family)) for family in families}


@pytest.fixture
def saved(table: Table[Account], files: SimFiles) -> BackupReport:
    return backup_table(table, "data/backup.hftable", files=files)


def test_a_restored_table_is_the_same_in_all_its_past(
    table: Table[Account], saved: BackupReport, other: Store, files: SimFiles
) -> None:
    report = restore_table(other, saved.path, model=Account, files=files)
    restored = other.table(Account)
    assert (report.events, report.resumed) == (10, 0)
    assert report.last_version == saved.last_version == table.last_version
    assert events(restored) == events(table)
    assert contents(restored) == contents(table)
    assert restored.settings == table.settings


def test_it_reads_as_of_a_version_and_goes_on_with_later_ones(
    table: Table[Account], saved: BackupReport, other: Store, files: SimFiles, clock: SimClock
) -> None:
    key = next(key for key, event in events(table) if key and len(event.fields) == 2)
    clock.set_back(3600)
    restore_table(other, saved.path, model=Account, files=files)
    restored = other.table(Account)
    for _, event in events(table):
        assert restored.get(key, as_of=event.version) == table.get(key, as_of=event.version)
    assert restored.change(key, {"name": "later"}).version > saved.last_version


def test_it_opens_again_after_the_store_was_closed(
    table: Table[Account], saved: BackupReport, other: Store, files: SimFiles, clock: SimClock
) -> None:
    restore_table(other, saved.path, model=Account, files=files)
    other.close()
    with holdfast.open("other", files=files, clock=clock, background=False) as again:
        assert contents(again.table(Account)) == contents(table)


def test_a_table_is_restored_without_its_class(
    table: Table[Account], saved: BackupReport, other: Store, files: SimFiles
) -> None:
    restore_table(other, saved.path, files=files)
    assert other.tables() == ["Account"]
    restored = other.table(Account)
    assert describe(restored.model) == describe(Account)
    assert contents(restored) == contents(table)


def test_an_empty_table_has_a_backup_too(store: Store, other: Store, files: SimFiles) -> None:
    report = backup_table(store.table(Account), "data/empty.hftable", files=files)
    assert (report.events, report.first, report.stop) == (0, 0, 0)
    assert restore_table(other, report.path, model=Account, files=files).events == 0
    assert other.tables() == ["Account"]


def test_the_report_says_what_verifying_finds(table: Table[Account], saved: BackupReport, files: SimFiles) -> None:
    assert (saved.table, saved.model_id, saved.first, saved.stop, saved.events) == ("Account", 7, 0, 10, 10)
    assert saved.full
    assert saved.bytes == len(files.content(saved.path))
    assert verify_backup(saved.path, files=files) == saved


def test_progress_ends_with_all_events(table: Table[Account], other: Store, files: SimFiles) -> None:
    seen: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        seen.append((done, total))

    report = backup_table(table, "data/b.hftable", progress=note, files=files)
    restore_table(other, report.path, progress=note, files=files)
    assert seen == [(10, 10), (10, 10)]


def test_many_events_take_many_frames_and_less_room(store: Store, other: Store, files: SimFiles) -> None:
    table = store.table(Account)
    for start in range(0, 30_000, 1000):
        table.add_many(Account(name=f"name {n}", town="Amsterdam") for n in range(start, start + 1000))
    seen: list[int] = []
    report = backup_table(table, "data/many.hftable", progress=lambda done, total: seen.append(done), files=files)
    assert len(seen) > 2
    assert report.bytes < sum(len(record.payload) for record in table.log.read()) // 2
    restore_table(other, report.path, model=Account, files=files)
    assert contents(other.table(Account)) == contents(table)


def test_writers_go_on_while_a_backup_is_made(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store, holdfast.open(tmp_path / "other") as other:
        table = store.table(Account)
        table.add_many(Account(name=f"{n}") for n in range(20_000))
        done = threading.Event()
        written = []

        def write() -> None:
            while not done.is_set():
                written.append(table.add(Account(name="meanwhile")).key)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            while not written:
                pass
            first = backup_table(table, tmp_path)
        finally:
            done.set()
            writer.join()
        second = backup_table(table, tmp_path, since=first)
        assert 20_000 < first.stop <= second.stop == 20_000 + len(written)
        restore_table(other, [first.path, second.path], model=Account)
        assert events(other.table(Account)) == events(table)


# Incremental ones


def test_what_came_after_a_backup_can_follow_it(
    table: Table[Account], saved: BackupReport, other: Store, files: SimFiles
) -> None:
    table.add(Account(name="later"))
    second = backup_table(table, "data/second.hftable", since=saved, files=files)
    table.add(Account(name="last"))
    third = backup_table(table, "data/third.hftable", since=second.path, files=files)
    assert [(report.first, report.events, report.full) for report in (second, third)] == [
        (10, 1, False),
        (11, 1, False),
    ]
    paths = [saved.path, second.path, third.path]
    assert verify_backup(*paths, files=files) == third
    assert restore_table(other, paths, model=Account, files=files).events == 12
    assert contents(other.table(Account)) == contents(table)


def test_backups_that_do_not_follow_each_other_are_refused(
    table: Table[Account], saved: BackupReport, other: Store, files: SimFiles
) -> None:
    table.add(Account(name="later"))
    second = backup_table(table, "data/second.hftable", since=saved, files=files)
    table.add(Account(name="last"))
    third = backup_table(table, "data/third.hftable", since=second, files=files)
    with pytest.raises(InvalidArgument, match="continues another one"):
        restore_table(other, second.path, files=files)
    for paths in ([saved.path, third.path], [saved.path, third.path, second.path], [saved.path, saved.path]):
        with pytest.raises(InvalidArgument, match="does not continue"):
            restore_table(other, paths, files=files)
    assert other.tables() == []


def test_a_backup_cannot_follow_one_of_another_log_or_of_what_is_gone(
    saved: BackupReport, table: Table[Account], other: Store, files: SimFiles
) -> None:
    with pytest.raises(InvalidArgument, match="not of the present log"):
        backup_table(other.table(Account), "data/x.hftable", since=saved, files=files)
    with pytest.raises(InvalidArgument, match="make a full one"):
        backup_table(table, "data/x.hftable", since=replace(saved, stop=11), files=files)
    with pytest.raises(InvalidArgument, match="choose another name"):
        backup_table(table, saved.path, since=saved, files=files)
    assert verify_backup(saved.path, files=files) == saved


def test_a_log_whose_beginning_went_is_backed_up_from_where_it_starts(
    store: Store, other: Store, files: SimFiles
) -> None:
    table = store.table(Account, roll=Roll.count(2))
    keys = [table.add(Account(name=f"{n}")).key for n in range(6)]
    changelog_of(table).compact(retention=Retention(max_segments=1))
    report = backup_table(table, "data/b.hftable", files=files)
    assert (report.first, report.stop, report.missing) == (4, 6, 0)
    restore_table(other, report.path, model=Account, files=files)
    assert [record.key for record in other.table(Account).get_many(keys)] == keys[4:]


# Damage


def test_a_backup_that_is_cut_off_anywhere_is_refused(saved: BackupReport, other: Store, files: SimFiles) -> None:
    whole = bytes(files.content(saved.path))
    for size in range(len(whole)):
        files.content(saved.path)[:] = whole[:size]
        with pytest.raises(Corrupt):
            verify_backup(saved.path, files=files)
    files.content(saved.path)[:] = whole + b"x"
    with pytest.raises(Corrupt):
        restore_table(other, saved.path, files=files)
    assert other.tables() == []


def test_a_wrong_byte_anywhere_is_found(saved: BackupReport, files: SimFiles) -> None:
    content = files.content(saved.path)
    for place in range(len(content)):
        content[place] ^= 0x11
        with pytest.raises((Corrupt, NewerFormat)):
            verify_backup(saved.path, files=files)
        content[place] ^= 0x11
    assert verify_backup(saved.path, files=files) == saved


@pytest.mark.parametrize(("sequences", "wrong"), [((0, 1, 1), "the event 1 comes after 1"), ((0, 1, 2), "beyond 2")])
def test_events_out_of_order_or_beyond_the_end_are_found(
    saved: BackupReport, files: SimFiles, sequences: tuple[int, ...], wrong: str
) -> None:
    reader = BackupReader(Path(saved.path), files)
    entry = next(reader.batches())[0]
    with closing(files.open(Path("data/wrong.hftable"), "x")) as file:
        writer = BackupWriter(file, reader.head)
        writer.put([entry._replace(sequence=sequence) for sequence in sequences])
        writer.finish(Path("data/wrong.hftable"), 2)
    with pytest.raises(Corrupt, match=wrong):
        verify_backup("data/wrong.hftable", files=files)


def test_a_damaged_event_makes_a_backup_fail_unless_that_is_allowed(
    files: SimFiles, reopen: Callable[..., Store], other: Store
) -> None:
    with reopen() as store:
        table = store.table(Account)
        keys = [table.add(Account(name=f"{n}" * 50)).key for n in range(5)]
    (path,) = [
        path for path in files.snapshot() if "tables/Account" in path and files.content(path).find(b"2" * 50) > 0
    ]
    files.content(path)[files.content(path).find(b"2" * 50)] ^= 1
    table = reopen().table(Account)
    with pytest.raises(Corrupt, match=r"event 2 .*allow_damage"):
        backup_table(table, "data/b.hftable", files=files)
    assert not [path for path in files.snapshot() if "hftable" in path]
    report = backup_table(table, "data/b.hftable", allow_damage=True, files=files)
    assert (report.events, report.missing) == (4, 1)
    assert restore_table(other, report.path, model=Account, files=files).events == 4
    assert len(other.table(Account).get_many(keys)) == 4


def test_a_full_disk_leaves_no_half_backup_and_the_old_one(
    table: Table[Account], saved: BackupReport, files: SimFiles
) -> None:
    table.add(Account(name="later"))
    files.fail("write", 28, pattern="*.part", skip=1)
    with pytest.raises(DiskFull):
        backup_table(table, saved.path, files=files)
    assert not [path for path in files.snapshot() if path.endswith(".part")]
    assert verify_backup(saved.path, files=files) == saved


def test_what_is_no_backup_is_told(files: SimFiles, other: Store) -> None:
    with pytest.raises(NotFound, match="check the path"):
        restore_table(other, "data/nowhere.hftable", files=files)
    files.make_dirs(Path("data"))
    files.open(Path("data/x"), "x").write(b"something else", 0)
    with pytest.raises(Corrupt, match="is not a backup of a table"):
        verify_backup("data/x", files=files)


# Restoring


def test_a_table_that_is_there_is_not_restored_over(
    table: Table[Account], saved: BackupReport, store: Store, files: SimFiles
) -> None:
    before = contents(table)
    with pytest.raises(InvalidArgument, match="the table 'Account' already exists"):
        restore_table(store, saved.path, files=files)
    assert contents(table) == before


def test_the_model_must_be_that_of_the_table(saved: BackupReport, other: Store, files: SimFiles) -> None:
    class Other(Model, id=8):
        name: str = field(1)

    with pytest.raises(InvalidArgument, match="'Account' with id 7, not of 'Other' with id 8"):
        restore_table(other, saved.path, model=Other, files=files)
    assert other.tables() == []


class Stop(Exception):
    """Somebody interrupts."""


@pytest.fixture
def half(store: Store, other: Store, files: SimFiles, clock: SimClock) -> Iterator[tuple[BackupReport, Store]]:
    """A backup of two files, and a store in which its restore was interrupted after the first."""
    table = store.table(Account)
    table.add_many(Account(name=f"{n}") for n in range(15_000))
    report = backup_table(table, "data/big.hftable", files=files)

    def interrupt(done: int, total: int) -> None:
        if done < total:
            raise Stop

    with pytest.raises(Stop):
        restore_table(other, report.path, model=Account, progress=interrupt, files=files)
    with pytest.raises(holdfast.Closed):
        other.table(Account).add(Account(name="too early"))
    other.close()
    again = holdfast.open("other", files=files, clock=clock, background=False)
    yield report, again


def test_a_restore_that_was_interrupted_goes_on(
    half: tuple[BackupReport, Store], store: Store, files: SimFiles
) -> None:
    report, other = half
    done = restore_table(other, report.path, model=Account, files=files)
    assert 0 < done.resumed < done.events == 15_000
    assert contents(other.table(Account)) == contents(store.table(Account))
    check_restored(files, Path("other/tables/Account"))


def test_a_half_restored_table_is_not_for_others(half: tuple[BackupReport, Store], files: SimFiles) -> None:
    with pytest.raises(InvalidArgument, match="partly restored"):
        check_restored(files, Path("other/tables/Account"))


def test_a_half_restored_table_is_not_finished_with_another_backup(
    half: tuple[BackupReport, Store], store: Store, files: SimFiles
) -> None:
    _, other = half
    store.table(Account).add(Account(name="more"))
    another = backup_table(store.table(Account), "data/another.hftable", files=files)
    with pytest.raises(InvalidArgument, match="partly restored from another backup"):
        restore_table(other, another.path, model=Account, files=files)


# Crashes


def small_backup() -> tuple[bytes, list[tuple[bytes | None, Any]]]:
    """A backup as bytes, and the events that it holds."""
    files = SimFiles()
    with holdfast.open("data", files=files, clock=SimClock(), background=False) as store:
        table = store.table(Account, keep_all_versions=True)
        for n in range(3):
            table.change(table.add(Account(name=f"{n}", email=f"{n}@x")).key, {"town": "Delft"})
        report = backup_table(table, "data/b.hftable", files=files)
        return bytes(files.content(report.path)), events(table)


def test_wherever_a_restore_is_cut_off_the_table_is_whole_or_known_to_be_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BACKUP_FRAME_RECORDS, 2)
    raw, expected = small_backup()

    class Restoring:
        def run(self, files: SimFiles) -> None:
            with holdfast.open("other", files=files, clock=SimClock(), background=False) as store:
                restore_table(store, "kept/b.hftable", model=Account, files=files)

        def check(self, files: SimFiles) -> None:
            with holdfast.open("other", files=files, clock=SimClock(), background=False) as store:
                if files.exists(Path("other/tables/Account/restoring.json")) or not store.tables():
                    restore_table(store, "kept/b.hftable", model=Account, files=files)
                check_restored(files, Path("other/tables/Account"))
                assert events(store.table(Account)) == expected

    assert crash_points(Restoring, files=lambda seed: SimFiles.holding({"kept/b.hftable": raw}, seed)) > 50


def test_wherever_a_backup_is_cut_off_the_file_is_whole_or_the_old_one(
    table: Table[Account], saved: BackupReport, files: SimFiles
) -> None:
    old = bytes(files.content(saved.path))
    table.add(Account(name="later"))

    class BackingUp:
        def run(self, files: SimFiles) -> None:
            backup_table(table, "kept/b.hftable", files=files)

        def check(self, files: SimFiles) -> None:
            assert verify_backup("kept/b.hftable", files=files).events in (10, 11)

    assert crash_points(BackingUp, files=lambda seed: SimFiles.holding({"kept/b.hftable": old}, seed)) > 10


# Sealed ones


class Vault:
    """A store whose tables are opened with a keyring."""

    def __init__(self, path: Path, files: SimFiles, clock: SimClock) -> None:
        self.path = path
        self._clock = clock
        self._store = holdfast.open(path, files=files, clock=clock, background=False)
        self._state = open_state(files, path / "state", families=TABLE_FAMILIES)
        self._open: dict[str, Table[Any]] = {}

    def tables(self) -> list[str]:
        return list(self._open)

    def table(self, model: type[Any], *, keyring: Keyring | None = None, **settings: bool) -> Table[Any]:
        log = self._store.log(model.__name__, flush=Flush.sync())
        engine: TableEngine[Any] = TableEngine(
            model,
            TableSettings(**settings),
            log,
            self._state,
            HybridLogicalClock(self._clock),
            clock=self._clock,
            images=images_of(model, keyring),
        )
        check_tokens(engine, keyring)
        self._open[engine.name] = Table(engine)
        return self._open[engine.name]


class Login(Model, id=9):
    name: str = field(1)
    token: str | None = field(2, sensitive=True, unique=True, default=None)


def test_what_is_sealed_stays_sealed_in_a_backup_and_opens_with_the_keyring(files: SimFiles, clock: SimClock) -> None:
    keyring = Keyring.generate("2026a")
    first, second = Vault(Path("first"), files, clock), Vault(Path("second"), files, clock)
    key = first.table(Login, keyring=keyring).add(Login(name="Ann", token="hunter2-hunter2")).key
    report = backup_table(first.table(Login, keyring=keyring), "first/b.hftable", files=files)
    assert b"hunter2" not in files.content(report.path)
    with pytest.raises(InvalidArgument, match="keyring="):
        restore_table(second, report.path, model=Login, files=files)
    with pytest.raises(KeyMissing):
        restore_table(second, report.path, model=Login, keyring=Keyring.generate("other"), files=files)
    restore_table(second, report.path, model=Login, keyring=keyring, files=files)
    restored = second.table(Login, keyring=keyring)
    found = restored.get(key)
    assert found is not None
    assert found.value.token == "hunter2-hunter2"
    with pytest.raises(ValidationFailed):
        restored.add(Login(name="Bob", token="hunter2-hunter2"))
