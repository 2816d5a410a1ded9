"""Alarms of a replica: when they begin and end, and that they do not flicker."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.replica.alarms import AlarmKind, ReplicaAlarms
from holdfast.replica.status import ReplicaStatus
from holdfast.testing import SimClock

FINE = ReplicaStatus(
    url="s3://secret-bucket/prefix",
    role="owner",
    epoch=3,
    moment="3-1",
    shipped_at=1,
    lag_seconds=0.4,
    lag_records=1,
    lag_bytes=100,
    lost_records=0,
    error=None,
    failing_since=None,
    confirm="local",
    waiting=0,
    waiting_seconds=0.0,
    puts=1,
    sent_bytes=1,
)


class Watched:
    """Alarms on a simulated clock."""

    def __init__(self, lag_limit: float = 60) -> None:
        self.clock = SimClock()
        self.alarms = ReplicaAlarms(self.clock, lag_limit)

    def after(self, seconds: float, **changed: Any) -> list[AlarmKind]:
        """The alarms after some seconds, if the status is fine but for this."""
        self.clock.advance(seconds)
        return [one.kind for one in self.alarms.look(replace(FINE, **changed))]

    def failing(self, seconds: float, **changed: Any) -> list[AlarmKind]:
        return self.after(seconds, error="s3://secret-bucket/prefix/logs/x: gone", reason="unavailable", **changed)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_store_without_a_replica_has_no_alarms(watched: Watched) -> None:
    assert watched.alarms.look(None) == ()
    assert watched.after(0) == []


def test_the_alarm_of_the_lag_ends_at_half_of_its_limit(watched: Watched) -> None:
    assert watched.after(1, lag_seconds=60.0) == []
    assert watched.after(1, lag_seconds=60.1) == ["replica-lag"]
    assert watched.after(1, lag_seconds=31.0) == ["replica-lag"]
    assert watched.after(1, lag_seconds=30.0) == []
    assert watched.after(1, lag_seconds=59.0) == []
    assert Watched(lag_limit=0).after(1, lag_seconds=1e9) == []


def test_errors_that_pass_soon_raise_no_alarm(watched: Watched) -> None:
    assert watched.failing(1) == []
    assert watched.failing(29) == []
    assert watched.after(1) == []
    assert watched.failing(1) == []
    assert watched.failing(29) == []
    assert watched.failing(1) == ["replica-failing"]


def test_the_alarm_of_failures_ends_when_all_is_calm(watched: Watched) -> None:
    watched.failing(0)
    assert watched.failing(31) == ["replica-failing"]
    assert watched.after(1) == ["replica-failing"], "one success may be the only one"
    assert watched.failing(1) == ["replica-failing"]
    assert watched.after(14) == ["replica-failing"]
    assert watched.after(14.9) == ["replica-failing"]
    assert watched.after(0.2) == []
    assert watched.failing(1) == []


def test_what_failed_before_anybody_looked_counts(watched: Watched) -> None:
    since = watched.clock.time_ns() - 40 * 10**9
    assert watched.failing(0, failing_since=since) == ["replica-failing"]


def test_a_fenced_owner_is_the_most_serious_alarm(watched: Watched) -> None:
    assert watched.failing(31, role="fenced", lag_seconds=99.0) == ["replica-fenced", "replica-lag"]
    assert watched.after(1, role="owner") == []


def test_lost_records_are_an_alarm_for_an_hour(watched: Watched) -> None:
    assert watched.after(1, lost_records=5) == ["replica-lost"]
    assert watched.after(3599, lost_records=5) == ["replica-lost"]
    assert watched.after(1, lost_records=5) == []
    assert watched.after(1, lost_records=6) == ["replica-lost"]


def test_alarms_say_since_when_and_name_nothing(watched: Watched) -> None:
    began = watched.clock.time_ns()
    watched.after(0, role="fenced", lag_seconds=99.0, lost_records=3)
    assert watched.failing(0, failing_since=began, role="fenced", lost_records=3) == ["replica-fenced", "replica-lost"]
    watched.clock.advance(31)
    status = replace(FINE, role="fenced", lag_seconds=99.0, lost_records=3, error="s3://secret-bucket/x", reason="x")
    found = watched.alarms.look(status)
    assert len(found) == 4
    assert {one.kind: one.since >= began + 30 * 10**9 for one in found} == {
        "replica-fenced": False,
        "replica-failing": True,
        "replica-lag": True,  # it was not active at the look before
        "replica-lost": False,
    }
    assert all("secret" not in one.text for one in found)


@pytest.mark.parametrize("role", ["standby", "none"])
def test_other_roles_are_no_alarm(watched: Watched, role: str) -> None:
    assert watched.after(1, role=role) == []
