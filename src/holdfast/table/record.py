"""`Record`: the value of a row, with its key, its versions and whether it is deleted."""

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.base.hlc import time_of
from holdfast.table.model.model import Model

__all__ = ["Record"]

M = TypeVar("M", bound=Model)


class Record(msgspec.Struct, Generic[M], frozen=True):
    """A record of a table. The fields of its value are attributes of it too: `record.name` is `record.value.name`."""

    key: bytes
    value: M
    version: int
    """The version of its last change."""
    created: int
    """The version that added it."""
    deleted: bool = False
    """Whether it is soft-deleted; such records are returned only with `include_deleted`."""

    @property
    def changed_at(self) -> datetime:
        """When it was last changed, to the millisecond."""
        return time_of(self.version)

    @property
    def created_at(self) -> datetime:
        """When it was added, to the millisecond."""
        return time_of(self.created)

    def __getattr__(self, name: str) -> Any:
        value: Any = self.value
        if isinstance(value, dict) and name in value:  # some paths were selected
            return value[name]
        return getattr(value, name)
