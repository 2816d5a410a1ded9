"""Connections, channels and consumers over RabbitMQ's API, and closing them."""

import logging

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.web.rabbitmq_api.conftest import Connect, add_user, until
from tests.web.serving import Served, q


def name_of(channel: BlockingChannel) -> str:
    """What RabbitMQ would call the connection."""
    here = channel.connection._impl._transport._sock.getsockname()
    there = channel.connection._impl._transport._sock.getpeername()
    return f"{here[0]}:{here[1]} -> {there[0]}:{there[1]}"


def test_a_connection_is_shown_with_what_is_known_of_it(broker: Served, connect: Connect) -> None:
    channel = connect(client_properties={"connection_name": "mine"}, heartbeat=17).channel()
    name = name_of(channel)
    shown = broker.get(f"/api/connections/{q(name)}")
    assert shown["name"] == name
    assert (shown["user"], shown["vhost"], shown["state"]) == ("guest", "/", "running")
    assert (shown["protocol"], shown["auth_mechanism"], shown["timeout"]) == ("AMQP 0-9-1", "PLAIN", 17)
    assert (shown["channels"], shown["user_provided_name"], shown["ssl"]) == (1, "mine", False)
    assert shown["client_properties"]["product"] == "Pika Python Client Library"
    assert shown["port"] == broker.amqp
    assert shown in broker.get("/api/connections") or shown["name"] in {
        one["name"] for one in broker.get("/api/vhosts/%2F/connections")
    }
    before = shown["recv_oct"], shown["send_oct"]
    channel.queue_declare("talk")
    shown = broker.get(f"/api/connections/{q(name)}")
    assert shown["recv_oct"] > before[0]
    assert shown["send_oct"] > before[1]
    assert {one["name"] for one in broker.get("/api/connections/username/guest")} >= {name}


def test_a_channel_shows_its_modes_and_what_it_holds(broker: Served, channel: BlockingChannel) -> None:
    channel.queue_declare("held")
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=2)
    for _ in range(3):
        channel.basic_publish("", "held", b"x")
    channel.basic_consume("held", lambda *_: None, consumer_tag="taker", arguments={"x-priority": 4})
    name = f"{name_of(channel)} (1)"
    shown = until(
        lambda: (one := broker.get(f"/api/channels/{q(name)}"))["messages_unacknowledged"] == 2 and one,
        "two deliveries",
    )
    assert (shown["name"], shown["number"], shown["confirm"], shown["transactional"]) == (name, 1, True, False)
    assert (shown["prefetch_count"], shown["global_prefetch_count"], shown["consumer_count"]) == (2, 0, 1)
    assert (shown["message_stats"]["publish"], shown["message_stats"]["deliver_get"]) == (3, 2)
    [consumer] = shown["consumer_details"]
    assert (consumer["consumer_tag"], consumer["queue"]) == ("taker", {"name": "held", "vhost": "/"})
    assert (consumer["ack_required"], consumer["prefetch_count"], consumer["exclusive"]) == (True, 2, False)
    assert consumer["arguments"] == {"x-priority": 4}
    assert broker.get("/api/queues/%2F/held")["consumer_details"] == [consumer]
    assert consumer in broker.get("/api/consumers/%2F")
    assert [one["name"] for one in broker.get(f"/api/connections/{q(name_of(channel))}/channels")] == [name]
    assert name in {one["name"] for one in broker.get("/api/vhosts/%2F/channels")}


def test_a_transaction_and_a_global_prefetch_are_shown(broker: Served, channel: BlockingChannel) -> None:
    channel.tx_select()
    channel.basic_qos(prefetch_count=9, global_qos=True)
    shown = broker.get(f"/api/channels/{q(name_of(channel) + ' (1)')}")
    assert (shown["transactional"], shown["confirm"], shown["global_prefetch_count"]) == (True, False, 9)


def test_of_a_queue_with_a_single_active_consumer_the_others_wait(broker: Served, channel: BlockingChannel) -> None:
    channel.queue_declare("one-at-a-time", arguments={"x-single-active-consumer": True})
    for tag in ("first", "second"):
        channel.basic_consume("one-at-a-time", lambda *_: None, consumer_tag=tag)
    consumers = broker.get("/api/queues/%2F/one-at-a-time")["consumer_details"]
    assert [(one["consumer_tag"], one["active"]) for one in consumers] == [("first", True), ("second", False)]
    assert broker.get("/api/queues/%2F/one-at-a-time")["single_active_consumer_tag"] == "first"


def test_a_client_is_sent_away_with_the_reason(broker: Served, channel: BlockingChannel) -> None:
    path = f"/api/connections/{q(name_of(channel))}"
    assert broker.ask("DELETE", path, headers={"X-Reason": "maintenance"}).status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        channel.queue_declare("never")
    assert (caught.value.reply_code, caught.value.reply_text) == (320, "CONNECTION_FORCED - maintenance")
    until(lambda: broker.ask("GET", path).status == 404, "the connection is gone")
    assert broker.ask("DELETE", path).status == 404


def test_a_reason_that_is_too_long_is_cut_before_it_is_logged(
    broker: Served, channel: BlockingChannel, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"/api/connections/{q(name_of(channel))}"
    with caplog.at_level(logging.WARNING, "holdfast.amqp"):
        assert broker.ask("DELETE", path, headers={"X-Reason": "so " * 5000}).status == 204
        until(lambda: "CONNECTION_FORCED - so so" in caplog.text, "the log")
    assert all(len(record.getMessage()) < 400 for record in caplog.records)


def test_all_connections_of_a_user_are_closed_and_no_others(broker: Served, connect: Connect) -> None:
    add_user(broker, "many", "management", "/")
    theirs = [connect("many").channel() for _ in range(2)]
    mine = connect().channel()
    assert broker.ask("DELETE", "/api/connections/username/many").status == 204
    for channel in theirs:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            channel.queue_declare("never")
    mine.queue_declare("still")


def test_who_is_no_monitor_sees_and_closes_only_his_own(broker: Served, connect: Connect) -> None:
    add_user(broker, "small", "management", "/")
    own, other = connect("small").channel(), connect().channel()
    names = {one["name"] for one in broker.get("/api/connections", user="small")}
    assert names == {name_of(own)}
    assert {one["user"] for one in broker.get("/api/channels", user="small")} == {"small"}
    path = f"/api/connections/{q(name_of(other))}"
    assert broker.ask("GET", path, user="small").status == 401
    assert broker.ask("DELETE", path, user="small").status == 401
    assert broker.ask("GET", f"/api/channels/{q(name_of(other) + ' (1)')}", user="small").status == 401
    assert broker.ask("DELETE", "/api/connections/username/guest", user="small").status == 401
    add_user(broker, "seer", "monitoring", "/")
    assert broker.ask("GET", path, user="seer").status == 200
    assert broker.ask("DELETE", path, user="seer").status == 401
    assert broker.ask("DELETE", f"/api/connections/{q(name_of(own))}", user="small").status == 204


def test_a_connection_that_has_not_logged_in_is_not_shown(broker: Served) -> None:
    import socket

    before = len(broker.get("/api/connections"))
    with socket.create_connection(("127.0.0.1", broker.amqp)):
        assert len(broker.get("/api/connections")) == before


def test_an_operator_closes_one_channel_and_the_connection_goes_on(broker: Served, connect: Connect) -> None:
    connection = connect()
    doomed, other = connection.channel(), connection.channel()
    name = next(one["name"] for one in broker.get("/api/channels") if one["number"] == 1)
    path = f"/api/holdfast/channels/{q(name)}"
    assert broker.ask("DELETE", path, user="small").status in (401, 403)
    assert broker.ask("DELETE", f"{path}?reason=too%20slow").status == 204
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        doomed.queue_declare("", exclusive=True)
    assert (caught.value.reply_code, caught.value.reply_text) == (320, "CONNECTION_FORCED - too slow")
    other.queue_declare("", exclusive=True)
    assert broker.ask("DELETE", path).status == 404
