"""Lists: pages, sorting, filters and columns, and patterns that would take too long."""

from typing import Any

import pytest

from holdfast import HoldfastError, InvalidArgument
from holdfast.web.rabbitmq_api.pagination import answered, columns_of, fitting, pattern_of
from tests.web.serving import Served


def rows(query: dict[str, str], count: int = 5, made: list[int] | None = None) -> Any:
    """Rows numbered from 0, with a name and an inner field; those that are made are noted."""

    def row(number: int) -> dict[str, Any]:
        if made is not None:
            made.append(number)
        return {"name": f"n{number}", "inner": {"half": number // 2} if number else None, "odd": bool(number % 2)}

    quick = {"name": lambda number: f"n{number}"}
    return answered(list(range(count)), query, row=row, name=lambda number: f"n{number}", quick=quick)


def test_without_a_page_all_are_there_in_order() -> None:
    assert [row["name"] for row in rows({})] == ["n0", "n1", "n2", "n3", "n4"]
    assert [row["name"] for row in rows({"sort_reverse": "true"})] == ["n4", "n3", "n2", "n1", "n0"]


def test_a_page_has_its_number_and_the_counts() -> None:
    page = rows({"page": "2", "page_size": "2"})
    assert [row["name"] for row in page.pop("items")] == ["n2", "n3"]
    assert page == {
        "filtered_count": 5,
        "item_count": 2,
        "page": 2,
        "page_count": 3,
        "page_size": 2,
        "total_count": 5,
    }
    empty = rows({"page": "1"}, count=0)
    assert (empty["items"], empty["page_count"], empty["total_count"]) == ([], 1, 0)


def test_only_the_rows_of_the_page_are_made_where_the_order_is_known_without_them() -> None:
    made: list[int] = []
    rows({"page": "1", "page_size": "2", "sort": "name", "sort_reverse": "true"}, count=100, made=made)
    assert made == [99, 98]


def test_sorting_goes_by_inner_fields_and_whatever_has_none_comes_first() -> None:
    ordered = [row["name"] for row in rows({"sort": "inner.half"})]
    assert ordered == ["n0", "n1", "n2", "n3", "n4"]
    assert [row["name"] for row in rows({"sort": "odd"})] == ["n0", "n2", "n4", "n1", "n3"]
    assert [row["name"] for row in rows({"sort": "nothing"})] == ["n0", "n1", "n2", "n3", "n4"]


def test_columns_are_chosen_also_inside() -> None:
    row = {"a": 1, "b": {"c": 2, "d": 3}, "e": {"f": 4}}
    assert columns_of(row, "a,b.c") == {"a": 1, "b": {"c": 2}}
    assert columns_of(row, "b.c,b.d,x,a.y") == {"b": {"c": 2, "d": 3}}
    assert columns_of(row, "") is row


@pytest.mark.parametrize("text", ["^a", "a|b", "orders[.]eu", "a.*b.*c", "(a|b)c+", "^(in|out)$", "(?i)x", "a{2,5}"])
def test_patterns_that_take_little_time_are_taken(text: str) -> None:
    pattern_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+$",
        "(a|a)*b",
        "(a*)*",
        "(.*)*x",
        "((a{1,9}){1,9})+",
        ".*.*.*.*x",
        "(a+){50}(b+){50}c+d+",
        r"(a*)\1",
        "a" * 201,
    ],
)
def test_patterns_that_could_take_too_long_are_rejected(text: str) -> None:
    with pytest.raises(InvalidArgument):
        pattern_of(text)


def test_a_pattern_that_takes_too_long_for_many_names_is_rejected() -> None:
    looked: list[str] = []
    with pytest.raises(InvalidArgument, match="takes too long for so many names"):
        fitting(["a" * 255] * 500, "a*a*b", lambda name: looked.append(name) or name, patience_s=0.01)  # type: ignore[func-returns-value]
    assert 0 < len(looked) < 500
    assert fitting(["ab", "xy"], "a*a*b", str) == ["ab"]


@pytest.mark.parametrize("text", ["(", "[", "*", "(?P<x", "a{2,1}"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(HoldfastError):
        pattern_of(text)


@pytest.mark.parametrize(
    "path",
    [
        "queues",
        "queues/%2F",
        "exchanges",
        "exchanges/%2F",
        "bindings",
        "vhosts",
        "users",
        "overview",
        "holdfast/queues",
    ],
)
def test_a_slash_at_the_end_of_a_path_says_nothing(broker: Served, path: str) -> None:
    plain, slashed = broker.ask("GET", f"/api/{path}"), broker.ask("GET", f"/api/{path}/")
    assert (slashed.status, type(slashed.json)) == (plain.status, type(plain.json)) == (200, type(plain.json))


def test_a_change_with_a_slash_at_its_end_takes_place_too(broker: Served) -> None:
    assert broker.ask("PUT", "/api/queues/%2F/slashed/", {"durable": True}).status == 201
    assert broker.get("/api/queues/%2F/slashed")["name"] == "slashed"
    assert broker.ask("DELETE", "/api/queues/%2F/slashed/").status == 204
    assert broker.ask("GET", "/api/nothing/").status == 404
