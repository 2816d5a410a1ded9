"""Compatibility alias of click's UsageError across typer versions."""

import typer

__all__ = ["UsageError"]

# The class of all usage errors. typer exports only its subclass, and its module has changed between versions.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""The command line is invalid; the exit code is 2."""
