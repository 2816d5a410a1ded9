"""The suite's cases of unique values: who has them, and how they are found."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Store, ValidationFailed
from holdfast.table import Add, Change, Done
from tests.table.internals import state_of
from tests.table.parity.asking import Open, past_of
from tests.table.parity.models import Mail

M: Any = Mail


@pytest.fixture
def table(open_table: Open) -> Any:
    return open_table(Mail)


def taken(error: Any, owner: bytes) -> bool:
    """Whether it says that the email is taken, and by whom."""
    assert isinstance(error, ValidationFailed)
    return [(one.path, one.rule, one.owner) for one in error.violations] == [("email", "unique", owner)]


def found(table: Any, email: str, **options: Any) -> list[bytes]:
    return [record.key for record in table.scan(M.email == email, **options)]


def test_a_value_that_is_taken_names_its_owner(table: Any) -> None:
    owner = table.add(Mail(email="a@b.c")).key
    (error,) = table.add_many([Mail(email="a@b.c")])
    assert taken(error, owner)
    assert table.count() == 1


def test_a_soft_deletion_frees_the_value(table: Any) -> None:
    table.delete(table.add(Mail(email="a@b.c")).key)
    key = table.add(Mail(email="a@b.c")).key
    assert found(table, "a@b.c") == [key]


def test_a_change_to_a_value_that_is_taken_fails_and_changes_nothing(table: Any) -> None:
    owner = table.add(Mail(email="a@b.c")).key
    key = table.add(Mail(email="other@b.c")).key
    with pytest.raises(ValidationFailed) as error:
        table.change(key, {"email": "a@b.c"})
    assert taken(error.value, owner)
    assert table.get(key).email == "other@b.c"


def test_a_change_frees_the_old_value(table: Any) -> None:
    table.change(table.add(Mail(email="a@b.c")).key, {"email": "new@b.c"})
    assert isinstance(table.add(Mail(email="a@b.c")), Done)


def test_of_two_equal_values_in_one_request_the_first_is_taken(table: Any) -> None:
    first, second = table.write([Add(Mail(email="a@b.c")), Add(Mail(email="a@b.c"))])
    assert isinstance(first, Done)
    assert taken(second, first.key)


def test_a_change_that_hides_the_record_may_name_a_taken_value_and_frees_the_old_one(table: Any) -> None:
    owner = table.add(Mail(email="a@b.c")).key
    key = table.add(Mail(email="old@b.c")).key
    (done,) = table.write([Change(key, {"email": "a@b.c"}, delete=True)])
    assert isinstance(done, Done)
    assert found(table, "a@b.c") == [owner]
    assert isinstance(table.add(Mail(email="old@b.c")), Done)


def test_a_hidden_record_never_claims_a_value(table: Any) -> None:
    key = table.add(Mail(email="a@b.c")).key
    table.delete(key)
    table.change(key, {"email": "new@b.c"})
    assert isinstance(table.add(Mail(email="new@b.c")), Done)


def test_a_record_whose_value_was_taken_meanwhile_stays_deleted(table: Any) -> None:
    key = table.add(Mail(email="a@b.c")).key
    table.delete(key)
    owner = table.add(Mail(email="a@b.c")).key
    with pytest.raises(ValidationFailed) as error:
        table.undelete(key)
    assert taken(error.value, owner)
    assert table.get(key) is None
    assert table.get(key, include_deleted=True).deleted


def test_a_unique_value_is_looked_up(table: Any) -> None:
    key = table.add(Mail(email="a@b.c")).key
    scan = table.scan(M.email == "a@b.c")
    assert scan.plan.describe() == {
        "kind": "unique",
        "field": "email",
        "value": "a@b.c",
        "sort": [],
        "filter": "email == 'a@b.c'",
    }
    assert [record.key for record in scan] == [key]


def test_a_start_holds_for_a_unique_value_too(table: Any) -> None:
    key = table.add(Mail(email="a@b.c")).key
    assert found(table, "a@b.c", start=key) == [key]
    assert found(table, "a@b.c", start=key, include_start=False) == []


def test_an_old_value_is_found_in_the_past_only(table: Any) -> None:
    added = table.add(Mail(email="a@b.c"))
    table.change(added.key, {"email": "new@b.c"})
    assert found(table, "a@b.c") == []
    with past_of(table):
        assert found(table, "a@b.c", as_of=added.version) == [added.key]


def test_the_beginning_of_an_old_value_finds_nothing(table: Any) -> None:
    added = table.add(Mail(email="haas"))
    table.change(added.key, {"email": "new@b.c"})
    with past_of(table):
        assert found(table, "haa", as_of=added.version) == []


@pytest.mark.parametrize("how", ["by a deletion", "by a change"])
def test_a_deleted_record_is_found_by_its_value_if_asked_for(table: Any, how: str) -> None:
    key = table.add(Mail(email="a@b.c")).key
    if how == "by a change":
        (done,) = table.write([Change(key, delete=True)])
    else:
        done = table.delete(key)
    assert found(table, "a@b.c") == []
    assert [record.deleted for record in table.scan(M.email == "a@b.c", include_deleted=True)] == [True]
    with past_of(table):
        assert found(table, "a@b.c", as_of=done.version) == []
        assert found(table, "a@b.c", as_of=done.version, include_deleted=True) == [key]


def test_values_are_known_after_the_store_was_opened_again(reopen: Callable[..., Store], mode: dict[str, bool]) -> None:
    store = reopen()
    owner = store.table(Mail, **mode).add(Mail(email="a@b.c")).key  # type: ignore[arg-type]
    store.close()
    (error,) = reopen().table(Mail).add_many([Mail(email="a@b.c")])
    assert taken(error, owner)


def test_a_record_that_is_refused_leaves_nothing_behind(table: Any) -> None:
    table.add(Mail(email="a@b.c"))
    entries = list(state_of(table).scan("table"))
    table.add_many([Mail(email="a@b.c")])
    assert table.log.end == 1
    assert list(state_of(table).scan("table")) == entries
