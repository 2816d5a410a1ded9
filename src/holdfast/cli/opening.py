"""How does a command open a store? To read without a lock, to write what exists, or to write what may be new.

The library's own words for a missing or locked store speak of Python arguments; here they speak of commands.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import holdfast
from holdfast import Store
from holdfast.base.errors import Locked, NotFound
from holdfast.log import Log
from holdfast.queue import Queue

__all__ = ["log_to_change", "log_to_read", "queue_to_change", "queue_to_read", "store_to_read", "store_to_write"]


@contextlib.contextmanager
def store_to_read(data: Path) -> Iterator[Store]:
    """A store opened read-only, as it can be while another process writes."""
    if not data.exists():
        raise NotFound(f"there is no store at {str(data)!r}: check --data, or make one with holdfast put")
    with holdfast.open(data, read_only=True) as store:
        yield store


@contextlib.contextmanager
def store_to_write(data: Path) -> Iterator[Store]:
    """A store opened for writing, made if there is none."""
    try:
        store = holdfast.open(data)
    except Locked as error:
        who = f"process {error.pid}" if error.pid is not None else "another process"
        raise Locked(
            f"{str(data)!r} is being written by {who}: stop it first; commands that only read work meanwhile", error.pid
        ) from error
    with store:
        yield store


@contextlib.contextmanager
def log_to_read(data: Path, name: str) -> Iterator[Log]:
    """A log opened read-only."""
    with store_to_read(data) as store:
        yield store.log(name)


@contextlib.contextmanager
def log_to_change(data: Path, name: str) -> Iterator[Log]:
    """A log that must exist, opened for writing: a mistyped name or folder is an error and not a new, empty log."""
    with log_to_read(data, name):
        pass
    with store_to_write(data) as store:
        yield store.log(name)


@contextlib.contextmanager
def queue_to_read(data: Path, name: str) -> Iterator[Queue]:
    """A queue opened read-only, as it can be while another process works on it."""
    with store_to_read(data) as store:
        yield store.queue(name)


@contextlib.contextmanager
def queue_to_change(data: Path, name: str) -> Iterator[Queue]:
    """A queue that must exist, opened for writing: a mistyped name or folder is an error and not a new, empty queue."""
    with store_to_read(data) as store:
        if name not in store.queues():
            store.queue(name)  # which says that it is not there, and which ones are
    with store_to_write(data) as store:
        yield store.queue(name)
