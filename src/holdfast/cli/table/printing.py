"""Output of table records: a table if it fits the terminal, else one record below the other; or JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from holdfast.base.hlc import time_of
from holdfast.base.units import plural
from holdfast.cli.output import Name, details, make_table, output_console, safe_text, show
from holdfast.table import Record, text_of_key
from holdfast.table.model.json_output import json_of
from holdfast.table.model.types import SCALARS, Kind
from holdfast.table.query.change_history import RecordChanges, VersionChanges

__all__ = [
    "RecordTables",
    "changes_parts",
    "record_details",
    "table_or_blocks",
    "time_text",
    "value_text",
    "version_text",
]

_NARROWEST = 12
"""Width below which a value is not folded: then records are printed one below the other."""
_BATCH = 200
_WIDE = 110
"""Width from which on the versions of a record and their values are printed side by side."""
_NAME = 20
"""Width that a long name gets at least, before rows are printed as blocks."""
_FIGURES = (Kind.INT, Kind.FLOAT, Kind.DECIMAL)
_TEXTS = {Kind.STR, Kind.BYTES}


def value_text(value: Any) -> str:
    """Return a value on one line, for people."""
    match value:
        case None:
            return "-"
        case str():
            return safe_text(value)
        case Enum():
            return safe_text(value.name)
    written = json_of(value)
    return safe_text(written if isinstance(written, str) else json.dumps(written, ensure_ascii=False))


def time_text(version: int) -> str:
    """Return the time of a version: UTC, to the millisecond."""
    return time_of(version).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def version_text(version: int) -> str:
    """Return a version with its time."""
    return f"{version} ({time_text(version)})"


def values_of(record: Record[Any]) -> dict[str, Any]:
    """Return the values of a record by name, or by path if some were selected."""
    value = record.value
    return dict(value) if isinstance(value, dict) else {name: getattr(value, name) for name in value.__spec__.fields}


def record_details(record: Record[Any]) -> Grid:
    """Return one record with its key, versions and values."""
    facts: dict[str, RenderableType] = {
        "key": Text(text_of_key(record.key), "bold"),
        "version": version_text(record.version),
        "created": version_text(record.created),
    }
    if record.deleted:
        facts["deleted"] = Text("yes", "red")
    grid = details(facts)
    grid.add_section()
    grid.add_row()
    for name, value in values_of(record).items():
        grid.add_row(safe_text(name), _cell(value))
    return grid


def changes_parts(changes: RecordChanges) -> list[RenderableType]:
    """Return the changes of one record: each version, and the values that it set."""
    heading = Text(f"{text_of_key(changes.key)}  {plural(len(changes.versions), 'version')}", "bold")
    if output_console().width >= _WIDE:
        return [heading, _changes_grid(changes)]
    parts: list[RenderableType] = [heading]
    for one in changes.versions:
        parts.append(Text.assemble((str(one.version), "cyan"), f"  {time_text(one.version)}  ", _kind_text(one)))
        if one.values:
            rows = {f"    {safe_text(path)}": _change_cell(value) for path, value in one.values.items()}
            parts.append(details(rows))
    return parts


def _changes_grid(changes: RecordChanges) -> Grid:
    grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for style in ("cyan", "", ""):
        grid.add_column(no_wrap=True, style=style)
    grid.add_column(overflow="fold", min_width=6)
    grid.add_column(overflow="fold", min_width=8)
    for one in changes.versions:
        lead: list[RenderableType] = [str(one.version), time_text(one.version), _kind_text(one)]
        for path, value in one.values.items():
            grid.add_row(*lead, safe_text(path), _change_cell(value))
            lead = ["", "", ""]
        if not one.values:
            grid.add_row(*lead)
    return grid


def _kind_text(one: VersionChanges) -> Text:
    return Text(one.kind, {"delete": "red", "change": ""}.get(one.kind, "green"))


def _change_cell(value: Any) -> Text:
    return Text("removed", "red") if value is None else _cell(value)


def table_or_blocks(rows: Sequence[Mapping[str, str]], numbers: Iterable[str]) -> list[RenderableType]:
    """Return rows of a name and short texts: as a table if it fits, with long names abbreviated, else as blocks."""
    columns = list(rows[0])
    widths = [max(cell_len(name), *(cell_len(row[name]) for row in rows)) + 3 for name in columns]
    if min(widths[0], _NAME) + sum(widths[1:]) > output_console().width + 3:
        parts: list[RenderableType] = []
        for row in rows:
            parts += [*([Text("")] if parts else []), details({name: Text(text) for name, text in row.items()})]
        return parts
    table = make_table(*columns, numbers=numbers)
    for column in table.columns[1:]:
        column.no_wrap, column.min_width = True, None
    for row in rows:
        name, *others = row.values()
        table.add_row(Name(name), *(Text(text) for text in others))
    return [table]


class RecordTables:
    """Prints many records, some hundreds at a time; the first of them decide the layout."""

    def __init__(self, columns: Mapping[str, Kind]) -> None:
        self._columns = list(columns)
        self._numbers = {name for name, kind in columns.items() if kind in _FIGURES}
        self._whole = {name for name, kind in columns.items() if kind in SCALARS - _TEXTS}
        """Columns that are not folded: part of a date is useless."""
        self._waiting: list[Record[Any]] = []
        self._below: bool | None = None
        self._shown = 0

    def add(self, record: Record[Any]) -> None:
        """Add a record to be printed."""
        self._waiting.append(record)
        if len(self._waiting) == _BATCH:
            self.flush()

    def flush(self) -> None:
        """Print all pending records."""
        if not self._waiting:
            return
        rows = [(self._key(record), [_cell(values.get(name)) for name in self._columns])
                for record in self._waiting for values in [values_of(record)]]  # fmt: skip
        if self._below is None:
            self._below = not self._fits(rows)
        if self._shown:
            show("")
        show(*(self._blocks(rows) if self._below else [self._table(rows)]))
        self._shown += len(rows)
        self._waiting.clear()

    def _table(self, rows: Sequence[tuple[Text, list[Text]]]) -> Grid:
        table = make_table("key", *self._columns, numbers=self._numbers)
        for name, column in zip(["key", *self._columns], table.columns, strict=True):
            if name == "key" or name in self._whole:
                column.no_wrap, column.min_width = True, None
        for key, cells in rows:
            table.add_row(key, *cells)
        return table

    def _blocks(self, rows: Sequence[tuple[Text, list[Text]]]) -> list[RenderableType]:
        parts: list[RenderableType] = []
        wide = max((cell_len(name) for name in self._columns), default=0)
        for key, cells in rows:
            named: Mapping[str, RenderableType] = {
                f"{name:<{wide}}": cell
                for name, cell in zip(self._columns, cells, strict=True)
                if cell.plain != "-"  # absent values would only take space
            }
            parts += [*([Text("")] if parts else []), Text.assemble(key, style="bold"), details(named)]
        return parts

    def _fits(self, rows: Sequence[tuple[Text, list[Text]]]) -> bool:
        """Return whether the terminal is wide enough for all columns."""
        needed = max(key.cell_len for key, _ in rows) + 1
        for place, name in enumerate(self._columns):
            widest = max(cells[place].cell_len for _, cells in rows)
            least = widest if name in self._whole else min(widest, max(_NARROWEST, widest // 4))
            needed += max(cell_len(name), least) + 3
        return needed <= output_console().width

    def _key(self, record: Record[Any]) -> Text:
        key = text_of_key(record.key)
        return Text.assemble(key, (" deleted", "red")) if record.deleted else Text(key)


def _cell(value: Any) -> Text:
    return Text("-", "dim") if value is None else Text(value_text(value))
