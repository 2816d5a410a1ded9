"""The suite's cases of search: case, accents and signs do not count, words do."""

from typing import Any

import pytest

from holdfast import Normalized, search
from tests.table.following import heard
from tests.table.parity.asking import Open, added, past_of, places
from tests.table.parity.models import Named, named

N: Any = Named
GARCIA, VAN_DER_WAALS, VERHOEVEN, RIJNDERS = 4, 5, 6, 7
BY_SURNAME = [Normalized("surname"), "first_name"]


@pytest.fixture
def table(open_table: Open) -> Any:
    return open_table(Named)


@pytest.fixture
def keys(table: Any) -> list[bytes]:
    return added(table, named())


def test_an_order_takes_no_notice_of_case_and_accents(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.scan(order=BY_SURNAME)) == [4, 2, 1, 0, 7, 3, 5, 6]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (N.surname.normalized == "garcia lopez", GARCIA),
        (N.surname.normalized.prefix("van der"), VAN_DER_WAALS),
        (N.surname.normalized.regex("^garcia.*$"), GARCIA),
        (search("garcia", index="name"), GARCIA),
        (search("van der waals", index="name"), VAN_DER_WAALS),
        (search("gar", index="name", prefix=True), GARCIA),
        (search("mila verh", index="name", prefix=True), VERHOEVEN),
        (search("^gar.*$", index="name", regex=True), GARCIA),
    ],
    ids=str,
)
def test_one_is_found_along_the_index_of_normalised_texts_now_and_in_the_past(
    table: Any, keys: list[bytes], where: Any, expected: int
) -> None:
    scan = table.scan(where)
    assert places(keys, scan) == [expected]
    assert scan.plan.kind == "index"
    version = table.last_version
    table.change(keys[expected], {"surname": "Jones", "first_name": "Ann"})
    assert places(keys, table.scan(where)) == []
    with past_of(table):
        assert places(keys, table.scan(where, as_of=version)) == [expected]


def test_a_bound_is_normalised_now_and_in_the_past(table: Any, keys: list[bytes]) -> None:
    where = N.surname.normalized > "garcia"
    assert places(keys, table.scan(where, order=BY_SURNAME)) == [4, 2, 1, 0, 7, 3, 5, 6]
    with past_of(table):
        then = table.scan(where, order=BY_SURNAME, as_of=table.last_version)
        assert places(keys, then) == [4, 2, 1, 0, 7, 3, 5, 6]


@pytest.mark.parametrize(("first_name", "expected"), [("José", [GARCIA]), ("Jose", [])])
def test_only_what_the_index_normalises_is_normalised(
    table: Any, keys: list[bytes], first_name: str, expected: list[int]
) -> None:
    scan = table.scan((N.surname.normalized == "garcia lopez") & (N.first_name == first_name))
    assert places(keys, scan) == expected


def test_words_that_nobody_has_all_of_find_nobody(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.scan(search("mila rij verh", index="name", prefix=True))) == []


def test_a_search_and_another_filter_must_both_be_true(table: Any, keys: list[bytes]) -> None:
    where = search("ver", index="name", prefix=True) & (N.first_name == "Mila")
    assert places(keys, table.scan(where)) == [VERHOEVEN]


def test_a_listener_hears_who_enters_and_leaves_a_search(table: Any) -> None:
    key = table.add(Named(surname="Jones", first_name="Ann")).key
    watcher = table.watch(keys=[key], where=search("smith", index="name"))
    for surname in ("Smith", "Jones", "Smith"):
        table.change(key, {"surname": surname})
    assert heard(watcher) == [("initial", []), ("addition", key, 0), ("not-in-range", key), ("addition", key, 0)]


def test_words_that_are_gone_are_not_found_at_the_last_version(table: Any, keys: list[bytes]) -> None:
    table.change(keys[VERHOEVEN], {"surname": "Verhoeven Vermeer"})
    table.change(keys[VERHOEVEN], {"surname": "Vermeer"})
    assert places(keys, table.scan(search("mila ver", index="name", prefix=True))) == [VERHOEVEN]
    assert places(keys, table.scan(search("verhoeven", index="name"))) == []
    with past_of(table):
        then = table.last_version
        assert places(keys, table.scan(search("mila ver", index="name", prefix=True), as_of=then)) == [VERHOEVEN]
        assert places(keys, table.scan(search("verhoeven", index="name"), as_of=then)) == []


def test_a_deleted_record_is_found_by_its_words_if_asked_for(table: Any, keys: list[bytes]) -> None:
    version = table.delete(keys[GARCIA]).version
    where = search("garcia", index="name")
    assert places(keys, table.scan(where)) == []
    assert [record.deleted for record in table.scan(where, include_deleted=True)] == [True]
    with past_of(table):
        assert places(keys, table.scan(where, as_of=version)) == []
        assert places(keys, table.scan(where, as_of=version, include_deleted=True)) == [GARCIA]


def test_plain_equality_takes_notice_of_case_and_accents(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.scan(N.surname == "garcia", allow_table_scan=True)) == []
