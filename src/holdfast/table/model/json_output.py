"""JSON form of records and their versions: the same on the command line and over HTTP."""

import json
import math
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from holdfast.base.hlc import time_of
from holdfast.table.model.json_codec import TYPE
from holdfast.table.model.model import Model, text_of_key
from holdfast.table.query.change_history import RecordChanges
from holdfast.table.record import Record

__all__ = ["changes_json", "json_of", "record_json", "time_json"]


def json_of(value: Any) -> Any:
    """Return a value in JSON form, by its Python type; the same as `Model.to_json` writes."""
    match value:
        case Model():
            written = json.loads(value.to_json())
            # Models with a tag are used in unions, where JSON must name the model.
            return {TYPE: value.__spec__.name, **written} if value.__spec__.tag is not None else written
        case Enum():
            return value.value
        case bytes():
            return text_of_key(value)
        case float() if not math.isfinite(value):
            return str(value)
        case Decimal() | UUID():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case set() | frozenset():
            return sorted((json_of(item) for item in value), key=lambda item: (isinstance(item, str), item))
        case list() | tuple():
            return [json_of(item) for item in value]
        case dict():
            return {key if isinstance(key, str) else _key_json(key): json_of(item) for key, item in value.items()}
    return msgspec.to_builtins(value)


def _key_json(key: Any) -> str:
    written = json_of(key)
    return written if isinstance(written, str) else json.dumps(written)


def time_json(version: int) -> str:
    """Return when a version was issued, in ISO format."""
    return time_of(version).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def record_json(record: Record[Any]) -> dict[str, Any]:
    """Return a record in the form of `--json`."""
    return {
        "key": text_of_key(record.key),
        "version": record.version,
        "version_time": time_json(record.version),
        "created": record.created,
        "created_time": time_json(record.created),
        "deleted": record.deleted,
        "value": json_of(record.value),
    }


def changes_json(changes: RecordChanges) -> dict[str, Any]:
    """Return the changes of a record in the form of `--json`."""
    return {
        "key": text_of_key(changes.key),
        "created": changes.created,
        "created_time": time_json(changes.created),
        "versions": [
            {
                "version": one.version,
                "version_time": time_json(one.version),
                "kind": one.kind,
                "values": {path: json_of(value) for path, value in one.values.items()},
            }
            for one in changes.versions
        ],
    }
