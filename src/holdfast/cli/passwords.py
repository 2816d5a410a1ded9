"""Reading passwords from a terminal, a file or a pipe; never from the command line, which other users can see."""

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.base.errors import InvalidArgument
from holdfast.cli.confirm import at_a_terminal
from holdfast.cli.options import UsageError

__all__ = ["PasswordFileOption", "read_password"]

PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        show_default="prompt, or the first line of standard input",
        help="Read the password from the first line of this file; - is standard input.",
    ),
]


def read_password(file: Path | None, question: str, *, twice: bool) -> str:
    """Return the password: the first line of a file or of standard input, or typed at a prompt.

    With `twice` it must be typed twice: for a new password.
    """
    if file is not None and str(file) != "-":
        with file.open(encoding="utf-8") as lines:
            return _checked(lines.readline())
    if file is None and at_a_terminal():
        typed = _typed(question)
        if twice and typed != _typed("Repeat the password: "):
            raise InvalidArgument("the two passwords differ: nothing was changed")
        return _checked(typed)
    line = sys.stdin.readline()
    if not line:
        raise UsageError("no password given: pass --password-file FILE, or write the password to standard input")
    return _checked(line)


def _typed(question: str) -> str:
    try:
        return getpass.getpass(question)
    except EOFError:
        raise typer.Abort from None


def _checked(line: str) -> str:
    password = line.rstrip("\r\n")
    if not password:
        raise InvalidArgument("the password is empty: nothing was changed")
    return password
