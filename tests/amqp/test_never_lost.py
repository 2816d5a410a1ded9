"""Is what the broker confirmed there after it was killed? All of it, once, in order; and what was done stays done."""

import random
import threading
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.amqp import methods as m
from tests.amqp.serving import Client, Closed, Served, eventually
from tests.tiers import sample

pytestmark = pytest.mark.slow

SAFE_S = 0.2
"""After the acks, how long what else was settled may take to leave the process."""


def numbered(first: int, last: int, size: int = 100) -> list[bytes]:
    """Messages that say which they are."""
    return [(b"%d " % number).ljust(size, b".") for number in range(first, last)]


def number_of(body: bytes) -> int:
    """Which message this is."""
    return int(body.split(b" ", 1)[0])


def all_of(client: Client, queue: str) -> list[int]:
    """The numbers of all messages of a queue, in the order in which they come."""
    found = [number_of(arrived.body) for arrived in client.consume(queue, client.count(queue), tag=queue)]
    assert client.count(queue) == 0
    return found


def kill_when_safe(broker: Served, acked: int, leased: int | None = None) -> None:
    """Kill it when so many acks, and so many leases, have left the process: then nothing takes them back."""

    def have_left() -> bool:
        with holdfast.open(broker.data, read_only=True) as view:
            stats = view.queue("work").stats()
            return stats.total_acked >= acked and (leased is None or stats.leased == leased)

    eventually(have_left)
    time.sleep(SAFE_S)
    broker.kill()


def publish_until_killed(broker: Served, client: Client, queues: list[str], seed: int, total: int) -> int:
    """Publish to the queues by turns; the broker is killed at some moment of it. How many were sent to each."""
    rng = random.Random(seed)
    fatal = rng.randrange(total)
    sent = 0
    try:
        while sent < total:
            size = min(rng.choice((1, 10, 200, 1000)), total - sent)
            for queue in queues:
                client.publish(queue, numbered(sent, sent + size))
            sent += size
            client.take_confirms(0)
            if client.confirms.up_to >= fatal * len(queues):
                threading.Timer(rng.random() * 0.02, broker.kill).start()
                fatal = total  # the rest is sent to a broker that dies meanwhile
            while sent * len(queues) - client.confirms.up_to > 4000:
                client.take_confirms(60)
    except (Closed, AssertionError):
        pass
    eventually(lambda: not broker.runs())
    try:
        while True:  # what was confirmed before the end and lies in the socket
            client.take_confirms(5)
    except (Closed, AssertionError):
        pass
    assert not client.confirms.refused
    return sent


@pytest.mark.parametrize("seed", sample(range(6), every=1))
def test_every_confirmed_message_is_there_after_a_kill(seed: int, tmp_path: Path) -> None:
    with Served(tmp_path / "data") as broker, broker.client() as client:
        client.declare("work")
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        sent = publish_until_killed(broker, client, ["work"], seed, 20_000)
        confirmed = client.confirms.up_to
    with Served(tmp_path / "data") as broker, broker.client() as client:
        found = all_of(client, "work")
    assert found == list(range(len(found))), f"seed {seed}: a hole, a double or another order"
    assert confirmed <= len(found) <= sent, f"seed {seed}: {confirmed} confirmed, {len(found)} there, {sent} sent"


def test_confirms_over_many_queues_hold_for_each_of_them(tmp_path: Path) -> None:
    queues = [f"work-{number}" for number in range(5)]
    with Served(tmp_path / "data") as broker, broker.client() as client:
        for queue in queues:
            client.declare(queue)
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        sent: dict[str, list[int]] = {queue: [] for queue in queues}
        order: list[tuple[str, int]] = []
        rng = random.Random(11)
        killer = threading.Timer(0.8, broker.kill)
        try:
            for number in range(200_000):
                queue = rng.choice(queues)
                client.publish(queue, numbered(number, number + 1))
                order.append((queue, number))
                if killer.ident is None and client.confirms.up_to > 100:  # not before there is something to lose
                    killer.start()
                while len(order) - client.confirms.up_to > 500:
                    client.take_confirms(60)
        except (Closed, AssertionError):
            pass
        eventually(lambda: not broker.runs())
        for queue, number in order[: client.confirms.up_to]:
            sent[queue].append(number)
        assert client.confirms.up_to > 100
    with Served(tmp_path / "data") as broker, broker.client() as client:
        for queue in queues:
            found = all_of(client, queue)
            assert found == [number for name, number in order if name == queue][: len(found)]
            assert found[: len(sent[queue])] == sent[queue]


def test_a_fanout_is_confirmed_when_all_its_queues_have_the_message(tmp_path: Path) -> None:
    queues = [f"copy-{number}" for number in range(4)]
    with Served(tmp_path / "data") as broker, broker.client() as client:
        client.call(m.ExchangeDeclare(exchange="all", type="fanout", durable=True), m.ExchangeDeclareOk)
        for queue in queues:
            client.declare(queue)
            client.call(m.QueueBind(queue=queue, exchange="all"), m.QueueBindOk)
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        killer = threading.Timer(0.5, broker.kill)
        try:
            for number in range(0, 1_000_000, 10):
                client.publish("", numbered(number, number + 10), exchange="all")
                if killer.ident is None and client.confirms.up_to > 100:  # not before there is something to lose
                    killer.start()
                while number - client.confirms.up_to > 500:
                    client.take_confirms(60)
        except (Closed, AssertionError):
            pass
        eventually(lambda: not broker.runs())
        confirmed = client.confirms.up_to
        assert confirmed > 100
    with Served(tmp_path / "data") as broker, broker.client() as client:
        for queue in queues:
            found = all_of(client, queue)
            assert found == list(range(len(found)))
            assert len(found) >= confirmed


def test_a_committed_transaction_is_there_after_a_kill_and_an_open_one_is_not(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as broker, broker.client() as client:
        client.declare("work")
        client.call(m.TxSelect(), m.TxSelectOk)
        client.publish("work", numbered(0, 1000))
        client.call(m.TxCommit(), m.TxCommitOk)
        client.publish("work", numbered(1000, 1500))
        client.call(m.BasicQos(0, 1), m.BasicQosOk)
        broker.kill()
    with Served(tmp_path / "data") as broker, broker.client() as client:
        assert all_of(client, "work") == list(range(1000))


@pytest.mark.parametrize("how", ["one by one", "multiple", "no_ack"])
def test_acknowledged_messages_never_come_back(how: str, tmp_path: Path) -> None:
    with Served(tmp_path / "data") as broker, broker.client() as client:
        client.declare("work")
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        client.publish_confirmed("work", numbered(0, 5000))
        if how != "no_ack":
            client.call(m.BasicQos(0, 3000), m.BasicQosOk)
            taken = [*client.consume("work", 3000, no_ack=False)]
            if how == "one by one":
                done = {number for number in range(3000) if number % 3}
                client.send(b"".join(m.method_frame(1, m.BasicAck(number + 1)) for number in sorted(done)))
            else:
                done = set(range(2000))
                client.send(m.method_frame(1, m.BasicAck(2000, True)))
            assert [number_of(one.body) for one in taken] == list(range(3000))
        else:
            client.call(m.BasicConsume(queue="work", no_ack=True), m.BasicConsumeOk)
            done = set()
            while len(done) < 5000:
                arrived = client.message()
                assert arrived is not None
                done.add(number_of(arrived.body))
        client.call(m.BasicQos(0, 3000), m.BasicQosOk)
        kill_when_safe(broker, len(done))
    with Served(tmp_path / "data") as broker, broker.client() as client:
        found = all_of(client, "work")
    assert not done & set(found), "an acknowledged message came back"
    if how == "multiple":
        # Messages that the consumer's freed places let out again may have been anywhere: none is lost all the same.
        assert found == list(range(2000, 5000))
    else:
        assert set(found) == set(range(5000)) - done
        assert len(found) == len(set(found))


def test_unacknowledged_messages_come_back_in_order_and_say_that_they_do(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as broker, broker.client() as client:
        client.declare("work")
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        client.publish_confirmed("work", numbered(0, 500))
        client.call(m.BasicQos(0, 100), m.BasicQosOk)
        assert len([*client.consume("work", 100, no_ack=False)]) == 100
        client.call(m.BasicQos(0, 100), m.BasicQosOk)
        kill_when_safe(broker, 0, leased=100)
    with Served(tmp_path / "data") as broker, broker.client() as client:
        assert client.count("work") == 500
        again = [*client.consume("work", 500)]
        assert [number_of(one.body) for one in again] == list(range(500))
        assert [one.method.redelivered for one in again] == [True] * 100 + [False] * 400  # type: ignore[attr-defined]


def test_a_purge_stays_a_purge(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as broker, broker.client() as client:
        client.declare("work")
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        client.publish_confirmed("work", numbered(0, 5000))
        assert client.call(m.QueuePurge(queue="work"), m.QueuePurgeOk).message_count == 5000
        broker.kill()
    with Served(tmp_path / "data") as broker, broker.client() as client:
        assert client.count("work") == 0
        client.publish("work", numbered(7, 8))
        assert all_of(client, "work") == [7]


def test_a_deleted_queue_stays_deleted_and_its_successor_is_empty(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as broker, broker.client() as client:
        for queue in ("gone", "made anew"):
            client.declare(queue)
            client.publish(queue, numbered(0, 1000))
            assert client.call(m.QueueDelete(queue=queue), m.QueueDeleteOk).message_count == 1000
        client.declare("made anew")
        broker.kill()
    with Served(tmp_path / "data") as broker:
        with broker.client() as client, pytest.raises(Closed, match="404"):
            client.count("gone")
        with broker.client() as client:
            assert client.count("made anew") == 0
            assert client.declare("gone") == 0


def test_a_long_backlog_can_be_read_after_a_kill(tmp_path: Path) -> None:
    with Served(tmp_path / "data", memory_bodies="8MiB", memory_queue_bodies="8MiB") as broker:
        with broker.client() as client:
            client.declare("work")
            client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            client.publish_confirmed("work", numbered(0, 200_000))
        broker.kill()
    with Served(tmp_path / "data", memory_bodies="8MiB") as broker, broker.client() as client:
        assert client.count("work") == 200_000
        assert all_of(client, "work") == list(range(200_000))


def test_what_is_durable_survives_and_what_is_not_does_not(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as broker, broker.client() as client:
        for name, durable in (("kept", True), ("passing", False)):
            declared = m.ExchangeDeclare(exchange=name, type="topic", durable=durable)
            client.call(declared, m.ExchangeDeclareOk)
        client.declare("kept", x_max_length=5000)
        client.declare("passing", durable=False)
        client.declare("mine", durable=True, exclusive=True)
        for queue, key in (("kept", "a.#"), ("passing", "b.#"), ("mine", "c.#")):
            client.call(m.QueueBind(queue=queue, exchange="kept", routing_key=key), m.QueueBindOk)
        client.call(m.ExchangeDeclare(exchange="next", type="fanout", durable=True), m.ExchangeDeclareOk)
        client.call(m.ExchangeBind(destination="next", source="kept", routing_key="d.#"), m.ExchangeBindOk)
        client.call(m.QueueBind(queue="kept", exchange="next"), m.QueueBindOk)
        broker.kill()
    with Served(tmp_path / "data") as broker:
        for method in (
            m.QueueDeclare(queue="passing", passive=True),
            m.QueueDeclare(queue="mine", passive=True),
            m.ExchangeDeclare(exchange="passing", passive=True),
        ):
            with broker.client() as client, pytest.raises(Closed, match="404"):
                client.call(method, m.QueueDeclareOk)
        with broker.client() as client:
            client.declare("kept", x_max_length=5000)
            client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            for key, number in (("a.b", 1), ("b.b", 2), ("c.c", 3), ("d.d", 4)):
                client.publish(key, numbered(number, number + 1), exchange="kept")
            eventually(lambda: client.count("kept") == 2)
            assert all_of(client, "kept") == [1, 4]


@pytest.mark.parametrize("seed", sample(range(2), every=1))
def test_rounds_of_work_and_kills_lose_nothing_and_repeat_nothing_that_is_done(seed: int, tmp_path: Path) -> None:
    """Publishing, consuming, acking, rejecting with requeue, by turns; a kill ends each round."""
    rng = random.Random(seed)
    confirmed: set[int] = set()
    done: set[int] = set()
    sent = 0
    for _ in range(5):
        with Served(tmp_path / "data") as broker, broker.client(channels=2) as client:
            client.declare("work")
            client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            for _ in range(rng.randrange(3, 12)):
                step = rng.choice(("publish", "publish", "take", "take", "stop"))
                if step == "publish":
                    count = rng.choice((1, 50, 700))
                    first = client.confirms.up_to
                    client.publish_confirmed("work", numbered(sent, sent + count), first=first)
                    confirmed.update(range(sent, sent + count))
                    sent += count
                elif step == "take":
                    for _ in range(min(rng.choice((1, 30, 300)), client.count("work"))):
                        arrived = client.get("work", no_ack=False)
                        assert arrived is not None
                        number = number_of(arrived.body)
                        assert number not in done, f"seed {seed}: {number} was done, and came back"
                        tag = arrived.method.delivery_tag  # type: ignore[attr-defined]
                        what = rng.random()
                        if what < 0.7:
                            client.send(m.method_frame(1, m.BasicAck(tag)))
                            done.add(number)
                        elif what < 0.9:
                            client.send(m.method_frame(1, m.BasicReject(tag, True)))
                else:
                    break
            client.call(m.BasicQos(0, 0), m.BasicQosOk)
            kill_when_safe(broker, len(done))
    with Served(tmp_path / "data") as broker, broker.client() as client:
        found = all_of(client, "work")
    assert found == sorted(confirmed - done), f"seed {seed}"
