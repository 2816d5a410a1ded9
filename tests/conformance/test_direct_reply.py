"""Can a client be answered through amq.rabbitmq.reply-to, without a queue of its own?"""

from collections.abc import Callable

from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.client import Inbox, channel_closed, get_soon, publish, round_trip
from tests.conformance.wire import Wire

REPLY_TO = "amq.rabbitmq.reply-to"


def test_a_reply_comes_straight_to_the_channel_that_asked(connection: BlockingConnection, queue: str) -> None:
    asking, answering = connection.channel(), connection.channel()
    inbox = Inbox(asking, REPLY_TO, auto_ack=True)
    publish(asking, queue, "question", reply_to=REPLY_TO)
    question = get_soon(answering, queue)
    address = question.properties.reply_to
    assert address.startswith(f"{REPLY_TO}.")
    answering.queue_declare(address, passive=True)
    answering.basic_publish("", address, b"answer", BasicProperties(correlation_id="c"))
    [answer] = inbox.take()
    assert (answer.body, answer.properties.correlation_id) == (b"answer", "c")
    assert (answer.method.exchange, answer.method.routing_key) == ("", address)


def test_asking_without_listening_for_the_reply_is_a_failed_precondition(channel: BlockingChannel, queue: str) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - fast reply consumer does not exist"):
        publish(channel, queue, "question", reply_to=REPLY_TO)
        round_trip(channel)


def test_replies_cannot_be_acknowledged(channel: BlockingChannel) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - reply consumer cannot acknowledge"):
        channel.basic_consume(REPLY_TO, print)


def test_one_channel_listens_for_replies_once(channel: BlockingChannel) -> None:
    Inbox(channel, REPLY_TO, auto_ack=True)
    with channel_closed(406, "PRECONDITION_FAILED - reply consumer already set"):
        channel.basic_consume(REPLY_TO, print, auto_ack=True)


def test_the_server_says_that_it_can(wire: Wire) -> None:
    assert wire.start().server_properties["capabilities"]["direct_reply_to"]


def test_the_reply_queue_itself_is_there_to_be_declared(channel: BlockingChannel) -> None:
    assert channel.queue_declare(REPLY_TO, passive=True).method.queue == REPLY_TO


def test_who_is_slow_to_read_its_replies_gets_them_all(
    connect: Callable[..., BlockingConnection], channel: BlockingChannel, queue: str
) -> None:
    asking = connect().channel()
    inbox = Inbox(asking, REPLY_TO, auto_ack=True)
    publish(asking, queue, "question", reply_to=REPLY_TO)
    address = get_soon(channel, queue).properties.reply_to
    for number in range(200):  # more than the buffers between the two hold, and nobody reads
        channel.basic_publish("", address, str(number).encode().ljust(65_536))
    round_trip(channel)
    assert [int(answer.body) for answer in inbox.take(200)] == list(range(200))
