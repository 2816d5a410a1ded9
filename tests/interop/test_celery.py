"""Does a Celery worker, in a process of its own, run what it is asked to?"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError
from kombu import pools

from tests.interop.celery_worker import SETTINGS, make_app
from tests.interop.serving import DEADLINE_S, Door, Served, until

ROOT = Path(__file__).parents[2]


class Worker:
    """A Celery worker, and an app to send it tasks with."""

    def __init__(self, door: Door, backend: str, label: str, pool: str, log: Path) -> None:
        settings = {
            "broker_url": door.address,
            "broker_use_ssl": door.ssl,
            "broker_connection_retry_on_startup": False,
            "result_backend": backend,
            "result_chord_retry_interval": 0.1,
            "result_extended": True,
            "task_default_queue": label,
            "task_queue_max_priority": 9,
            "task_track_started": True,
            "worker_prefetch_multiplier": 1,
            "worker_hijack_root_logger": False,
        }
        self._settings = settings
        self.app = make_app(settings)
        self.name = f"{label}@here"
        self._pool = pool
        self._log = log
        self._environment = os.environ | {SETTINGS: json.dumps(settings)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it takes tasks."""
        command = [sys.executable, "-m", "tests.interop.celery_worker", "worker", f"--pool={self._pool}"]
        command += ["--concurrency=1", f"--hostname={self.name}", "--loglevel=INFO", "--without-mingle", "-E"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )
        process = self._process
        until(lambda: process.poll() is not None or " ready." in self._log.read_text(), "the worker is ready")
        assert process.poll() is None, self._log.read_text()

    def task(self, name: str) -> Any:
        """One of its tasks."""
        return self.app.tasks[f"interop.{name}"]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it; unless it is killed it must end well."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            code = process.wait(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait()
        assert code == (0 if how == signal.SIGTERM else -how), self._log.read_text()

    def hang_up(self) -> None:
        """Close the connections that tasks were sent and results fetched with; there is a new app for more."""
        consumer = getattr(self.app.backend, "result_consumer", None)
        if consumer is not None and consumer._consumer is not None:
            consumer.stop()
        self.app.close()
        pools.reset()  # type: ignore[no-untyped-call]
        self.app = make_app(self._settings)

    @contextmanager
    def held(self, folder: Path) -> Iterator[None]:
        """Keep it busy with one task, so that others wait in the queue."""
        started, gate = folder / "started", folder / "gate"
        holding = self.task("wait_for").delay(str(started), str(gate))
        try:
            until(started.exists, "the worker is busy")
            yield
        finally:
            gate.touch()
        holding.get(timeout=DEADLINE_S)


@contextmanager
def working(door: Door, backend: str, label: str, folder: Path, pool: str = "solo") -> Iterator[Worker]:
    worker = Worker(door, backend, label, pool, folder / f"{label}.log")
    try:
        worker.start()
        yield worker
    finally:
        worker.stop()
        worker.hang_up()


@pytest.fixture(scope="module", params=["plain", "tls"])
def worker(
    served: Served, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """A worker whose results come back through the broker."""
    door, pool = (served.tls, "prefork") if request.param == "tls" else (served.plain, "threads")
    with working(door, "rpc://", f"celery-{request.param}", tmp_path_factory.mktemp("celery"), pool) as one:
        yield one


def result(asked: Any) -> Any:
    return asked.get(timeout=DEADLINE_S)


def test_a_task_runs_and_its_result_comes_back(worker: Worker) -> None:
    assert result(worker.task("add").delay(1, 2)) == 3


def test_many_tasks_run_and_each_gets_its_own_result(worker: Worker) -> None:
    asked = [worker.task("add").delay(number, 1) for number in range(50)]
    assert [result(one) for one in asked] == list(range(1, 51))


def test_a_large_argument_goes_there_and_back(worker: Worker) -> None:
    text = "long " * 100_000
    assert result(worker.task("echo").delay(text)) == text


def test_an_error_comes_back_as_it_was_raised(worker: Worker) -> None:
    with pytest.raises(ValueError, match="on purpose"):
        result(worker.task("told_to_fail").delay("on purpose"))


@pytest.mark.parametrize(("task", "retries"), [("fail_twice", 2), ("flaky", 1)])
def test_a_task_is_tried_again(worker: Worker, task: str, retries: int) -> None:
    assert result(worker.task(task).delay()) == retries


def test_a_task_with_a_countdown_does_not_run_before_it(worker: Worker) -> None:
    asked_at = time.time()
    ran_at = result(worker.task("finished_at").apply_async(countdown=0.5))
    assert ran_at >= asked_at + 0.5


def test_a_task_with_an_eta_does_not_run_before_it(worker: Worker) -> None:
    eta = datetime.now(UTC) + timedelta(seconds=0.5)
    assert result(worker.task("finished_at").apply_async(eta=eta)) >= eta.timestamp()


def test_a_chain_hands_each_result_to_the_next(worker: Worker) -> None:
    add = worker.task("add")
    assert result(chain(add.s(1, 2), add.s(3), add.s(4)).apply_async()) == 10


def test_a_group_gathers_all_results(worker: Worker) -> None:
    add = worker.task("add")
    assert result(group(add.s(number, number) for number in range(10)).apply_async()) == [
        2 * number for number in range(10)
    ]


def test_a_link_is_called_after_its_task(worker: Worker, tmp_path: Path) -> None:
    called, gate = tmp_path / "called", tmp_path / "gate"
    gate.touch()
    after = worker.task("wait_for").si(str(called), str(gate))
    assert result(worker.task("add").apply_async((1, 2), link=after)) == 3
    until(called.exists, "the linked task ran")


def test_tasks_of_higher_priority_run_first(worker: Worker, tmp_path: Path) -> None:
    with worker.held(tmp_path):
        asked = {priority: worker.task("finished_at").apply_async(priority=priority) for priority in (1, 9, 0, 5, 3, 8)}
    ran_at = {priority: result(one) for priority, one in asked.items()}
    assert sorted(ran_at, key=lambda priority: float(ran_at[priority])) == [9, 8, 5, 3, 1, 0]


def test_a_revoked_task_never_runs(worker: Worker, tmp_path: Path) -> None:
    never = tmp_path / "never"
    with worker.held(tmp_path):
        asked = worker.task("wait_for").delay(str(never), str(tmp_path / "gate"))
        answers = worker.app.control.revoke(
            asked.id, destination=[worker.name], reply=True, timeout=DEADLINE_S, limit=1
        )
        assert "ok" in answers[0][worker.name]
    with pytest.raises(TaskRevokedError):
        result(asked)
    assert not never.exists()


def test_a_task_that_is_too_late_is_dropped(worker: Worker, tmp_path: Path) -> None:
    never, gate = tmp_path / "never", tmp_path / "gate"
    with worker.held(tmp_path):
        worker.task("wait_for").apply_async((str(never), str(gate)), expires=0.01)
        time.sleep(0.05)
    assert result(worker.task("add").delay(1, 2)) == 3  # it came after it
    assert not never.exists()


def test_a_worker_is_asked_how_it_is(worker: Worker) -> None:
    asking = worker.app.control.inspect(destination=[worker.name], timeout=DEADLINE_S, limit=1)
    assert asking.ping() == {worker.name: {"ok": "pong"}}
    assert "interop.add" in asking.registered()[worker.name]
    assert asking.stats()[worker.name]["broker"]["transport"] == "amqp"
    assert [queue["name"] for queue in asking.active_queues()[worker.name]] == [worker.app.conf.task_default_queue]


def test_a_worker_is_told_to_consume_from_another_queue(worker: Worker, name: Callable[..., str]) -> None:
    other = name("other")
    told: dict[str, Any] = {"destination": [worker.name], "reply": True, "timeout": DEADLINE_S, "limit": 1}
    answers = worker.app.control.add_consumer(other, **told)
    assert "ok" in answers[0][worker.name]
    assert result(worker.task("add").apply_async((4, 5), queue=other)) == 9
    answers = worker.app.control.cancel_consumer(other, **told)
    assert "ok" in answers[0][worker.name]


def test_the_events_of_a_task_are_heard(worker: Worker) -> None:
    task_id = f"watched-{worker.name}"
    heard: list[str] = []

    def hear(event: dict[str, Any]) -> None:
        if event.get("uuid") == task_id:
            heard.append(event["type"])
            receiver.should_stop = event["type"] == "task-succeeded"

    with worker.app.connection_for_read() as connection:
        receiver = worker.app.events.Receiver(connection, handlers={"*": hear})
        listening = receiver.itercapture(limit=None, timeout=DEADLINE_S, wakeup=False)
        next(listening)  # it listens now
        asked = worker.task("add").apply_async((1, 1), task_id=task_id)
        for _ in listening:
            continue
    assert heard == ["task-received", "task-started", "task-succeeded"]
    assert result(asked) == 2


def test_a_task_with_a_far_eta_does_not_stand_in_the_way_of_others(worker: Worker) -> None:
    # The worker raises its prefetch for each task that it only keeps, and the broker must then send more. kombu asks
    # for that in a way that takes effect only where the server says that it is RabbitMQ.
    far = worker.task("add").apply_async((1, 1), countdown=3600)
    try:
        assert result(worker.task("add").delay(1, 2)) == 3
    finally:
        worker.app.control.revoke(far.id, destination=[worker.name])


def test_a_chord_waits_for_all_of_its_tasks(door: Door, name: Callable[..., str], tmp_path: Path) -> None:
    results = tmp_path / "results"  # rpc:// has no chords
    results.mkdir()
    with working(door, f"file://{results}", name("chord"), tmp_path) as worker:
        add, total = worker.task("add"), worker.task("total")
        first = chord([add.s(number, number) for number in range(5)], total.s()).apply_async()
        graph = chain(add.s(1, 1), group(add.s(1), add.s(2)), total.s(), add.s(100)).apply_async()
        assert result(first) == 20
        assert result(graph) == 107


def test_a_task_that_was_not_acknowledged_runs_again_after_its_worker_was_killed(
    served: Served, name: Callable[..., str], tmp_path: Path
) -> None:
    started, gate = tmp_path / "started", tmp_path / "gate"
    with working(served.plain, "rpc://", name("killed"), tmp_path) as worker:
        asked = worker.task("wait_for").delay(str(started), str(gate))
        until(started.exists, "the task began")
        worker.stop(signal.SIGKILL)
        gate.touch()
        worker.start()
        assert result(asked) is True
    assert started.read_text() == "began\n" * 2


def test_a_worker_goes_on_after_a_crash_of_the_broker(
    restartable: Served, name: Callable[..., str], tmp_path: Path
) -> None:
    with working(restartable.plain, "rpc://", name("restarted"), tmp_path) as worker:
        assert result(worker.task("add").delay(1, 1)) == 2
        worker.hang_up()  # the worker alone stays connected
        restartable.crash()
        restartable.start()
        assert result(worker.task("add").delay(2, 2)) == 4
