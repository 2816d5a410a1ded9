"""What the tests of this suite share: how they fill a table, and ask it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import HoldfastError, InvalidArgument, Model, ValidationFailed

__all__ = ["MODES", "Open", "added", "broken", "past_of", "places"]

MODES: dict[str, dict[str, bool]] = {
    "present": {},
    "history": {"keep_all_versions": True},
    "updates": {"keep_all_versions": True, "update_history": True},
}

Open = Callable[[type[Model]], Any]
"""Opens a table in the mode of the test. Tests ask for records that they know to be there, and type checkers do not."""


def added(table: Any, records: Sequence[Model]) -> list[bytes]:
    """Add records one by one, each with a version of its own; their keys."""
    return [table.add(record).key for record in records]


@contextmanager
def past_of(table: Any) -> Iterator[None]:
    """What follows asks for the past: a table that does not keep it must refuse the first question."""
    if table.settings.keep_all_versions:
        yield
        return
    with pytest.raises(InvalidArgument, match="keep_all_versions=True"):
        yield


def places(keys: Sequence[bytes], records: Any) -> list[int]:
    """Which of the keys the records have."""
    return [keys.index(record.key) for record in records]


def broken(error: HoldfastError) -> list[tuple[str, str]]:
    """Where which rules were broken."""
    assert isinstance(error, ValidationFailed)
    return [(one.path, one.rule) for one in error.violations]
