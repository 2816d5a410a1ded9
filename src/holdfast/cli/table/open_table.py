"""Opening a table by name, with the model that is stored with it, and parsing of keys, versions and filters."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast import Store
from holdfast.base.errors import InvalidArgument
from holdfast.base.units import parse_time
from holdfast.cli.open_store import seen_as, store_to_read, store_to_write
from holdfast.cli.options import Target, UsageError
from holdfast.remote.store import RemoteStore
from holdfast.remote.table import RemoteTable
from holdfast.table import Model, Table, key_from_text
from holdfast.table.query.expressions import Expression
from holdfast.table.query.filter_parser import parse_filter
from holdfast.table.query.record_reader import Point
from holdfast.table.storage.keyring import Keyring, KeyringNeeded

__all__ = [
    "expression_of",
    "key_of",
    "names_of",
    "open_table",
    "point_of",
    "table_to_change",
    "table_to_read",
]


def open_table(store: Store, name: str, keyring: Path | None = None) -> Table[Any]:
    """Return an existing table, with the model that is stored with it."""
    if seen_as(RemoteStore, store) is not None:
        if keyring is not None:
            raise UsageError("--keyring does not work with --url: the server has its own keyring")
        return store.table(name)
    if keyring is not None:
        return store.table(name, keyring=Keyring.load(keyring))
    try:
        return store.table(name)
    except KeyringNeeded as error:
        raise UsageError(f"{error.model} has sensitive fields ({error.fields}): pass --keyring FILE") from error


@contextlib.contextmanager
def table_to_read(
    data: Target, name: str, keyring: Path | None = None
) -> Iterator[tuple[Table[Any], Callable[[str], type[Model]]]]:
    """Open a table read-only, also while another process writes; and a function that finds other models."""
    with store_to_read(data) as store:
        yield open_table(store, name, keyring), lambda other: open_table(store, other, keyring).model


@contextlib.contextmanager
def table_to_change(data: Target, name: str, keyring: Path | None = None) -> Iterator[Table[Any]]:
    """Open an existing table for writing: a mistyped name or folder is an error and creates nothing."""
    with store_to_read(data) as store:
        open_table(store, name, keyring)  # raises NotFound with the names of the existing tables
    with store_to_write(data) as store:
        yield open_table(store, name, keyring)


def key_of(text: str) -> bytes:
    """Parse a typed key."""
    try:
        return key_from_text(text)
    except InvalidArgument as error:
        raise UsageError(f"{text!r} is not a key: write it in base64url, as scan and add print it") from error


def point_of(text: str | None, option: str) -> Point | None:
    """Parse a typed version or time."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return parse_time(text)
    except InvalidArgument:
        raise UsageError(
            f"{option} {text!r} is neither a version nor a time: write 2026-11-15T12:00:00Z, or 15m for 15 minutes ago"
        ) from None


def expression_of(
    table: Table[Any], where: str | None, find: Callable[[str], type[Model]] | None = None
) -> Expression | str | None:
    """Parse a typed filter; an invalid one is a usage error. For a server, return its text, which it parses again."""
    if where is None:
        return None
    try:
        expression = parse_filter(table.model, where, find)
    except InvalidArgument as error:
        raise UsageError(f"--where: {error}") from error
    return where if seen_as(RemoteTable, table) else expression


def names_of(text: str | None) -> list[str] | None:
    """Split names at commas."""
    if text is None:
        return None
    return [name for part in text.split(",") if (name := part.strip())]
