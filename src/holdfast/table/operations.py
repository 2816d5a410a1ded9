"""Operations on single records, of which a request is a list, and their outcomes."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.base.errors import HoldfastError, NotFound

__all__ = [
    "Add",
    "AlreadyExists",
    "Change",
    "Delete",
    "DictEdit",
    "Done",
    "ListEdit",
    "NoRecord",
    "Operation",
    "Outcome",
    "SetEdit",
    "Undelete",
]


class Add(msgspec.Struct, frozen=True):
    """A new record, under its own key or one that is given."""

    record: Any
    key: bytes | None = None


class Change(msgspec.Struct, frozen=True):
    """New values for some fields of a record, if its preconditions hold.

    `changes` gives by path the new value, None to remove one, or an edit. `check` gives by path what must be there,
    `if_version` the version that the record must have. `delete` True soft-deletes the record in the same step, False
    restores it.
    """

    key: bytes
    changes: Mapping[Any, Any] = msgspec.field(default_factory=dict)
    check: Mapping[Any, Any] = msgspec.field(default_factory=dict)
    if_version: int | None = None
    delete: bool | None = None


class Delete(msgspec.Struct, frozen=True):
    """Soft-delete a record, which frees its unique values; or with `hard` delete it and its history."""

    key: bytes
    hard: bool = False
    if_version: int | None = None


class Undelete(msgspec.Struct, frozen=True):
    """Restore a soft-deleted record."""

    key: bytes


Operation = Add | Change | Delete | Undelete


class ListEdit(msgspec.Struct, frozen=True):
    """An edit of a list: first values are removed, then inserted at their indexes, then appended."""

    remove: Sequence[Any] = ()
    insert: Mapping[int, Any] = msgspec.field(default_factory=dict)
    append: Sequence[Any] = ()


class SetEdit(msgspec.Struct, frozen=True):
    """An edit of a set."""

    add: Sequence[Any] = ()
    remove: Sequence[Any] = ()


class DictEdit(msgspec.Struct, frozen=True):
    """An edit of a dict; `append` is for dicts whose keys are given by the table (`auto_key`)."""

    put: Mapping[Any, Any] = msgspec.field(default_factory=dict)
    remove: Sequence[Any] = ()
    append: Sequence[Any] = ()


class Done(msgspec.Struct, frozen=True):
    """An operation that was carried out."""

    key: bytes
    version: int
    """The version of this change; if the operation changed nothing, the record's present version."""
    changed: bool = True
    given: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """By path the keys that were given to values appended to a dict."""


class AlreadyExists(HoldfastError):
    """A record with that key exists."""

    def __init__(self, message: str, key: bytes) -> None:
        super().__init__(message)
        self.key = key


class NoRecord(NotFound):
    """There is no record with that key, or it is deleted."""

    def __init__(self, message: str, key: bytes) -> None:
        super().__init__(message)
        self.key = key


Outcome = Done | HoldfastError
"""The outcome of an operation. `write`, `add_many` and `apply` return errors; `add`, `change`, `delete` raise them."""
