"""`schema.json` in the folder of a log: all versions of its schema, which never change, and their rules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.base.checked_json import read_checked, replace_checked
from holdfast.base.errors import Corrupt, NewerFormat, raised_by_handler
from holdfast.base.files import Files
from holdfast.schemas.payload_schema import PayloadSchema, SchemaVersion

__all__ = ["SCHEMA_FILE", "keep_schemas", "read_schemas"]

SCHEMA_FILE = "schema.json"
_FORMAT = 1


def read_schemas(files: Files, folder: Path) -> list[SchemaVersion]:
    """Return the versions of a log's schema, oldest first; none if it has no schema.

    All have the compatibility and `validate` that were set last. Raises `Corrupt` if the file is damaged, and
    `NewerFormat` if a newer version wrote it.
    """
    path = folder / SCHEMA_FILE
    try:
        content = read_checked(files, path)
        if content["format"] != _FORMAT:
            raise NewerFormat(f"{str(path)!r} was written by a newer Holdfast: update this one")
        return [_version(content, number, one) for number, one in enumerate(content["versions"], 1)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if raised_by_handler(error):
            raise
        raise Corrupt(
            f"{str(path)!r}, with the schemas of the log, is damaged ({error}): restore it from a backup, or delete it "
            "and set the schemas again. The records of the log are not affected",
            str(path),
        ) from error


def keep_schemas(files: Files, folder: Path, versions: Sequence[SchemaVersion]) -> None:
    """Write `schema.json`, durably."""
    newest = versions[-1].schema
    content = {
        "format": _FORMAT,
        "type": newest.format,
        "compatibility": newest.compatibility,
        "validate": newest.validate,
        "versions": [_json(one) for one in versions],
    }
    replace_checked(files, folder / SCHEMA_FILE, content)


def _json(version: SchemaVersion) -> dict[str, Any]:
    found: dict[str, Any] = {"text": version.schema.text, "created": version.created, "since": version.since}
    if version.schema.message is not None:
        found["message"] = version.schema.message
    return found


def _version(content: dict[str, Any], number: int, one: dict[str, Any]) -> SchemaVersion:
    schema = PayloadSchema(
        content["type"], one["text"], one.get("message"), content["compatibility"], content["validate"]
    )
    return SchemaVersion(number, schema, int(one["created"]), int(one["since"]))
