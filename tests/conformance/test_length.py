"""Does a full queue drop, refuse or dead-letter what is too much?"""

from collections.abc import Callable
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError

from tests.conformance.client import Inbox, bodies, count, eventually, get, get_soon, publish
from tests.conformance.test_publishing import confirm_select, confirmed
from tests.conformance.wire import Wire, publishing

Namer = Callable[..., str]


def limited(channel: BlockingChannel, name: Namer, **arguments: Any) -> str:
    queue = name()
    channel.queue_declare(queue, arguments={f"x-{key.replace('_', '-')}": arguments[key] for key in arguments})
    return queue


@pytest.mark.parametrize("overflow", [{}, {"overflow": "drop-head"}])
def test_a_full_queue_drops_its_oldest_messages(
    channel: BlockingChannel, name: Namer, overflow: dict[str, str]
) -> None:
    queue = limited(channel, name, max_length=3, **overflow)
    publish(channel, queue, *"abcde")
    eventually(lambda: count(channel, queue) == 3)
    assert bodies(channel, queue) == ["c", "d", "e"]


def test_a_full_queue_that_drops_its_head_confirms_the_new_message(confirming: BlockingChannel, name: Namer) -> None:
    queue = limited(confirming, name, max_length=1)
    publish(confirming, queue, "a", "b", mandatory=True)
    assert bodies(confirming, queue) == ["b"]


def test_a_queue_of_length_zero_keeps_nothing(channel: BlockingChannel, name: Namer) -> None:
    queue = limited(channel, name, max_length=0)
    publish(channel, queue, "a")
    assert bodies(channel, queue) == []


def test_only_ready_messages_count_for_the_length(channel: BlockingChannel, name: Namer) -> None:
    queue = limited(channel, name, max_length=2)
    publish(channel, queue, "a", "b")
    assert get(channel, queue, auto_ack=False) is not None
    assert get(channel, queue, auto_ack=False) is not None
    publish(channel, queue, "c", "d", "e")
    assert bodies(channel, queue) == ["d", "e"]


@pytest.mark.parametrize("limit", [{"max_length": 1}, {"max_length": 100}, {"max_length_bytes": 4}], ids=str)
def test_a_limited_queue_drops_nothing_that_a_consumer_waits_for(
    wire: Wire, channel: BlockingChannel, name: Namer, limit: dict[str, int]
) -> None:
    queue = limited(channel, name, **limit)
    inbox = Inbox(channel, queue, auto_ack=True)
    wire.open()
    texts = [str(number) for number in range(200)]  # RabbitMQ has no more than 200 under way to one channel
    wire.send(publishing(1, queue, *texts))
    assert inbox.take_bodies(200) == texts


def test_a_limited_queue_drops_only_of_what_its_consumer_cannot_take(
    wire: Wire, channel: BlockingChannel, name: Namer
) -> None:
    queue = limited(channel, name, max_length=5)
    channel.basic_qos(prefetch_count=2)
    inbox = Inbox(channel, queue)
    wire.open()
    confirm_select(wire)
    wire.send(publishing(1, queue, *"abcdefghij"))
    confirmed(wire, 10)
    assert inbox.take_bodies(2) == ["a", "b"]
    assert inbox.is_quiet()
    assert bodies(channel, queue) == ["f", "g", "h", "i", "j"]


def test_a_limited_queue_refuses_nothing_that_a_consumer_waits_for(
    wire: Wire, channel: BlockingChannel, name: Namer
) -> None:
    queue = limited(channel, name, max_length=1, overflow="reject-publish")
    inbox = Inbox(channel, queue, auto_ack=True)
    wire.open()
    confirm_select(wire)
    texts = [str(number) for number in range(20)]
    wire.send(publishing(1, queue, *texts))
    assert confirmed(wire, 20) == [(tag, False) for tag in range(1, 21)]
    assert inbox.take_bodies(20) == texts


def test_a_queue_of_no_length_keeps_nothing_of_what_its_consumer_cannot_take(
    wire: Wire, channel: BlockingChannel, name: Namer
) -> None:
    queue = limited(channel, name, max_length=0)
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, queue)
    wire.open()
    wire.send(publishing(1, queue, *"abc"))
    [first] = inbox.take(1)
    assert first.body == b"a"
    channel.basic_ack(first.tag)
    assert inbox.is_quiet()
    assert count(channel, queue) == 0


def test_the_bytes_of_the_bodies_are_limited(channel: BlockingChannel, name: Namer) -> None:
    queue = limited(channel, name, max_length_bytes=10)
    publish(channel, queue, "aaaa", "bbbb", "cc", "d", headers={"not": "counted" * 10})
    assert bodies(channel, queue) == ["bbbb", "cc", "d"]


def test_a_message_over_the_limit_of_bytes_empties_the_queue(channel: BlockingChannel, name: Namer) -> None:
    queue = limited(channel, name, max_length_bytes=10)
    publish(channel, queue, "a", "b" * 11)
    assert bodies(channel, queue) == []


def test_whichever_limit_is_reached_first_counts(channel: BlockingChannel, name: Namer) -> None:
    queue = limited(channel, name, max_length=3, max_length_bytes=10)
    publish(channel, queue, "a", "b", "c", "d")
    eventually(lambda: count(channel, queue) == 3)
    publish(channel, queue, "eeeeeeee")
    assert bodies(channel, queue) == ["c", "d", "eeeeeeee"]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_refuses_a_publisher_that_asked_for_confirms(
    confirming: BlockingChannel, name: Namer, overflow: str
) -> None:
    queue = limited(confirming, name, max_length=2, overflow=overflow)
    publish(confirming, queue, "a", "b")
    with pytest.raises(NackError):
        publish(confirming, queue, "c")
    assert get(confirming, queue) is not None
    publish(confirming, queue, "d")
    assert bodies(confirming, queue) == ["b", "d"]


def test_a_full_queue_drops_what_is_published_without_confirms(channel: BlockingChannel, name: Namer) -> None:
    queue = limited(channel, name, max_length=2, overflow="reject-publish")
    publish(channel, queue, "a", "b", "c")
    assert bodies(channel, queue) == ["a", "b"]


def test_a_queue_full_of_bytes_refuses_too(confirming: BlockingChannel, name: Namer) -> None:
    queue = limited(confirming, name, max_length_bytes=10, overflow="reject-publish")
    publish(confirming, queue, "a" * 10)
    with pytest.raises(NackError):
        publish(confirming, queue, "b")
    assert bodies(confirming, queue) == ["a" * 10]


def test_a_message_that_would_pass_the_limit_of_bytes_is_refused(confirming: BlockingChannel, name: Namer) -> None:
    queue = limited(confirming, name, max_length_bytes=10, overflow="reject-publish")
    publish(confirming, queue, "a" * 9)
    with pytest.raises(NackError):
        publish(confirming, queue, "bb")
    publish(confirming, queue, "c")
    assert bodies(confirming, queue) == ["a" * 9, "c"]


def test_one_full_queue_of_several_makes_the_confirm_negative(confirming: BlockingChannel, name: Namer) -> None:
    full = limited(confirming, name, max_length=0, overflow="reject-publish")
    open_ended = limited(confirming, name)
    for queue in (full, open_ended):
        confirming.queue_bind(queue, "amq.direct", full)
    with pytest.raises(NackError):
        publish(confirming, full, "a", exchange="amq.direct")
    assert bodies(confirming, full) == []
    assert bodies(confirming, open_ended) == ["a"]


def test_reject_publish_does_not_dead_letter(confirming: BlockingChannel, name: Namer) -> None:
    dead = limited(confirming, name)
    queue = limited(
        confirming, name, max_length=1, overflow="reject-publish", dead_letter_exchange="", dead_letter_routing_key=dead
    )
    publish(confirming, queue, "a")
    with pytest.raises(NackError):
        publish(confirming, queue, "b")
    assert bodies(confirming, dead) == []


def test_reject_publish_dlx_dead_letters_what_it_refuses(confirming: BlockingChannel, name: Namer) -> None:
    dead = limited(confirming, name)
    queue = limited(
        confirming,
        name,
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
    )
    publish(confirming, queue, "a")
    with pytest.raises(NackError):
        publish(confirming, queue, "b")
    message = get_soon(confirming, dead)
    assert message.body == b"b"
    assert message.headers["x-death"][0]["reason"] == "maxlen"


def test_dropped_messages_are_dead_lettered_oldest_first(channel: BlockingChannel, name: Namer) -> None:
    dead = limited(channel, name)
    queue = limited(channel, name, max_length=1, dead_letter_exchange="", dead_letter_routing_key=dead)
    publish(channel, queue, *"abcd")
    eventually(lambda: count(channel, dead) == 3)
    message = get_soon(channel, dead)
    assert message.headers["x-death"][0]["reason"] == "maxlen"
    assert [message.body.decode(), *bodies(channel, dead)] == ["a", "b", "c"]


def test_a_dead_letter_that_a_full_queue_refuses_goes_on_to_the_dead_letters_of_that_queue(
    confirming: BlockingChannel, name: Namer
) -> None:
    last = limited(confirming, name)
    full = limited(
        confirming,
        name,
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key=last,
    )
    first = limited(confirming, name, message_ttl=100, dead_letter_exchange="", dead_letter_routing_key=full)
    publish(confirming, first, *"abc")
    eventually(lambda: count(confirming, last) == 2)
    assert bodies(confirming, full) == ["a"]
    found = get_soon(confirming, last)
    assert [(death["queue"], death["reason"]) for death in found.headers["x-death"]] == [
        (full, "maxlen"),
        (first, "expired"),
    ]
