"""Confirmation prompts on standard error; without a terminal, a command needs --yes."""

import sys

import typer
from rich.text import Text

from holdfast.cli.options import UsageError
from holdfast.cli.output import error_console
from holdfast.cli.warnings import notify

__all__ = ["ask", "at_a_terminal"]

_NOT_DONE = 1


def at_a_terminal() -> bool:
    """Return whether standard input and standard error are terminals, so that a user can answer a prompt."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, *, action: str, yes: bool) -> None:
    """Return after a confirmation or with --yes; if declined, end with the exit code 1.

    Without a terminal and without --yes it is a usage error, which names the `action`.
    """
    if yes:
        return
    if not at_a_terminal():
        stream = "standard error" if sys.stdin.isatty() else "standard input"
        raise UsageError(f"refusing to {action} without confirmation: {stream} is not a terminal; pass --yes")
    console = error_console()
    console.print(Text.assemble((question, "bold"), " [y/N] "), end="", soft_wrap=True)
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D leaves the cursor after the question
        console.print()
    if answer.strip().lower() not in ("y", "yes"):
        notify("nothing was changed")
        raise typer.Exit(_NOT_DONE)
