"""Are virtual hosts isolated from one another?"""

from collections.abc import Callable

from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.client import bodies, channel_closed, publish

Namer = Callable[..., str]
Connector = Callable[..., BlockingConnection]


def test_queues_of_one_name_in_two_virtual_hosts_are_two(
    connect: Connector, channel: BlockingChannel, other_vhost: str, queue: str
) -> None:
    there = connect(virtual_host=other_vhost).channel()
    with channel_closed(404, f"NOT_FOUND - no queue '{queue}' in vhost '{other_vhost}'"):
        there.queue_declare(queue, passive=True)
    there = connect(virtual_host=other_vhost).channel()
    there.queue_declare(queue, exclusive=True)
    publish(channel, queue, "here")
    publish(there, queue, "there")
    assert bodies(channel, queue) == ["here"]
    assert bodies(there, queue) == ["there"]


def test_exchanges_and_bindings_of_two_virtual_hosts_do_not_mix(
    connect: Connector, channel: BlockingChannel, other_vhost: str, queue: str
) -> None:
    there = connect(virtual_host=other_vhost).channel()
    there.queue_declare(queue, exclusive=True)
    there.queue_bind(queue, "amq.fanout")
    channel.queue_bind(queue, "amq.fanout")
    publish(channel, "", "here", exchange="amq.fanout")
    assert bodies(channel, queue) == ["here"]
    assert bodies(there, queue) == []


def test_an_exchange_of_one_virtual_host_is_not_found_in_another(
    connect: Connector, channel: BlockingChannel, other_vhost: str, name: Namer
) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "fanout")
    with channel_closed(404, f"in vhost '{other_vhost}'"):
        connect(virtual_host=other_vhost).channel().exchange_declare(exchange, passive=True)
