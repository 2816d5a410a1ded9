"""Queues that a program created in a served store: declarations and definitions that name them."""

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.broker.definitions import LOG_NAME
from tests.web.serving import Served


@pytest.fixture
def served(tmp_path: Path) -> Any:
    """A server over a store in which a program made the queue `orders`."""
    with holdfast.open(tmp_path / "data") as store:
        store.queue("orders", max_attempts=3, dead_letter="failed", max_length=5).put(b"kept")
    with Served(tmp_path / "data") as one:
        yield one


def document(**queue: Any) -> dict[str, Any]:
    """Definitions of one queue, and of more that would be taken over with it."""
    about = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    return {
        "vhosts": [{"name": "side"}],
        "users": [{"name": "clerk", "password": "clerk", "tags": ""}],
        "queues": [{"name": "before", **about}, {"name": "orders", **about, **queue}, {"name": "behind", **about}],
    }


@pytest.mark.parametrize(
    "queue",
    [{"durable": False}, {"auto_delete": True}, {"arguments": {"x-expires": 1000}}],
    ids=lambda queue: next(iter(queue)),
)
def test_definitions_and_declarations_that_would_hide_or_delete_a_programs_queue_are_refused(
    served: Served, queue: dict[str, Any]
) -> None:
    end = served.store.log(LOG_NAME).end
    declaration = {"durable": True, "auto_delete": False, "arguments": {}, **queue}
    for method, path, content in (
        ("POST", "/api/definitions", document(**queue)),
        ("PUT", "/api/queues/%2F/orders", declaration),
    ):
        answer = served.ask(method, path, content)
        assert (answer.status, "inequivalent arg" in answer.json["reason"]) == (400, True)
        assert (served.store.log(LOG_NAME).end, served.site.host("/").broker_queues) == (end, {})
    assert served.get("/api/holdfast/queues/%2F/orders")["ready"] == 1


@pytest.mark.parametrize("path", ["/api/definitions", "/api/definitions/%2F"])
def test_definitions_that_contradict_a_program_are_refused_as_a_whole(served: Served, path: str) -> None:
    chosen = served.store.queue_registry.chosen_for("orders")
    end = served.store.log(LOG_NAME).end
    for arguments in (
        {"x-max-length": 99},
        {"x-dead-letter-exchange": "amq.fanout"},
        {"x-delivery-limit": 50},
    ):
        answer = served.ask("POST", path, document(arguments=arguments))
        assert answer.status == 400, arguments
        assert "a program chose" in answer.json["reason"] and "'orders'" in answer.json["reason"]
        assert served.store.log(LOG_NAME).end == end
        assert "side" not in served.site.broker.hosts
        assert served.site.host("/").broker_queues == {}
        assert served.store.queue_registry.chosen_for("orders") == chosen


def test_definitions_that_agree_with_a_program_are_taken_over(served: Served) -> None:
    chosen = served.store.queue_registry.chosen_for("orders")
    served.post("/api/definitions", document(arguments={"x-max-length": 5, "x-delivery-limit": 2}))
    assert served.site.host("/").broker_queues.keys() == {"before", "orders", "behind"}
    found = served.get("/api/holdfast/queues/%2F/orders")
    assert found["ready"] == 1
    assert served.store.queue_registry.chosen_for("orders") == chosen
