"""Does pika's SelectConnection, which calls back, find what it expects?"""

import os
from collections.abc import Callable
from typing import Any

import pika
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from tests.interop.serving import DEADLINE_S, Door, Served

PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Program:
    """A program of callbacks: runs from an open channel until `end` is called or the connection is closed."""

    def __init__(self, door: Door, begin: "Callable[[Program, Channel], object]") -> None:
        self._begin = begin
        self.ending: BaseException | None = None
        self.late = False
        self.connection = pika.SelectConnection(
            door.parameters(),
            on_open_callback=self._opened,
            on_open_error_callback=self._stop,
            on_close_callback=self._stop,
        )

    def run(self) -> BaseException | None:
        """Run to the end; why the connection was closed."""
        self.connection.ioloop.call_later(DEADLINE_S, self._give_up)
        try:
            self.connection.ioloop.start()
        finally:
            self.connection.ioloop.close()
        assert not self.late, "the program waited in vain"
        return self.ending

    def end(self, *_: object) -> None:
        """All is done."""
        self.connection.close()

    def _opened(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=lambda channel: self._begin(self, channel))

    def _stop(self, _connection: object, reason: BaseException) -> None:
        self.ending = reason
        self.connection.ioloop.stop()

    def _give_up(self) -> None:
        self.late = True
        self.connection.ioloop.stop()


def run(door: Door, begin: Callable[[Program, Channel], object]) -> BaseException | None:
    return Program(door, begin).run()


def test_a_program_declares_publishes_with_confirms_and_consumes(door: Door, name: Callable[..., str]) -> None:
    queue = name()
    bodies = [b"message %d" % number for number in range(500)]
    confirmed: set[int] = set()
    got: list[bytes] = []

    def begin(program: Program, channel: Channel) -> None:
        def declared(_: object) -> None:
            channel.confirm_delivery(confirm, callback=publish)

        def publish(_: object) -> None:
            for body in bodies:
                channel.basic_publish("", queue, body, PERSISTENT)

        def confirm(frame: Any) -> None:
            assert isinstance(frame.method, pika.spec.Basic.Ack)
            tag = frame.method.delivery_tag
            confirmed.update(range(1, tag + 1) if frame.method.multiple else [tag])
            if len(confirmed) == len(bodies):
                channel.basic_qos(prefetch_count=50, callback=lambda _: channel.basic_consume(queue, take))

        def take(_channel: Channel, method: Any, _properties: object, body: bytes) -> None:
            got.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(got) == len(bodies):
                channel.queue_delete(queue, callback=program.end)

        channel.queue_declare(queue, durable=True, callback=declared)

    run(door, begin)
    assert confirmed == set(range(1, 501))
    assert got == bodies


def test_the_confirm_of_a_returned_message_comes_after_it(door: Door, name: Callable[..., str]) -> None:
    nowhere = name("nowhere")
    story: list[object] = []

    def begin(program: Program, channel: Channel) -> None:
        def confirmed(frame: Any) -> None:
            story.append(type(frame.method).__name__)
            program.end()

        def returned(_channel: Channel, method: Any, properties: Any, body: bytes) -> None:
            story.append((method.reply_code, method.routing_key, properties.message_id, body))

        channel.add_on_return_callback(returned)
        channel.confirm_delivery(
            confirmed,
            callback=lambda _: channel.basic_publish(
                "", nowhere, b"back", pika.BasicProperties(message_id="m"), mandatory=True
            ),
        )

    run(door, begin)
    assert story == [(312, nowhere, "m", b"back"), "Ack"]


def test_a_rejected_message_goes_to_the_dead_letters(door: Door, name: Callable[..., str]) -> None:
    queue, dead = name("work"), name("dead")
    buried: list[tuple[bytes, str, int]] = []

    def begin(program: Program, channel: Channel) -> None:
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        channel.queue_declare(dead)
        channel.queue_declare(queue, arguments=arguments, callback=declared(program, channel))

    def declared(program: Program, channel: Channel) -> Callable[[object], None]:
        def reject(_channel: Channel, method: Any, _properties: object, _body: bytes) -> None:
            channel.basic_nack(method.delivery_tag, requeue=not method.redelivered)

        def bury(_channel: Channel, _method: object, properties: Any, body: bytes) -> None:
            (death,) = properties.headers["x-death"]
            buried.append((body, death["reason"], death["count"]))
            program.end()

        def work(_: object) -> None:
            channel.basic_consume(dead, bury, auto_ack=True)
            channel.basic_consume(queue, reject)
            channel.basic_publish("", queue, b"unwanted")

        return work

    run(door, begin)
    assert buried == [(b"unwanted", "rejected", 1)]


def test_bodies_of_many_frames_go_both_ways_at_once(door: Door, name: Callable[..., str]) -> None:
    queue = name("large")
    bodies = [os.urandom(400_000 + number) for number in range(10)]
    got: list[bytes] = []

    def begin(program: Program, channel: Channel) -> None:
        def take(_channel: Channel, _method: object, _properties: object, body: bytes) -> None:
            got.append(body)
            if len(got) == len(bodies):
                program.end()

        def declared(_: object) -> None:
            channel.basic_consume(queue, take, auto_ack=True)
            for body in bodies:
                channel.basic_publish("", queue, body)

        channel.queue_declare(queue, exclusive=True, callback=declared)

    run(door, begin)
    assert got == bodies


def test_a_consumer_is_told_of_its_cancel_by_the_broker(door: Door, name: Callable[..., str]) -> None:
    queue = name()
    told: list[str] = []

    def begin(program: Program, channel: Channel) -> None:
        def cancelled(frame: Any) -> None:
            told.append(frame.method.consumer_tag)
            program.end()

        channel.add_on_cancel_callback(cancelled)
        channel.queue_declare(queue)
        channel.basic_consume(queue, lambda *_: None, consumer_tag="me", callback=lambda _: channel.queue_delete(queue))

    run(door, begin)
    assert told == ["me"]


def test_a_transaction_is_rolled_back_and_committed(door: Door, name: Callable[..., str]) -> None:
    queue = name()
    counts: list[int] = []

    def begin(program: Program, channel: Channel) -> None:
        def count(then: Callable[[], object]) -> Callable[[object], None]:
            def counted(frame: Any) -> None:
                counts.append(frame.method.message_count)
                then()

            return lambda _: channel.queue_declare(queue, passive=True, callback=counted)

        def publish_and(end: Callable[..., object], then: Callable[[], object]) -> Callable[[], object]:
            def work() -> None:
                channel.basic_publish("", queue, b"x")
                end(callback=count(then))

            return work

        commit = publish_and(channel.tx_commit, program.end)
        rollback = publish_and(channel.tx_rollback, commit)
        channel.queue_declare(queue, exclusive=True)
        channel.tx_select(callback=lambda _: rollback())

    run(door, begin)
    assert counts == [0, 1]


def test_a_closed_channel_says_why_and_another_can_be_opened(door: Door, name: Callable[..., str]) -> None:
    reasons: list[BaseException] = []

    def begin(program: Program, channel: Channel) -> None:
        def closed(_channel: Channel, reason: BaseException) -> None:
            reasons.append(reason)
            program.connection.channel(on_open_callback=program.end)

        channel.add_on_close_callback(closed)
        channel.queue_declare(name("missing"), passive=True)

    run(door, begin)
    (reason,) = reasons
    assert isinstance(reason, ChannelClosedByBroker)
    assert reason.reply_code == 404
    assert reason.reply_text.startswith("NOT_FOUND - no queue 'interop.missing.")


def test_a_program_that_reconnects_gets_the_rest_after_a_restart(
    restartable: Served, restarted_door: Door, name: Callable[..., str]
) -> None:
    queue = name("kept")
    bodies = [b"%d" % number for number in range(20)]
    done: list[bytes] = []

    def fill(_program: Program, channel: Channel) -> None:
        unconfirmed = set(range(1, 21))

        def confirm(frame: Any) -> None:
            tag = frame.method.delivery_tag
            unconfirmed.difference_update(range(1, tag + 1) if frame.method.multiple else [tag])
            if not unconfirmed:
                channel.basic_qos(prefetch_count=5)
                channel.basic_consume(queue, take_ten)

        def declared(_: object) -> None:
            channel.confirm_delivery(confirm)
            for body in bodies:
                channel.basic_publish("", queue, body, PERSISTENT)

        def take_ten(_channel: Channel, method: Any, _properties: object, body: bytes) -> None:
            if len(done) == 10:
                return
            done.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(done) == 10:  # an answer to what comes after the last acknowledgement: it is in
                channel.queue_declare(queue, passive=True, callback=lambda _: restartable.ask_to_stop())

        channel.queue_declare(queue, durable=True, callback=declared)

    ending = run(restarted_door, fill)
    assert isinstance(ending, ConnectionClosedByBroker)
    assert ending.reply_code == 320
    restartable.restart()

    def drain(program: Program, channel: Channel) -> None:
        def take(_channel: Channel, method: Any, _properties: object, body: bytes) -> None:
            done.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(done) == 20:
                channel.basic_cancel(method.consumer_tag, callback=program.end)

        channel.basic_consume(queue, take)

    run(restarted_door, drain)
    assert done == bodies
