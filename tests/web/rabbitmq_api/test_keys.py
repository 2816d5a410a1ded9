"""Responses have the keys of RabbitMQ 3.10's, as they were recorded; missing ones are listed here."""

import functools
import json
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from holdfast.web.rabbitmq_api.serializers import node_name
from tests.web.rabbitmq_api.conftest import Connect
from tests.web.serving import Served, q

FACTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "facts.json").read_text())
ERLANG = {"garbage_collection", "reductions", "reductions_details"}
"""What only a process of Erlang has."""
LEFT_OUT = {
    "queue": ERLANG,
    "queue.listed": ERLANG,
    "queue.exclusive": ERLANG,
    "connection": {*ERLANG, "recv_cnt", "send_cnt"},
    "channel": {*ERLANG, "idle_since", "pending_raft_commands"},
    "node": {
        name
        for name in FACTS["node"]
        if name.startswith(
            ("channel_", "context_", "gc_", "io_", "metrics_gc", "mnesia_", "msg_store", "queue_", "ra_open")
        )
    },
}


@pytest.fixture
def busy(broker: Served, connect: Connect) -> BlockingChannel:
    """A channel with a consumer that holds messages, and an exclusive queue."""
    channel = connect(client_properties={"connection_name": "mine"}).channel()
    channel.exchange_declare("ex", "topic", durable=True)
    channel.queue_declare("q", durable=True, arguments={"x-max-length": 100})
    channel.queue_declare("own", exclusive=True)
    channel.queue_bind("q", "ex", "a.*")
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish("ex", "a.b", b"%d" % number, pika.BasicProperties(timestamp=1_700_000_000))
    channel.basic_consume("q", lambda *_: None)
    channel.connection.process_data_events(0.1)
    return channel


def same_keys(fact: str, answer: dict[str, Any]) -> None:
    missing = set(FACTS[fact]) - set(answer)
    assert missing == LEFT_OUT.get(fact, set()), f"{fact}: {missing}"


def test_every_answer_has_the_keys_that_rabbitmq_gives(broker: Served, busy: BlockingChannel) -> None:
    broker.add_user("boss", tags=("administrator",))  # the default user is not shown password hashes
    get = functools.partial(broker.get, user="boss")
    overview = get("/api/overview")
    same_keys("overview", overview)
    same_keys("overview.object_totals", overview["object_totals"])
    same_keys("overview.queue_totals", overview["queue_totals"])
    same_keys("overview.listener", overview["listeners"][0])
    same_keys("node", get("/api/nodes")[0])
    same_keys("node", get(f"/api/nodes/{q(node_name())}"))
    for name in ("whoami", "auth"):
        same_keys(name, get(f"/api/{name}"))
    same_keys("cluster_name", get("/api/cluster-name"))
    definitions = get("/api/definitions")
    same_keys("definitions", definitions)
    same_keys("definitions_of_vhost", get("/api/definitions/%2F"))
    for name in ("queue", "exchange", "binding", "user", "permission"):
        same_keys(f"definitions.{name}", definitions[f"{name}s"][0])
    same_keys("connection", get("/api/connections")[0])
    [channel] = get("/api/channels")
    same_keys("channel", channel)
    same_keys("channel.connection_details", channel["connection_details"])
    same_keys("consumer", get("/api/consumers")[0])
    same_keys("consumer.channel_details", get("/api/consumers")[0]["channel_details"])
    same_keys("exchange", get("/api/exchanges/%2F/ex"))
    same_keys("binding", get("/api/bindings")[0])
    queue = get("/api/queues/%2F/q")
    same_keys("queue", queue)
    same_keys("queue.message_stats", queue["message_stats"])
    same_keys("queue.listed", next(one for one in get("/api/queues") if one["name"] == "q"))
    same_keys("queue.exclusive", get("/api/queues/%2F/own"))
    same_keys("queue.without_stats", get("/api/queues?disable_stats=true")[0])
    same_keys("queue.with_totals", get("/api/queues?disable_stats=true&enable_queue_totals=true")[0])
    same_keys("page", get("/api/queues?page=1"))
    same_keys("vhost", get("/api/vhosts")[0])
    same_keys("user", get("/api/users/guest"))
    same_keys("permission", get("/api/permissions/%2F/guest"))
    sent = {"properties": {}, "routing_key": "own2", "payload": "x", "payload_encoding": "string"}
    broker.ask("PUT", "/api/queues/%2F/own2", {})
    same_keys("published", broker.post("/api/exchanges/%2F/amq.default/publish", sent))
    wanted = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    same_keys("got", broker.post("/api/queues/%2F/own2/get", wanted)[0])
    same_keys("port_listener", get(f"/api/health/checks/port-listener/{broker.amqp}"))
    same_keys("port_listener.failed", broker.ask("GET", "/api/health/checks/port-listener/1").json)
    same_keys("protocol_listener.failed", broker.ask("GET", "/api/health/checks/protocol-listener/amqps").json)


RATED = {
    "overview.message_stats": "publish ack deliver deliver_get get redeliver drop_unroutable return_unroutable",
    "queue.message_stats": "publish ack deliver deliver_get get redeliver",
    "exchange.message_stats": "publish_in publish_out",
    "channel.message_stats": "publish deliver deliver_get",
}
"""What exporters read as a count, and as a rate in `..._details.rate`."""
EXPORTED = {
    "overview": "object_totals queue_totals message_stats rabbitmq_version erlang_version cluster_name node",
    "overview.queue_totals": "messages messages_ready messages_unacknowledged",
    "overview.object_totals": "channels connections consumers queues exchanges",
    "queue": "name vhost node state policy durable auto_delete exclusive messages messages_ready messages_ram "
    "messages_unacknowledged messages_persistent message_bytes message_bytes_ready message_bytes_unacknowledged "
    "message_bytes_ram message_bytes_persistent consumers consumer_utilisation memory head_message_timestamp",
    "exchange": "name vhost type durable internal message_stats",
    "connection": "name user vhost node state channels recv_oct send_oct send_pend peer_host",
    "channel": "name user vhost number consumer_count messages_unacknowledged messages_unconfirmed prefetch_count",
    "node": "name running uptime mem_used mem_limit mem_alarm disk_free disk_free_limit disk_free_alarm fd_used "
    "fd_total sockets_used sockets_total run_queue proc_used proc_total partitions",
}
"""What the exporters that are common for RabbitMQ read."""


def test_exporters_find_what_they_read(broker: Served, busy: BlockingChannel) -> None:
    answers: dict[str, dict[str, Any]] = {
        "overview": broker.get("/api/overview"),
        "queue": next(one for one in broker.get("/api/queues") if one["name"] == "q"),
        "exchange": next(one for one in broker.get("/api/exchanges") if one["name"] == "ex"),
        "connection": broker.get("/api/connections")[0],
        "channel": broker.get("/api/channels")[0],
        "node": broker.get("/api/nodes")[0],
    }
    for where, names in {**EXPORTED, **RATED}.items():
        outer, _, inner = where.partition(".")
        found = answers[outer][inner] if inner else answers[outer]
        for name in names.split():
            assert name in found, f"{where} lacks {name}"
            if where in RATED:
                assert isinstance(found[name], int), (where, name)
                assert isinstance(found[f"{name}_details"]["rate"], float | int), (where, name)
    stats = answers["exchange"]["message_stats"]
    assert stats["publish_in"] == stats["publish_out"] >= 3  # other tests publish there, too
    assert answers["channel"]["message_stats"]["deliver"] >= 3


def test_what_found_no_queue_is_counted(broker: Served, connect: Connect) -> None:
    channel = connect().channel()
    channel.exchange_declare("lost", "direct")
    before = broker.get("/api/overview")["message_stats"]
    channel.basic_publish("lost", "nowhere", b"x")
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("lost", "nowhere", b"x", mandatory=True)
    after = broker.get("/api/overview")["message_stats"]
    assert after["drop_unroutable"] - before["drop_unroutable"] == 1
    assert after["return_unroutable"] - before["return_unroutable"] == 1
    found = broker.get("/api/exchanges/%2F/lost")["message_stats"]
    assert (found["publish_in"], found["publish_out"]) == (2, 0)
    channel.exchange_delete("lost")
    channel.exchange_declare("lost", "direct")
    assert "message_stats" not in broker.get("/api/exchanges/%2F/lost")


def test_what_is_left_out_is_in_rabbitmqs_answers() -> None:
    for fact, names in LEFT_OUT.items():
        assert names <= set(FACTS[fact])
