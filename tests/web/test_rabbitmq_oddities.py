"""RabbitMQ's API with callers that have few permissions, and with malformed requests."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.web.rabbitmq_api.pagination import pattern_of
from tests.web.serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("review") / "data") as one:
        assert one.ask("PUT", "/api/vhosts/secret").status == 201
        assert one.ask("PUT", "/api/queues/%2F/mine", {"durable": True}).status == 201
        assert one.ask("PUT", "/api/users/small", {"password": "small", "tags": "management"}).status == 201
        mine = {"configure": "^mine$", "write": "^mine$", "read": "^mine$"}
        assert one.ask("PUT", "/api/permissions/%2F/small", mine).status == 201
        yield one


@pytest.mark.parametrize("path", ["/api/queues/nix", "/api/policies/nix", "/api/holdfast/queues/nix/q"])
def test_a_wrong_virtual_host_tells_nobody_which_others_there_are(served: Served, path: str) -> None:
    answer = served.ask("GET", path, user="small", password="small")
    assert answer.status == 404
    assert "secret" not in answer.body.decode()


@pytest.mark.parametrize("what", ["policies", "operator-policies", "vhost-limits"])
def test_what_is_not_here_is_not_shown_of_the_virtual_hosts_of_others(served: Served, what: str) -> None:
    assert served.ask("GET", f"/api/{what}/secret", user="small", password="small").status == 401
    assert served.ask("GET", f"/api/{what}/%2F", user="small", password="small").status == 200
    assert served.ask("GET", f"/api/{what}/secret").status == 200


@pytest.mark.parametrize(
    "text", ["a?" * 40 + "b", "(a{0,9}){0,50}b", "(ab|a.){40}c", "a{0,99}" * 20 + "b", "(a?b?){60}"]
)
def test_patterns_that_fit_in_very_many_ways_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="could take too long"):
        pattern_of(text)


@pytest.mark.parametrize("text", ["colou?r", "^(eu|us)-(in|out|err)-[a-z]+[.]v?[0-9]{1,3}$", ".*dead.*"])
def test_patterns_that_people_write_are_taken(text: str) -> None:
    pattern_of(text)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/definitions", {"users": 5}),
        ("/api/definitions/%2F", {"queues": 5}),
        ("/api/definitions/%2F", {"queues": [5]}),
        ("/api/definitions/%2F", {"queues": "abc"}),
        ("/api/definitions/%2F", {"exchanges": {"a": 1}}),
        ("/api/queues/%2F/mine/get", {"count": "9" * 5000, "ackmode": "ack_requeue_true", "encoding": "auto"}),
    ],
)
def test_what_nobody_should_send_is_refused_and_no_fault_of_the_server(served: Served, path: str, body: Any) -> None:
    assert served.ask("POST", path, body).status == 400


def test_what_has_a_name_that_is_no_text_is_refused(served: Served) -> None:
    for what in ("vhosts/%ff", "queues/%2F/%ff", "exchanges/%2F/%ff"):
        assert served.ask("PUT", f"/api/{what}", {"durable": True}).status == 400
    refused = served.ask("PUT", "/api/users/%ff", {"password": "x", "tags": ""})
    assert (refused.status, "must be valid UTF-8" in refused.json["reason"]) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "more"),
    [
        ("PUT", "/api/queues/%2F/large", {"durable": True}),
        ("PUT", "/api/exchanges/%2F/large", {"type": "topic", "durable": True}),
        ("POST", "/api/bindings/%2F/e/amq.topic/q/mine", {"routing_key": "large"}),
        ("POST", "/api/holdfast/queues", {"name": "large"}),
    ],
)
def test_arguments_that_amqp_cannot_say_are_refused(
    served: Served, method: str, path: str, more: dict[str, Any]
) -> None:
    refused = served.ask(method, path, {**more, "arguments": {"x-max-length": 2**80}})
    assert (refused.status, "must fit into 64 bits" in refused.json["reason"]) == (400, True)
    assert served.ask(method, path, {**more, "arguments": {"x-max-length": 2**40}}).status == 201


def test_a_routing_key_that_amqp_cannot_encode_is_rejected(served: Served) -> None:
    message = {"properties": {}, "payload": "x", "payload_encoding": "string"}
    for key, status in (("k" * 255, 200), ("k" * 256, 400), ("é" * 128, 400)):
        path = "/api/exchanges/%2F/amq.fanout/publish"
        assert served.ask("POST", path, {**message, "routing_key": key}).status == status
    bound = served.ask("POST", "/api/bindings/%2F/e/amq.topic/q/mine", {"routing_key": "k" * 256})
    assert bound.status == 400
