"""Exchanges and bindings over RabbitMQ's API."""

from urllib.parse import unquote_plus

import pytest

from holdfast.broker.routing import Binding
from holdfast.web.rabbitmq_api.bindings import chosen
from holdfast.web.rabbitmq_api.serializers import properties_key
from tests.web.rabbitmq_api.conftest import add_user
from tests.web.serving import Served, q


def test_an_exchange_is_declared_shown_and_deleted(broker: Served) -> None:
    body = {"type": "topic", "durable": True, "arguments": {"alternate-exchange": "amq.fanout"}}
    assert broker.ask("PUT", "/api/exchanges/%2F/ex", body).status == 201
    assert broker.ask("PUT", "/api/exchanges/%2F/ex", body).status == 204
    assert broker.ask("PUT", "/api/exchanges/%2F/ex", {**body, "type": "fanout"}).status == 400
    shown = broker.get("/api/exchanges/%2F/ex")
    assert (shown["type"], shown["durable"], shown["internal"]) == ("topic", True, False)
    assert shown["arguments"] == {"alternate-exchange": "amq.fanout"}
    assert broker.ask("DELETE", "/api/exchanges/%2F/ex").status == 204
    assert broker.ask("DELETE", "/api/exchanges/%2F/ex").status == 404


@pytest.mark.parametrize(
    ("method", "name", "body", "status"),
    [
        ("PUT", "e6", {"type": "nope"}, 400),
        ("PUT", "amq.x", {"type": "direct"}, 401),
        ("PUT", "amq.default", {"type": "direct"}, 401),
        ("DELETE", "amq.topic", None, 401),
        ("DELETE", "amq.default", None, 401),
        ("GET", "nope", None, 404),
    ],
)
def test_what_cannot_be_done_to_exchanges(broker: Served, method: str, name: str, body: object, status: int) -> None:
    assert broker.ask(method, f"/api/exchanges/%2F/{name}", body).status == status


def test_bindings_are_made_found_again_by_their_key_and_removed(broker: Served) -> None:
    broker.ask("PUT", "/api/exchanges/%2F/from", {"type": "topic"})
    broker.ask("PUT", "/api/exchanges/%2F/to", {"type": "fanout"})
    broker.ask("PUT", "/api/queues/%2F/end", {})
    between = "/api/bindings/%2F/e/from/q/end"
    for body in ({"routing_key": "r k/%", "arguments": {"a": 1}}, {"routing_key": "r"}, {}, {"routing_key": "a.*"}):
        made = broker.ask("POST", between, body)
        assert made.status == 201
        location = made.headers["Location"]
        assert broker.get(f"/api/bindings/%2F/e/from/q/{location}")["routing_key"] == body.get("routing_key", "")
    assert broker.ask("POST", "/api/bindings/%2F/e/from/e/to", {"routing_key": "x"}).status == 201
    assert broker.get("/api/exchanges/%2F/to/bindings/destination")[0]["source"] == "from"
    assert len(broker.get("/api/exchanges/%2F/from/bindings/source")) == 5
    assert [one["source"] for one in broker.get("/api/queues/%2F/end/bindings")] == ["", *["from"] * 4]
    assert broker.get("/api/bindings/%2F/e//q/end") == broker.get("/api/bindings/%2F/e/amq.default/q/end")
    for shown in broker.get(between):
        assert broker.ask("DELETE", f"{between}/{q(shown['properties_key'])}").status == 204
    assert broker.ask("DELETE", f"{between}/r").status == 404
    assert broker.get(between) == []
    assert broker.ask("DELETE", "/api/exchanges/%2F/from?if-unused=true").status == 400  # it has a binding
    assert broker.ask("DELETE", "/api/bindings/%2F/e/from/e/to/x").status == 204
    assert broker.ask("DELETE", "/api/exchanges/%2F/from?if-unused=true").status == 204


def test_bindings_that_cannot_be(broker: Served) -> None:
    broker.ask("PUT", "/api/queues/%2F/end", {})
    assert broker.ask("POST", "/api/bindings/%2F/e/amq.topic/q/nope", {}).status == 404
    assert broker.ask("POST", "/api/bindings/%2F/e/nope/q/end", {}).status == 404
    assert broker.ask("POST", "/api/bindings/%2F/e/amq.default/q/end", {"routing_key": "r"}).status == 401
    assert broker.ask("POST", "/api/bindings/%2F/e/amq.topic/q/end", {"arguments": 5}).status == 400
    assert broker.get("/api/bindings/%2F/e/amq.topic/q/nope") == []


def test_binding_needs_permission_at_both_ends(broker: Served) -> None:
    for name in ("src.a", "dst.b"):
        broker.ask("PUT", f"/api/exchanges/%2F/{name}", {"type": "direct"})
    broker.ask("PUT", "/api/queues/%2F/dst.q", {})
    add_user(broker, "half", "management", "/", "^dst")
    assert broker.ask("POST", "/api/bindings/%2F/e/src.a/q/dst.q", {}, user="half").status == 401
    assert broker.ask("POST", "/api/bindings/%2F/e/src.a/e/dst.b", {}, user="half").status == 401
    add_user(broker, "half", "management", "/", "^(dst|src)")
    assert broker.ask("POST", "/api/bindings/%2F/e/src.a/q/dst.q", {}, user="half").status == 201


@pytest.mark.parametrize("key", ["", "a", "a.*", "r k/%", "a%2A", "~", "ü", "+"])
@pytest.mark.parametrize("arguments", [{}, {"x": 1}, {"x": "1"}])
def test_each_binding_has_a_key_of_its_own(key: str, arguments: dict[str, object]) -> None:
    others = [
        Binding("/", "e", "queue", "q", other, given)
        for other in ("", "a", "a.*", "r k/%", "a%2A", "~", "ü", "+", "*")
        for given in ({}, {"x": 1}, {"x": "1"})
    ]
    wanted = Binding("/", "e", "queue", "q", key, arguments)
    assert chosen(others, properties_key(wanted)) == wanted
    assert len({properties_key(one) for one in others}) == len(others)
    if key != "a.*":  # encoded once less it is still found, where nothing else is called so
        assert chosen([wanted], unquote_plus(properties_key(wanted))) == wanted
