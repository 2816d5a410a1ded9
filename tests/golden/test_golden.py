"""Format version 1 is read for ever, byte for byte as it was written."""

import json
import shutil
from pathlib import Path

import pytest

import holdfast
from holdfast.log.block import open_block
from holdfast.log.layout import HEADER_SIZE, parse_block_header, parse_segment_header
from tests.golden.files import V1, golden_records
from tests.golden.make_v1 import every_column


@pytest.mark.parametrize("name", golden_records())
def test_version_1_logs_are_read_as_they_were_written(name: str) -> None:
    with holdfast.open(V1 / "store", read_only=True) as store:
        log = store.log(name)
        assert list(log.read()) == golden_records()[name]
        assert list(log.read(reverse=True)) == golden_records()[name][::-1]
        assert log.verify().ok


def test_a_version_1_store_can_be_written_on(tmp_path: Path) -> None:
    shutil.copytree(V1 / "store", tmp_path / "store")
    with holdfast.open(tmp_path / "store") as store:
        log = store.log("plain")
        assert log.append(b"new") == len(golden_records()["plain"])
        assert [record.payload for record in log.tailer("audit")][-1] == b"new"
        assert log.tailer("audit").position == 0


def test_every_column_of_version_1_is_read() -> None:
    raw = (V1 / "columns.data").read_bytes()
    segment = parse_segment_header(raw, "columns.data")
    assert segment is not None
    assert (segment.segment_id, segment.log_id, segment.base, segment.created) == (42, bytes(range(16)), 7, 999)
    header = parse_block_header(raw, HEADER_SIZE, HEADER_SIZE, len(raw))
    assert header is not None
    block = open_block(memoryview(raw), header)
    assert block.payloads() == [b"first", b"", b"third"]
    assert block.timestamps() == [1_000, 2_000, 2_000]
    assert block.byte_strings("key") == [b"key", b"", None]
    assert block.byte_strings("dedup") == [b"order-17", None, None]
    assert [dict(row) for row in block.headers()] == [{"text": "grüß", "bytes": b"\x00\xff"}, {}, {"": ""}]
    for name, values in {
        "expiry": [0, 5_000_000_000, 0],
        "priority": [9, 0, 1],
        "due": [0, 0, 3_000],
        "producer": [2**64 - 1, 1, 0],
        "number": [1, 2, 0],
    }.items():
        column = block.numbers(name)
        assert column is not None
        assert column.tolist() == values
    assert block.to_arrow().column("payload").to_pylist() == [b"first", b"", b"third"]


def test_version_1_is_still_written_the_same() -> None:
    assert every_column() == (V1 / "columns.data").read_bytes()
    assert json.loads((V1 / "expected.json").read_text()).keys() == {"plain", "gzip", "zstd", "lz4"}
