"""Validation of the arguments of queue calls."""

from collections.abc import Iterable

from holdfast.base.errors import InvalidArgument

__all__ = ["check_count", "check_position", "checked_ids"]


def check_count(count: int, what: str) -> None:
    """Reject a value that is not a positive integer."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidArgument(f"{what} needs a count of at least 1, not {count!r}")


def check_position(position: object, end: int, log: str) -> int:
    """Return a valid position in a log to seek to."""
    if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position <= end:
        raise InvalidArgument(f"cannot seek to {position!r}: the log {log!r} ends at {end}")
    return position


def checked_ids(ids: Iterable[int], what: str, source: str) -> set[int]:
    """Return message ids, which must be whole numbers."""
    listed: list[object] = [ids] if isinstance(ids, int | str | bytes) else list(ids)
    if isinstance(ids, int) or not all(type(id) is int for id in listed):
        raise InvalidArgument(f"{what} needs ids as {source} returns them, not {ids!r}")
    return {id for id in listed if isinstance(id, int)}
