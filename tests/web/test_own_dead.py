"""What becomes of messages that could not be delivered, seen and settled over HTTP?"""

from pathlib import Path
from typing import Any

import pika
import pytest

import holdfast
from tests.web.serving import Served

ALL = "/api/holdfast/queues"


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    """A store in which a program's queue has three dead letters, for two reasons."""
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue("orders", dead_letter="orders.dead", max_attempts=1)
        queue.put_many([b"a", b"b", b"c", b"fine"])
        for message in queue.lease(3):
            message.nack("no stock" if message.payload != b"c" else "no customer")
    return tmp_path / "data"


def test_the_letters_of_a_programs_queue_are_grouped_put_back_and_deleted(embedded: Path) -> None:
    with Served(embedded) as served:
        path = f"{ALL}/%2F/orders"
        found = served.get(path + "/dead")
        assert [(one["reason"], one["count"]) for one in found["groups"]] == [("no stock", 2), ("no customer", 1)]
        assert found["total"] == 3 and len(found["letters"]) == 3
        assert served.get("/api/holdfast/dead")["queues"][0]["count"] == 3
        assert len(served.get(path + "/dead?reason=no%20stock")["letters"]) == 2
        assert served.post(path + "/redrive", {"reason": "no stock"}) == {"redriven": 2}
        assert served.get(path)["ready"] == 3
        last = served.get(path + "/dead")["letters"]
        assert [one["payload"] for one in last] == ["c"]
        assert served.post(path + "/dead/delete", {"ids": [last[0]["id"]]}) == {"deleted": 1}
        assert served.get(path + "/dead")["total"] == 0
        assert served.post(path + "/redrive", {}) == {"redriven": 0}
        assert served.ask("POST", path + "/redrive", {"ids": ["x"]}).status == 400


@pytest.fixture
def dying(served: Served) -> Served:
    """A broker with two letters that AMQP led to a queue of dead letters."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("dlx", "fanout", durable=True)
        channel.queue_declare("graves", durable=True)
        channel.queue_bind("graves", "dlx")
        channel.queue_declare("work", durable=True, arguments={"x-dead-letter-exchange": "dlx"})
        for body in (b"one", b"two"):
            properties = pika.BasicProperties(delivery_mode=2, headers={"k": "v"}, content_type="text/plain")
            channel.basic_publish("", "work", body, properties)
        for _ in range(2):
            method, _, _ = channel.basic_get("work")
            channel.basic_reject(method.delivery_tag, requeue=False)
        while channel.queue_declare("graves", passive=True).method.message_count < 2:
            connection.process_data_events(0.05)
    return served


def test_the_letters_of_amqp_are_found_from_both_ends_and_put_back_where_they_died(dying: Served) -> None:
    for name in ("work", "graves"):
        found = dying.get(f"{ALL}/%2F/{name}/dead")
        assert [(one["reason"], one["origin"], one["count"]) for one in found["groups"]] == [("rejected", "work", 2)], (
            name
        )
    letters: list[dict[str, Any]] = dying.get(f"{ALL}/%2F/graves/dead")["letters"]
    assert letters[0]["payload"] == "one" and letters[0]["headers"]["k"] == "v"
    assert dying.post(f"{ALL}/%2F/graves/redrive", {"ids": [letters[0]["id"]]}) == {"redriven": 1}
    assert dying.get(f"{ALL}/%2F/graves/dead")["total"] == 1
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", dying.amqp)) as connection:
        method, properties, body = connection.channel().basic_get("work", auto_ack=True)
        assert (body, properties.content_type, method.routing_key) == (b"one", "text/plain", "work")
        assert properties.headers["x-redriven"] == 1 and properties.headers["k"] == "v"
    assert dying.get("/api/holdfast/dead")["queues"] == [
        {"vhost": "/", "name": "graves", "count": 1, "groups": dying.get(f"{ALL}/%2F/graves/dead")["groups"]}
    ]
    assert dying.post(f"{ALL}/%2F/work/dead/delete", {}) == {"deleted": 1}
    assert dying.get("/api/holdfast/dead")["queues"] == []


def test_putting_back_needs_the_permission_to_write_where_it_goes(dying: Served) -> None:
    users = dying.site.broker.users
    dying.site.on_broker(lambda: users.add("clerk", "clerk", tags=("management",)))
    dying.site.on_broker(lambda: users.permit("clerk", "/", "", "^graves$", "^graves$"))
    answer = dying.ask("POST", f"{ALL}/%2F/graves/redrive", {}, user="clerk")
    assert answer.status == 403
    assert dying.get(f"{ALL}/%2F/graves/dead")["total"] == 2
