"""Settings of a table: how much of its history is kept."""

from dataclasses import dataclass

from holdfast.base.errors import InvalidArgument

__all__ = ["TableSettings"]


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings of a table."""

    keep_all_versions: bool = False
    update_history: bool = False
    """Whether the changes of the whole table can be listed, newest first; needs `keep_all_versions`."""

    def __post_init__(self) -> None:
        if self.update_history and not self.keep_all_versions:
            raise InvalidArgument("update_history lists the past: it needs keep_all_versions=True")
