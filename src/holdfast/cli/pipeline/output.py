"""Output of a pipeline's result: its table and facts for people, or one JSON object."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from holdfast.base.units import format_count, format_duration, format_size
from holdfast.cli.output import details, json_bytes, make_table, safe_text, show, write_json
from holdfast.spark.pipelines import Result

__all__ = ["result_json", "result_table", "show_result"]

# Numbers that identify something are not counts: users type them again as they are printed.
_NAMES = ("offset", "message", "sequence", "position", "lease", "id", "byte", "first", "last", "from", "to", "batch")


def show_result(name: str, result: Result, *, as_json: bool) -> None:
    """Print a pipeline's result."""
    if as_json:
        write_json(result_json(name, result))
        return
    show(Text(safe_text(result.title), "bold" if result.ok else "bold red"))
    if result.rows:
        show("", result_table(result))
    if result.facts:
        facts = {what.replace("_", " "): Text(_text(what, value)) for what, value in result.facts.items()}
        show("", details(facts))


def result_table(result: Result) -> Table:
    """Return the rows of a pipeline's result as a table."""
    numbers = [
        column
        for place, column in enumerate(result.columns)
        if any(_is_number(row[place]) for row in result.rows)
        and all(row[place] is None or _is_number(row[place]) for row in result.rows)
    ]
    table = make_table(*result.columns, numbers=numbers)
    for row in result.rows:
        table.add_row(*(_text(column, value) for column, value in zip(result.columns, row, strict=True)))
    return table


def result_json(name: str, result: Result) -> dict[str, Any]:
    """Return a pipeline's result as `--json` shows it."""
    return {
        "pipeline": name,
        "ok": result.ok,
        "title": result.title,
        "rows": [dict(zip(result.columns, map(_plain, row), strict=True)) for row in result.rows],
        "facts": {what: _plain(value) for what, value in result.facts.items()},
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal | timedelta) and not isinstance(value, bool)


def _text(what: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        words = what.replace("_", " ").split()
        if words and words[-1] in ("bytes", "size"):
            return format_size(value)
        return str(value) if words and words[-1] in _NAMES else format_count(value)
    if isinstance(value, float | Decimal):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, timedelta):
        return format_duration(value.total_seconds())
    if isinstance(value, datetime):
        # Spark returns times without a zone, in the zone of this process.
        return value.astimezone(UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    if isinstance(value, list | tuple):
        return ", ".join(_text(what, each) for each in value)
    return safe_text(value if isinstance(value, bytes) else str(value))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes | bytearray):
        return json_bytes(bytes(value))
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Path | date):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if hasattr(value, "asDict"):  # a Row within a row
        return _plain(value.asDict())
    if isinstance(value, list | tuple | set):
        return [_plain(each) for each in value]
    return value
