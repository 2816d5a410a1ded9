"""Permissions as the page requests them: the same as the server then applies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.permissions import RULES
from tests.web.serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("rights")
    with Served(folder / "data") as one:
        one.add_user("operator", tags=("administrator",))
        one.add_user("watcher", tags=("monitoring",), permissions=("", "", "^orders$"))
        yield one


def may(served: Served, user: str, query: str = "") -> dict[str, str | None]:
    answer: dict[str, str | None] = served.get(f"/api/holdfast/may{query}", user=user)
    return answer


def test_what_is_missing_is_named(served: Served) -> None:
    general = may(served, "watcher")
    assert general == {
        "create": "Your user has no configure permission in any virtual host.",
        "monitor": None,
        "administrate": "Your user lacks the tag administrator.",
        "operate": "Your user lacks the tag administrator.",
    }
    orders = may(served, "watcher", "?resource=queue&vhost=%2F&name=orders")
    assert orders["queue_look"] is None
    assert orders["queue_delete"] == "Your user has no configure permission for this queue."
    assert (
        may(served, "watcher", "?resource=table&name=orders")["table_erase"] == "Your user lacks the tag administrator."
    )
    own = may(served, "guest", "?resource=log&name=holdfast.broker")
    assert own["log_shorten"] == "Only the server changes this log."


def test_the_default_user_operates_nothing_and_another_administrator_does(served: Served) -> None:
    assert "default password" in str(may(served, "guest")["operate"])
    assert may(served, "guest")["administrate"] is None
    assert may(served, "operator")["operate"] is None


@pytest.mark.parametrize("resource", ["queue", "exchange", "log", "table"])
def test_every_operation_on_a_resource_is_listed(served: Served, resource: str) -> None:
    wanted = {operation.name.lower() for operation, rule in RULES.items() if rule.resource == resource}
    assert wanted < set(may(served, "guest", f"?resource={resource}&name=x"))


def test_another_resource_is_refused(served: Served) -> None:
    assert served.ask("GET", "/api/holdfast/may?resource=user&name=x").status == 400
