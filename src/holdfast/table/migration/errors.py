"""Exceptions of migrations: one is needed, is pending or has failed, or the model is incompatible."""

from collections.abc import Sequence

from holdfast.base.errors import HoldfastError, InvalidArgument

__all__ = ["IncompatibleModel", "MigrationFailed", "MigrationNeeded", "MigrationPending"]


class MigrationNeeded(HoldfastError):
    """The records of a table do not suit the model that it is opened with; nothing was changed."""

    def __init__(self, message: str, table: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.table = table
        self.reasons = tuple(reasons)
        """Sentences that each name a field or an index."""

    def __reduce__(self) -> tuple[type["MigrationNeeded"], tuple[str, str, tuple[str, ...]]]:
        return type(self), (str(self), self.table, self.reasons)


class MigrationPending(HoldfastError):
    """A request was made to a table whose migration is not complete: it is refused, and does not wait."""


class MigrationFailed(HoldfastError):
    """A migration failed or was cancelled; its progress is kept, and it can continue from there."""


class IncompatibleModel(InvalidArgument):
    """The model cannot be used for this table, whatever is done to its records."""
