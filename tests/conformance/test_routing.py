"""Does a message reach the queues that its exchange, key and headers say, once each?"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.compat import long
from pika.exceptions import UnroutableError

from tests.conformance.client import bodies, channel_closed, get, publish

Namer = Callable[..., str]


def bound(channel: BlockingChannel, name: Namer, exchange: str, *keys: str, **arguments: Any) -> str:
    """A queue with a binding for each key."""
    queue = name()
    channel.queue_declare(queue)
    for key in keys:
        channel.queue_bind(queue, exchange, key, arguments=arguments or None)
    return queue


def exchange_of(channel: BlockingChannel, name: Namer, kind: str, **arguments: Any) -> str:
    exchange = name(kind)
    channel.exchange_declare(exchange, kind, arguments={key.replace("_", "-"): arguments[key] for key in arguments})
    return exchange


def test_the_default_exchange_routes_to_the_queue_of_that_name(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a")
    message = get(channel, queue)
    assert message is not None
    assert (message.method.exchange, message.method.routing_key, message.body) == ("", queue, b"a")


def test_a_direct_exchange_routes_by_the_whole_key(channel: BlockingChannel, name: Namer) -> None:
    exchange = exchange_of(channel, name, "direct")
    one, two, both = (bound(channel, name, exchange, *keys) for keys in (["one"], ["two"], ["one", "two"]))
    for key in ("one", "two", "three", "one.two"):
        publish(channel, key, key, exchange=exchange)
    assert [bodies(channel, queue) for queue in (one, two, both)] == [["one"], ["two"], ["one", "two"]]


def test_a_fanout_exchange_ignores_the_key(channel: BlockingChannel, name: Namer) -> None:
    exchange = exchange_of(channel, name, "fanout")
    queues = [bound(channel, name, exchange, key) for key in ("", "some", "other")]
    publish(channel, "some", "a", exchange=exchange)
    assert [bodies(channel, queue) for queue in queues] == [["a"]] * 3


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_a_queue_bound_twice_gets_a_message_once(channel: BlockingChannel, name: Namer, kind: str) -> None:
    exchange = exchange_of(channel, name, kind)
    queue = name()
    channel.queue_declare(queue)
    for match in ("all", "any"):
        channel.queue_bind(queue, exchange, "key", arguments={"x-match": match, "h": 1})
    publish(channel, "key", "a", exchange=exchange, headers={"h": 1})
    assert bodies(channel, queue) == ["a"]


def test_bindings_that_differ_in_arguments_are_two(channel: BlockingChannel, queue: str, name: Namer) -> None:
    exchange = exchange_of(channel, name, "direct")
    channel.queue_bind(queue, exchange, "key", arguments={"n": 1})
    channel.queue_bind(queue, exchange, "key", arguments={"n": 2})
    channel.queue_unbind(queue, exchange, "key", arguments={"n": 1})
    publish(channel, "key", "a", exchange=exchange)
    assert bodies(channel, queue) == ["a"]
    channel.queue_unbind(queue, exchange, "key", arguments={"n": 2})
    publish(channel, "key", "b", exchange=exchange)
    assert bodies(channel, queue) == []


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "A.b", ""]),
        ("*", ["a"], ["a.b", ""]),
        ("#", ["", "a", "a.b.c", "."], []),
        ("a.*", ["a.b", "a."], ["a", "a.b.c", "b.a"]),
        ("*.b", ["a.b", ".b"], ["b", "a.a.b"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "b.a", ""]),
        ("#.c", ["c", "a.c", "a.b.c"], ["c.a", ""]),
        ("a.#.c", ["a.c", "a.b.c", "a.b.b.c"], ["a", "c", "a.b"]),
        ("#.b.#", ["b", "a.b", "b.a", "a.b.c", "b.b"], ["a", "", "bb"]),
        ("*.#", ["a", "a.b"], [""]),
        ("#.*", ["a", "a.b"], [""]),
        ("#.#", ["", "a", "a.b"], []),
        ("*.*", ["a.b", "."], ["a", "a.b.c"]),
        ("a*", ["a*"], ["ab", "a"]),
        ("a.b#", ["a.b#"], ["a.b", "a.bc"]),
        ("", [""], ["a"]),
    ],
)
def test_a_topic_exchange_matches_words(
    channel: BlockingChannel, name: Namer, pattern: str, matches: list[str], others: list[str]
) -> None:
    exchange = exchange_of(channel, name, "topic")
    queue = bound(channel, name, exchange, pattern)
    for key in matches + others:
        publish(channel, key, key or "(empty)", exchange=exchange)
    assert bodies(channel, queue) == [key or "(empty)" for key in matches]


def test_an_unbound_topic_no_longer_matches(channel: BlockingChannel, name: Namer) -> None:
    exchange = exchange_of(channel, name, "topic")
    queue = bound(channel, name, exchange, "a.#", "a.*", "a.b")
    for pattern, expected in (("a.#", ["x"]), ("a.b", ["x"]), ("a.*", [])):
        channel.queue_unbind(queue, exchange, pattern)
        publish(channel, "a.b", "x", exchange=exchange)
        assert bodies(channel, queue) == expected


@pytest.mark.parametrize(
    ("binding", "headers", "matches"),
    [
        ({"x-match": "all", "a": 1, "b": "two"}, {"a": 1, "b": "two", "c": 3}, True),
        ({"x-match": "all", "a": 1, "b": "two"}, {"a": 1}, False),
        ({"x-match": "all", "a": 1}, {"a": "1"}, False),
        ({"x-match": "all"}, {"a": 1}, True),
        ({"x-match": "all"}, None, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, True),
        ({}, {"a": 1}, True),
        ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 2, "b": 1}, False),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "all", "a": None}, {"a": "anything"}, True),
        ({"x-match": "all", "a": None}, {"b": 1}, False),
        ({"x-match": "any", "a": None}, {"a": 1}, True),
        ({"x-match": "all", "x-a": 1, "b": 1}, {"b": 1}, True),
        ({"x-match": "all-with-x", "x-a": 1, "b": 1}, {"b": 1}, False),
        ({"x-match": "all-with-x", "x-a": 1, "b": 1}, {"b": 1, "x-a": 1}, True),
        ({"x-match": "any", "x-a": 1, "b": 1}, {"x-a": 1}, False),
        ({"x-match": "any-with-x", "x-a": 1, "b": 1}, {"x-a": 1}, True),
        ({"x-match": "all", "a": True}, {"a": True}, True),
        ({"x-match": "all", "a": 1}, {"a": 2**40}, False),
        ({"x-match": "all", "a": 2**40}, {"a": 2**40}, True),
        ({"x-match": "all", "a": 1}, {"a": long(1)}, True),
        ({"x-match": "all", "a": 1}, {"a": True}, False),
        ({"x-match": "all", "a": 1}, {"a": Decimal(1)}, False),
        ({"x-match": "any", "a": Decimal(1)}, {"a": 1}, False),
        ({"x-match": "all", "a": Decimal("1.5")}, {"a": Decimal("1.5")}, True),
    ],
)
def test_a_headers_exchange_matches_headers(
    channel: BlockingChannel,
    name: Namer,
    queue: str,
    binding: dict[str, Any],
    headers: dict[str, Any] | None,
    matches: bool,
) -> None:
    exchange = exchange_of(channel, name, "headers")
    channel.queue_bind(queue, exchange, "", arguments=binding)
    publish(channel, "ignored", "a", exchange=exchange, headers=headers)
    assert bodies(channel, queue) == (["a"] if matches else [])


@pytest.mark.parametrize(
    ("value", "text"), [("some", 'Invalid x-match field value <<"some">>'), (7, "Invalid x-match field type signedint")]
)
def test_an_unknown_way_to_match_headers_is_a_failed_precondition(
    channel: BlockingChannel, name: Namer, queue: str, value: object, text: str
) -> None:
    exchange = exchange_of(channel, name, "headers")
    with channel_closed(406, "PRECONDITION_FAILED", text):
        channel.queue_bind(queue, exchange, "", arguments={"x-match": value})


def test_exchanges_are_bound_to_exchanges_by_the_rules_of_the_source(channel: BlockingChannel, name: Namer) -> None:
    source, destination = exchange_of(channel, name, "topic"), exchange_of(channel, name, "direct")
    channel.exchange_bind(destination, source, "a.#")
    queue = bound(channel, name, destination, "a.b")
    publish(channel, "a.b", "a.b", exchange=source)
    publish(channel, "a.c", "a.c", exchange=source)
    publish(channel, "b", "b", exchange=source)
    message = get(channel, queue)
    assert message is not None
    assert (message.body, message.method.exchange, message.method.routing_key) == (b"a.b", source, "a.b")
    assert bodies(channel, queue) == []
    channel.exchange_unbind(destination, source, "a.#")
    publish(channel, "a.b", "late", exchange=source)
    assert bodies(channel, queue) == []


def test_a_cycle_of_exchanges_delivers_once(channel: BlockingChannel, name: Namer) -> None:
    ring = [exchange_of(channel, name, "fanout") for _ in range(3)]
    for index, source in enumerate(ring):
        channel.exchange_bind(ring[(index + 1) % 3], source)
    channel.exchange_bind(ring[0], ring[0])
    queues = [bound(channel, name, exchange, "") for exchange in ring]
    publish(channel, "", "a", exchange=ring[1])
    assert [bodies(channel, queue) for queue in queues] == [["a"]] * 3


def test_two_ways_to_one_queue_deliver_once(channel: BlockingChannel, name: Namer) -> None:
    source, left, right = (exchange_of(channel, name, "fanout") for _ in range(3))
    queue = bound(channel, name, left, "")
    channel.queue_bind(queue, right)
    channel.exchange_bind(left, source)
    channel.exchange_bind(right, source)
    publish(channel, "", "a", exchange=source)
    assert bodies(channel, queue) == ["a"]


def test_what_matches_nothing_goes_to_the_alternate_exchange(channel: BlockingChannel, name: Namer) -> None:
    alternate = exchange_of(channel, name, "fanout")
    exchange = exchange_of(channel, name, "direct", alternate_exchange=alternate)
    wanted, rest = bound(channel, name, exchange, "wanted"), bound(channel, name, alternate, "")
    publish(channel, "wanted", "a", exchange=exchange)
    publish(channel, "unwanted", "b", exchange=exchange)
    assert bodies(channel, wanted) == ["a"]
    message = get(channel, rest)
    assert message is not None
    assert (message.body, message.method.exchange, message.method.routing_key) == (b"b", exchange, "unwanted")
    assert bodies(channel, rest) == []


def test_alternate_exchanges_follow_one_another_and_may_form_a_cycle(confirming: BlockingChannel, name: Namer) -> None:
    first, second, third = name("first"), name("second"), name("third")
    for exchange, alternate in ((first, second), (second, third), (third, first)):
        confirming.exchange_declare(exchange, "direct", arguments={"alternate-exchange": alternate})
    queue = bound(confirming, name, third, "key")
    publish(confirming, "key", "a", exchange=first, mandatory=True)
    assert bodies(confirming, queue) == ["a"]
    with pytest.raises(UnroutableError):
        publish(confirming, "nowhere", "b", exchange=first, mandatory=True)


def test_a_message_taken_by_the_alternate_exchange_is_not_returned(confirming: BlockingChannel, name: Namer) -> None:
    alternate = exchange_of(confirming, name, "fanout")
    exchange = exchange_of(confirming, name, "direct", alternate_exchange=alternate)
    queue = bound(confirming, name, alternate, "")
    publish(confirming, "unwanted", "a", exchange=exchange, mandatory=True)
    assert bodies(confirming, queue) == ["a"]


def test_an_alternate_exchange_that_is_not_there_loses_the_message(confirming: BlockingChannel, name: Namer) -> None:
    exchange = exchange_of(confirming, name, "direct", alternate_exchange=name("absent"))
    with pytest.raises(UnroutableError):
        publish(confirming, "key", "a", exchange=exchange, mandatory=True)
    publish(confirming, "key", "a", exchange=exchange)


def test_a_copy_goes_to_each_queue_named_in_cc_and_bcc_and_bcc_is_not_seen(
    channel: BlockingChannel, name: Namer, queue: str
) -> None:
    copied, hidden = name("cc"), name("bcc")
    for used in (copied, hidden):
        channel.queue_declare(used)
    publish(channel, queue, "a", headers={"CC": [copied], "BCC": [hidden], "kept": 1})
    for used in (queue, copied, hidden):
        message = get(channel, used)
        assert message is not None
        assert message.headers == {"CC": [copied], "kept": 1}
        assert message.method.routing_key == queue
