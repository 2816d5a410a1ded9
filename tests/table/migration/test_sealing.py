"""A field becomes sensitive: what is written from then on is sealed, and what the log has from before is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.table import Keyring, Model, SealBroken, ValidationFailed, backup_table, each_row, field, restore_table
from holdfast.table.migration import Migration, MigrationFailed
from holdfast.table.storage.row_codec import decode_event
from tests.table.internals import view_of
from tests.table.migration.opening import Opened

Open = Callable[..., Opened]
RING = Keyring.generate("2026a")


def patient_1() -> Any:
    class Patient(Model, id=7, version="1"):
        name: str = field(1)
        ssn: str | None = field(2)

    return Patient


def patient_2(*, unique: bool = False) -> Any:
    class Patient(Model, id=7, version="2"):
        name: str = field(1)
        ssn: str | None = field(2, sensitive=True, unique=unique)

    return Patient


def patient_3() -> Any:
    class Patient(Model, id=7, version="3"):
        name: str = field(1)
        ssn: str | None = field(2, sensitive=True)
        room: str | None = field(3, sensitive=True)

    return Patient


def anew(found: Any) -> Any:
    return found.new


def admitted(hf: Opened, *, history: bool) -> tuple[bytes, int]:
    """A table of two patients, before anything was sensitive: the key of one, and its first version."""
    table = hf.table(patient_1(), keep_all_versions=history)
    ada = table.add({"name": "Ada", "ssn": "111"})
    table.add({"name": "Bob", "ssn": "222"})
    table.change(ada.key, {"ssn": "333"})
    return ada.key, ada.version


def images(hf: Opened) -> bytes:
    return b"".join(value for _, _, value in hf.entries("table"))


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("history", [False, True])
def test_a_field_becomes_sensitive(opened: Open, history: bool, unique: bool) -> None:
    key, then = admitted(opened(), history=history)
    Patient = patient_2(unique=unique)
    hf = opened()
    table = hf.table(Patient, keyring=RING, migration=Migration(backfill=each_row(anew)))
    assert b"333" not in images(hf) and b"222" not in images(hf)
    for _ in ("migrated", "rebuilt", "opened again"):
        assert table.get(key).ssn == "333"
        assert table.changes([key])[0].versions[-1].kind == "change"
        if history:
            assert table.get(key, as_of=then).ssn == "111"
            assert [row.ssn for row in table.scan(as_of=then)] == ["111"]
        if unique:
            assert table.scan(Patient.ssn == "222").first().name == "Bob"
            with pytest.raises(ValidationFailed):
                table.add(Patient(name="Eve", ssn="222"))
        before = hf.entries("table", "unique", "historic_unique", "index", "historic_index")
        table.rebuild()
        assert hf.entries("table", "unique", "historic_unique", "index", "historic_index") == before
        hf = opened()
        table = hf.table(Patient, keyring=RING)
    table.delete(key, hard=True)
    assert table.get(key) is None


def test_the_old_values_are_those_of_the_old_model(opened: Open) -> None:
    key, _ = admitted(opened(), history=False)
    Patient = patient_2()
    seen: list[str] = []

    def copied(found: Any) -> Any:
        seen.append(found.old.ssn)
        return Patient(name=found.old.name, ssn=found.old.ssn)

    table = opened().table(Patient, keyring=RING, migration=Migration(backfill=each_row(copied)))
    assert sorted(seen) == ["222", "333"] and table.get(key).ssn == "333"


def test_a_migration_to_a_sensitive_field_goes_on_where_it_failed(opened: Open) -> None:
    key, _ = admitted(opened(), history=True)
    Patient = patient_2(unique=True)

    def failing(step: Any) -> Any:
        raise MigrationFailed("not now")

    with pytest.raises(MigrationFailed, match="not now"):
        opened().table(Patient, keyring=RING, migration=Migration(backfill=each_row(anew), verify=failing))
    table = opened().table(Patient, keyring=RING, migration=Migration(backfill=each_row(anew)))
    assert table.get(key).ssn == "333"
    assert table.scan(Patient.ssn == "222").first().name == "Bob"


def test_tokens_rotated_in_the_middle_of_a_migration_leave_no_value_unguarded(opened: Open) -> None:
    admitted(opened(), history=False)
    Patient = patient_2(unique=True)
    ring = Keyring.generate("2026a")

    def failing(step: Any) -> Any:
        raise MigrationFailed("not now")

    with pytest.raises(MigrationFailed):
        opened().table(Patient, keyring=ring, migration=Migration(backfill=each_row(anew), verify=failing))
    ring.rotate_tokens()
    table = opened().table(Patient, keyring=ring, migration=Migration(backfill=each_row(anew)))
    with pytest.raises(ValidationFailed):
        table.add(Patient(name="Eve", ssn="222"))


def test_a_later_migration_still_reads_what_was_legible_once(opened: Open) -> None:
    key, then = admitted(opened(), history=True)
    opened().table(patient_2(), keyring=RING, migration=Migration(backfill=each_row(anew)))
    hf = opened()
    table = hf.table(patient_3(), keyring=RING)
    assert hf.meta("Patient")["unsealed"] == [2]
    assert table.get(key, as_of=then).ssn == "111"


def test_what_was_never_legible_is_still_refused_unsealed(opened: Open) -> None:
    admitted(opened(), history=False)
    opened().table(patient_2(), keyring=RING, migration=Migration(backfill=each_row(anew)))
    table = opened().table(patient_3(), keyring=RING)
    forged = patient_3()(name="Eve", room="7").encode()
    with pytest.raises(SealBroken, match="'room'"):
        view_of(table).images.decode(b"k", forged)


def test_a_backup_of_it_is_restored_with_its_legible_past(opened: Open, tmp_path: Path) -> None:
    key, then = admitted(opened(), history=True)
    Patient = patient_2(unique=True)
    table = opened().table(Patient, keyring=RING, migration=Migration(backfill=each_row(anew)))
    assert any(b"111" in decode_event(record.payload).image for record in table.log.read())
    backup_table(table, tmp_path / "full.hftable")
    with Opened(tmp_path / "other") as other:
        restore_table(other, tmp_path / "full.hftable", model=Patient, keyring=RING)
        assert other.table(Patient).get(key, as_of=then).ssn == "111"
    with Opened(tmp_path / "other") as other:
        assert other.table(Patient, keyring=RING).get(key).ssn == "333"
