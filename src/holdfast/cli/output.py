"""Output of commands: tables for people, JSON for programs, and progress bars."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column, Table
from rich.text import Text

from holdfast.base.json_payload import json_bytes
from holdfast.base.units import format_count, format_size

__all__ = [
    "Name",
    "abbreviate",
    "byte_progress",
    "details",
    "error_console",
    "is_narrow",
    "json_bytes",
    "json_document",
    "json_line",
    "make_table",
    "output_console",
    "progress_on",
    "safe_text",
    "short_name",
    "show",
    "standard_output",
    "write_json",
    "write_json_lines",
]

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_ESCAPES |= {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}
# Invisible characters and those that change the direction of text can mislead a reader as control codes can.
_ESCAPES |= {
    code: f"\\u{code:04x}" for code in (*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
_BAR_MARGIN = 62
"""Columns for the text and figures before and after a progress bar."""
_PIPE_WIDTH = 10_000
"""A pipe has no width: nothing is wrapped or cut there."""
_PIPE_COLUMN = 60
"""The widest cell that the column of a table in a pipe is aligned to: a longer one shifts the rest of its row only."""
_SENTENCES = 120
"""Columns of a terminal from which on two columns of a table may hold sentences."""
_NAME_LEAST = 16
_NAME_IN_PROGRESS = 30


def output_console() -> Console:
    """Return the console of standard output; created each time, because tests replace the stream."""
    return _console(stderr=False)


def error_console() -> Console:
    """Return the console of standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, markup=False, width=_PIPE_WIDTH)


def is_narrow() -> bool:
    """Return whether standard output is a terminal that is too narrow for a table with two columns of sentences."""
    console = output_console()
    return console.is_terminal and console.width < _SENTENCES


def standard_output() -> BinaryIO:
    """Return standard output as bytes: records are printed unchanged, whatever the locale."""
    sys.stdout.flush()  # text that was printed before
    return sys.stdout.buffer


def show(*things: RenderableType) -> None:
    """Print text, tables and details for people."""
    console = output_console()
    for thing in things:
        if isinstance(thing, Table):
            _narrow_columns(thing, console)
    if console.is_terminal:
        for thing in things:
            if isinstance(thing, Table) and thing.show_header and _least_width(thing, console) > console.width:
                _show_row_by_row(thing, console)
            else:
                console.print(thing, soft_wrap=isinstance(thing, str | Text))
        return
    for thing in things:
        if isinstance(thing, Table) and thing.show_header:
            lines = _plain_lines(thing)
        else:
            with console.capture() as captured:
                console.print(thing)
            lines = captured.get().splitlines()
        # rich pads the last column of a table, which is invisible on a screen and a nuisance in a file.
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))


def _narrow_columns(table: Table, console: Console) -> None:
    """Let no column be wider than its cells."""
    for column in table.columns:
        if column.min_width is not None and column.max_width is None:
            widest = max(console.measure(cell).maximum for cell in (column.header, *column.cells))
            column.min_width = min(column.min_width, widest)


def _plain_lines(table: Table) -> list[str]:
    """Return the lines of a table for a pipe. A very long cell does not widen the rows above and below it."""
    columns = [[str(cell) for cell in (column.header, *column.cells)] for column in table.columns]
    for column, cells in zip(table.columns, columns, strict=True):
        width = max(column.min_width or 0, *(size for cell in cells if (size := cell_len(cell)) <= _PIPE_COLUMN))
        for place, cell in enumerate(cells):
            space = " " * (width - cell_len(cell))
            cells[place] = space + cell if column.justify == "right" else cell + space
    return ["  ".join(row) for row in zip(*columns, strict=True)]


def _least_width(table: Table, console: Console) -> int:
    """Return the terminal width below which some of a table would be cut off."""
    total = 0
    for column in table.columns:
        widest = max(console.measure(cell).maximum for cell in (column.header, *column.cells))
        # A column that can be folded fits any width, and one with a maximum was sized for this terminal.
        total += max(column.min_width or 0, widest if column.no_wrap and column.max_width is None else 0)
    return total + 3 * (len(table.columns) - 1)  # a space, the line of the box and a space between two


def _show_row_by_row(table: Table, console: Console) -> None:
    """Print each row as lines of a name and a value, if the terminal is too narrow for the table."""
    for place, row in enumerate(zip(*(column.cells for column in table.columns), strict=True)):
        lines = details({})
        for column, cell in zip(table.columns, row, strict=True):
            if str(cell):
                lines.add_row(column.header, cell)
        if place and str(row[0]):  # a row without its first cell continues the one above
            console.print()
        console.print(lines)


def safe_text(value: str | bytes) -> str:
    """Return one line without terminal control: control codes and invalid UTF-8 are escaped."""
    text = value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")
    return text.translate(_ESCAPES)


def abbreviate(text: str, width: int, *, ellipsis: str = "…") -> str:
    """Return a text that fits `width` columns: of a longer one the beginning and the end."""
    if cell_len(text) <= width:
        return text
    left = max(0, width - cell_len(ellipsis))
    start, end = chop_cells(text, left - left // 2) if left else [""], chop_cells(text[::-1], left // 2 or 1)
    return start[0] + ellipsis[:width] + (end[0][::-1] if left // 2 else "")


def short_name(name: str) -> str:
    """Return a name for the description of a progress bar: escaped, and abbreviated."""
    return abbreviate(safe_text(name), _NAME_IN_PROGRESS, ellipsis="...")


class Name:
    """A name in a cell of a table: on one line, abbreviated in the middle where the column is too narrow."""

    def __init__(self, name: str) -> None:
        self._text = safe_text(name)

    def __str__(self) -> str:
        """Return the whole name, escaped."""
        return self._text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the least and the greatest width."""
        width = cell_len(self._text)
        return Measurement(min(width, _NAME_LEAST), width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the name as it fits."""
        dots = "..." if options.ascii_only else "…"
        yield Text(abbreviate(self._text, options.max_width, ellipsis=dots), no_wrap=True, overflow="crop")


def json_line(content: Mapping[str, Any]) -> bytes:
    """Return one object on one line, in UTF-8."""
    return json_document(content) + b"\n"


def json_document(content: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return an object in UTF-8; if a name in it is not valid text, characters that are not ASCII are escaped."""
    try:
        return json.dumps(content, indent=indent, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(content, indent=indent).encode()


def write_json(content: Mapping[str, Any]) -> None:
    """Print one object."""
    stream = standard_output()
    stream.write(json_line(content))
    stream.flush()


def write_json_lines(contents: Iterable[Mapping[str, Any]]) -> None:
    """Print one object per line; nothing if there is none, so that each line is a record (`jq -s` gives a list)."""
    stream = standard_output()
    stream.writelines(map(json_line, contents))
    stream.flush()


def make_table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    """Return a table that is as wide as it needs to be; `numbers` are the right-aligned columns.

    Put names that users choose into it as `Name`.
    """
    plain = not output_console().is_terminal
    table = Table(
        box=None if plain else box.SIMPLE_HEAD,
        header_style="" if plain else "bold cyan",
        show_edge=False,
        pad_edge=False,
        padding=(0, 2, 0, 0) if plain else (0, 1),
    )
    right = set(numbers)
    for column in columns:
        # On a narrow terminal, texts are folded and figures are not.
        if column in right:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold", min_width=min(10, len(column) + 4))
    return table


def details(rows: Mapping[str, RenderableType]) -> Table:
    """Return a grid of names and values, one per line."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


class _Amount(ProgressColumn):
    """Progress column: amount done, total and speed."""

    def __init__(self, *, in_bytes: bool) -> None:
        self._form = format_size if in_bytes else format_count
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        """Return one cell."""
        whole = f" of {self._form(task.total)}" if task.total else ""
        pace = f"  {self._form(task.speed)}/s" if task.speed else ""
        return Text(f"{self._form(task.completed)}{whole}{pace}", style="cyan")


def byte_progress(*, shown: bool) -> Progress:
    """Return a progress bar of bytes on standard error: only on a terminal, and removed at the end."""
    return progress_on(error_console(), shown=shown, in_bytes=True)


def progress_on(console: Console, *, shown: bool, in_bytes: bool) -> Progress:
    """Return a progress bar that counts bytes or items."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        # On a narrow terminal the bar is shorter, so that all fits one line.
        BarColumn(bar_width=max(4, min(30, console.width - _BAR_MARGIN))),
        _Amount(in_bytes=in_bytes),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    )
