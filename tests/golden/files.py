"""The golden files of each format version, and what must be read from them."""

import json
from functools import cache
from pathlib import Path

from holdfast import Record
from holdfast.log.record import HeaderValue

V1 = Path(__file__).parent / "v1"
PLAIN = "store/logs/plain/2026/01/01/20260101-0001.data"


@cache
def golden_store() -> dict[str, bytes]:
    """Every file of the golden store, by its path."""
    return {str(path.relative_to(V1)): path.read_bytes() for path in (V1 / "store").rglob("*") if path.is_file()}


@cache
def golden_records() -> dict[str, list[Record]]:
    """The records of each golden log."""
    return {
        name: [
            Record(
                row["sequence"],
                row["timestamp"],
                None if row["key"] is None else bytes.fromhex(row["key"]),
                {key: _value(value) for key, value in row["headers"].items()},
                bytes.fromhex(row["payload"]),
            )
            for row in rows
        ]
        for name, rows in json.loads((V1 / "expected.json").read_text()).items()
    }


def _value(value: str | list[str]) -> HeaderValue:
    return value if isinstance(value, str) else bytes.fromhex(value[0])
