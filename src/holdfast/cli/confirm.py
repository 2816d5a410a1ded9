"""Confirmation prompts on standard error; without a terminal, a command needs --yes."""

import sys

import typer
from rich.text import Text

from holdfast.cli.options import UsageError
from holdfast.cli.output import error_console
from holdfast.cli.warnings import notify

__all__ = ["ask", "somebody_is_there"]

_NOT_DONE = 1


def somebody_is_there() -> bool:
    """Whether standard input and standard error are terminals, so that a prompt would reach a person."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, *, yes: bool) -> None:
    """Return after a confirmation or with --yes; if declined, end with the exit code 1.

    Without a terminal and without --yes it is a usage error.
    """
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
