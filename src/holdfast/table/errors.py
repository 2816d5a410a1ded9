"""Exceptions of models: a definition that cannot be used, and values that a model does not accept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.base.errors import HoldfastError, InvalidArgument

if TYPE_CHECKING:
    from holdfast.table.model.validation import Violation

__all__ = ["InvalidModel", "ValidationFailed"]


class InvalidModel(InvalidArgument):
    """A model's definition cannot be used: the message says which field, and what to write instead."""


class ValidationFailed(HoldfastError, ValueError):
    """Values break rules of their model; `violations` has every one of them."""

    def __init__(self, model: str, violations: Iterable[Violation]) -> None:
        self.model = model
        self.violations = tuple(violations)
        count = len(self.violations)
        what = "; ".join(str(violation) for violation in self.violations)
        super().__init__(f"{model} has {count} violation{'s' if count > 1 else ''}: {what}")

    def __reduce__(self) -> tuple[type[ValidationFailed], tuple[str, tuple[Violation, ...]]]:
        return type(self), (self.model, self.violations)
