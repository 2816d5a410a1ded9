"""Schemas of request fields, described once: for OpenAPI, and to reject unknown fields.

An unknown field is an error: else `dryrun` instead of `dry_run` would perform what was meant as a preview.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.base.errors import InvalidArgument

__all__ = ["BYTES", "FLAG", "NUMBER", "TEXT", "WHOLE", "body", "check_body", "check_query", "said"]

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
BYTES: Schema = {"description": 'Text, or {"base64": "..."} for any bytes.'}


def said(schema: Schema, description: str) -> Schema:
    """Return a schema with a description added."""
    return {**schema, "description": description}


def body(*required: str, **fields: Schema) -> Schema:
    """Return the schema of an object with these fields and no others."""
    schema = {"type": "object", "properties": fields, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def check_body(schema: Schema | None, given: Any, where: str = "the body") -> None:
    """Reject undescribed fields, also in the items of lists."""
    if schema is None:
        if given:
            raise InvalidArgument(f"{where} must be empty: this route takes no fields")
        return
    if isinstance(given, list) and "items" in schema:
        for place, one in enumerate(given):
            check_body(schema["items"], one, f"{where}[{place}]")
    elif isinstance(given, dict) and schema.get("additionalProperties", True) is False:
        known = schema["properties"]
        _check(given, known, where)
        for name, value in given.items():
            check_body(known[name], value, name if where == "the body" else f"{where}.{name}")


def check_query(described: Iterable[str], given: Iterable[str]) -> None:
    """Reject undescribed query parameters."""
    _check(given, described, "the query")


def _check(given: Iterable[str], known: Iterable[str], where: str) -> None:
    if unknown := sorted(set(given) - set(known)):
        names = ", ".join(repr(one[:40]) for one in unknown)
        what = "parameter" if where == "the query" else "field"
        there = f"known {what}s: {', '.join(known)}" if known else f"no {what}s are accepted here"
        raise InvalidArgument(f"{where} has the unknown {what}{'s' * (len(unknown) > 1)} {names}; {there}")
