"""A real Prometheus scrapes a served store: it accepts every line, and its values are right."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.replica import open_bucket
from tests.amqp.serving import eventually
from tests.web.serving import Served
from tests.web.test_metrics import EACH, declared, expressions, worked

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Prometheus:
    """A Prometheus of our own."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        folder.mkdir()
        (folder / "prometheus.yml").write_text(json.dumps(config))  # what is JSON is YAML, too
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._said = (folder / "said").open("wb")
        self._process = subprocess.Popen(
            [
                str(PROMETHEUS),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdout=self._said,
            stderr=subprocess.STDOUT,
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._said.close()

    def ask(self, path: str, **query: str) -> Any:
        """What its API says; None while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=30) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 503:  # it is starting
                    return None
                raise AssertionError(f"{query}: {error.read().decode()}") from error
        except OSError:
            assert self._process.poll() is None, "Prometheus did not start"
            return None

    def value(self, expression: str) -> float | None:
        """The value of an expression that has one at most."""
        found = self.ask("/api/v1/query", query=expression)
        if found is None or not found["result"]:
            return None
        (one,) = found["result"]
        return float(one["value"][1])


@pytest.fixture
def prometheus(served: Served, tmp_path: Path) -> Iterator[Prometheus]:
    """One that scrapes both pages of the served store."""
    if PROMETHEUS is None:
        pytest.skip("there is no Prometheus here")
    target = served.url.removeprefix("http://")
    jobs = [
        {"job_name": "holdfast", "static_configs": [{"targets": [target]}]},
        {
            "job_name": "holdfast-queues",
            "metrics_path": EACH,
            "basic_auth": {"username": "guest", "password": "guest"},
            "static_configs": [{"targets": [target]}],
        },
    ]
    one = Prometheus(
        tmp_path / "prometheus",
        {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs},
    )
    yield one
    one.stop()


def test_prometheus_scrapes_both_pages_and_has_the_right_numbers(served: Served, prometheus: Prometheus) -> None:
    worked(served)
    declared(served, "letters").queue.put_many([b"a", b"b"])
    eventually(lambda: prometheus.value('up{job="holdfast"}') == 1)
    eventually(lambda: prometheus.value('up{job="holdfast-queues"}') == 1)
    eventually(lambda: prometheus.value("holdfast_messages_put_total") == 7)
    # A scrape may come too late on a busy machine, and then there is no value until the next one.
    eventually(lambda: prometheus.value("holdfast_ready_messages") == 3)
    eventually(lambda: prometheus.value("holdfast_leased_messages") == 1)
    eventually(lambda: prometheus.value("holdfast_delayed_messages") == 2)
    eventually(lambda: prometheus.value('holdfast_queue_ready_messages{vhost="/", queue="letters"}') == 2)
    eventually(lambda: prometheus.value("sum(holdfast_queue_ready_messages)") == 3)
    counted = eventually(lambda: prometheus.value("holdfast_messages_wait_seconds_count"))
    eventually(lambda: prometheus.value('holdfast_messages_wait_seconds_bucket{le="+Inf"}') == counted)

    def errors() -> list[str]:
        active = prometheus.ask("/api/v1/targets", state="active")["activeTargets"]
        return [target["lastError"] for target in active]

    eventually(lambda: errors() == ["", ""])


def test_every_query_of_the_dashboard_has_an_answer(served: Served, prometheus: Prometheus, tmp_path: Path) -> None:
    def moves(counter: str) -> bool:
        """Something must happen between two scrapes of each page, or a rate is of nothing."""
        worked(served)
        return bool(prometheus.value(f"sum(rate({counter}[1m]))"))

    declared(served, "letters").queue.put(b"a")  # some columns are of the broker's queues only
    served.store.ship_to(open_bucket((tmp_path / "replica").as_uri()))
    eventually(lambda: moves("holdfast_messages_hold_seconds_count"))
    eventually(lambda: moves("holdfast_queue_acked_total"))
    eventually(lambda: moves("holdfast_event_loop_lag_seconds_count"))
    eventually(lambda: moves("holdfast_replica_requests_total"))

    def answered(expression: str) -> bool:
        """There is a number, now or after the next scrapes: one may come too late on a busy machine."""
        for _ in range(30):
            found = prometheus.ask("/api/v1/query", query=expression)["result"]
            if found and all("NaN" not in one["value"][1] for one in found):
                return True
            worked(served)
            time.sleep(1)
        return False

    asked = expressions()
    assert len(asked) > 40
    for text in asked:
        expression = text.replace("$__rate_interval", "1m").replace("$instance", ".*")
        assert "$" not in expression, expression
        assert answered(expression), f"{expression} has no answer"


def test_the_alerts_that_are_proposed_are_rules_that_prometheus_takes(tmp_path: Path) -> None:
    if PROMTOOL is None:
        pytest.skip("there is no promtool here")
    blocks = (ROOT / "docs/monitoring.md").read_text().split("```yaml\n")[1:]
    rules = next(text.split("```")[0] for text in blocks if text.startswith("groups:"))
    (tmp_path / "rules.yml").write_text(rules)
    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(tmp_path / "rules.yml")], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    scrapes = next(text.split("```")[0] for text in blocks if text.startswith("scrape_configs:"))
    (tmp_path / "prometheus.yml").write_text(scrapes)
    done = subprocess.run(
        [PROMTOOL, "check", "config", str(tmp_path / "prometheus.yml")], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", ["/metrics", EACH, EACH + "?family=holdfast_queue_wait_seconds"])
def test_promtool_finds_nothing_to_complain_of(served: Served, path: str, tmp_path: Path) -> None:
    if PROMTOOL is None:
        pytest.skip("there is no promtool here")
    worked(served)
    served.store.ship_to(open_bucket((tmp_path / "replica").as_uri()))
    body = served.ask("GET", path).body
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=body, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    assert not done.stdout + done.stderr
