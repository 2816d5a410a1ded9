"""Output of the demo: numbered chapters, with progress bars on a terminal and plain lines elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from holdfast.cli.output import output_console, progress_on, show

__all__ = ["Stage"]

_PAUSE_S = 0.8
"""Between chapters on a terminal, so that each can be read; no figure includes it."""


class Stage:
    """Prints the demo's output; silent for `--json`."""

    def __init__(self, *, silent: bool, pause: bool) -> None:
        self._console: Console = output_console()
        self._silent = silent
        self._pause = pause and not silent and self._console.is_terminal
        self._chapters = 0
        self.margin = 3
        """Indentation of the lines of a chapter."""

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
    def progress(self, what: str, total: int, *, in_bytes: bool) -> Iterator[Callable[[int], None]]:
        """Show a progress bar while the block runs; call the yielded function with the amount done."""
        with progress_on(self._console, shown=not self._silent, in_bytes=in_bytes) as bars:
            bar = bars.add_task(f" {what}", total=total)
            yield lambda done: bars.update(bar, completed=done)

    def _print(self, text: Text) -> None:
        if not self._silent:
            self._console.print(text, soft_wrap=True)
