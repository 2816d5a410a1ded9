"""What is sensitive is sealed on disk, opens only where it belongs, and stays unique; keys can be rotated."""

import builtins
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Corrupt, Flush, InvalidArgument, NotFound, Store
from holdfast.base.errors import StorageError
from holdfast.base.hlc import HybridLogicalClock
from holdfast.state import TABLE_FAMILIES, State, open_state
from holdfast.table import Add, Change, InvalidModel, Model, ValidationFailed, field
from holdfast.table.engine import TableEngine
from holdfast.table.model.indexes import Index
from holdfast.table.query.planner import TableScanRefused
from holdfast.table.settings import TableSettings
from holdfast.table.storage.field_encryption import (
    SealBroken,
    check_tokens,
    images_of,
    keys_used,
    open_image,
    reseal,
    sealed_images,
)
from holdfast.table.storage.keyring import EncryptionMissing, KeyMissing, Keyring
from holdfast.table.storage.row_codec import decode_event, plain_images
from holdfast.table.table import Table
from holdfast.testing import SimClock, SimFiles
from tests.table.internals import view_of

SECRET = "hunter2-hunter2"


class Doctor(Model):
    name: str = field(1)


class Patient(Model, id=31):
    name: str = field(1)
    diagnosis: str | None = field(2, sensitive=True, default=None)
    number: str | None = field(3, sensitive=True, unique=True, default=None)
    seen: list[datetime] = field(4, sensitive=True, default_factory=list)
    doctor: Doctor | None = field(5, sensitive=True, default=None)
    room: str | None = field(6, unique=True, default=None)


@pytest.fixture
def keyring() -> Keyring:
    return Keyring.generate("2026a")


class Ward:
    """A table that is opened again and again, on the same log and state."""

    def __init__(self, store: Store, clock: SimClock) -> None:
        self.clock = clock
        self.log = store.log("patients", flush=Flush.sync())
        self.state: State = open_state(SimFiles(), Path("state"), families=TABLE_FAMILIES)

    def open(self, keyring: Keyring | None, model: type[Any] = Patient, **settings: bool) -> Table[Any]:
        engine: TableEngine[Any] = TableEngine(
            model,
            TableSettings(**settings),
            self.log,
            self.state,
            HybridLogicalClock(self.clock),
            clock=self.clock,
            images=images_of(model, keyring),
        )
        check_tokens(engine, keyring)
        return Table(engine)

    def bytes(self) -> bytes:
        """All that somebody finds who can read the disk."""
        return b"".join(record.payload for record in self.log.read()) + b"".join(
            key + value for family in TABLE_FAMILIES for key, value in self.state.scan(family)
        )


@pytest.fixture
def ward(store: Store, clock: SimClock) -> Ward:
    return Ward(store, clock)


# Keyrings


def test_a_saved_keyring_opens_what_it_sealed(tmp_path: Path, keyring: Keyring) -> None:
    keyring.save(tmp_path / "keys.json")
    image = sealed_images(Patient, keyring).encode(b"k", Patient(name="Ann", diagnosis=SECRET))
    loaded = Keyring.load(tmp_path / "keys.json")
    assert open_image(Patient, loaded, b"k", image).diagnosis == SECRET
    assert loaded.token_key == keyring.token_key


def test_only_its_owner_can_read_a_saved_keyring(tmp_path: Path, keyring: Keyring) -> None:
    file = tmp_path / "keys.json"
    keyring.save(file)
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    with pytest.raises(StorageError, match="chmod 600"):
        Keyring.load(file)


def test_a_saved_keyring_stays_private_when_it_replaces_one_that_was_not(tmp_path: Path, keyring: Keyring) -> None:
    file = tmp_path / "keys.json"
    keyring.save(file)
    file.chmod(0o644)
    keyring.save(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"keys.json", "keys.json.lock"}


def test_saving_over_another_keyring_is_refused_unless_it_is_said(tmp_path: Path, keyring: Keyring) -> None:
    file = tmp_path / "keys.json"
    keyring.save(file)
    other = Keyring.generate("2026a")
    with pytest.raises(InvalidArgument, match=r"'2026a', its token_key.*overwrite=True"):
        other.save(file)
    assert Keyring.load(file).token_key == keyring.token_key
    other.save(file, overwrite=True)
    assert Keyring.load(file).token_key == other.token_key


def test_saving_over_what_is_no_keyring_is_refused_unless_it_is_said(tmp_path: Path, keyring: Keyring) -> None:
    file = tmp_path / "keys.json"
    file.write_text("{}")
    with pytest.raises(InvalidArgument, match="not a keyring"):
        keyring.save(file)
    assert file.read_text() == "{}"
    keyring.save(file, overwrite=True)
    assert Keyring.load(file).names == keyring.names


def test_saving_again_what_has_more_keys_than_the_file_is_no_overwriting(tmp_path: Path, keyring: Keyring) -> None:
    file = tmp_path / "keys.json"
    keyring.save(file)
    keyring.save(tmp_path / "copy.json")
    keyring.rotate("2026b")
    keyring.save(file)
    assert Keyring.load(file).names == ("2026a", "2026b")


def test_two_keyrings_of_one_file_keep_each_others_keys(tmp_path: Path, keyring: Keyring) -> None:
    file = tmp_path / "keys.json"
    keyring.save(file)
    one, other = Keyring.load(file), Keyring.load(file)
    one.rotate("2026b")
    other.rotate("2026c")
    one.rotate_tokens()
    other.drop("2026a")
    kept = Keyring.load(file)
    assert (kept.current, kept.names) == ("2026c", ("2026b", "2026c"))
    assert kept.token_key == one.token_key == other.token_key != keyring.token_key


def test_processes_that_rotate_at_once_lose_no_key(tmp_path: Path, keyring: Keyring) -> None:
    file = tmp_path / "keys.json"
    keyring.save(file)
    code = (
        "import sys; from holdfast.table.storage.keyring import Keyring; ring = Keyring.load(sys.argv[1])\n"
        "for n in range(20): ring.rotate(f'{sys.argv[2]}{n}')"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(file), who]) for who in "ab"]
    assert [one.wait(60) for one in running] == [0, 0]
    assert set(Keyring.load(file).names) == {"2026a", *(f"{who}{n}" for who in "ab" for n in range(20))}


def test_what_another_keyring_made_current_is_not_dropped(tmp_path: Path, keyring: Keyring) -> None:
    file = tmp_path / "keys.json"
    keyring.save(file)
    other = Keyring.load(file)
    keyring.rotate("2026b")
    with pytest.raises(InvalidArgument, match="rotate first"):
        other.drop("2026b")
    assert "2026b" in Keyring.load(file)


def test_a_keyring_whose_file_was_replaced_changes_nothing_in_it(tmp_path: Path, keyring: Keyring) -> None:
    file = tmp_path / "keys.json"
    keyring.save(file)
    replacing = Keyring.generate("2026a")
    replacing.save(file, overwrite=True)
    for change in (lambda: keyring.rotate("2026b"), keyring.rotate_tokens, lambda: keyring.drop("2026b")):
        with pytest.raises(InvalidArgument, match="was replaced"):
            change()
    assert Keyring.load(file).token_key == replacing.token_key
    assert keyring.names == ("2026a",)


def test_a_new_key_is_on_disk_before_it_seals(tmp_path: Path, keyring: Keyring) -> None:
    keyring.save(tmp_path / "keys.json")
    keyring.rotate("2026b")
    again = Keyring.load(tmp_path / "keys.json")
    assert (again.current, again.names) == ("2026b", ("2026a", "2026b"))


def test_a_key_that_cannot_be_saved_does_not_become_current(tmp_path: Path, keyring: Keyring) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    keyring.save(folder / "keys.json")
    shutil.rmtree(folder)
    with pytest.raises(StorageError):
        keyring.rotate("2026b")
    assert (keyring.current, keyring.names) == ("2026a", ("2026a",))


def test_rotating_without_a_name_gives_each_key_one_of_its_own() -> None:
    keyring = Keyring.generate()
    assert len({keyring.current, keyring.rotate(), keyring.rotate()}) == 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"keys": {"a": b"short"}, "current": "a", "token_key": bytes(32)}, "32 random bytes"),
        ({"keys": {"a": bytes(32)}, "current": "b", "token_key": bytes(32)}, "'b' is not in the keyring"),
        ({"keys": {"a b": bytes(32)}, "current": "a b", "token_key": bytes(32)}, "visible ASCII"),
        ({"keys": {"a": bytes(32)}, "current": "a", "token_key": b""}, "token_key"),
    ],
)
def test_a_keyring_refuses_what_cannot_be(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        Keyring(**given)


def test_the_current_key_cannot_be_dropped(keyring: Keyring) -> None:
    with pytest.raises(InvalidArgument, match="rotate first"):
        keyring.drop("2026a")


def test_a_file_that_is_no_keyring_is_told(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.touch(mode=0o600)
    file.write_text('{"format": 1, "keys": {"a": "c2VjcmV0"}, "current": "a", "token_key": "!"}')
    with pytest.raises(Corrupt, match="not a keyring") as caught:
        Keyring.load(file)
    assert "c2VjcmV0" not in str(caught.value)
    with pytest.raises(NotFound, match=r"Keyring\.generate"):
        Keyring.load(tmp_path / "other.json")


def test_keys_are_neither_shown_nor_pickled(keyring: Keyring) -> None:
    assert keyring.token_key.hex() not in repr(keyring)
    assert "2026a" in repr(keyring)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(keyring)


def test_without_the_package_that_encrypts_one_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, keyring: Keyring
) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(EncryptionMissing, match=r"holdfast\[encryption\]"):
        sealed_images(Patient, keyring)


def test_tables_do_not_load_the_package_that_encrypts() -> None:
    modules = "holdfast.table.storage.field_encryption, holdfast.table.storage.keyring"
    code = f"import sys, {modules}; print('cryptography' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "False"


# Images


def test_a_sealed_record_comes_back_as_it_was(keyring: Keyring) -> None:
    patient = Patient(
        name="Ann",
        diagnosis=SECRET,
        number="A-1",
        seen=[datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)],
        doctor=Doctor(name="Who"),
    )
    images = sealed_images(Patient, keyring)
    assert images.decode(b"k", images.encode(b"k", patient)) == patient


@given(diagnosis=st.text() | st.none(), name=st.text(), key=st.binary(min_size=1, max_size=20))
def test_whatever_is_sealed_opens(diagnosis: str | None, name: str, key: bytes) -> None:
    images = sealed_images(Patient, RING)
    patient = Patient(name=name, diagnosis=diagnosis)
    assert images.decode(key, images.encode(key, patient)) == patient


RING = Keyring.generate("ring")


def test_only_what_is_sensitive_is_sealed(keyring: Keyring) -> None:
    image = sealed_images(Patient, keyring).encode(b"k", Patient(name="Ann", diagnosis=SECRET))
    values = msgspec.msgpack.decode(image)
    assert values["1"] == "Ann"
    assert (type(values["2"]), values["2"].code) == (msgspec.msgpack.Ext, 1)
    assert bytes(values["2"].data).startswith(b"\x01\x052026a")
    assert "3" not in values  # absent stays absent
    assert SECRET.encode() not in image


def test_no_two_images_of_the_same_record_are_the_same(keyring: Keyring) -> None:
    images = sealed_images(Patient, keyring)
    patient = Patient(name="Ann", diagnosis=SECRET)
    assert images.encode(b"k", patient) != images.encode(b"k", patient)


def test_a_value_that_is_moved_to_another_record_does_not_open(keyring: Keyring) -> None:
    images = sealed_images(Patient, keyring)
    image = images.encode(b"one", Patient(name="Ann", diagnosis=SECRET))
    with pytest.raises(SealBroken, match="field 'diagnosis' of Patient dHdv"):
        images.decode(b"two", image)


def test_a_value_that_is_moved_to_another_field_does_not_open(keyring: Keyring) -> None:
    images = sealed_images(Patient, keyring)
    values = msgspec.msgpack.decode(images.encode(b"k", Patient(name="Ann", diagnosis=SECRET)))
    values["3"] = values.pop("2")
    with pytest.raises(SealBroken, match="'number'"):
        images.decode(b"k", msgspec.msgpack.encode(values))


def test_a_value_that_is_moved_to_another_model_does_not_open(keyring: Keyring) -> None:
    class Stranger(Model, id=32):
        name: str = field(1)
        diagnosis: str | None = field(2, sensitive=True, default=None)

    image = sealed_images(Patient, keyring).encode(b"k", Patient(name="Ann", diagnosis=SECRET))
    with pytest.raises(SealBroken):
        sealed_images(Stranger, keyring).decode(b"k", image)


@pytest.mark.parametrize("place", ["nonce", "ciphertext", "tag", "version", "short"])
def test_a_value_that_was_changed_does_not_open(keyring: Keyring, place: str) -> None:
    images = sealed_images(Patient, keyring)
    values = msgspec.msgpack.decode(images.encode(b"k", Patient(name="Ann", diagnosis=SECRET)))
    data = bytearray(values["2"].data)
    if place == "short":
        del data[20:]
    else:
        data[{"version": 0, "nonce": 8, "ciphertext": 22, "tag": -1}[place]] ^= 1
    values["2"] = msgspec.msgpack.Ext(1, bytes(data))
    with pytest.raises(SealBroken, match="diagnosis"):
        images.decode(b"k", msgspec.msgpack.encode(values))


def test_without_the_key_that_sealed_it_a_value_cannot_be_read(keyring: Keyring) -> None:
    image = sealed_images(Patient, keyring).encode(b"k", Patient(name="Ann", diagnosis=SECRET))
    with pytest.raises(KeyMissing, match=r"'diagnosis'.*'2026a'.*it has: 'other'"):
        sealed_images(Patient, Keyring.generate("other")).decode(b"k", image)


def test_after_a_rotation_old_and_new_values_open(keyring: Keyring) -> None:
    images = sealed_images(Patient, keyring)
    patient = Patient(name="Ann", diagnosis=SECRET)
    old = images.encode(b"k", patient)
    keyring.rotate("2026b")
    new = images.encode(b"k", patient)
    assert b"2026a" in old
    assert b"2026b" in new
    assert images.decode(b"k", old) == images.decode(b"k", new) == patient


def test_a_value_stored_before_its_field_was_sensitive_is_read_only_if_that_is_allowed(keyring: Keyring) -> None:
    plain = Patient(name="Ann", diagnosis=SECRET).encode()
    with pytest.raises(SealBroken, match="not sealed"):
        sealed_images(Patient, keyring).decode(b"k", plain)
    accepting = sealed_images(Patient, keyring, accept_unsealed=True)
    assert accepting.decode(b"k", plain).diagnosis == SECRET


def test_a_value_sealed_before_its_field_was_plain_still_opens(keyring: Keyring) -> None:
    image = sealed_images(Patient, keyring).encode(b"k", Patient(name="Ann", diagnosis=SECRET))
    opened = images_of(_patient_without_secrets(), keyring).decode(b"k", image)
    assert (opened.name, opened.diagnosis) == ("Ann", SECRET)


def _patient_without_secrets() -> type[Model]:
    class Patient(Model, id=31):
        name: str = field(1)
        diagnosis: str | None = field(2, default=None)

    return Patient


def test_those_who_have_no_keyring_see_all_but_what_is_sealed(keyring: Keyring) -> None:
    image = sealed_images(Patient, keyring).encode(b"k", Patient(name="Ann", diagnosis=SECRET, room="7"))
    shown = open_image(Patient, None, b"k", image)
    assert (shown.name, shown.room, shown.diagnosis) == ("Ann", "7", None)


def test_an_image_that_is_no_image_is_told(keyring: Keyring) -> None:
    with pytest.raises(Corrupt, match="cannot be decoded"):
        sealed_images(Patient, keyring).decode(b"k", b"\xc1garbage")


# Models


def test_a_model_with_sensitive_fields_needs_a_keyring() -> None:
    with pytest.raises(InvalidArgument, match=r"diagnosis.*keyring=Keyring.load"):
        images_of(Patient, None)


def test_a_model_without_them_is_as_fast_as_ever() -> None:
    images = images_of(Doctor, None)
    assert images.encode.__code__ is plain_images(Doctor).encode.__code__


def test_an_index_over_a_sensitive_field_is_refused() -> None:
    with pytest.raises(InvalidModel, match="sensitive"):

        class Indexed(Model, id=33):
            __indexes__ = (Index("diagnosis"),)
            diagnosis: str = field(1, sensitive=True)


def test_a_sensitive_field_of_an_embedded_model_is_refused_unless_all_of_it_is_sealed(keyring: Keyring) -> None:
    class Card(Model):
        pin: str = field(1, sensitive=True)

    class Wallet(Model):
        cards: list[Card] = field(1)

    class Loose(Model, id=34):
        wallet: Wallet = field(1)

    class Safe(Model, id=35):
        wallet: Wallet = field(1, sensitive=True)

    with pytest.raises(InvalidArgument, match=r"Loose.wallet embeds Card.pin.*sensitive=True for Loose.wallet"):
        images_of(Loose, keyring)
    images = images_of(Safe, keyring)
    safe = Safe(wallet=Wallet(cards=[Card(pin="1234")]))
    assert b"1234" not in images.encode(b"k", safe)
    assert images.decode(b"k", images.encode(b"k", safe)) == safe


# Tables


def test_nothing_sensitive_is_on_disk(ward: Ward, keyring: Keyring) -> None:
    table = ward.open(keyring, keep_all_versions=True, update_history=True)
    key = table.add(Patient(name="Ann", diagnosis=SECRET, number="NUMBER-1")).key
    table.change(key, {"diagnosis": SECRET + "!", "number": "NUMBER-2"})
    table.delete(key)
    stored = ward.bytes()
    assert b"Ann" in stored
    assert SECRET.encode() not in stored
    assert b"NUMBER" not in stored


def test_a_table_reads_now_and_then_and_after_reopening(ward: Ward, keyring: Keyring) -> None:
    table = ward.open(keyring, keep_all_versions=True)
    added = table.add(Patient(name="Ann", diagnosis="old"))
    table.change(added.key, {"diagnosis": "new"})
    for opened in (table, ward.open(keyring, keep_all_versions=True)):
        now, then = opened.get(added.key), opened.get(added.key, as_of=added.version)
        assert now is not None
        assert then is not None
        assert (now.value.diagnosis, then.value.diagnosis) == ("new", "old")


def test_a_change_to_what_is_there_already_changes_nothing(ward: Ward, keyring: Keyring) -> None:
    table = ward.open(keyring)
    key = table.add(Patient(name="Ann", diagnosis=SECRET)).key
    assert not table.change(key, {"diagnosis": SECRET}).changed
    assert len(list(ward.log.read())) == 1


def test_a_sealed_value_is_unique(ward: Ward, keyring: Keyring) -> None:
    table = ward.open(keyring)
    owner = table.add(Patient(name="Ann", number="A-1")).key
    with pytest.raises(ValidationFailed) as caught:
        table.add(Patient(name="Bob", number="A-1"))
    (violation,) = caught.value.violations
    assert (violation.path, violation.rule, violation.owner) == ("number", "unique", owner)
    table.change(owner, {"number": "A-2"})
    table.add(Patient(name="Bob", number="A-1"))


def test_a_unique_value_is_an_hmac_that_differs_by_field_and_key(keyring: Keyring) -> None:
    spec = Patient.__spec__
    token = sealed_images(Patient, keyring).unique(spec.fields["number"], "A-1")
    assert len(token) == 32
    assert token == sealed_images(Patient, keyring).unique(spec.fields["number"], "A-1")
    assert token != sealed_images(Patient, keyring).unique(spec.fields["diagnosis"], "A-1")
    assert token != sealed_images(Patient, Keyring.generate("x")).unique(spec.fields["number"], "A-1")
    plain = plain_images(Patient).unique(spec.fields["room"], "7")
    assert sealed_images(Patient, keyring).unique(spec.fields["room"], "7") == plain


def test_after_a_rotation_of_tokens_values_are_still_unique_and_old_tokens_are_gone(
    ward: Ward, keyring: Keyring
) -> None:
    table = ward.open(keyring, keep_all_versions=True)
    table.add(Patient(name="Ann", number="A-1"))
    gone = table.add(Patient(name="Cleo", number="C-1")).key
    table.delete(gone)
    old = [view_of(table).images.unique(Patient.__spec__.fields["number"], value) for value in ("A-1", "C-1")]
    assert all(token in ward.bytes() for token in old)
    keyring.rotate_tokens()
    with pytest.raises(ValidationFailed):  # the open table goes on with the key that it has
        table.add(Patient(name="Bob", number="A-1"))
    again = ward.open(keyring, keep_all_versions=True)
    assert not any(token in ward.bytes() for token in old)
    with pytest.raises(ValidationFailed):
        again.add(Patient(name="Bob", number="A-1"))
    again.add(Patient(name="Bob", number="C-1"))


def test_tokens_are_checked_once_for_each_key(ward: Ward, keyring: Keyring) -> None:
    table = ward.open(keyring)
    table.add(Patient(name="Ann", number="A-1"))
    assert not check_tokens(table.engine, keyring)
    keyring.rotate_tokens()
    again = TableEngine(
        Patient,
        TableSettings(),
        ward.log,
        ward.state,
        HybridLogicalClock(ward.clock),
        clock=ward.clock,
        images=images_of(Patient, keyring),
    )
    assert check_tokens(again, keyring)
    assert not check_tokens(again, keyring)


def test_a_wrong_keyring_is_refused_and_harms_nothing(ward: Ward, keyring: Keyring) -> None:
    key = ward.open(keyring).add(Patient(name="Ann", number="A-1")).key
    before = ward.bytes()
    with pytest.raises(KeyMissing, match="'2026a'"):
        ward.open(Keyring.generate("other"))
    assert ward.bytes() == before
    assert ward.open(keyring).get(key) is not None


# Resealing


@pytest.fixture
def sealed_twice(ward: Ward, keyring: Keyring) -> Iterator[tuple[Table[Any], list[bytes]]]:
    """Five records, the last two of which were sealed with a newer key."""
    table = ward.open(keyring, keep_all_versions=True)
    keys = [table.add(Patient(name=f"p{n}", diagnosis=f"d{n}", number=f"n{n}")).key for n in range(3)]
    keyring.rotate("2026b")
    keys += [table.add(Patient(name=f"p{n}", diagnosis=f"d{n}")).key for n in range(3, 5)]
    yield table, keys


def test_resealing_uses_the_current_key_and_changes_nothing_else(
    ward: Ward, keyring: Keyring, sealed_twice: tuple[Table[Any], list[bytes]]
) -> None:
    table, keys = sealed_twice
    before = table.get_many(keys)
    done: list[int] = []
    assert reseal(table, keyring, batch=2, progress=done.append) == 3
    assert done == [2, 3]
    assert table.get_many(keys) == before
    assert all(b"2026b" in (view_of(table).row(key) or pytest.fail("gone")).image for key in keys)
    assert reseal(table, keyring) == 0
    opened = ward.open(keyring, keep_all_versions=True)
    opened.rebuild()
    assert opened.get_many(keys) == before
    with pytest.raises(ValidationFailed):
        opened.add(Patient(name="Bob", number="n0"))


def test_resealing_leaves_what_is_softly_deleted_deleted(
    keyring: Keyring, sealed_twice: tuple[Table[Any], list[bytes]]
) -> None:
    table, keys = sealed_twice
    table.delete(keys[0])
    keyring.rotate("2026c")
    reseal(table, keyring)
    assert table.get(keys[0]) is None
    table.undelete(keys[0])
    found = table.get(keys[0])
    assert found is not None
    assert found.value.diagnosis == "d0"


def test_resealing_seals_what_was_stored_before_its_field_was_sensitive(ward: Ward, keyring: Keyring) -> None:
    plain = ward.open(None, _patient_without_secrets())
    key = plain.add({"name": "Ann", "diagnosis": SECRET}).key
    images = sealed_images(Patient, keyring, accept_unsealed=True)
    table = Table(
        TableEngine(
            Patient,
            TableSettings(),
            ward.log,
            ward.state,
            HybridLogicalClock(ward.clock),
            clock=ward.clock,
            images=images,
        )
    )
    assert reseal(table, keyring) == 1
    assert reseal(table, keyring) == 0
    assert SECRET.encode() not in (view_of(table).row(key) or pytest.fail("gone")).image
    found = table.get(key)
    assert found is not None
    assert found.value.diagnosis == SECRET


def test_the_log_still_needs_the_old_key_after_resealing(
    keyring: Keyring, sealed_twice: tuple[Table[Any], list[bytes]]
) -> None:
    table, keys = sealed_twice
    used = keys_used(table)
    assert used["2026a"] == sum(len(_sealed_fields(n)) for n in range(3))
    reseal(table, keyring)
    assert keys_used(table)["2026a"] == used["2026a"]
    keyring.drop("2026a")
    assert [record.value.diagnosis for record in table.get_many(keys)] == [f"d{n}" for n in range(5)]
    with pytest.raises(KeyMissing):
        table.rebuild()
    table.engine.state.cache.clear()
    assert [record.value.diagnosis for record in table.get_many(keys)] == [f"d{n}" for n in range(5)], "state is gone"


def _sealed_fields(n: int) -> list[str]:
    patient = Patient(name=f"p{n}", diagnosis=f"d{n}", number=f"n{n}")
    return [
        name for name, spec in Patient.__spec__.fields.items() if spec.sensitive and getattr(patient, name) is not None
    ]


def test_those_who_read_the_log_can_open_its_images(ward: Ward, keyring: Keyring) -> None:
    key = ward.open(keyring).add(Patient(name="Ann", diagnosis=SECRET)).key
    (record,) = ward.log.read()
    assert record.key == key
    assert open_image(Patient, keyring, key, decode_event(record.payload).image).diagnosis == SECRET


def test_a_value_that_is_moved_between_rows_of_the_state_does_not_open(ward: Ward, keyring: Keyring) -> None:
    table = ward.open(keyring)
    one = table.add(Patient(name="Ann", diagnosis=SECRET)).key
    two = table.add(Patient(name="Bob", diagnosis="-")).key
    batch = ward.state.transaction()
    stolen = ward.state.get("table", view_of(table).prefix + one)
    assert stolen is not None
    batch.put("table", view_of(table).prefix + two, stolen)
    batch.commit()
    with pytest.raises(SealBroken):
        table.get(two)


class Vault(Model, id=34):
    name: str = field(1)
    code: str = field(2, sensitive=True, unique=True, final=True)
    pin: str | None = field(3, sensitive=True, default=None)
    notes: dict[str, str] = field(4, sensitive=True, default_factory=dict)


def test_what_is_said_of_sensitive_values_does_not_show_them(store: Store, keyring: Keyring) -> None:
    vaults: Any = store.table(Vault, keyring=keyring, keep_all_versions=True)
    paths: Any = Vault
    key = vaults.add(Vault(name="A", code=SECRET, pin=SECRET, notes={SECRET: SECRET})).key
    watcher = vaults.watch(include_initial=False)
    vaults.change(key, {"pin": SECRET[1:], paths.notes[SECRET]: None, paths.notes[SECRET[1:]]: SECRET})
    said: list[str] = [repr(watcher.poll()), repr(vaults.changes([key], max_versions=9))]
    for failed in vaults.write(
        [
            Add(Vault(name="B", code=SECRET)),
            Change(key, {"code": SECRET[1:]}),
            Change(key, {"name": "C"}, check={"pin": "wrong"}),
            Change(key, {paths.notes[SECRET]: 5}),
        ]
    ):
        assert isinstance(failed, ValidationFailed)
        said += [str(failed), repr(failed.violations)]
    for where in (
        paths.pin == SECRET,
        paths.pin.isin([SECRET]) & (paths.name == "A"),
        paths.pin.between(SECRET, SECRET) | paths.pin.prefix(SECRET),
        paths.notes[SECRET] == SECRET,
        paths.notes.contains(SECRET),
        paths.pin.regex(SECRET),
    ):
        with pytest.raises(TableScanRefused) as refused:
            vaults.scan(where)
        said += [str(refused.value), repr(where)]
        assert "Index(" not in said[-2] or "name" in said[-2]
    scan = vaults.scan(paths.code == SECRET)
    said += [scan.explain(), repr(scan.plan.describe()), repr(scan.plan)]
    with pytest.raises(InvalidArgument) as invalid:
        paths.pin.between(SECRET.encode(), SECRET.encode())
    said.append(str(invalid.value))
    assert not [text for text in said if SECRET[1:] in text]
    assert scan.first().pin == SECRET[1:]
