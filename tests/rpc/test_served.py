"""Our own interface of a served store, where others come by AMQP and HTTP: scenarios of `holdfast_client.py`."""

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.rpc.conftest import Start
from tests.web.serving import Served

CLIENT = "tests.rpc.holdfast_client"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A served store with a queue."""
    with Served(tmp_path / "data", rpc_port=0) as one:
        one.post("/api/holdfast/queues", {"name": "orders"})
        yield one


def port_of(served: Served) -> int:
    return next(int(str(one["port"])) for one in served.site.listeners if one["protocol"] == "capnp")


def test_a_queue_of_one_connection_of_amqp_is_locked(served: Served, start: Start) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp)) as connection:
        connection.channel().queue_declare("mine", exclusive=True)
        code, output = start(CLIENT, "a_queue_of_one_connection_of_amqp_is_locked", port_of(served)).end()
    assert code == 0, output
