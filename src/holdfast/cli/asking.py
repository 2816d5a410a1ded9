"""Is the user sure? Asked on standard error, and only where somebody is there to answer."""

import sys

import typer
from rich.text import Text

from holdfast.cli.notices import notify
from holdfast.cli.options import UsageError
from holdfast.cli.output import error_console

__all__ = ["ask", "somebody_is_there"]

_NOT_DONE = 1


def somebody_is_there() -> bool:
    """Whether a question would reach a person."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, *, yes: bool) -> None:
    """Go on only if the user says so, now or with --yes; else the command ends with the exit code 1."""
    if yes:
        return
    if not somebody_is_there():
        raise UsageError("there is nobody to ask: say --yes if it is meant")
    console = error_console()
    console.print(Text.assemble((question, "bold"), " [y/N] "), end="", soft_wrap=True)
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D leaves the cursor behind the question
        console.print()
    if answer.strip().lower() not in ("y", "yes"):
        notify("nothing was changed")
        raise typer.Exit(_NOT_DONE)
