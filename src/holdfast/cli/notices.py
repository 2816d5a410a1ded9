"""What else should the user know? Warnings of the library and damage that was met, in yellow on standard error."""

import logging
from types import TracebackType
from typing import Self

from rich.text import Text

from holdfast.cli.output import error_console, safe_text
from holdfast.log import Damage, Log

__all__ = ["DamageNotices", "Notices", "notify", "one_line"]

_KEPT = 20


def notify(message: str) -> None:
    """One yellow line on standard error."""
    error_console().print(Text(f"holdfast: {one_line(message)}", style="yellow"), soft_wrap=True)


def one_line(message: str) -> str:
    """The message without line breaks, and without what steers a terminal: names of others may be in it."""
    return safe_text(" ".join(message.split("\n")))


class Notices(logging.Handler):
    """Gathers what the library logs as a warning, so that it can be shown after the command's own output.

    Without a handler, Python would print each at once and in the midst of it. Damage is left to `DamageNotices`.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._messages: list[str] = []
        self._more = 0
        self._logger = logging.getLogger("holdfast")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning for later."""
        if isinstance(record.args, tuple) and any(isinstance(value, Damage) for value in record.args):
            return
        if len(self._messages) < _KEPT:
            self._messages.append(record.getMessage())
        else:
            self._more += 1

    def show(self) -> None:
        """Print what was gathered."""
        for message in self._messages:
            notify(message)
        if self._more:
            notify(f"and {self._more} more warnings")

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gather no more."""
        self._logger.removeHandler(self)


class DamageNotices:
    """Tells of each damaged place of a log once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._shown = 0

    def show(self) -> bool:
        """Print what was met since the last call; says whether any damage was met at all."""
        fresh = self._log.damage[self._shown :]
        self._shown += len(fresh)
        for damage in fresh[:_KEPT]:
            notify(f"damage: {damage}")
        if len(fresh) > _KEPT:
            notify(f"and {len(fresh) - _KEPT} more damaged places: see holdfast log verify")
        return self._shown > 0
