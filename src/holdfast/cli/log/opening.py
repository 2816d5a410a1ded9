"""How does a command open a log? To read without a lock, to write what exists, or to write what may be new."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import holdfast
from holdfast.log import Log

__all__ = ["log_to_change", "log_to_read"]


@contextlib.contextmanager
def log_to_read(data: Path, name: str) -> Iterator[Log]:
    """A log opened read-only, as it can be while another process writes."""
    with holdfast.open(data, read_only=True) as store:
        yield store.log(name)


@contextlib.contextmanager
def log_to_change(data: Path, name: str) -> Iterator[Log]:
    """A log that must exist, opened for writing: a mistyped name or folder is an error and not a new, empty log."""
    with log_to_read(data, name):
        pass
    with holdfast.open(data) as store:
        yield store.log(name)
