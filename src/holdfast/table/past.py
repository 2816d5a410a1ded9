"""What may a table's log hold that its definition no longer tells? Facts that are kept beside it, in `table.json`.

A migration writes records anew, and leaves what was written before as it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["NO_PAST", "Past"]


@dataclass(frozen=True, slots=True)
class Past:
    """What came before the definition that a table has."""

    retyped: bool = False
    """Whether there may be values of other types than the model has."""
    unsealed: frozenset[int] = frozenset()
    """Numbers of sensitive fields of which there may be legible values, from before they were sensitive."""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> "Past":
        """What `to_dict` wrote, among other things or not at all."""
        return cls(kept.get("retyped", False), frozenset(kept.get("unsealed", ())))

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; what is as usual is left out."""
        written: dict[str, Any] = {"retyped": True} if self.retyped else {}
        return {**written, "unsealed": sorted(self.unsealed)} if self.unsealed else written


NO_PAST = Past()
"""Of a table that always had its definition."""
