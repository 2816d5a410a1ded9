"""What may a table's log hold that its definition no longer tells? Facts that are kept beside it, in `table.json`.

A migration writes records anew, and leaves what was written before as it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["NEVER", "NO_PAST", "Past"]

NEVER = (1 << 64) - 1
"""A version that will not be: that of a field which is to become unique."""


@dataclass(frozen=True, slots=True)
class Past:
    """What came before the definition that a table has."""

    retyped: bool = False
    """Whether there may be values of other types than the model has."""
    unsealed: frozenset[int] = frozenset()
    """Numbers of sensitive fields of which there may be legible values, from before they were sensitive."""
    unique_since: Mapping[int, int] = field(default_factory=dict)
    """Of fields that became unique when there were records, by number: the version since which they are."""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> "Past":
        """What `to_dict` wrote, among other things or not at all."""
        since = {int(number): version for number, version in kept.get("unique_since", {}).items()}
        return cls(kept.get("retyped", False), frozenset(kept.get("unsealed", ())), since)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; what is as usual is left out."""
        written: dict[str, Any] = {"retyped": True} if self.retyped else {}
        if self.unsealed:
            written["unsealed"] = sorted(self.unsealed)
        since = {str(number): version for number, version in self.unique_since.items() if version != NEVER}
        return {**written, "unique_since": since} if since else written


NO_PAST = Past()
"""Of a table that always had its definition."""
