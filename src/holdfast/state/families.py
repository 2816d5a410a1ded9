"""Which kinds of state are kept apart? One column family each, with Queueber's names where the thing is the same."""

from holdfast.base.errors import InvalidArgument

__all__ = ["FAMILIES", "check_family"]

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
"""Every family a state has, whichever kind of state it is."""


def check_family(family: str) -> None:
    """Refuse a family that no state has."""
    if family not in FAMILIES:
        raise InvalidArgument(f"there is no family {family!r}: the families are {', '.join(FAMILIES)}")
