"""What does the Celery worker of the tests run? As a module this is that worker, with settings in the environment."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from celery import Celery

__all__ = ["SETTINGS", "make_app"]

SETTINGS = "HOLDFAST_INTEROP_CELERY"
"""The variable with the settings of the worker's app, as JSON."""

_PATIENCE_S = 240.0


def make_app(settings: dict[str, Any]) -> Any:
    """An app with the tasks below; the tests and their workers make the same."""
    app = Celery("interop", set_as_current=False)
    app.conf.update(settings)
    for task in (add, total, echo, told_to_fail):
        app.task(task, name=f"interop.{task.__name__}")
    app.task(fail_twice, name="interop.fail_twice", bind=True)
    app.task(flaky, name="interop.flaky", bind=True, autoretry_for=(OSError,), default_retry_delay=0.05)
    app.task(wait_for, name="interop.wait_for", bind=True, acks_late=True)
    app.task(finished_at, name="interop.finished_at")
    app.finalize()
    return app


def add(x: int, y: int) -> int:
    """Two numbers together."""
    return x + y


def total(numbers: list[int]) -> int:
    """Many numbers together."""
    return sum(numbers)


def echo(value: Any) -> Any:
    """What it is given."""
    return value


def told_to_fail(why: str) -> None:
    """Always an error."""
    raise ValueError(why)


def fail_twice(self: Any) -> int:
    """Asks to be tried again, twice."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return int(self.request.retries)


def flaky(self: Any) -> int:
    """Fails once, and is tried again by Celery of its own accord."""
    if self.request.retries < 1:
        raise OSError("not this time")
    return int(self.request.retries)


def finished_at() -> float:
    """When it ran, by the clock of the machine."""
    return time.time()


def wait_for(self: Any, started: str, gate: str) -> bool:
    """Says that it began, and waits until a file is there; whether this was not the first time."""
    with Path(started).open("a") as file:
        file.write("began\n")
    deadline = time.monotonic() + _PATIENCE_S
    while not Path(gate).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(self.request.delivery_info["redelivered"])


if __name__ == "__main__":
    make_app(json.loads(os.environ[SETTINGS])).worker_main(sys.argv[1:])
