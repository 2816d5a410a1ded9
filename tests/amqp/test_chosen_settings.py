"""Settings that a program chose for a queue, when the queue is declared over AMQP, and the other way round."""

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Backoff
from holdfast.amqp import methods as m
from tests.amqp.serving import Closed, Served, served


def settings_of(data: Path, name: str) -> Any:
    """The settings as a program finds them that chooses nothing."""
    with holdfast.open(data) as store:
        return store.queue(name).settings


def as_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a queue, as the client takes them."""
    return arguments


def poison(broker: Served, queue: str, most: int = 30) -> int:
    """How often a message is delivered to a consumer that always gives it back."""
    with broker.client() as client:
        for count in range(most):
            got = client.get(queue, no_ack=False)
            if got is None:
                return count
            assert isinstance(got.method, m.BasicGetOk)
            client.send(m.method_frame(1, m.BasicNack(got.method.delivery_tag, multiple=False, requeue=True)))
    return most


def test_a_declaration_without_arguments_keeps_what_a_program_chose(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with holdfast.open(data) as store:
        queue = store.queue(
            "orders",
            max_attempts=3,
            dead_letter="failed",
            max_length=5,
            overflow="reject",
            ttl=3600,
            backoff=Backoff(base=0),
            history=60,
        )
        chosen = queue.settings
        queue.put(b"poison")
    for _ in range(2):  # the second time the broker knows the queue from its own definitions
        with served(data) as broker, broker.client() as client:
            client.declare("orders")
            assert client.call(m.QueueDeclare(queue="orders", passive=True), m.QueueDeclareOk).queue == "orders"
        assert settings_of(data, "orders") == chosen
    with served(data) as broker:
        assert poison(broker, "orders") == 3
        with broker.client() as client:
            client.declare("orders")
            client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            client.publish("orders", [b"%d" % number for number in range(8)])
            while client.confirms.up_to < 8:
                client.take_confirms()
            assert len(client.confirms.refused) == 3  # it holds five, and refuses more as was chosen
    with holdfast.open(data) as store:
        assert [one.payload for one in store.queue("failed").peek(10)] == [b"poison"]


def test_a_program_that_chose_nothing_keeps_its_defaults(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = settings_of(data, "orders")
    with served(data) as broker, broker.client() as client:
        client.declare("orders")
    assert settings_of(data, "orders") == before
    assert (before.max_attempts, before.dead_letter) == (3, "orders.dead")


@pytest.mark.parametrize(
    ("chosen", "argument", "value"),
    [
        ({"max_attempts": 3}, "x-delivery-limit", 5),
        ({"max_attempts": None}, "x-delivery-limit", 5),
        ({"dead_letter": "failed"}, "x-dead-letter-exchange", "amq.direct"),
        ({"dead_letter": None}, "x-dead-letter-exchange", ""),
        ({"max_length": 5}, "x-max-length", 6),
        ({"max_bytes": 500}, "x-max-length-bytes", 6),
        ({"ttl": 60}, "x-message-ttl", 60_001),
        ({"ttl": None}, "x-message-ttl", 60_000),
        ({"overflow": "reject"}, "x-overflow", "drop-head"),
        ({"overflow": "drop-head"}, "x-overflow", "reject-publish"),
    ],
)
def test_an_argument_that_contradicts_what_was_chosen_is_406(
    tmp_path: Path, chosen: Any, argument: str, value: object
) -> None:
    data = tmp_path / "data"
    with holdfast.open(data) as store:
        before = store.queue("orders", **chosen).settings
    with served(data) as broker, broker.client() as client:
        with pytest.raises(Closed) as closed:
            client.declare("orders", **as_arguments({argument: value}))
        (setting,) = chosen
        assert closed.value.code == 406
        for word in ("PRECONDITION_FAILED", f"inequivalent arg '{argument}'", "queue 'orders'", setting):
            assert word in closed.value.text
        with broker.client() as again, pytest.raises(Closed, match="404"):
            again.count("orders")
    assert settings_of(data, "orders") == before


@pytest.mark.parametrize(
    ("declaration", "named"),
    [
        ({}, "durable"),
        ({"exclusive": True}, "exclusive"),
        ({"durable": True, "exclusive": True}, "exclusive"),
        ({"durable": True, "auto_delete": True}, "auto_delete"),
        ({"durable": True, "arguments": {"x-expires": 50}}, "x-expires"),
    ],
)
def test_a_declaration_that_would_hide_or_delete_a_programs_queue_is_406(
    tmp_path: Path, declaration: Any, named: str
) -> None:
    data = tmp_path / "data"
    with holdfast.open(data) as store:
        store.queue("orders").put(b"kept")
    with served(data) as broker:
        for _ in range(2):
            with broker.client() as client, pytest.raises(Closed) as closed:
                client.call(m.QueueDeclare(queue="orders", **declaration), m.QueueDeclareOk)
            assert closed.value.code == 406
            for word in ("PRECONDITION_FAILED", f"inequivalent arg '{named}'", "queue 'orders'"):
                assert word in closed.value.text
        with broker.client() as client, pytest.raises(Closed, match="404"):
            client.count("orders")
        with broker.client() as client:
            client.declare("orders")
            assert client.count("orders") == 1
    with holdfast.open(data) as store:
        assert [one.payload for one in store.queue("orders").peek(10)] == [b"kept"]


def test_an_argument_that_says_the_same_or_that_nobody_chose_is_taken(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with holdfast.open(data) as store:
        store.queue("orders", max_attempts=3, max_length=5, ttl=60, overflow="dead-letter", dead_letter="failed")
        store.queue("open", max_attempts=3)
    same = {"x-delivery-limit": 2, "x-max-length": 5, "x-message-ttl": 60_000, "x-overflow": "drop-head"}
    with served(data) as broker, broker.client() as client:
        client.declare("orders", **as_arguments(same))
        client.declare("open", **as_arguments({"x-max-length": 7, "x-dead-letter-exchange": "amq.direct"}))
    found = settings_of(data, "orders")
    assert (found.max_attempts, found.max_length, found.ttl, found.dead_letter) == (3, 5, 60, "failed")
    found = settings_of(data, "open")
    assert (found.max_attempts, found.max_length, found.dead_letter) == (3, 7, "amqp-dlx:open")


def test_an_argument_that_says_the_same_is_taken_also_after_a_declaration_without_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with holdfast.open(data) as store:
        store.queue("orders", max_attempts=3, max_length=5, ttl=60, overflow="reject", dead_letter="failed")
    same = {"x-delivery-limit": 2, "x-max-length": 5, "x-message-ttl": 60_000, "x-overflow": "reject-publish"}
    others = {"x-max-length": 6, "x-message-ttl": 1, "x-overflow": "drop-head", "x-dead-letter-exchange": "amq.fanout"}
    for _ in range(2):  # the second time the broker knows the queue from its own definitions
        with served(data) as broker:
            with broker.client() as client:
                client.declare("orders")
                client.declare("orders", **as_arguments(same))
                client.declare("orders", **as_arguments({"x-max-length": 5}))
                client.declare("orders")
            for argument, value in others.items():
                with broker.client() as client, pytest.raises(Closed, match=f"406.*'{argument}'.*a program chose"):
                    client.declare("orders", **as_arguments({**same, argument: value}))
            for argument, unsaid in (("x-max-length-bytes", 7), ("x-max-priority", 3)):
                with broker.client() as client, pytest.raises(Closed, match=f"406.*'{argument}'.*current is none"):
                    client.declare("orders", **as_arguments({argument: unsaid}))
    found = settings_of(data, "orders")
    assert (found.max_attempts, found.max_length, found.ttl, found.dead_letter) == (3, 5, 60, "failed")


def test_an_argument_that_only_amqp_implied_is_compared_as_rabbitmq_does(tmp_path: Path) -> None:
    declared = {"x-dead-letter-exchange": "amq.fanout", "x-max-length": 5}
    with served(tmp_path / "data") as broker:
        with broker.client() as client:
            client.declare("orders", **as_arguments(declared))
        for more in ({"x-overflow": "drop-head"}, {"x-delivery-limit": -1}, {"x-max-length": 6}):
            with broker.client() as client, pytest.raises(Closed, match="406"):
                client.declare("orders", **as_arguments({**declared, **more}))


def test_a_program_that_chooses_nothing_keeps_what_amqp_declared(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data, history="30d") as broker, broker.client() as client:
        client.declare("orders", **as_arguments({"x-max-length": 7, "x-message-ttl": 1000}))
    found = settings_of(data, "orders")
    assert (found.max_length, found.ttl, found.max_attempts, found.dead_letter) == (7, 1, None, None)
    assert found.history == 30 * 86_400


def test_what_a_program_chooses_for_a_queue_of_amqp_survives_the_next_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data) as broker, broker.client() as client:
        client.declare("orders", **as_arguments({"x-max-length": 7}))
    with holdfast.open(data) as store:
        store.queue("orders", max_attempts=4, history=60)
    with served(data, history="3d") as broker, broker.client() as client:
        client.declare("orders", **as_arguments({"x-max-length": 7}))
        client.declare("other")
    found = settings_of(data, "orders")
    assert (found.max_attempts, found.history, found.max_length) == (4, 60, 7)
    with served(data, history="5d"):
        pass
    assert settings_of(data, "orders").history == 60
    assert settings_of(data, "other").history == 5 * 86_400  # which nobody chose but the server
