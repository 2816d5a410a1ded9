"""The replica of a served store: health checks, API, metrics, RabbitMQ's alarms and log lines say the same."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.base.bucket import Bucket
from holdfast.replica import open_bucket
from holdfast.replica.owner import OWNER, read_owner
from tests.amqp.serving import eventually
from tests.web.serving import Served
from tests.web.test_metrics import scraped

QUEUE = "a.queue.that.is.named.in.keys"


class Shipped:
    """A served store that is shipped to a folder."""

    def __init__(self, served: Served, folder: Path) -> None:
        self.served = served
        self.folder = folder
        self.bucket: Bucket = open_bucket(folder.as_uri())
        served.store.queue(QUEUE).put(b"1")
        served.store.ship_to(open_bucket(folder.as_uri()))
        served.site.replica.start()
        served.store.replica.ship()

    def take_away(self) -> None:
        """Let every request fail."""
        self.folder.rename(self.folder.with_suffix(".away"))
        self.folder.write_text("no folder")

    def give_back(self) -> None:
        self.folder.unlink()
        self.folder.with_suffix(".away").rename(self.folder)

    def take_over(self) -> None:
        """Claim the next epoch, as another process would."""
        found = self.bucket.get(OWNER)
        owner = read_owner(self.bucket)
        assert owner is not None
        after = replace(owner, epoch=owner.epoch + 1, nonce="another", place="elsewhere:/data", host="elsewhere")
        while self.bucket.compare_and_swap(OWNER, after.encode(), found.etag) is None:
            found = self.bucket.get(OWNER)

    def health(self, path: str = "replica") -> tuple[int, dict[str, object]]:
        answer = self.served.ask("GET", f"/health/{path}", user=None)
        assert QUEUE not in answer.body.decode()
        assert str(self.folder.parent) not in answer.body.decode()
        return answer.status, answer.json

    def alarms(self) -> list[str]:
        return [one["alarm"] for one in self.served.get("/api/holdfast/replica")["alarms"]]


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shipped]:
    monkeypatch.setattr("holdfast.replica.alarms.FAILING_S", 0.5)
    monkeypatch.setattr("holdfast.replica.alarms.CALM_S", 0.5)
    with Served(tmp_path / "data", replica_lag_limit=0.5, history_interval=0) as served:
        yield Shipped(served, tmp_path / "replica")


def test_without_a_replica_all_is_said_to_be_none(served: Served) -> None:
    assert served.get("/health/replica", user=None) == {"state": "none", "role": None}
    assert served.get("/api/holdfast/replica") == {"replica": None, "alarms": []}
    overview = served.get("/api/holdfast/overview")
    assert (overview["replica"], overview["alarms"]) == (None, [])
    ready = served.get("/health/ready", user=None)
    assert "replica" not in ready["checks"] and ready["degraded"] is False
    assert b"holdfast_replica" not in served.ask("GET", "/metrics", user=None).body


def test_a_replica_that_works(shipped: Shipped) -> None:
    eventually(lambda: shipped.health()[1]["state"] == "ok")
    status, said = shipped.health()
    assert (status, said["role"], said["epoch"], said["lag_limit"]) == (200, "owner", 1, 0.5)
    found = shipped.served.get("/api/holdfast/replica")["replica"]
    assert (found["url"], found["role"], found["error"]) == (shipped.folder.as_uri(), "owner", None)
    assert found["requests"]["put"] > 1 and found["failures"] == {"get": 0, "put": 0, "list": 0, "delete": 0}
    values = scraped(shipped.served)
    roles = {role: values["holdfast_replica_role", (("role", role),)] for role in ("owner", "none", "fenced")}
    assert roles == {"owner": 1, "none": 0, "fenced": 0}
    assert values["holdfast_replica_requests_total", (("kind", "put"),)] > 1
    assert values["holdfast_replica_request_failures_total", (("kind", "put"),)] == 0
    assert shipped.health("ready")[1]["checks"]["replica"] is True  # type: ignore[index]


def test_who_may_not_see_all_sees_no_url_and_no_error(shipped: Shipped) -> None:
    shipped.served.add_user("clerk", tags=("management",))
    assert shipped.served.ask("GET", "/api/holdfast/replica", user="clerk").status == 403
    seen = shipped.served.get("/api/holdfast/overview", user="clerk")["replica"]
    assert (seen["role"], seen["url"], seen["error"], seen["last_error"]) == ("owner", None, None, None)


def test_a_bucket_that_is_away_is_an_alarm_everywhere_until_it_is_back(
    shipped: Shipped, caplog: pytest.LogCaptureFixture
) -> None:
    served = shipped.served
    with caplog.at_level(logging.WARNING, "holdfast.replica"):
        shipped.take_away()
        served.store.queue(QUEUE).put(b"2")
        eventually(lambda: set(shipped.alarms()) == {"replica-failing", "replica-lag"})
        status, said = shipped.health()
        assert (status, said["state"], said["role"], said["reason"]) == (200, "degraded", "owner", "unavailable")
        assert said["lag_records"] == 1 and said["lag_seconds"] > 0 and said["failing_since_time"]  # type: ignore[operator]
        status, ready = shipped.health("ready")
        assert (status, ready["ready"], ready["degraded"]) == (200, True, True), "messages are still accepted"
        assert ready["checks"]["replica"] is False  # type: ignore[index]
        rabbit = served.ask("GET", "/api/health/checks/alarms")
        assert rabbit.status == 503
        assert {one["resource"] for one in rabbit.json["alarms"]} == {"replica-failing", "replica-lag"}
        values = scraped(served)
        assert values["holdfast_replica_alarm", (("alarm", "replica-lag"),)] == 1
        assert values["holdfast_replica_alarm", (("alarm", "replica-lost"),)] == 0
        assert values["holdfast_replica_failing_seconds", ()] > 0
        assert values["holdfast_replica_request_failures_total", (("kind", "put"),)] > 0
        found = served.get("/api/holdfast/replica")["replica"]
        assert "Not a directory" in found["error"]
        served.store.queue(QUEUE).put(b"3")
        shipped.give_back()
        eventually(lambda: shipped.alarms() == [])
    assert shipped.health()[1]["state"] == "ok"
    assert served.ask("GET", "/api/health/checks/alarms").status == 200
    assert scraped(served)["holdfast_replica_last_error_age_seconds", ()] > 0
    for alarm in ("replica-failing", "replica-lag"):
        assert caplog.text.count(f"replica alarm raised: alarm={alarm} ") == 1
        assert caplog.text.count(f"replica alarm cleared: alarm={alarm}") == 1


def test_a_server_that_has_lost_its_replica_is_not_ready(shipped: Shipped) -> None:
    shipped.take_over()
    eventually(lambda: shipped.health()[0] == 503)
    status, said = shipped.health()
    assert (said["state"], said["role"]) == ("fenced", "fenced")
    status, ready = shipped.health("ready")
    assert (status, ready["ready"]) == (503, False)
    assert "another process owns the replica" in ready["reasons"][0]  # type: ignore[index]
    assert shipped.served.ask("GET", "/health/live", user=None).status == 200
    assert "replica-fenced" in shipped.alarms()
    values = scraped(shipped.served)
    assert values["holdfast_replica_role", (("role", "fenced"),)] == 1
    assert values["holdfast_replica_up", ()] == 0
    assert "elsewhere:/data has epoch 2" in shipped.served.get("/api/holdfast/replica")["replica"]["error"]
