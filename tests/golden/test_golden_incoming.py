"""Batches that were handed in by version 1 are taken over for ever."""

import json
import shutil
from pathlib import Path

import holdfast
from holdfast.base.checked_json import decode_checked, has_checksum
from tests.golden.files import V1
from tests.golden.make_incoming_v1 import STORE, make


def test_version_1_batches_are_taken_over(tmp_path: Path) -> None:
    shutil.copytree(V1 / "incoming", tmp_path / "store")
    with holdfast.open(tmp_path / "store", background=False) as store:
        assert store.adopt() == 2
        records = list(store.log("events").read())
    # Of the batch that was done only the key is left: its records were in a log that this store does not have.
    assert [record.payload for record in records] == [b"adopting", b"", b"waiting", b"with key", b"with header"]
    assert records[3].key == b"k"
    assert dict(records[4].headers) == {"text": "grüß", "raw": b"\xff"}
    assert not list((tmp_path / "store" / "incoming" / "parts").iterdir())


def test_version_1_is_still_written_the_same() -> None:
    kept = {str(STORE / path.relative_to(V1 / "incoming")): path for path in (V1 / "incoming").rglob("*.*")}
    made = make()
    assert made.keys() == kept.keys()
    for name, path in kept.items():
        if path.suffix == ".json":  # which have got a checksum since
            assert has_checksum(made[name])
            assert decode_checked(made[name]) == json.loads(path.read_bytes())
        else:
            assert made[name] == path.read_bytes()
