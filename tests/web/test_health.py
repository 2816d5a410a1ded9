"""Liveness and readiness checks, without a login and with reasons."""

import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.base.metrics import Registry
from holdfast.web.health import Pulse
from tests.amqp.serving import eventually
from tests.queue.internals import core_of
from tests.web.internals import close_a_listener
from tests.web.serving import Served


def test_a_server_that_works_is_alive_and_ready_for_anyone_who_asks(served: Served) -> None:
    assert served.get("/health/live", user=None) == {"live": True, "reasons": []}
    answer = served.get("/health/ready", user=None)
    assert answer["ready"] is True
    assert answer["reasons"] == []
    assert set(answer["checks"]) == {"broker", "store", "disk", "memory", "listeners", "checkpoints"}
    assert all(answer["checks"].values())


def test_a_full_disk_is_not_ready_and_says_what_to_do(tmp_path: Path) -> None:
    with Served(tmp_path / "data", disk_free_limit=1 << 60) as served:
        answer = served.ask("GET", "/health/ready", user=None)
        assert answer.status == 503
        assert answer.json["checks"]["disk"] is False
        assert "disk_free_limit" in answer.json["reasons"][0]
        assert str(tmp_path) not in answer.body.decode()
        assert served.ask("GET", "/health/live", user=None).status == 200


def test_a_process_that_takes_too_much_memory_is_not_ready(tmp_path: Path) -> None:
    with Served(tmp_path / "data", memory_limit=1) as served:
        eventually(lambda: served.ask("GET", "/health/ready", user=None).status == 503)
        answer = served.ask("GET", "/health/ready", user=None)
        assert answer.json["checks"] == {
            "broker": True,
            "store": True,
            "disk": True,
            "memory": False,
            "listeners": True,
            "checkpoints": True,
        }


def test_failing_checkpoints_are_reported_by_health_metrics_stats_and_page_data(served: Served, tmp_path: Path) -> None:
    queue = served.site.store.queue("orders")
    why = f"writing the state '{served.site.store.path}/state' failed: No space left on device"
    assert core_of(queue).checkpoints.health.failed(why, served.site.clock.time_ns() - 33 * 10**9, time.monotonic())
    answer = served.ask("GET", "/health/ready", user=None)
    assert (answer.status, answer.json["checks"]["checkpoints"]) == (200, False)
    assert "No space left on device" in answer.json["warnings"][0]
    assert str(tmp_path) not in answer.body.decode()
    assert served.get("/api/holdfast/overview")["warnings"] == answer.json["warnings"]
    stats = served.get("/api/holdfast/queues/%2F/orders")["stats"]
    assert (stats["checkpoint_failures"], stats["checkpoint_error"]) == (1, why)
    assert stats["checkpoint_failing_since_time"]
    totals = served.ask("GET", "/metrics", user=None).body.decode()
    assert "holdfast_checkpoint_failing_queues 1.0" in totals
    assert "holdfast_checkpoint_failures_total 1.0" in totals
    each = served.ask("GET", "/metrics/per-object").body.decode()
    seconds = re.search(r'holdfast_queue_checkpoint_failing_seconds{queue="orders",vhost="/"} (\S+)', each)
    assert seconds and float(seconds[1]) >= 33
    queue.checkpoint()
    after = served.get("/health/ready", user=None)
    assert (after["checks"]["checkpoints"], after["warnings"]) == (True, [])


def test_a_server_that_listens_no_more_is_alive_but_not_ready(served: Served) -> None:
    served.site.on_broker(lambda: close_a_listener(served.server))
    eventually(lambda: served.ask("GET", "/health/ready", user=None).status == 503)
    assert served.ask("GET", "/health/ready", user=None).json["checks"]["listeners"] is False
    assert served.ask("GET", "/health/live", user=None).status == 200


@pytest.fixture
def held(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server whose broker hangs, and hanging is found out at once."""
    monkeypatch.setattr("holdfast.web.health.DEAD_S", 0.2)
    freed = threading.Event()
    served.server.post(lambda: freed.wait(60))
    yield served
    freed.set()


def test_a_broker_that_hangs_is_neither_alive_nor_ready_and_health_still_answers(held: Served) -> None:
    eventually(lambda: held.ask("GET", "/health/live", user=None).status == 503)
    answer = held.ask("GET", "/health/live", user=None)
    assert answer.json["live"] is False
    assert "has not responded" in answer.json["reasons"][0]
    assert held.ask("GET", "/health/ready", user=None).json["checks"]["broker"] is False
    assert b"holdfast_event_loop_still_seconds" in held.ask("GET", "/metrics", user=None).body


def test_a_broker_that_comes_back_is_alive_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.health.DEAD_S", 0.2)
    freed = threading.Event()
    served.server.post(lambda: freed.wait(60))
    eventually(lambda: served.ask("GET", "/health/live", user=None).status == 503)
    freed.set()
    eventually(lambda: served.ask("GET", "/health/live", user=None).status == 200)


def test_a_pulse_notes_how_long_each_answer_took() -> None:
    registry = Registry()
    pulse = Pulse(lambda call: call(), registry, beat_s=0.01)
    pulse.start()
    try:
        lags = registry.histogram("holdfast_event_loop_lag_seconds", "")
        eventually(lambda: lags.count >= 3)
        assert pulse.stalled_s < 60
    finally:
        pulse.stop()


def test_a_pulse_that_nobody_answers_can_be_stopped() -> None:
    posted: list[object] = []
    pulse = Pulse(posted.append, Registry(), beat_s=0.01)
    pulse.start()
    eventually(lambda: posted)
    eventually(lambda: pulse.stalled_s > 0)
    pulse.stop()
    assert len(posted) == 1, "it asks again only when it was answered"


def test_a_folder_that_is_gone_is_not_ready(served: Served, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    os.rename(served.store.path, moved)  # noqa: PTH104
    try:
        answer = served.ask("GET", "/health/ready", user=None)
        assert answer.status == 503
        assert answer.json["checks"]["store"] is False
    finally:
        os.rename(moved, served.store.path)  # noqa: PTH104
