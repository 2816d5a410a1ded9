"""Column families of the state: those of queues, with Queueber's names where they match, and those of tables."""

from holdfast.base.errors import InvalidArgument

__all__ = ["ALL_FAMILIES", "FAMILIES", "TABLE_FAMILIES", "check_family"]

FAMILIES = (
    "available",
    "in_progress",
    "visibility_index",
    "leases",
    "lease_expiry",
    "dedup",
    "attempts",
    "positions",
)
"""The families of the state of queues."""

TABLE_FAMILIES = (
    "model",
    "keys",
    "table",
    "index",
    "unique",
    "historic_table",
    "historic_index",
    "historic_unique",
    "update_history",
)
"""The families of the state of tables, with Maryk's names."""

ALL_FAMILIES = frozenset(FAMILIES + TABLE_FAMILIES)


def check_family(family: str) -> None:
    """Reject an unknown family."""
    if family not in ALL_FAMILIES:
        raise InvalidArgument(f"there is no family {family!r}: the families are {', '.join(FAMILIES + TABLE_FAMILIES)}")
