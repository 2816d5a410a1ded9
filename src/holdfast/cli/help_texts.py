"""Layout of help texts: the lines of a paragraph are joined, so that it is wrapped to the terminal."""

from typing import Any

__all__ = ["join_help_lines"]


def join_help_lines(command: Any) -> None:
    """Join the lines of each paragraph in the help of a command and of its subcommands.

    typer keeps the line breaks of a docstring, except in its first paragraph.
    """
    if command.help:
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in command.help.split("\n\n"))
    for child in getattr(command, "commands", {}).values():
        join_help_lines(child)
