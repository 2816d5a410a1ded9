"""What the tests of RabbitMQ's API share: a served store, clients of its broker, and users."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.web.serving import Served

Connect = Callable[..., pika.BlockingConnection]
Seen = TypeVar("Seen")
PATIENCE_S = 180.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A served store for all tests of a module."""
    with Served(tmp_path_factory.mktemp("rabbit") / "data") as one:
        yield one


@pytest.fixture
def connect(broker: Served) -> Iterator[Connect]:
    """Connects clients; those that are still there at the end are closed."""
    made: list[pika.BlockingConnection] = []

    def one(user: str = "guest", password: str | None = None, vhost: str = "/", **options: Any) -> Any:
        login = pika.PlainCredentials(user, password or user)
        where = pika.ConnectionParameters("127.0.0.1", broker.amqp, vhost, login, **options)
        made.append(pika.BlockingConnection(where))
        return made[-1]

    yield one
    for connection in made:
        with contextlib.suppress(pika.exceptions.AMQPError):  # those that were sent away
            connection.close()


@pytest.fixture
def channel(connect: Connect) -> BlockingChannel:
    """A channel of a client that may do everything."""
    return connect().channel()


def add_user(broker: Served, name: str, tags: str = "", vhost: str | None = None, patterns: str = ".*") -> None:
    """A user whose password is the name, who may do this in the virtual host."""
    assert broker.ask("PUT", f"/api/users/{name}", {"password": name, "tags": tags}).status in (201, 204)
    if vhost is not None:
        where = vhost.replace("/", "%2F")
        body = {"configure": patterns, "write": patterns, "read": patterns}
        assert broker.ask("PUT", f"/api/permissions/{where}/{name}", body).status in (201, 204)


def until(look: Callable[[], Seen], what: str) -> Seen:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert time.monotonic() < deadline, f"the condition did not become true: {what}"
        time.sleep(0.02)
    return seen
