"""Do messages come to whoever asks for them, in the right order and number?"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.client import (
    Inbox,
    bodies,
    channel_closed,
    connection_closed,
    get,
    get_soon,
    publish,
    round_trip,
)
from tests.conformance.wire import Wire, publishing

Namer = Callable[..., str]
Connector = Callable[..., BlockingConnection]


def share(inboxes: list[Inbox], number: int) -> list[int]:
    """How many messages each got, once they have so many together and no more come."""
    connection = inboxes[0].channel.connection
    until = time.monotonic() + 60
    while sum(inbox.waiting for inbox in inboxes) < number and time.monotonic() < until:
        connection.process_data_events(time_limit=0.05)
    connection.process_data_events(time_limit=0.3)
    return [inbox.waiting for inbox in inboxes]


def test_get_says_how_many_messages_are_left(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a", "b", "c")
    for left in (2, 1, 0):
        message = get(channel, queue)
        assert message is not None
        assert message.method.message_count == left
        assert message.method.redelivered is False
    assert get(channel, queue) is None


def test_get_on_an_empty_queue_says_so(wire: Wire, queue: str) -> None:
    wire.open()
    wire.call(1, spec.Basic.Get(queue=queue))
    wire.expect(spec.Basic.GetEmpty)


def test_getting_from_a_queue_that_is_not_there_is_not_found(channel: BlockingChannel, name: Namer) -> None:
    queue = name()
    with channel_closed(404, f"NOT_FOUND - no queue '{queue}' in vhost '/'"):
        channel.basic_get(queue)


def test_consuming_from_a_queue_that_is_not_there_is_not_found(channel: BlockingChannel, name: Namer) -> None:
    with channel_closed(404, "NOT_FOUND - no queue"):
        channel.basic_consume(name(), print)


def test_a_consumer_gets_what_was_there_and_what_comes(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a", "b")
    inbox = Inbox(channel, queue)
    publish(channel, queue, "c")
    messages = inbox.take(3)
    assert [message.body for message in messages] == [b"a", b"b", b"c"]
    assert [message.tag for message in messages] == [1, 2, 3]
    assert {message.method.consumer_tag for message in messages} == {inbox.tag}
    assert not any(message.method.redelivered for message in messages)


def test_delivery_tags_count_over_all_consumers_and_gets_of_a_channel(channel: BlockingChannel, name: Namer) -> None:
    one, two = name(), name()
    for queue in (one, two):
        channel.queue_declare(queue)
        publish(channel, queue, "a")
    first, second = get(channel, one, auto_ack=False), get(channel, two)
    assert first is not None
    assert second is not None
    inbox = Inbox(channel, one)
    publish(channel, one, "b")
    [third] = inbox.take()
    assert [first.tag, second.tag, third.tag] == [1, 2, 3]


def test_without_acknowledgement_nothing_is_kept(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    publish(channel, queue, "a", "b")
    Inbox(channel, queue, auto_ack=True).take(2)
    channel.close()
    assert bodies(connection.channel(), queue) == []


def test_a_consumer_without_acknowledgement_is_not_bound_by_prefetch(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=1)
    publish(channel, queue, "a", "b", "c")
    assert Inbox(channel, queue, auto_ack=True).take_bodies(3) == ["a", "b", "c"]


def test_a_consumer_tag_left_empty_is_given_by_the_server(wire: Wire, queue: str) -> None:
    wire.open()
    tags = []
    for _ in range(2):
        wire.call(1, spec.Basic.Consume(queue=queue))
        tags.append(wire.expect(spec.Basic.ConsumeOk).consumer_tag)
    assert all(tag.startswith("amq.ctag-") for tag in tags)
    assert tags[0] != tags[1]


def test_a_consumer_tag_in_use_on_the_channel_closes_the_connection(wire: Wire, queue: str) -> None:
    wire.open()
    wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag="same"))
    wire.expect(spec.Basic.ConsumeOk)
    wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag="same"))
    wire.expect_close(530, "NOT_ALLOWED - attempt to reuse consumer tag 'same'")


def test_two_channels_may_use_one_consumer_tag(connection: BlockingConnection, queue: str) -> None:
    one, two = connection.channel(), connection.channel()
    first, second = Inbox(one, queue, consumer_tag="same"), Inbox(two, queue, consumer_tag="same")
    publish(one, queue, "a", "b")
    assert [first.take_bodies(1), second.take_bodies(1)] == [["a"], ["b"]]
    one.basic_cancel("same")
    publish(one, queue, "c")
    assert second.take_bodies(1) == ["c"]


def test_a_cancelled_consumer_gets_nothing_more_and_keeps_what_it_has(channel: BlockingChannel, queue: str) -> None:
    inbox = Inbox(channel, queue)
    publish(channel, queue, "a")
    [message] = inbox.take()
    channel.basic_cancel(inbox.tag)
    publish(channel, queue, "b")
    assert bodies(channel, queue) == ["b"]
    channel.basic_ack(message.tag)
    round_trip(channel)


def test_cancelling_an_unknown_consumer_is_no_error(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Basic.Cancel(consumer_tag="unheard-of"))
    assert wire.expect(spec.Basic.CancelOk).consumer_tag == "unheard-of"


def test_a_consumer_is_told_when_its_queue_is_deleted(wire: Wire, channel: BlockingChannel, queue: str) -> None:
    wire.open(capabilities={"consumer_cancel_notify": True})
    wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag="tag"))
    wire.expect(spec.Basic.ConsumeOk)
    channel.queue_delete(queue)
    cancelled = wire.expect(spec.Basic.Cancel)
    assert cancelled.consumer_tag == "tag"
    assert cancelled.nowait
    assert wire.is_well()


def test_who_deletes_a_queue_hears_so_before_its_consumers_are_cancelled(wire: Wire, queue: str) -> None:
    wire.open(capabilities={"consumer_cancel_notify": True})
    for tag in ("one", "two"):
        wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag=tag))
        wire.expect(spec.Basic.ConsumeOk)
    wire.call(1, spec.Queue.Delete(queue=queue))
    wire.expect(spec.Queue.DeleteOk)
    assert {wire.expect(spec.Basic.Cancel).consumer_tag for _ in range(2)} == {"one", "two"}


def test_a_client_that_does_not_know_cancel_notifications_gets_none(
    wire: Wire, channel: BlockingChannel, queue: str
) -> None:
    wire.open()
    wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag="tag"))
    wire.expect(spec.Basic.ConsumeOk)
    channel.queue_delete(queue)
    assert wire.is_well()


def test_an_exclusive_consumer_keeps_others_out(connection: BlockingConnection, queue: str) -> None:
    first = connection.channel()
    inbox = Inbox(first, queue, exclusive=True)
    text = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    with channel_closed(403, text):
        connection.channel().basic_consume(queue, print)
    with channel_closed(403, text):
        connection.channel().basic_consume(queue, print, exclusive=True)
    first.basic_cancel(inbox.tag)
    Inbox(connection.channel(), queue, exclusive=True)


def test_a_queue_with_a_consumer_cannot_have_an_exclusive_one(connection: BlockingConnection, queue: str) -> None:
    Inbox(connection.channel(), queue)
    with channel_closed(403, f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"):
        connection.channel().basic_consume(queue, print, exclusive=True)


def test_get_works_beside_an_exclusive_consumer(connection: BlockingConnection, queue: str) -> None:
    consumer, other = connection.channel(), connection.channel()
    consumer.basic_qos(prefetch_count=1)
    inbox = Inbox(consumer, queue, exclusive=True)
    publish(other, queue, "a", "b")
    assert inbox.take_bodies(1) == ["a"]
    assert get_soon(other, queue).body == b"b"


def test_messages_go_round_the_consumers(connection: BlockingConnection, queue: str) -> None:
    inboxes = [Inbox(connection.channel(), queue) for _ in range(3)]
    publish(connection.channel(), queue, *"abcdef")
    assert [inbox.take_bodies(2) for inbox in inboxes] == [["a", "d"], ["b", "e"], ["c", "f"]]


def test_messages_go_round_the_consumers_of_one_channel(channel: BlockingChannel, queue: str) -> None:
    inboxes = [Inbox(channel, queue) for _ in range(2)]
    publish(channel, queue, *"abcd")
    assert [inbox.take_bodies(2) for inbox in inboxes] == [["a", "c"], ["b", "d"]]


def test_what_goes_to_several_consumers_of_one_channel_comes_in_the_order_of_the_queue(wire: Wire, queue: str) -> None:
    wire.open(channels=2)
    for tag in ("one", "two"):
        wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag=tag))
        wire.expect(spec.Basic.ConsumeOk)
    wire.send(publishing(2, queue, *"abcdefgh"))
    found = []
    for _ in range(8):
        delivered = wire.expect(spec.Basic.Deliver)
        wire.receive()  # the header
        found.append((delivered.delivery_tag, delivered.consumer_tag, wire.receive().fragment.decode()))
    assert found == [(number + 1, ("one", "two")[number % 2], text) for number, text in enumerate("abcdefgh")]


def test_consumers_with_a_higher_priority_come_first(connection: BlockingConnection, queue: str) -> None:
    low, high = connection.channel(), connection.channel()
    high.basic_qos(prefetch_count=2)
    normal = Inbox(low, queue)
    preferred = Inbox(high, queue, arguments={"x-priority": 10})
    publisher = connection.channel()
    publish(publisher, queue, *"abcd")
    assert preferred.take_bodies(2) == ["a", "b"]
    assert normal.take_bodies(2) == ["c", "d"]


def test_a_consumer_of_negative_priority_comes_after_those_without_one(
    connection: BlockingConnection, queue: str
) -> None:
    low = Inbox(connection.channel(), queue, arguments={"x-priority": -1})
    normal = Inbox(connection.channel(), queue)
    publish(connection.channel(), queue, *"abc")
    assert normal.take_bodies(3) == ["a", "b", "c"]
    assert low.is_quiet()


def test_a_consumer_priority_that_is_no_number_is_a_failed_precondition(channel: BlockingChannel, queue: str) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - invalid arg 'x-priority'", "expected integer, got longstr"):
        channel.basic_consume(queue, print, arguments={"x-priority": "high"})


def test_prefetch_limits_what_a_consumer_holds(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=2)
    inbox = Inbox(channel, queue)
    publish(channel, queue, *"abcde")
    first, second = inbox.take(2)
    assert inbox.is_quiet()
    channel.basic_ack(first.tag)
    [third] = inbox.take(1)
    assert third.body == b"c"
    assert inbox.is_quiet()
    channel.basic_ack(third.tag, multiple=True)
    assert inbox.take_bodies(2) == ["d", "e"]
    assert second.tag < third.tag


def test_prefetch_counts_for_each_consumer_of_a_channel(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=1)
    inboxes = [Inbox(channel, queue), Inbox(channel, queue)]
    publish(channel, queue, *"abcd")
    assert [inbox.take_bodies(1) for inbox in inboxes] == [["a"], ["b"]]
    assert all(inbox.is_quiet() for inbox in inboxes)


def test_a_new_prefetch_is_for_new_consumers_only(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=1)
    first = Inbox(channel, queue)
    channel.basic_qos(prefetch_count=2)
    second = Inbox(channel, queue)
    publish(channel, queue, *"abcde")
    assert first.take_bodies(1) == ["a"]
    assert second.take_bodies(2) == ["b", "c"]
    assert first.is_quiet()
    assert second.is_quiet()


def test_global_prefetch_counts_for_the_whole_channel(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=3, global_qos=True)
    inboxes = [Inbox(channel, queue), Inbox(channel, queue)]
    publish(channel, queue, *"abcdef")
    assert sum(share(inboxes, 3)) == 3
    channel.basic_ack(3, multiple=True)
    assert sum(share(inboxes, 6)) == 6


def test_global_prefetch_of_a_channel_may_change_at_any_time(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=1, global_qos=True)
    inbox = Inbox(channel, queue)
    publish(channel, queue, *"abcd")
    assert inbox.take_bodies(1) == ["a"]
    assert inbox.is_quiet()
    channel.basic_qos(prefetch_count=3, global_qos=True)
    assert inbox.take_bodies(2) == ["b", "c"]
    assert inbox.is_quiet()
    channel.basic_qos(prefetch_count=0, global_qos=True)
    assert inbox.take_bodies(1) == ["d"]


def test_global_prefetch_does_not_count_what_was_got(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=1, global_qos=True)
    publish(channel, queue, *"abc")
    assert get_soon(channel, queue, auto_ack=False).body == b"a"
    inbox = Inbox(channel, queue)
    assert inbox.take_bodies(1) == ["b"]
    assert inbox.is_quiet()


def test_global_prefetch_is_free_again_when_acks_are_committed(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, *"abcd")
    channel.basic_qos(prefetch_count=2, global_qos=True)
    channel.tx_select()
    inbox = Inbox(channel, queue)
    taken = inbox.take(2)
    channel.basic_ack(taken[1].tag, multiple=True)
    assert inbox.is_quiet()
    channel.tx_commit()
    assert inbox.take_bodies(2) == ["c", "d"]


def test_both_kinds_of_prefetch_hold_at_once(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=2)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    inboxes = [Inbox(channel, queue), Inbox(channel, queue)]
    publish(channel, queue, *"abcdef")
    assert sorted(share(inboxes, 3)) == [1, 2]


def test_a_prefetch_for_consumers_lifts_that_of_the_channel(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=3, global_qos=True)
    channel.basic_qos(prefetch_count=2)
    inboxes = [Inbox(channel, queue), Inbox(channel, queue)]
    publish(channel, queue, *"abcdef")
    assert [inbox.take_bodies(2) for inbox in inboxes] == [["a", "c"], ["b", "d"]]
    assert all(inbox.is_quiet() for inbox in inboxes)


def test_get_is_not_bound_by_prefetch(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=1)
    publish(channel, queue, *"abc")
    assert [get_soon(channel, queue, auto_ack=False).body for _ in range(3)] == [b"a", b"b", b"c"]


def test_a_prefetch_size_is_not_implemented(channel: BlockingChannel) -> None:
    with connection_closed(540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)"):
        channel.basic_qos(prefetch_size=1)


@pytest.mark.parametrize("options", [{"no_local": True}, {}])
def test_no_local_changes_nothing(wire: Wire, channel: BlockingChannel, queue: str, options: dict[str, Any]) -> None:
    wire.open()
    wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag="tag", no_ack=True, **options))
    wire.expect(spec.Basic.ConsumeOk)
    publish(channel, queue, "a")
    wire.expect(spec.Basic.Deliver)


def test_consuming_with_nowait_gets_deliveries_without_consume_ok(
    wire: Wire, channel: BlockingChannel, queue: str
) -> None:
    wire.open()
    wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag="tag", no_ack=True, nowait=True))
    publish(channel, queue, "a")
    assert wire.expect(spec.Basic.Deliver).consumer_tag == "tag"


def test_a_consumer_that_is_full_leaves_messages_to_others(connection: BlockingConnection, queue: str) -> None:
    full, free = connection.channel(), connection.channel()
    full.basic_qos(prefetch_count=1)
    first, second = Inbox(full, queue), Inbox(free, queue)
    publish(free, queue, *"abcd")
    assert first.take_bodies(1) == ["a"]
    assert second.take_bodies(3) == ["b", "c", "d"]
