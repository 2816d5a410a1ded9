"""Warnings of the library and reports of damage, printed in yellow on standard error."""

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.text import Text

from holdfast.cli.output import error_console, safe_text
from holdfast.log import Damage, Log

__all__ = ["DamageNotices", "Notices", "notify", "notify_some", "one_line"]

_KEPT = 20


def notify(message: str) -> None:
    """Print one yellow line on standard error."""
    error_console().print(Text(f"holdfast: {one_line(message)}", style="yellow"), soft_wrap=True)


def notify_some(messages: Sequence[object], more: str) -> None:
    """Print the first messages, each on a yellow line, and how many `more` there are."""
    for message in messages[:_KEPT]:
        notify(str(message))
    if len(messages) > _KEPT:
        notify(f"and {len(messages) - _KEPT} more {more}")


def one_line(message: str) -> str:
    """Return the message without line breaks and terminal control codes, which names may contain."""
    return safe_text(" ".join(message.split("\n")))


class Notices(logging.Handler):
    """Collects warnings that the library logs, to be printed after the output of a command that did not fail.

    Without a handler, Python would print each at once, in the middle of the output. `DamageNotices` reports damage.
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
        """Print the collected warnings."""
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
        """Stop collecting."""
        self._logger.removeHandler(self)


class DamageNotices:
    """Reports each damaged position of a log once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._shown = 0

    def show(self) -> bool:
        """Print the damage found since the last call; return whether any was found at all."""
        fresh = self._log.damage[self._shown :]
        self._shown += len(fresh)
        notify_some([f"damage: {damage}" for damage in fresh], "damaged positions: see holdfast log verify")
        return self._shown > 0
