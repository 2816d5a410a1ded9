"""Filtering by name and paging, shared by all lists of the API."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.web.rabbitmq_api.pagination import fitting
from holdfast.web.response_types import Page
from holdfast.web.routes import Call

__all__ = ["PAGING", "named", "paged"]

T = TypeVar("T")
R = TypeVar("R")
_PAGE_MAX = 500
PAGING = {
    "page": "The page, from 1.",
    "page_size": f"Items per page, 100 by default, {_PAGE_MAX} at most.",
    "name": "Only items whose name contains this text.",
    "use_regex": "true: `name` is a regular expression.",
}
"""Query parameters of lists."""


def named(call: Call, found: list[T], name: Callable[[T], str]) -> list[T]:
    """Return the items whose names match the request's filter."""
    if not (wanted := call.query.get("name")):
        return found
    if call.flag("use_regex"):
        return fitting(found, wanted, name)
    return [one for one in found if wanted.lower() in name(one).lower()]


def paged(call: Call, found: list[T], total: int, show: Callable[[T], R | None]) -> Page[R]:
    """Return one page of the items; only these are rendered. Those for which `show` returns None were deleted."""
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
