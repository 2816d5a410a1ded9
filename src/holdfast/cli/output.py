"""Output of commands: tables for people, JSON for programs, and progress bars."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from rich import box
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column, Table
from rich.text import Text

from holdfast.base.json_payload import json_bytes
from holdfast.base.units import format_count, format_size

__all__ = [
    "byte_progress",
    "details",
    "error_console",
    "json_bytes",
    "json_document",
    "json_line",
    "make_table",
    "output_console",
    "progress_on",
    "safe_text",
    "show",
    "standard_output",
    "write_json",
]

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_ESCAPES |= {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}
# What changes the direction of text or cannot be seen can fool a reader as well as a control code can.
_ESCAPES |= {
    code: f"\\u{code:04x}" for code in (*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
_BESIDE_BAR = 62
"""Columns that the words and figures beside a bar may take."""
_PIPE_WIDTH = 10_000
"""A pipe has no width: nothing is wrapped or cut there."""


def output_console() -> Console:
    """Return the console of standard output; created each time, because tests replace the stream."""
    return _console(stderr=False)


def error_console() -> Console:
    """Return the console of standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, markup=False, width=_PIPE_WIDTH)


def standard_output() -> BinaryIO:
    """Return standard output as bytes: records are printed unchanged, whatever the locale."""
    sys.stdout.flush()  # what was printed as text comes first
    return sys.stdout.buffer


def show(*things: RenderableType) -> None:
    """Print for people."""
    console = output_console()
    if console.is_terminal:
        for thing in things:
            if isinstance(thing, Table) and thing.show_header and _least_width(thing, console) > console.width:
                _show_row_by_row(thing, console)
            else:
                console.print(thing, soft_wrap=isinstance(thing, str | Text))
        return
    with console.capture() as captured:
        console.print(*things, sep="\n")
    # rich pads the last column of a table, which is invisible on a screen and a nuisance in a file.
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _least_width(table: Table, console: Console) -> int:
    """Return the terminal width below which some of a table would be cut off."""
    total = 0
    for column in table.columns:
        widest = max(console.measure(cell).maximum for cell in (column.header, *column.cells))
        # What may be folded takes any width, and what has a width of its own was given what there is.
        total += max(column.min_width or 0, widest if column.no_wrap and column.max_width is None else 0)
    return total + 3 * (len(table.columns) - 1)  # a space, the line of the box and a space between two


def _show_row_by_row(table: Table, console: Console) -> None:
    """Print each row as lines of a name and a value, if the terminal is too narrow for the table."""
    for place, row in enumerate(zip(*(column.cells for column in table.columns), strict=True)):
        lines = details({})
        for column, cell in zip(table.columns, row, strict=True):
            if str(cell):
                lines.add_row(column.header, cell)
        if place and str(row[0]):  # a row without its first cell goes on with the one above
            console.print()
        console.print(lines)


def safe_text(value: str | bytes) -> str:
    """Return one line without terminal control: control codes and invalid UTF-8 are escaped."""
    text = value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")
    return text.translate(_ESCAPES)


def json_line(content: Mapping[str, Any]) -> bytes:
    """Return one object on one line, in UTF-8."""
    return json_document(content) + b"\n"


def json_document(content: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return an object in UTF-8; if a name in it is not valid text, everything but ASCII is escaped."""
    try:
        return json.dumps(content, indent=indent, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(content, indent=indent).encode()


def write_json(content: Mapping[str, Any]) -> None:
    """Print one object."""
    stream = standard_output()
    stream.write(json_line(content))
    stream.flush()


def make_table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    """Return a table that is as wide as it needs to be; `numbers` are the right-aligned columns."""
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
        # Where the terminal is narrow, names and reasons are folded and figures are not.
        if column in right:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold", min_width=min(10, len(column) + 4))
    return table


def details(rows: Mapping[str, RenderableType]) -> Table:
    """Return a grid of names and values, one a line."""
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
    """Return a progress bar of bytes on standard error; only on a terminal, and removed when done."""
    return progress_on(error_console(), shown=shown, in_bytes=True)


def progress_on(console: Console, *, shown: bool, in_bytes: bool) -> Progress:
    """Return a progress bar that counts bytes or items."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        # Where the terminal is narrow the bar gives way, so that a line stays a line.
        BarColumn(bar_width=max(4, min(30, console.width - _BESIDE_BAR))),
        _Amount(in_bytes=in_bytes),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    )
