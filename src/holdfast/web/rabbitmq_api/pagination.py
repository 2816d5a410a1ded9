"""Long lists as RabbitMQ's API serves them: pages, sorting, name filters and selected columns."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from re import _constants as tokens  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, TypeVar, cast

from holdfast.base.errors import InvalidArgument
from holdfast.web.rabbitmq_api.response_types import Listing
from holdfast.web.responses import Refused

__all__ = ["LISTING", "answered", "columns_of", "fitting", "pattern_of"]

T = TypeVar("T")
R = TypeVar("R", bound=Mapping[str, Any])
PAGE_SIZE, PAGE_SIZE_MAX = 100, 500
PATTERN_MAX = 200
_LONGEST = 255
"""The length limit of names, and so of any repetition in them."""
_LONG = 100
_WAYS_MAX = 1 << 23
"""So many possible matches are tried in about a second."""
_PATIENCE_S = 1.0
"""Limit of the time for matching a pattern against all names."""

LISTING = {
    "page": "The page, from 1; without it, all items are returned.",
    "page_size": f"Items per page, {PAGE_SIZE} by default, {PAGE_SIZE_MAX} at most.",
    "name": "Only items whose name contains this text; requires `page`.",
    "use_regex": "`true`: `name` is a regular expression.",
    "sort": "The field to sort by, such as `messages` or `message_stats.publish_details.rate`.",
    "sort_reverse": "`true`: largest first.",
    "columns": "Fields to return, separated by commas.",
}
"""Query parameters of lists."""


def answered(
    items: list[T],
    query: Mapping[str, str],
    *,
    row: Callable[[T], R],
    name: Callable[[T], str],
    quick: Mapping[str, Callable[[T], Any]] | None = None,
) -> Listing[R]:
    """Return the requested rows: a list, or with `page` an object that describes the page.

    Rows are made only for items on the page, unless they are sorted by something that only a row has: values that
    `quick` returns do not need a row first.
    """
    paged = "page" in query
    number, size = _page(query) if paged else (1, 0)
    chosen = _filtered(items, query, name) if paged else items
    column = query.get("sort", "")
    backwards = query.get("sort_reverse") == "true"
    made: dict[int, R] = {}

    def shown(item: T) -> R:
        found = made.get(id(item))
        return found if found is not None else row(item)

    if column:
        tells = (quick or {}).get(column)
        if tells is None:
            made = {id(item): row(item) for item in chosen}
            chosen = sorted(chosen, key=lambda item: _rank(_inner(made[id(item)], column)), reverse=backwards)
        else:
            at_once = tells
            chosen = sorted(chosen, key=lambda item: _rank(at_once(item)), reverse=backwards)
    elif backwards:
        chosen = chosen[::-1]
    columns = query.get("columns", "")
    if not paged:
        return [columns_of(shown(item), columns) for item in chosen]
    pages = max(1, -(-len(chosen) // size))
    if number > pages:
        raise Refused(
            400, "page_out_of_range", f"Page out of range, page: {number} page size: {size}, len: {len(chosen)}"
        )
    there = [columns_of(shown(item), columns) for item in chosen[(number - 1) * size : number * size]]
    return {
        "filtered_count": len(chosen),
        "item_count": len(there),
        "items": there,
        "page": number,
        "page_count": pages,
        "page_size": size,
        "total_count": len(items),
    }


def columns_of(row: R, columns: str) -> R:
    """Return only these columns of a row; `a.b` is the field b in the field a. Missing ones are left out."""
    if not columns:
        return row
    found: dict[str, Any] = {}
    for path in columns.split(","):
        _keep(row, path.strip().split("."), found)
    return cast("R", found)


def pattern_of(text: str) -> re.Pattern[str]:
    """Compile a caller's regular expression, if it is certain to take little time.

    While Python searches for one, nothing else runs in the whole process, and some take practically forever: those that
    could match in very many ways are rejected, such as a repetition of what itself repeats or has alternatives.
    """
    if len(text) > PATTERN_MAX:
        raise InvalidArgument(f"a pattern may have up to {PATTERN_MAX} characters")
    try:
        found = re.compile(text, re.IGNORECASE)
        parsed = parser.parse(text)
        ways = _ways(parsed) * (1 if _is_anchored(parsed) else _LONGEST)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused(400, "bad_request", f"the pattern {text!r} is not a regular expression: {error}") from error
    if ways > _WAYS_MAX:
        raise InvalidArgument(
            f"the pattern {text!r} could take too long: begin it with ^, or use at most two of * and +, "
            "not nested, and few of ? and |"
        )
    return found


def fitting(items: Iterable[T], text: str, name: Callable[[T], str], patience_s: float = _PATIENCE_S) -> list[T]:
    """Return the items whose name matches a caller's regular expression; reject it if that takes too long."""
    pattern = pattern_of(text)
    found = []
    until = time.thread_time() + patience_s  # processor time of this thread: other threads do not count
    for item in items:
        if time.thread_time() > until:
            raise InvalidArgument(
                f"the pattern {text!r} takes too long for so many names: begin it with ^, or use fewer of * and +"
            )
        if pattern.search(name(item)) is not None:
            found.append(item)
    return found


def _page(query: Mapping[str, str]) -> tuple[int, int]:
    try:
        number, size = int(query["page"] or 1), int(query.get("page_size") or PAGE_SIZE)
    except ValueError:
        raise Refused(400, "bad_request", "Pagination parameters are invalid: page and page_size are numbers") from None
    if number < 1 or not 1 <= size <= PAGE_SIZE_MAX:
        raise Refused(
            400,
            "invalid_pagination_parameters",
            f"Invalid pagination parameters: page number {number}, page size {size}: "
            f"pages count from 1 and have up to {PAGE_SIZE_MAX}",
        )
    return number, size


def _filtered(items: list[T], query: Mapping[str, str], name: Callable[[T], str]) -> list[T]:
    wanted = query.get("name", "")
    if not wanted:
        return items
    if query.get("use_regex") == "true":
        return fitting(items, wanted, name)
    low = wanted.lower()
    return [item for item in items if low in name(item).lower()]


def _inner(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def _rank(value: Any) -> tuple[int, Any]:
    """Return a comparable key, whatever the values are: missing values come first, then numbers."""
    if value is None:
        return 0, 0
    if isinstance(value, bool | int | float):
        return 1, value
    return 2, str(value)


def _keep(row: Mapping[str, Any], path: list[str], into: dict[str, Any]) -> None:
    head, *rest = path
    if head not in row:
        return
    value = row[head]
    if not rest:
        into[head] = value
    elif isinstance(value, dict):
        _keep(value, rest, into.setdefault(head, {}))


def _is_anchored(parsed: Any) -> bool:
    """Whether a pattern is tried at the beginning of a name only."""
    return bool(parsed) and parsed[0] in ((tokens.AT, tokens.AT_BEGINNING), (tokens.AT, tokens.AT_BEGINNING_STRING))


def _ways(parsed: Any) -> int:
    """Return an upper bound of the number of ways in which a pattern could match."""
    ways: int = 1
    for operation, value in parsed:
        if operation in (tokens.MAX_REPEAT, tokens.MIN_REPEAT, tokens.POSSESSIVE_REPEAT):
            least, most, body = value
            least, most, inner = min(int(least), _LONGEST), min(int(most), _LONGEST), _ways(body)
            lengths = most - least + 1
            # A long match here leaves less for the next repetition: half of it, on average.
            ways *= (lengths + 1) // 2 if lengths > _LONG else lengths
            if inner > 1:
                ways *= int(inner**most)
        elif operation is tokens.BRANCH:
            ways *= sum(_ways(part) for part in value[1])
        elif operation is tokens.SUBPATTERN:
            ways *= _ways(value[-1])
        elif operation in (tokens.ASSERT, tokens.ASSERT_NOT):
            ways *= _ways(value[1])
        elif operation in (tokens.ATOMIC_GROUP, tokens.GROUPREF, tokens.GROUPREF_EXISTS):
            return _WAYS_MAX + 1
        if ways > _WAYS_MAX:
            return _WAYS_MAX + 1
    return ways
