"""Which part of a long list is shown? Those whose names fit, a page at a time, alike for all lists."""

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.web.rabbit.lists import fitting
from holdfast.web.routes import Call

__all__ = ["PAGING", "named", "paged"]

T = TypeVar("T")
_PAGE_MAX = 500
PAGING = {
    "page": "Which page, from 1.",
    "page_size": f"How many on a page, 100 unless said otherwise, {_PAGE_MAX} at most.",
    "name": "Only those whose name has this in it.",
    "use_regex": "name is a regular expression.",
}
"""What the query of a list may say."""


def named(call: Call, found: list[T], name: Callable[[T], str]) -> list[T]:
    """Those that the caller wants by their name."""
    if not (wanted := call.query.get("name")):
        return found
    if call.flag("use_regex"):
        return fitting(found, wanted, name)
    return [one for one in found if wanted.lower() in name(one).lower()]


def paged(call: Call, found: list[T], total: int, show: Callable[[T], Any]) -> dict[str, Any]:
    """One page of what was found; only what is on it is asked how it is. What `show` gives nothing for is gone."""
    size = call.number("page_size", 100, most=_PAGE_MAX, least=1)
    page = call.number("page", 1, least=1)
    shown = [row for one in found[(page - 1) * size : page * size] if (row := show(one)) is not None]
    return {
        "items": shown,
        "page": page,
        "page_size": size,
        "page_count": max(1, -(-len(found) // size)),
        "filtered_count": len(found),
        "total_count": total,
        "item_count": len(shown),
    }
