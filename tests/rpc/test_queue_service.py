"""Our own interface of a served store, where others come by AMQP and HTTP: scenarios of `holdfast_client.py`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.amqp.serving import eventually
from tests.rpc.conftest import Start
from tests.web.serving import Served

CLIENT = "tests.rpc.holdfast_client"
ORDERS = "/api/holdfast/queues/%2F/orders"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A served store with a queue, and a user who may use it."""
    with Served(tmp_path / "data", rpc_port=0) as one:
        users = one.site.broker.users
        one.site.on_broker(lambda: users.add("worker", "worker"))
        one.site.on_broker(lambda: users.permit("worker", "/", "", ".*", ".*"))
        one.post("/api/holdfast/queues", {"name": "orders"})
        yield one


def port_of(served: Served) -> int:
    return next(int(str(one["port"])) for one in served.site.listeners if one["protocol"] == "capnp")


def token_of(served: Served) -> dict[str, Any]:
    made: dict[str, Any] = served.post("/api/holdfast/tokens", {"name": "ci", "lifetime": "1h"}, user="worker")
    return made


def withdraw(served: Served, token: dict[str, Any]) -> None:
    assert served.ask("DELETE", f"/api/holdfast/tokens/{token['id']}", user="worker").status == 204


def change_password(served: Served, token: dict[str, Any]) -> None:
    served.site.on_broker(lambda: served.site.broker.users.change_password("worker", "another"))


def test_a_queue_of_one_connection_of_amqp_is_locked(served: Served, start: Start) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp)) as connection:
        connection.channel().queue_declare("mine", exclusive=True)
        code, output = start(CLIENT, "a_queue_of_one_connection_of_amqp_is_locked", port_of(served)).end()
    assert code == 0, output


@pytest.mark.parametrize("end", [withdraw, change_password])
def test_a_session_ends_with_its_token(
    served: Served, start: Start, end: Callable[[Served, dict[str, Any]], None]
) -> None:
    token = token_of(served)
    client = start(CLIENT, "a_session_ends_with_its_token", port_of(served), token["token"])
    assert client.line() == "entered"
    end(served, token)
    client.go_on()
    code, output = client.end()
    assert code == 0, output
    row = served.get(ORDERS)
    assert (row["ready"], row["leased"]) == (1, 1)


def test_a_lease_that_waits_ends_with_its_token(served: Served, start: Start) -> None:
    token = token_of(served)
    client = start(CLIENT, "a_lease_that_waits_ends_with_its_token", port_of(served), token["token"])
    assert client.line() == "waiting"
    withdraw(served, token)
    served.post(ORDERS + "/messages", {"messages": [{"payload": "x"}]})
    client.go_on()
    code, output = client.end()
    assert code == 0, output
    eventually(lambda: served.get(ORDERS)["ready"] == 1)
