"""Schema history for reading old events: retyped, once unsealed and late unique fields, and when records began to suit.

Kept in `table.json`. A migration rewrites records, and leaves what was written before unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from holdfast.table.model.model_spec import ModelSpec

__all__ = ["NEVER", "NO_SCHEMA_HISTORY", "SchemaHistory", "plannable_at"]

NEVER = (1 << 64) - 1
"""A version that is never reached: for a field that is to become unique."""


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """Schema history that a table's present definition does not show."""

    retyped: bool = False
    """Whether there may be values of other types than the model has."""
    unsealed: frozenset[int] = frozenset()
    """Numbers of sensitive fields of which there may be plaintext values, from before they were sensitive."""
    unique_since: Mapping[int, int] = field(default_factory=dict)
    """Of fields that became unique when there were records, by number: the version since which they are."""
    suits_since: int = 0
    """The version since which all records suit the model: before it, fields that are required now may be missing."""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> "SchemaHistory":
        """Return the history that `to_dict` wrote, from a mapping that may hold more, or nothing of it."""
        since = {int(number): version for number, version in kept.get("unique_since", {}).items()}
        unsealed, suits_since = frozenset(kept.get("unsealed", ())), kept.get("suits_since", 0)
        return cls(kept.get("retyped", False), unsealed, since, suits_since)

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON form; defaults are left out."""
        written: dict[str, Any] = {"retyped": True} if self.retyped else {}
        if self.unsealed:
            written["unsealed"] = sorted(self.unsealed)
        if self.suits_since:
            written["suits_since"] = self.suits_since
        since = {str(number): version for number, version in self.unique_since.items() if version != NEVER}
        return {**written, "unique_since": since} if since else written


NO_SCHEMA_HISTORY = SchemaHistory()
"""The history of a table that always had its definition."""


def plannable_at(spec: ModelSpec, past: SchemaHistory, version: int | None) -> ModelSpec:
    """Return the model, reduced to the constraints that a scan as of a version (None: now) may rely on."""
    if version is None:
        return spec
    late = frozenset(number for number, start in past.unique_since.items() if version < start)
    return _weaker(spec, late, version < past.suits_since) if late or version < past.suits_since else spec


@lru_cache(64)
def _weaker(spec: ModelSpec, not_unique: frozenset[int], may_lack: bool) -> ModelSpec:
    fields = {
        name: replace(one, unique=one.unique and one.number not in not_unique, required=one.required and not may_lack)
        for name, one in spec.fields.items()
    }
    return replace(spec, fields=fields)
