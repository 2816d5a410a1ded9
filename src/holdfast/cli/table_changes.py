"""What is to be changed in a record? What is wrong with it as it was typed is a usage error."""

import json
from collections.abc import Sequence
from typing import Any

from holdfast.base.errors import InvalidArgument
from holdfast.cli.options import UsageError
from holdfast.table import Model, typed_changes

__all__ = ["parse_changes", "parse_json"]


def parse_json(text: str | bytes) -> Any:
    """What a JSON text stands for; a usage error that says why if it stands for nothing."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is no JSON: {error}") from error


def parse_changes(model: type[Model], given: Sequence[str], unset: Sequence[str] = ()) -> dict[Any, Any]:
    """The changes that were typed, by path; None removes a value."""
    try:
        return typed_changes.parse_changes(model, given, unset)
    except InvalidArgument as error:
        raise UsageError(str(error)) from error
