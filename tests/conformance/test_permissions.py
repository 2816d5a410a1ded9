"""Is a user kept from what its permissions do not name?"""

from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.client import bodies, channel_closed, publish, round_trip

Namer = Callable[..., str]
Attempt = Callable[[BlockingChannel, str, str], object]


def test_a_user_may_use_what_its_permissions_name(limited: BlockingConnection, name: Namer) -> None:
    queue, exchange = name("own.q"), name("own.x")
    channel = limited.channel()
    channel.queue_declare(queue)
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(queue, exchange)
    publish(channel, "", "a", exchange=exchange)
    assert bodies(channel, queue) == ["a"]
    channel.queue_purge(queue)
    channel.queue_delete(queue)
    channel.exchange_delete(exchange)


NEEDED: dict[str, tuple[str, Attempt]] = {
    "declare a queue": ("c", lambda channel, thing, own: channel.queue_declare(thing)),
    "delete a queue": ("c", lambda channel, thing, own: channel.queue_delete(thing)),
    "declare an exchange": ("c", lambda channel, thing, own: channel.exchange_declare(thing, "fanout")),
    "delete an exchange": ("c", lambda channel, thing, own: channel.exchange_delete(thing)),
    "get": ("r", lambda channel, thing, own: channel.basic_get(thing)),
    "consume": ("r", lambda channel, thing, own: channel.basic_consume(thing, print)),
    "purge": ("r", lambda channel, thing, own: channel.queue_purge(thing)),
    "publish": ("w", lambda channel, thing, own: channel.basic_publish(thing, "key", b"a")),
    "bind this queue": ("w", lambda channel, thing, own: channel.queue_bind(thing, own, "key")),
    "unbind this queue": ("w", lambda channel, thing, own: channel.queue_unbind(thing, own, "key")),
    "bind to this exchange": ("r", lambda channel, thing, own: channel.queue_bind(own, thing, "key")),
    "bind this exchange": ("w", lambda channel, thing, own: channel.exchange_bind(thing, own, "key")),
    "bind an exchange to this": ("r", lambda channel, thing, own: channel.exchange_bind(own, thing, "key")),
}
"""For each thing that can be done, which permission it needs."""


@pytest.mark.parametrize("given", ["c", "w", "r"])
@pytest.mark.parametrize("what", NEEDED)
def test_each_operation_needs_its_own_permission(
    limited: BlockingConnection, channel: BlockingChannel, name: Namer, what: str, given: str
) -> None:
    thing, own = name(f"{given}.thing"), name("own.thing")
    for used in (thing, own):
        channel.queue_declare(used)
        channel.exchange_declare(used, "fanout")
    needed, attempt = NEEDED[what]
    theirs = limited.channel()
    if given == needed:
        attempt(theirs, thing, own)
        round_trip(theirs)
    else:
        with channel_closed(403, "ACCESS_REFUSED", "access to", f"'{thing}' in vhost '/' refused for user"):
            attempt(theirs, thing, own)
            round_trip(theirs)


def test_a_passive_declare_needs_no_permission(limited: BlockingConnection, queue: str) -> None:
    limited.channel().queue_declare(queue, passive=True)
    limited.channel().exchange_declare("amq.direct", passive=True)


def test_a_user_may_not_publish_to_an_exchange_that_it_may_not_write(limited: BlockingConnection) -> None:
    channel = limited.channel()
    with channel_closed(403, "ACCESS_REFUSED"):
        publish(channel, "key", "a", exchange="amq.direct")
        round_trip(channel)


def test_a_user_may_not_publish_to_the_default_exchange_unless_named(limited: BlockingConnection, queue: str) -> None:
    channel = limited.channel()
    with channel_closed(403, "ACCESS_REFUSED"):
        publish(channel, queue, "a")
        round_trip(channel)


def test_a_dead_letter_exchange_must_be_writable_by_who_declares_the_queue(
    limited: BlockingConnection, name: Namer
) -> None:
    with channel_closed(403, "ACCESS_REFUSED"):
        limited.channel().queue_declare(name("own.q"), arguments={"x-dead-letter-exchange": "amq.fanout"})


def test_an_alternate_exchange_must_be_writable_by_who_declares_the_exchange(
    limited: BlockingConnection, name: Namer
) -> None:
    with channel_closed(403, "ACCESS_REFUSED"):
        limited.channel().exchange_declare(name("own.x"), "direct", arguments={"alternate-exchange": "amq.fanout"})
