"""Queues and messages over RabbitMQ's API."""

from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.web.rabbitmq_api.conftest import Connect, add_user, until
from tests.web.serving import Served, q

EVERY = {"count": 100, "ackmode": "ack_requeue_true", "encoding": "auto"}


def test_a_queue_shows_what_is_ready_and_what_is_held(broker: Served, channel: BlockingChannel) -> None:
    channel.queue_declare("counted", durable=True)
    channel.confirm_delivery()
    for _ in range(5):
        channel.basic_publish("", "counted", b"x", pika.BasicProperties(timestamp=7))
    tags = [channel.basic_get("counted")[0].delivery_tag for _ in range(3)]
    channel.basic_ack(tags[0])
    channel.queue_declare("counted", passive=True)  # the ack is through
    queue = broker.get("/api/queues/%2F/counted")
    assert (queue["messages"], queue["messages_ready"], queue["messages_unacknowledged"]) == (4, 2, 2)
    assert queue["message_stats"]["publish"] == 5
    assert queue["message_stats"]["deliver_get"] == 3
    assert queue["message_stats"]["ack"] == 1
    assert queue["message_stats"]["publish_details"]["rate"] > 0
    assert queue["head_message_timestamp"] == 7
    assert (queue["state"], queue["type"], queue["policy"]) == ("running", "classic", None)
    assert broker.get("/api/queues/%2F/counted?columns=messages,message_stats.ack") == {
        "messages": 4,
        "message_stats": {"ack": 1},
    }


def test_a_queue_is_declared_once_and_as_it_was_said(broker: Served) -> None:
    body = {"durable": True, "arguments": {"x-max-length": 5}}
    path = f"/api/queues/%2F/{q('with/slash %')}"
    assert broker.ask("PUT", path, body).status == 201
    assert broker.ask("PUT", path, body).status == 204
    shown = broker.get(path)
    assert (shown["name"], shown["arguments"], shown["durable"]) == ("with/slash %", {"x-max-length": 5}, True)
    differs = broker.ask("PUT", path, {"durable": False, "arguments": {"x-max-length": 5}})
    assert differs.status == 400
    assert "inequivalent arg 'durable'" in differs.json["reason"]
    assert broker.ask("PUT", "/api/queues/%2F/bad", {"arguments": {"x-max-length": "a"}}).status == 400
    assert broker.ask("PUT", "/api/queues/%2F/bad", {"durable": "no"}).status == 400
    assert broker.ask("PUT", "/api/queues/nowhere/bad", {}).status == 404
    assert broker.ask("PUT", "/api/queues/%2F/amq.own", {}).status == 401
    assert broker.ask("GET", "/api/queues/%2F/bad").status == 404


def test_a_queue_in_use_or_not_empty_is_not_deleted_by_mistake(broker: Served, channel: BlockingChannel) -> None:
    channel.queue_declare("used")
    channel.basic_consume("used", lambda *_: None)
    channel.queue_declare("full")
    channel.confirm_delivery()
    channel.basic_publish("", "full", b"x")
    assert broker.ask("DELETE", "/api/queues/%2F/used?if-unused=true").status == 400
    assert broker.ask("DELETE", "/api/queues/%2F/full?if-empty=true").status == 400
    assert broker.ask("DELETE", "/api/queues/%2F/full/contents").status == 204
    assert broker.get("/api/queues/%2F/full")["messages"] == 0
    assert broker.ask("DELETE", "/api/queues/%2F/full?if-empty=true").status == 204
    assert broker.ask("DELETE", "/api/queues/%2F/full").status == 404
    assert broker.ask("DELETE", "/api/queues/%2F/used").status == 204


def test_the_exclusive_queue_of_a_client_is_shown_and_left_alone(broker: Served, channel: BlockingChannel) -> None:
    channel.queue_declare("mine-alone", exclusive=True)
    shown = broker.get("/api/queues/%2F/mine-alone")
    assert shown["exclusive"]
    assert shown["owner_pid_details"]["name"].endswith(f"127.0.0.1:{broker.amqp}")
    assert broker.ask("DELETE", "/api/queues/%2F/mine-alone").status == 400
    assert broker.ask("DELETE", "/api/queues/%2F/mine-alone/contents").status == 400
    assert "mine-alone" not in {one["name"] for one in broker.get("/api/definitions")["queues"]}


def test_lists_are_cut_into_pages_sorted_and_filtered(broker: Served, channel: BlockingChannel) -> None:
    for number in range(12):
        channel.queue_declare(f"page-{number:02}")
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", "page-07", b"x")
    page = broker.get("/api/queues/%2F?page=2&page_size=5&name=PAGE-&columns=name")
    assert [one["name"] for one in page["items"]] == [f"page-{number:02}" for number in range(5, 10)]
    assert (page["filtered_count"], page["page_count"], page["item_count"]) == (12, 3, 5)
    assert page["total_count"] >= 12
    most = broker.get("/api/queues?page=1&page_size=1&name=page&sort=messages&sort_reverse=true&columns=name,messages")
    assert most["items"] == [{"name": "page-07", "messages": 3}]
    rates = "/api/queues?page=1&page_size=1&name=page&sort=message_stats.publish&sort_reverse=true&columns=name"
    assert broker.get(rates)["items"] == [{"name": "page-07"}]
    found = broker.get(f"/api/queues?page=1&use_regex=true&name={q('^page-0[12]$')}&columns=name")
    assert found["items"] == [{"name": "page-01"}, {"name": "page-02"}]


def test_columns_that_need_no_whole_row_are_the_same_as_in_one(broker: Served, channel: BlockingChannel) -> None:
    channel.queue_declare("columned")
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", "columned", b"x")
    channel.basic_get("columned")
    columns = "name,vhost,durable,consumers,messages,messages_ready,messages_unacknowledged"
    whole = broker.get("/api/queues/%2F")
    wanted = [{name: one[name] for name in columns.split(",")} for one in whole]
    assert broker.get(f"/api/queues/%2F?columns={columns}") == wanted
    assert {"name": "columned", "messages": 3} in broker.get("/api/queues/%2F?columns=name,messages")
    ranked = broker.get("/api/queues/%2F?columns=name&sort=message_stats.publish&sort_reverse=true")
    assert ranked[0].keys() == {"name"}
    declared = broker.get("/api/queues/%2F?columns=name,messages&disable_stats=true")
    assert {"name": "columned"} in declared


@pytest.mark.parametrize(
    "query", ["page=0", "page=x", "page=99", "page=1&page_size=501", f"page=1&use_regex=true&name={q('(')}"]
)
def test_pages_that_make_no_sense_are_refused(broker: Served, query: str) -> None:
    assert broker.ask("GET", f"/api/queues?{query}").status == 400


def test_a_message_is_published_and_got_with_its_properties(broker: Served) -> None:
    broker.ask("PUT", "/api/queues/%2F/try", {"durable": True})
    properties = {"delivery_mode": 2, "headers": {"a": [1, {"b": "c"}]}, "content_type": "t", "priority": 3}
    properties |= {"timestamp": 5, "expiration": "600000", "message_id": "m", "user_id": "guest", "unknown": 1}
    sent = {"properties": properties, "routing_key": "try", "payload": "héllo", "payload_encoding": "string"}
    assert broker.post("/api/exchanges/%2F/amq.default/publish", sent) == {"routed": True}
    raw = {"properties": {}, "routing_key": "try", "payload": "/w==", "payload_encoding": "base64"}
    assert broker.post("/api/exchanges/%2F/amq.default/publish", raw) == {"routed": True}
    lost = {**raw, "routing_key": "nowhere"}
    assert broker.post("/api/exchanges/%2F/amq.default/publish", lost) == {"routed": False}
    first, second = broker.post("/api/queues/%2F/try/get", EVERY)
    del properties["unknown"]
    assert first["properties"] == properties
    assert (first["payload"], first["payload_encoding"], first["payload_bytes"]) == ("héllo", "string", 6)
    assert (first["redelivered"], first["message_count"]) == (False, 1)
    assert (second["payload"], second["payload_encoding"], second["message_count"]) == ("/w==", "base64", 0)
    [cut, _] = broker.post("/api/queues/%2F/try/get", {**EVERY, "truncate": 2})
    assert (cut["payload"], cut["payload_bytes"], cut["redelivered"]) == ("h", 6, True)
    [gone] = broker.post("/api/queues/%2F/try/get", {**EVERY, "count": 1, "ackmode": "ack_requeue_false"})
    assert gone["payload"] == "héllo"
    assert len(broker.post("/api/queues/%2F/try/get", {**EVERY, "ackmode": "reject_requeue_false"})) == 1
    assert broker.get("/api/queues/%2F/try")["messages"] == 0


def test_a_message_that_is_refused_here_dies_where_its_queue_says(broker: Served) -> None:
    broker.ask("PUT", "/api/queues/%2F/graves", {})
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
    broker.ask("PUT", "/api/queues/%2F/dying", {"arguments": dead})
    sent = {"properties": {}, "routing_key": "dying", "payload": "x", "payload_encoding": "string"}
    broker.post("/api/exchanges/%2F/amq.default/publish", sent)
    broker.post("/api/queues/%2F/dying/get", {**EVERY, "ackmode": "reject_requeue_false"})
    [got] = until(lambda: broker.post("/api/queues/%2F/graves/get", EVERY), "the dead letter")
    assert got["properties"]["headers"]["x-death"][0]["queue"] == "dying"


@pytest.mark.parametrize(
    "change",
    [
        {"payload": None},
        {"payload_encoding": "zip"},
        {"payload_encoding": "base64", "payload": "!!"},
        {"properties": {"priority": "x"}},
        {"properties": {"priority": 256}},
        {"properties": {"user_id": "somebody"}},
        {"properties": {"expiration": "soon"}},
        {"properties": 5},
    ],
)
def test_messages_that_make_no_sense_are_refused(broker: Served, change: dict[str, object]) -> None:
    sent = {"properties": {}, "routing_key": "try", "payload": "x", "payload_encoding": "string", **change}
    assert broker.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent).status == 400


def test_publishing_to_a_missing_exchange_is_an_error(broker: Served) -> None:
    sent = {"properties": {}, "routing_key": "try", "payload": "x", "payload_encoding": "string"}
    answer = broker.ask("POST", "/api/exchanges/%2F/nope/publish", sent)
    assert answer.status == 404
    assert "no exchange 'nope'" in answer.json["reason"]


@pytest.mark.parametrize(
    "wanted", [{"count": 1}, {**EVERY, "count": -1}, {**EVERY, "ackmode": "?"}, {**EVERY, "encoding": "?"}, None, []]
)
def test_gets_that_make_no_sense_are_refused(broker: Served, wanted: object) -> None:
    broker.ask("PUT", "/api/queues/%2F/got", {})
    assert broker.ask("POST", "/api/queues/%2F/got/get", wanted).status == 400
    assert broker.ask("POST", "/api/queues/%2F/not-there/get", EVERY).status == 404


def test_a_full_queue_says_so(broker: Served) -> None:
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    broker.ask("PUT", "/api/queues/%2F/small", {"arguments": limits})
    sent = {"properties": {}, "routing_key": "small", "payload": "x", "payload_encoding": "string"}
    assert broker.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent).status == 200
    assert broker.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent).status == 409


def test_only_who_may_reads_and_writes_queues(broker: Served, connect: Connect) -> None:
    add_user(broker, "fenced", "management", "/", "^fence")
    as_fenced: dict[str, Any] = {"user": "fenced"}
    sent = {"properties": {}, "routing_key": "try", "payload": "x", "payload_encoding": "string"}
    assert broker.ask("PUT", "/api/queues/%2F/fence-1", {}, **as_fenced).status == 201
    assert broker.ask("PUT", "/api/queues/%2F/other", {}, **as_fenced).status == 401
    assert broker.ask("DELETE", "/api/queues/%2F/try", **as_fenced).status == 401
    assert broker.ask("DELETE", "/api/queues/%2F/try/contents", **as_fenced).status == 401
    assert broker.ask("POST", "/api/queues/%2F/try/get", EVERY, **as_fenced).status == 401
    assert broker.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent, **as_fenced).status == 401
    dead = {"arguments": {"x-dead-letter-exchange": "amq.topic"}}
    assert broker.ask("PUT", "/api/queues/%2F/fence-2", dead, **as_fenced).status == 401
    assert broker.ask("POST", "/api/queues/%2F/fence-1/get", EVERY, **as_fenced).status == 200


def test_the_lag_of_a_queue_with_nothing_ready_is_0_however_old_what_is_held_is(
    broker: Served, channel: BlockingChannel
) -> None:
    channel.queue_declare("held", durable=True)
    channel.confirm_delivery()
    for _ in range(50):
        channel.basic_publish("", "held", b"x")
    tags = [channel.basic_get("held")[0].delivery_tag for _ in range(50)]
    for tag in tags[1:]:
        channel.basic_ack(tag)
    channel.queue_declare("held", passive=True)
    row = broker.get("/api/holdfast/queues/%2F/held")
    assert (row["ready"], row["leased"], row["lag"], row["stats"]["lag"]) == (0, 1, 0, 0)
    listed = broker.get("/api/holdfast/queues?sort=lag&name=held")["items"]
    assert [one["lag"] for one in listed if one["name"] == "held"] == [0]
    channel.basic_publish("", "held", b"new")
    assert until(lambda: broker.get("/api/holdfast/queues/%2F/held")["lag"], "it has a lag") == 51


def test_a_lease_of_the_broker_is_held_by_a_consumer_and_does_not_run_out(
    broker: Served, channel: BlockingChannel
) -> None:
    channel.queue_declare("leased", durable=True)
    channel.basic_publish("", "leased", b"x")
    until(lambda: channel.basic_get("leased")[0], "the message")
    (lease,) = broker.get("/api/holdfast/queues/%2F/leased/leases")["leases"]
    assert lease["held_by"] == "consumer"
    broker.store.queue("own").put(b"x")
    own = broker.store.queue("own").get()
    assert own is not None
    (lease,) = broker.get("/api/holdfast/queues/%2F/own/leases")["leases"]
    assert lease["held_by"] is None
    own.ack()


def test_who_monitors_sees_the_figures_of_a_queue_and_what_they_may_not_do(broker: Served) -> None:
    broker.ask("PUT", "/api/queues/%2F/watched", {"durable": True})
    add_user(broker, "watcher", "monitoring")
    add_user(broker, "stranger", "management")
    found = broker.get("/api/holdfast/queues/%2F/watched", user="watcher")
    assert found["may"] == {"configure": False, "write": False, "read": False} and found["ready"] == 0
    assert broker.get("/api/holdfast/queues/%2F/watched")["may"] == {"configure": True, "write": True, "read": True}
    assert broker.ask("GET", "/api/holdfast/queues/%2F/watched/messages", user="watcher").status == 403
    assert broker.ask("GET", "/api/holdfast/queues/%2F/watched", user="stranger").status == 403
