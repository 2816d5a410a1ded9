"""Does a long queue stay within its memory? The run by hand on a smaller scale, and what else takes memory."""

import contextlib
import threading
from pathlib import Path

import pytest

from holdfast.amqp import methods as m
from tests.amqp.memory_run import Peak, bound, drain, fill, measure
from tests.amqp.serving import Client, Served, eventually
from tests.disks import Ballast, fills_the_disk

pytestmark = pytest.mark.slow

MIB = 1 << 20


def test_a_long_queue_stays_within_its_memory(tmp_path: Path) -> None:
    """Three hundred thousand messages of 1 KiB, of which 16 MiB may be in memory."""
    found = measure(tmp_path / "data", 300_000, 1024, 16 * MIB)
    assert found.publishing < found.bound, f"{found.publishing // MIB} MiB while publishing"
    assert found.draining < found.bound, f"{found.draining // MIB} MiB while draining"


def test_many_queues_share_one_limit(tmp_path: Path) -> None:
    limit = 16 * MIB
    with Served(tmp_path / "data", memory_bodies=limit) as broker, Peak(broker) as peak:
        for number in range(10):
            with broker.client() as client:
                client.declare(f"queue {number}")
                fill(client, f"queue {number}", 20_000, 1024)
        for number in range(10):
            with broker.client() as client:
                drain(client, f"queue {number}", 20_000, 1024)
    assert peak.most < bound(limit, 200_000), f"{peak.most // MIB} MiB"


def test_a_backlog_that_is_found_at_the_start_stays_within_its_memory(tmp_path: Path) -> None:
    limit = 16 * MIB
    with Served(tmp_path / "data", memory_bodies=limit) as broker:
        with broker.client() as client:
            client.declare("long")
            fill(client, "long", 200_000, 1024)
        broker.kill()
    with Served(tmp_path / "data", memory_bodies=limit) as broker, Peak(broker) as peak, broker.client() as client:
        assert client.count("long") == 200_000
        drain(client, "long", 200_000, 1024)
    assert peak.most < bound(limit, 200_000), f"{peak.most // MIB} MiB"


def until_blocked(client: Client) -> None:
    """Publish into the void, until the broker is low on something and says so."""
    patience = client.socket.gettimeout()
    client.socket.settimeout(0.2)
    for _ in range(600):
        client.publish("nowhere", [b"x"])
        with contextlib.suppress(AssertionError):  # it says nothing yet
            client.expect(m.ConnectionBlocked)
            break
    else:
        pytest.fail("publishers were never blocked")
    client.socket.settimeout(patience)


def test_publishers_are_blocked_above_the_limit_of_the_process_and_are_told(tmp_path: Path) -> None:
    """The limit lies below what an empty broker takes: whoever publishes is held back, and others are not."""
    with Served(tmp_path / "data") as broker:
        empty = broker.resident()
    with Served(tmp_path / "data", memory_limit=empty // 2) as broker, broker.client() as other:
        other.declare("work")
        with broker.client() as early, broker.client() as late:
            until_blocked(early)
            early.publish("work", [b"held back"])
            late.publish("work", [b"held back as well"])
            late.expect(m.ConnectionBlocked)
            assert other.count("work") == 0
            assert other.get("work") is None


@fills_the_disk
def test_publishers_go_on_when_the_alarm_is_over(tmp_path: Path) -> None:
    """The disk is said to be full; when it is not, what was held back is taken, in order."""
    ballast = Ballast(tmp_path)
    ballast.take()
    with Served(tmp_path / "data", disk_free_limit=ballast.limit) as broker, broker.client() as other:
        other.declare("work")
        with broker.client() as client:
            until_blocked(client)
            client.publish("work", [b"1", b"2", b"3"])
            assert other.count("work") == 0
            ballast.give_back()
            client.expect(m.ConnectionUnblocked)
            eventually(lambda: other.count("work") == 3)
            assert [one.body for _ in range(3) if (one := other.get("work")) is not None] == [b"1", b"2", b"3"]


@fills_the_disk
def test_who_published_before_the_alarm_and_only_acks_now_is_served(tmp_path: Path) -> None:
    """Else nobody could drain what the alarm is about, where those who consume publish too."""
    ballast = Ballast(tmp_path)
    with Served(tmp_path / "data", disk_free_limit=ballast.limit) as broker, broker.client() as client:
        client.declare("work")
        client.publish("work", [b"%d" % number for number in range(20)])
        eventually(lambda: client.count("work") == 20)
        ballast.take()
        with broker.client() as other:
            until_blocked(other)
            assert [one.body for one in client.consume("work", 20)] == [b"%d" % number for number in range(20)]
        ballast.give_back()


def test_publishing_and_consuming_at_once_takes_no_more_than_a_little(tmp_path: Path) -> None:
    """What goes through does not pile up: 300,000 messages, and memory as for hardly any."""
    with (
        Served(tmp_path / "data", memory_bodies=32 * MIB) as broker,
        broker.client() as publisher,
        broker.client() as consumer,
    ):
        publisher.declare("passing")
        before = broker.resident()
        failed: list[BaseException] = []
        thread = threading.Thread(target=_drained, args=(consumer, failed))
        with Peak(broker) as peak:
            thread.start()
            fill(publisher, "passing", 300_000, 1024)
            thread.join(timeout=120)
        assert not failed, failed
        assert not thread.is_alive()
    assert peak.most - before < 32 * MIB + 96 * MIB, f"{(peak.most - before) // MIB} MiB more"


def _drained(client: Client, failed: list[BaseException]) -> None:
    try:
        drain(client, "passing", 300_000, 1024)
    except BaseException as error:  # it is told to the test's own thread
        failed.append(error)
