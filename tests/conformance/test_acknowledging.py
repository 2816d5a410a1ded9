"""Are messages settled once, and put back in their place where they are not?"""

from collections.abc import Callable

import pytest
from pika import frame, spec
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.brokers import Broker
from tests.conformance.client import (
    Inbox,
    Message,
    bodies,
    channel_closed,
    count,
    eventually,
    get,
    get_soon,
    publish,
    round_trip,
)
from tests.conformance.wire import Wire, content_header, raw_frame

Namer = Callable[..., str]
Connector = Callable[..., BlockingConnection]


def held(channel: BlockingChannel, queue: str, number: int) -> list[Message]:
    """So many messages, taken and not settled."""
    return [get_soon(channel, queue, auto_ack=False) for _ in range(number)]


def left(connection: BlockingConnection, queue: str, number: int) -> list[Message]:
    """All that is ready, once it is so many."""
    channel = connection.channel()
    eventually(lambda: count(channel, queue) == number)
    return [get_soon(channel, queue) for _ in range(number)]


def test_an_acknowledged_message_never_comes_back(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    publish(channel, queue, "a", "b")
    first, _ = held(channel, queue, 2)
    channel.basic_ack(first.tag)
    channel.close()
    assert [message.body for message in left(connection, queue, 1)] == [b"b"]


def test_ack_multiple_settles_all_up_to_the_tag(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    publish(channel, queue, *"abcd")
    messages = held(channel, queue, 4)
    channel.basic_ack(messages[2].tag, multiple=True)
    channel.close()
    assert [message.body for message in left(connection, queue, 1)] == [b"d"]


def test_ack_multiple_of_zero_settles_everything(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    publish(channel, queue, *"abc")
    held(channel, queue, 2)
    channel.basic_ack(0, multiple=True)
    channel.close()
    assert [message.body for message in left(connection, queue, 1)] == [b"c"]


def test_ack_multiple_of_zero_with_nothing_held_is_no_error(channel: BlockingChannel) -> None:
    channel.basic_ack(0, multiple=True)
    round_trip(channel)


def test_ack_multiple_skips_what_was_settled_before(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    publish(channel, queue, *"abc")
    messages = held(channel, queue, 3)
    channel.basic_ack(messages[1].tag)
    channel.basic_ack(messages[2].tag, multiple=True)
    channel.close()
    assert bodies(connection.channel(), queue) == []


@pytest.mark.parametrize("how", ["ack", "ack multiple", "nack", "reject"])
def test_an_unknown_delivery_tag_is_a_failed_precondition(channel: BlockingChannel, how: str) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - unknown delivery tag 7"):
        if how.startswith("ack"):
            channel.basic_ack(7, multiple=how.endswith("multiple"))
        elif how == "nack":
            channel.basic_nack(7)
        else:
            channel.basic_reject(7)
        round_trip(channel)


def test_settling_twice_is_a_failed_precondition(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a", "b")
    first, _ = held(channel, queue, 2)
    channel.basic_ack(first.tag)
    with channel_closed(406, f"PRECONDITION_FAILED - unknown delivery tag {first.tag}"):
        channel.basic_ack(first.tag)
        round_trip(channel)


def test_a_message_without_acknowledgement_cannot_be_acknowledged(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a")
    message = get_soon(channel, queue)
    with channel_closed(406, "PRECONDITION_FAILED - unknown delivery tag 1"):
        channel.basic_ack(message.tag)
        round_trip(channel)


def test_a_delivery_tag_belongs_to_its_channel(connection: BlockingConnection, queue: str) -> None:
    one, two = connection.channel(), connection.channel()
    publish(one, queue, "a")
    [message] = held(one, queue, 1)
    with channel_closed(406, "unknown delivery tag"):
        two.basic_ack(message.tag)
        round_trip(two)
    one.basic_ack(message.tag)
    round_trip(one)


@pytest.mark.parametrize("how", ["nack", "reject"])
def test_a_message_put_back_comes_again_in_its_place_and_marked(channel: BlockingChannel, queue: str, how: str) -> None:
    publish(channel, queue, *"abcd")
    first, second, _ = held(channel, queue, 3)
    if how == "nack":
        channel.basic_nack(second.tag, requeue=True)
        channel.basic_nack(first.tag, requeue=True)
    else:
        channel.basic_reject(second.tag, requeue=True)
        channel.basic_reject(first.tag, requeue=True)
    again = [get_soon(channel, queue) for _ in range(3)]
    assert [(message.body, message.method.redelivered) for message in again] == [
        (b"a", True),
        (b"b", True),
        (b"d", False),
    ]


def test_nack_multiple_puts_all_back_up_to_the_tag_in_order(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    publish(channel, queue, *"abcd")
    messages = held(channel, queue, 3)
    channel.basic_nack(messages[1].tag, multiple=True, requeue=True)
    again = left(connection, queue, 3)
    assert [(message.body, message.method.redelivered) for message in again] == [
        (b"a", True),
        (b"b", True),
        (b"d", False),
    ]


def test_nack_multiple_of_zero_puts_everything_back(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    publish(channel, queue, *"abc")
    held(channel, queue, 3)
    channel.basic_nack(0, multiple=True, requeue=True)
    assert [message.body for message in left(connection, queue, 3)] == [b"a", b"b", b"c"]


def test_nack_without_requeue_drops(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, *"abc")
    messages = held(channel, queue, 2)
    channel.basic_nack(messages[1].tag, multiple=True, requeue=False)
    assert bodies(channel, queue) == ["c"]


def test_a_rejected_message_goes_to_another_consumer(connection: BlockingConnection, queue: str) -> None:
    one, two = connection.channel(), connection.channel()
    one.basic_qos(prefetch_count=1)
    first, second = Inbox(one, queue), Inbox(two, queue)
    publish(two, queue, "a")
    [message] = first.take()
    one.basic_reject(message.tag, requeue=True)
    [again] = second.take()
    assert (again.body, again.method.redelivered) == (b"a", True)


def test_recover_puts_everything_of_the_channel_back(connection: BlockingConnection, queue: str) -> None:
    channel, other = connection.channel(), connection.channel()
    publish(channel, queue, *"abc")
    held(channel, queue, 2)
    held(other, queue, 1)
    channel.basic_recover(requeue=True)
    again = left(connection, queue, 2)
    assert [(message.body, message.method.redelivered) for message in again] == [(b"a", True), (b"b", True)]


def test_after_recover_the_old_tags_are_unknown(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a")
    [message] = held(channel, queue, 1)
    channel.basic_recover(requeue=True)
    with channel_closed(406, "unknown delivery tag"):
        channel.basic_ack(message.tag)
        round_trip(channel)


def test_recover_delivers_again_to_the_consumer(channel: BlockingChannel, queue: str) -> None:
    inbox = Inbox(channel, queue)
    publish(channel, queue, "a", "b")
    inbox.take(2)
    channel.basic_recover(requeue=True)
    again = inbox.take(2)
    assert [(message.body, message.tag, message.method.redelivered) for message in again] == [
        (b"a", 3, True),
        (b"b", 4, True),
    ]


@pytest.mark.parametrize("method", [spec.Basic.Recover, spec.Basic.RecoverAsync])
def test_recovering_without_requeue_is_not_implemented(wire: Wire, method: type) -> None:
    wire.open()
    wire.call(1, method(requeue=False))
    wire.expect_close(540, "NOT_IMPLEMENTED - requeue=false")


def test_recover_async_puts_back_and_answers_nothing(wire: Wire, channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a")
    eventually(lambda: count(channel, queue) == 1)
    wire.open()
    wire.call(1, spec.Basic.Get(queue=queue))
    wire.expect(spec.Basic.GetOk)
    wire.receive()
    wire.receive()
    wire.call(1, spec.Basic.RecoverAsync(requeue=True))
    assert wire.is_well()
    message = get_soon(channel, queue)
    assert (message.body, message.method.redelivered) == (b"a", True)


def test_closing_a_channel_puts_back_what_it_held_in_order(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    publish(channel, queue, *"abcd")
    held(channel, queue, 3)
    channel.close()
    again = left(connection, queue, 4)
    assert [(message.body, message.method.redelivered) for message in again] == [
        (b"a", True),
        (b"b", True),
        (b"c", True),
        (b"d", False),
    ]


def test_an_error_that_closes_a_channel_puts_back_what_it_held(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    publish(channel, queue, "a")
    held(channel, queue, 1)
    with channel_closed(406):
        channel.basic_ack(99)
        round_trip(channel)
    assert [message.method.redelivered for message in left(connection, queue, 1)] == [True]


def test_a_lost_connection_puts_back_what_it_held(broker: Broker, channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, *"ab")
    eventually(lambda: count(channel, queue) == 2)
    with Wire(broker) as lost:
        lost.open()
        lost.call(1, spec.Basic.Consume(queue=queue))
        lost.expect(spec.Basic.ConsumeOk)
        lost.expect(spec.Basic.Deliver)
    eventually(lambda: count(channel, queue) == 2)
    again = [get_soon(channel, queue) for _ in range(2)]
    assert [message.body for message in again] == [b"a", b"b"]
    assert again[0].method.redelivered


def test_closing_one_connection_leaves_the_messages_of_others_alone(
    connect: Connector, channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, "a", "b")
    [mine] = held(channel, queue, 1)
    other = connect()
    [theirs] = held(other.channel(), queue, 1)
    assert (mine.body, theirs.body) == (b"a", b"b")
    other.close()
    assert get_soon(channel, queue).body == b"b"
    assert get(channel, queue) is None
    channel.basic_ack(mine.tag)
    round_trip(channel)


def test_acknowledging_after_the_queue_was_deleted_is_no_error(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a")
    [message] = held(channel, queue, 1)
    channel.queue_delete(queue)
    channel.basic_ack(message.tag)
    round_trip(channel)


def test_a_message_that_goes_to_two_queues_is_settled_in_each(channel: BlockingChannel, name: Namer) -> None:
    queues = [name(), name()]
    for queue in queues:
        channel.queue_declare(queue)
        channel.queue_bind(queue, "amq.direct", queues[0])
    publish(channel, queues[0], "a", exchange="amq.direct")
    channel.basic_ack(held(channel, queues[0], 1)[0].tag)
    assert bodies(channel, queues[0]) == []
    assert bodies(channel, queues[1]) == ["a"]


def deliveries(wire: Wire, queue: str, number: int) -> list[int]:
    """The tags of so many messages that a consumer of the wire was sent."""
    wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag="c"))
    tags: list[int] = []
    while len(tags) < number:
        found = wire.receive()
        method = getattr(found, "method", None)
        if isinstance(method, spec.Basic.Deliver):
            tags.append(int(method.delivery_tag))
    for _ in range(2):  # the header and body of the last one
        wire.receive()
    return tags


def test_acks_that_come_together_settle_each_its_own(channel: BlockingChannel, queue: str, wire: Wire) -> None:
    publish(channel, queue, *"abcdefgh")
    wire.open()
    tags = deliveries(wire, queue, 8)
    acks = [spec.Basic.Ack(tag) for tag in (tags[1], tags[0], tags[6])] + [spec.Basic.Ack(tags[4], multiple=True)]
    wire.call(1, *acks)
    assert wire.is_well()
    wire.socket.close()
    eventually(lambda: count(channel, queue) == 2)
    assert bodies(channel, queue) == ["f", "h"]


def test_acks_and_publishes_that_come_together_are_done_in_their_order(
    channel: BlockingChannel, queue: str, wire: Wire
) -> None:
    publish(channel, queue, "a", "b")
    wire.open()
    wire.call(1, spec.Confirm.Select())
    wire.expect(spec.Confirm.SelectOk)
    tags = deliveries(wire, queue, 2)
    content = content_header(1, 1) + raw_frame(3, 1, b"x")
    method = frame.Method(1, spec.Basic.Publish(exchange="", routing_key="nowhere", mandatory=True)).marshal()
    acks = [frame.Method(1, spec.Basic.Ack(tag)).marshal() for tag in tags]
    wire.send(acks[0], method, content, acks[1], method, content)
    returned = confirmed = 0
    while confirmed < 2:
        found = getattr(wire.receive(), "method", None)
        returned += isinstance(found, spec.Basic.Return)
        if isinstance(found, spec.Basic.Ack):
            confirmed = found.delivery_tag
    assert returned == 2
    wire.socket.close()
    eventually(lambda: channel.queue_declare(queue, passive=True).method.consumer_count == 0)
    assert count(channel, queue) == 0


@pytest.mark.parametrize("wrong", [99, 1], ids=["unknown", "twice"])
def test_a_wrong_ack_among_others_closes_the_channel_after_those_before_it(
    channel: BlockingChannel, queue: str, wire: Wire, wrong: int
) -> None:
    publish(channel, queue, *"abcd")
    wire.open()
    tags = deliveries(wire, queue, 4)
    wire.call(1, *[spec.Basic.Ack(tag) for tag in (tags[0], tags[1], wrong, tags[2], tags[3])])
    closed = wire.expect(spec.Channel.Close)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (406, 60, 80)
    assert closed.reply_text == f"PRECONDITION_FAILED - unknown delivery tag {wrong}"
    wire.call(1, spec.Channel.CloseOk())
    assert wire.is_well()
    eventually(lambda: count(channel, queue) == 2)
    assert bodies(channel, queue) == ["c", "d"]
