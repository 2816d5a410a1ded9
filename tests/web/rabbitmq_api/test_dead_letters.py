"""Dead letters over AMQP: those that no queue receives are counted, logged and shown."""

import logging
import re
from collections import Counter
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from holdfast.broker import dead_letter_router
from tests.web.rabbitmq_api.conftest import until
from tests.web.serving import Served

ROOT = Path(__file__).parents[3]


def total(broker: Served) -> float:
    found = re.search(
        r"^holdfast_dead_letters_dropped_total (\S+)$", broker.ask("GET", "/metrics").body.decode(), re.MULTILINE
    )
    assert found is not None
    return float(found.group(1))


def reject(channel: BlockingChannel, queue: str, count: int) -> None:
    channel.confirm_delivery()
    for _ in range(count):
        channel.basic_publish("", queue, b"x")
        channel.basic_reject(channel.basic_get(queue)[0].delivery_tag, requeue=False)


def test_dead_letters_that_no_queue_takes_are_counted_logged_now_and_then_and_shown(
    broker: Served, channel: BlockingChannel, caplog: pytest.LogCaptureFixture
) -> None:
    before = total(broker)
    channel.exchange_declare("without.bindings")
    channel.queue_declare("lossy", durable=True, arguments={"x-dead-letter-exchange": "never.declared"})
    channel.queue_declare("unbound", durable=True, arguments={"x-dead-letter-exchange": "without.bindings"})
    channel.queue_declare("grave", durable=True)
    grave = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    channel.queue_declare("careful", durable=True, arguments=grave)
    with caplog.at_level(logging.WARNING, dead_letter_router.logger.name):
        reject(channel, "lossy", 3)
        until(lambda: total(broker) == before + 3, "the dead letters are gone")
        reject(channel, "unbound", 2)
        reject(channel, "careful", 2)
        until(lambda: total(broker) == before + 5, "the dead letters are gone")
        until(lambda: broker.get("/api/queues/%2F/grave")["messages"] == 2, "the dead letters are gone")
    assert total(broker) == before + 5
    lines = [record.getMessage() for record in caplog.records if "dead letters dropped" in record.getMessage()]
    assert len(lines) == 1  # one a minute
    assert "queue=lossy exchange=never.declared" in lines[0]
    shown = {
        name: broker.get(f"/api/holdfast/queues/%2F/{name}")["dead_letters_dropped"]
        for name in ("lossy", "unbound", "careful", "grave")
    }
    assert shown == {"lossy": 3, "unbound": 2, "careful": 0, "grave": 0}
    each = broker.ask("GET", "/metrics/per-object?family=holdfast_queue_dead_letters_dropped_total&queue=lossy")
    assert b'holdfast_queue_dead_letters_dropped_total{queue="lossy",vhost="/"} 3.0' in each.body


@pytest.mark.parametrize("ends", [False, True], ids=["by the clock", "when the server stops"])
def test_every_dropped_dead_letter_is_in_a_log_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ends: bool
) -> None:
    monkeypatch.setattr(dead_letter_router, "LOG_EVERY_S", 3600.0 if ends else 2.0)
    dropped = {"one": 5, "two": 4, "three": 2}

    def logged() -> Counter[str]:
        found: Counter[str] = Counter()
        for record in caplog.records:
            if match := re.search(r"dead letters dropped: queue=(\w+) .*count=(\d+)", record.getMessage()):
                found[match[1]] += int(match[2])
        return Counter({name: found[name] for name in dropped})  # a server of other tests may log, too

    with caplog.at_level(logging.WARNING, dead_letter_router.logger.name):
        with Served(tmp_path / "data") as served:
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp)) as connection:
                for name, count in dropped.items():
                    channel = connection.channel()
                    channel.queue_declare(name, durable=True, arguments={"x-dead-letter-exchange": "nowhere"})
                    reject(channel, name, count)
            until(lambda: total(served) == 11, "the dead letters are gone")
            if not ends:
                until(lambda: logged() == dropped, "all are logged, and no more are dropped")
        assert logged() == dropped


def test_examples_declare_the_dead_letter_exchanges_that_they_name() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            for exchange in re.findall(r'"x-dead-letter-exchange": "(.+?)"', block):
                assert f'exchange_declare("{exchange}"' in block and f'"{exchange}")' in block, (page.name, exchange)


def test_a_queue_says_how_many_of_its_messages_died_and_where_they_went(
    broker: Served, channel: BlockingChannel
) -> None:
    channel.exchange_declare("failures", "fanout")
    for name in ("failed.a", "failed.b"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "failures")
    channel.queue_declare("failing", durable=True, arguments={"x-dead-letter-exchange": "failures"})
    reject(channel, "failing", 4)
    until(lambda: broker.get("/api/holdfast/queues/%2F/failed.b")["ready"] == 4, "the dead letters arrive")
    found = broker.get("/api/holdfast/queues/%2F/failing")
    assert (found["died"], found["dead_letters_dropped"]) == (4, 0)
    assert found["dead_letter_queues"] == [
        {"vhost": "/", "name": "failed.a", "ready": 4},
        {"vhost": "/", "name": "failed.b", "ready": 4},
    ]
