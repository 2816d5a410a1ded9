"""Do publishes and acknowledgements of a transaction happen at its commit, and only then?"""

from collections.abc import Callable

import pytest
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.client import bodies, channel_closed, get, get_soon, publish, round_trip
from tests.conformance.test_publishing import confirm_select, send
from tests.conformance.wire import Wire

Namer = Callable[..., str]


def transacted(connection: BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.tx_select()
    return channel


def test_publishes_are_seen_after_the_commit(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    mine = transacted(connection)
    publish(mine, queue, "a", "b")
    round_trip(mine)
    assert get(channel, queue) is None
    mine.tx_commit()
    assert bodies(channel, queue) == ["a", "b"]


def test_a_commit_that_a_full_queue_takes_in_part_closes_the_channel(
    connection: BlockingConnection, channel: BlockingChannel, name: Namer
) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    mine = transacted(connection)
    publish(mine, queue, "a", "b", "c")
    with channel_closed(406, "partial tx completion"):
        mine.tx_commit()
    assert bodies(channel, queue) == ["a"]


def test_publishes_are_forgotten_by_a_rollback(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    mine = transacted(connection)
    publish(mine, queue, "a")
    mine.tx_rollback()
    publish(mine, queue, "b")
    mine.tx_commit()
    assert bodies(channel, queue) == ["b"]


def test_acknowledgements_count_after_the_commit(connection: BlockingConnection, queue: str) -> None:
    mine = transacted(connection)
    publish(mine, queue, "a", "b")
    mine.tx_commit()
    mine.basic_ack(get_soon(mine, queue, auto_ack=False).tag)
    mine.tx_commit()
    mine.basic_ack(get_soon(mine, queue, auto_ack=False).tag)
    mine.close()
    message = get_soon(connection.channel(), queue)
    assert (message.body, message.method.redelivered) == (b"b", True)


def test_a_rollback_leaves_the_message_with_the_channel_to_be_acknowledged_again(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, "a")
    mine = transacted(connection)
    message = get_soon(mine, queue, auto_ack=False)
    mine.basic_ack(message.tag)
    mine.tx_rollback()
    assert get(channel, queue) is None
    mine.basic_ack(message.tag)
    mine.tx_commit()
    mine.close()
    assert bodies(connection.channel(), queue) == []


def test_rejections_count_after_the_commit(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, "a")
    mine = transacted(connection)
    message = get_soon(mine, queue, auto_ack=False)
    mine.basic_nack(message.tag, requeue=True)
    round_trip(mine)
    assert get(channel, queue) is None
    mine.tx_commit()
    assert get_soon(channel, queue).method.redelivered


def test_a_message_acknowledged_in_a_transaction_cannot_be_acknowledged_again_in_it(
    connection: BlockingConnection, queue: str
) -> None:
    mine = transacted(connection)
    publish(mine, queue, "a")
    mine.tx_commit()
    message = get_soon(mine, queue, auto_ack=False)
    mine.basic_ack(message.tag)
    with channel_closed(406, "unknown delivery tag"):
        mine.basic_ack(message.tag)
        round_trip(mine)


def test_closing_the_channel_rolls_back(connection: BlockingConnection, channel: BlockingChannel, queue: str) -> None:
    mine = transacted(connection)
    publish(mine, queue, "a")
    mine.close()
    assert bodies(channel, queue) == []


def test_a_transaction_is_of_one_channel_of_one_connection(
    connect: Callable[..., BlockingConnection], connection: BlockingConnection, queue: str
) -> None:
    one, two, other = transacted(connection), transacted(connection), transacted(connect())
    for channel, text in ((one, "one"), (two, "two"), (other, "other")):
        publish(channel, queue, text)
        round_trip(channel)
    two.tx_rollback()
    other.tx_commit()
    one.tx_commit()
    assert bodies(connection.channel(), queue) == ["other", "one"]


def test_selecting_again_is_no_error_and_keeps_what_was_published(connection: BlockingConnection, queue: str) -> None:
    mine = transacted(connection)
    publish(mine, queue, "a")
    mine.tx_select()
    mine.tx_commit()
    assert bodies(mine, queue) == ["a"]


def test_committing_without_a_transaction_is_a_failed_precondition(connection: BlockingConnection) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - channel is not transactional"):
        connection.channel().tx_commit()
    with channel_closed(406, "PRECONDITION_FAILED - channel is not transactional"):
        connection.channel().tx_rollback()


def test_a_confirming_channel_cannot_become_transactional(confirming: BlockingChannel) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode"):
        confirming.tx_select()


def test_a_transactional_channel_cannot_become_confirming(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Tx.Select())
    wire.expect(spec.Tx.SelectOk)
    wire.call(1, spec.Confirm.Select())
    closed = wire.expect(spec.Channel.Close)
    assert closed.reply_code == 406
    assert "cannot switch from tx to confirm mode" in closed.reply_text


def test_a_mandatory_message_is_returned_at_the_commit(wire: Wire, name: Namer) -> None:
    wire.open()
    wire.call(1, spec.Tx.Select())
    wire.expect(spec.Tx.SelectOk)
    send(wire, name("absent"), b"a", mandatory=True)
    wire.call(1, spec.Tx.Commit())
    returned = wire.receive()
    assert isinstance(returned.method, spec.Basic.Return)
    wire.receive()
    wire.receive()
    wire.expect(spec.Tx.CommitOk)


def test_publishing_to_an_exchange_that_is_not_there_fails_before_the_commit(
    connection: BlockingConnection, name: Namer
) -> None:
    mine = transacted(connection)
    with channel_closed(404):
        publish(mine, "key", "a", exchange=name("absent"))
        round_trip(mine)


def test_what_was_published_goes_where_its_exchange_led_then_also_when_that_is_deleted(
    connection: BlockingConnection, channel: BlockingChannel, queue: str, name: Namer
) -> None:
    exchange = name("exchange")
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(queue, exchange)
    mine = transacted(connection)
    publish(mine, "key", "a", exchange=exchange)
    round_trip(mine)
    channel.exchange_delete(exchange)
    mine.tx_commit()
    message = get_soon(channel, queue)
    assert (message.body, message.method.exchange, message.method.routing_key) == (b"a", exchange, "key")


@pytest.mark.parametrize("kind", ["fanout", "headers"])
def test_bindings_that_come_or_go_between_publish_and_commit_change_nothing(
    connection: BlockingConnection, channel: BlockingChannel, name: Namer, kind: str
) -> None:
    exchange, before, after = name("exchange"), name(), name()
    channel.exchange_declare(exchange, kind)
    for queue in (before, after):
        channel.queue_declare(queue)
    channel.queue_bind(before, exchange)
    mine = transacted(connection)
    publish(mine, "key", "a", exchange=exchange)
    round_trip(mine)
    channel.queue_unbind(before, exchange)
    channel.queue_bind(after, exchange)
    mine.tx_commit()
    assert (bodies(channel, before), bodies(channel, after)) == (["a"], [])


def test_a_queue_that_is_deleted_before_the_commit_gets_nothing_and_another_of_its_name_does(
    connection: BlockingConnection, channel: BlockingChannel, name: Namer
) -> None:
    gone, anew, stays = name(), name(), name()
    for queue in (gone, anew, stays):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "amq.direct", gone)
    mine = transacted(connection)
    publish(mine, gone, "a", exchange="amq.direct")
    round_trip(mine)
    for queue in (gone, anew):
        channel.queue_delete(queue)
    channel.queue_declare(anew)
    mine.tx_commit()
    assert (bodies(channel, anew), bodies(channel, stays)) == (["a"], ["a"])


def test_a_mandatory_message_whose_queue_is_deleted_before_the_commit_is_returned(
    wire: Wire, channel: BlockingChannel, queue: str
) -> None:
    wire.open()
    wire.call(1, spec.Tx.Select())
    wire.expect(spec.Tx.SelectOk)
    send(wire, queue, b"a", mandatory=True)
    assert wire.is_well()
    channel.queue_delete(queue)
    wire.call(1, spec.Tx.Commit())
    assert wire.expect(spec.Basic.Return).reply_text == "NO_ROUTE"


def test_confirms_and_transactions_live_on_channels_side_by_side(wire: Wire, queue: str) -> None:
    wire.open(channels=2)
    confirm_select(wire)
    wire.call(2, spec.Tx.Select())
    wire.expect(spec.Tx.SelectOk)
    send(wire, queue, b"a")
    wire.expect(spec.Basic.Ack)
