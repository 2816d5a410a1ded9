"""The command line: `holdfast`, also as `python -m holdfast`."""

from holdfast.cli.app import main

__all__ = ["main"]
