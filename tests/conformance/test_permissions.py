"""Is a user kept from what its permissions do not name?"""

from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.client import Inbox, bodies, channel_closed, connection_closed, publish, round_trip
from tests.conformance.test_direct_reply import REPLY_TO

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


def test_listening_for_replies_needs_no_permission(limited: BlockingConnection) -> None:
    Inbox(limited.channel(), REPLY_TO, auto_ack=True)


def test_a_queue_declared_again_alike_needs_no_rights_on_its_dead_letter_exchange(
    limited: BlockingConnection, channel: BlockingChannel, name: Namer
) -> None:
    queue = name("c.q")
    channel.queue_declare(queue, arguments={"x-dead-letter-exchange": "amq.fanout"})
    limited.channel().queue_declare(queue, arguments={"x-dead-letter-exchange": "amq.fanout"})
    with channel_closed(406, "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange'"):
        limited.channel().queue_declare(queue, arguments={"x-dead-letter-exchange": "amq.direct"})


def test_an_exchange_declared_again_alike_needs_no_rights_on_its_alternate_exchange(
    limited: BlockingConnection, channel: BlockingChannel, name: Namer
) -> None:
    exchange = name("c.x")
    channel.exchange_declare(exchange, "direct", arguments={"alternate-exchange": "amq.fanout"})
    limited.channel().exchange_declare(exchange, "direct", arguments={"alternate-exchange": "amq.fanout"})
    with channel_closed(406, "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange'"):
        limited.channel().exchange_declare(exchange, "direct", arguments={"alternate-exchange": "amq.direct"})


@pytest.mark.parametrize(("label", "code"), [("r.absent", 403), ("w.absent", 404)])
def test_whether_an_exchange_is_there_is_told_only_to_who_may_write_to_it(
    limited: BlockingConnection, name: Namer, label: str, code: int
) -> None:
    exchange, channel = name(label), limited.channel()
    with channel_closed(code, f"exchange '{exchange}' in vhost '/'"):
        publish(channel, "key", "a", exchange=exchange)
        round_trip(channel)


def test_a_refusal_names_the_default_exchange(limited: BlockingConnection) -> None:
    channel = limited.channel()
    with channel_closed(403, "access to exchange 'amq.default' in vhost '/' refused for user"):
        publish(channel, "key", "a")
        round_trip(channel)


@pytest.mark.parametrize(
    ("attempt", "text"),
    [
        (lambda channel, own: channel.queue_declare("amq.conformance"), "contains reserved prefix 'amq.*'"),
        (lambda channel, own: channel.exchange_declare(""), "operation not permitted on the default exchange"),
        (lambda channel, own: channel.exchange_delete(""), "operation not permitted on the default exchange"),
        (lambda channel, own: channel.queue_bind(own, "", "key"), "operation not permitted on the default exchange"),
        (lambda channel, own: channel.queue_unbind(own, "", "key"), "operation not permitted on the default exchange"),
        (lambda channel, own: channel.exchange_delete("amq.direct"), "'amq.direct' in vhost '/' not allowed"),
        (lambda channel, own: channel.exchange_delete("amq.absent"), "'amq.absent' in vhost '/' not allowed"),
    ],
    ids=["declare queue", "declare", "delete", "bind", "unbind", "delete predeclared", "delete reserved"],
)
def test_what_nobody_may_do_is_refused_as_that(
    limited: BlockingConnection,
    channel: BlockingChannel,
    name: Namer,
    attempt: Callable[[BlockingChannel, str], object],
    text: str,
) -> None:
    own = name("own.q")
    channel.queue_declare(own)
    with channel_closed(403, "ACCESS_REFUSED", text):
        attempt(limited.channel(), own)


@pytest.mark.parametrize(
    ("attempt", "thing"),
    [
        (lambda channel: channel.exchange_declare("amq.conformance"), "exchange 'amq.conformance'"),
        (lambda channel: channel.queue_delete("amq.conformance"), "queue 'amq.conformance'"),
        (lambda channel: channel.queue_bind("conformance.absent", "", "key"), "queue 'conformance.absent'"),
        (lambda channel: channel.exchange_bind("", "amq.direct", "key"), "exchange 'amq.default'"),
    ],
    ids=["declare exchange", "delete queue", "bind queue", "bind exchange"],
)
def test_what_nobody_may_do_is_refused_to_the_user_where_permissions_are_asked_first(
    limited: BlockingConnection, attempt: Callable[[BlockingChannel], object], thing: str
) -> None:
    with channel_closed(403, "ACCESS_REFUSED", f"access to {thing} in vhost '/' refused for user"):
        attempt(limited.channel())


def test_the_type_of_an_exchange_is_judged_before_permissions(limited: BlockingConnection) -> None:
    with connection_closed(503, "COMMAND_INVALID - unknown exchange type 'x-unheard-of'"):
        limited.channel().exchange_declare("conformance.absent", "x-unheard-of")
