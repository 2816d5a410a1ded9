"""The stage of the demo: its chapters on the terminal, the figures and promises of the run, and the summary of both."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.base.units import format_count, format_duration
from holdfast.cli.output import output_console, progress_on, show

__all__ = ["Stage", "pace"]

_PAUSE_S = 0.8
"""Between chapters on a terminal, so that each can be read; no figure includes it."""


def pace(count: int, seconds: float, what: str = "records") -> str:
    """Return a rate in words."""
    return f"{format_count(count / max(seconds, 1e-9))} {what}/s"


class Stage:
    """Prints the demo's chapters, silently for `--json`, and collects what the run has measured and promised."""

    def __init__(self, *, silent: bool, pause: bool) -> None:
        self._console: Console = output_console()
        self._silent = silent
        self._pause = pause and not silent and self._console.is_terminal
        self._chapters = 0
        self.margin = 3
        """Indentation of the lines of a chapter."""
        self._figures: dict[str, Any] = {}
        self._table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        self._table.add_column()
        self._table.add_column(justify="right", no_wrap=True)
        self._table.add_column(style="dim", no_wrap=True)
        self._promises: dict[str, bool] = {}

    # While the demo runs.

    def chapter(self, title: str) -> None:
        """Start the next chapter."""
        if self._pause and self._chapters:
            time.sleep(_PAUSE_S)
        self._chapters += 1
        self._print(Text.assemble("\n", (f"{self._chapters}  ", "bold cyan"), (title, "bold")))

    def say(self, line: str) -> None:
        """Print one line."""
        self._print(Text(" " * self.margin + line))

    def show(self, thing: RenderableType) -> None:
        """Print a renderable, such as a table."""
        if self._silent:
            return
        if self._console.is_terminal:
            self._console.print(Padding(thing, (0, 0, 0, self.margin), expand=False))
        else:
            show(thing)

    @contextlib.contextmanager
    def progress(self, what: str, total: int, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
        """Show a progress bar while the block runs; call the yielded function with the amount done."""
        with progress_on(self._console, shown=not self._silent, in_bytes=in_bytes) as bars:
            bar = bars.add_task(f" {what}", total=total)
            yield lambda done: bars.update(bar, completed=done)

    def _print(self, text: Text) -> None:
        if not self._silent:
            self._console.print(text, soft_wrap=True)

    # For the summary.

    def note(self, **figures: object) -> None:
        """Add figures to the JSON of the summary; all are measured in this run."""
        self._figures |= figures

    def line(self, what: str = "", figure: str = "", note: str = "", *, lost: int | None = None) -> None:
        """Add a line to the table of the summary. One that counts what was `lost` is green or red."""
        style = "bold" if lost is None else "bold red" if lost else "bold green"
        self._table.add_row(what, Text(figure, style), note)

    def promise(self, text: str, kept: bool) -> None:
        """Record a guarantee, and whether it held."""
        self._promises[text] = kept

    @property
    def broken(self) -> list[str]:
        """The guarantees that did not hold in this run."""
        return [text for text, kept in self._promises.items() if not kept]

    def summary(self, seconds: float) -> RenderableType:
        """Return the figures and promises as a table."""
        unicode = self._console.encoding.startswith("utf")
        promises = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
        for text, kept in self._promises.items():
            mark = Text("\N{CHECK MARK}" if unicode else "ok", "green") if kept else Text("BROKEN", "bold red")
            promises.add_row(mark, text)
        colour, verdict = "green", "Nothing was lost, nothing was processed twice"
        if self.broken:
            colour, verdict = "red", "A guarantee was broken"
        if not self._console.is_terminal:
            return Group(Text(verdict), Text(), self._table, Text(), promises)
        return Panel(
            Group(self._table, Text(), promises),
            title=Text(f" {verdict} ", f"bold {colour}"),
            subtitle=Text(f" all measured in this run of {format_duration(seconds)} ", "dim"),
            box=box.ROUNDED,
            border_style=colour,
            padding=(1, 2),
            expand=False,
        )

    def summary_json(self, seconds: float) -> dict[str, Any]:
        """Return the figures and promises as JSON."""
        content = {"ok": not self.broken, "seconds": seconds, **self._figures}
        content = {name: round(value, 6) if isinstance(value, float) else value for name, value in content.items()}
        return content | {"promises": [{"text": text, "kept": kept} for text, kept in self._promises.items()]}
