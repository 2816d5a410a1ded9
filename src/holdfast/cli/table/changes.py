"""Parsing of typed record changes; an invalid one is a usage error."""

import json
from collections.abc import Sequence
from typing import Any

from holdfast.base.errors import InvalidArgument
from holdfast.cli.options import UsageError
from holdfast.table import Model
from holdfast.table.model import change_parser

__all__ = ["parse_changes", "parse_json"]


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text; an invalid one is a usage error with the reason."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"invalid JSON: {error}") from error


def parse_changes(model: type[Model], given: Sequence[str], unset: Sequence[str] = ()) -> dict[Any, Any]:
    """Return the typed changes, by path; None removes a value."""
    try:
        return change_parser.parse_changes(model, given, unset)
    except InvalidArgument as error:
        raise UsageError(str(error)) from error
