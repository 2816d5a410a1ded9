"""Durations and points in time, exact to the nanosecond, and refused where they make no sense."""

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.clock import NS, duration_ns, from_ns, instant_ns
from holdfast.errors import InvalidArgument
from holdfast.testing import SimClock


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (5, 5 * NS), (0.5, NS // 2), (timedelta(days=1, microseconds=1), 86_400 * NS + 1000)],
)
def test_durations_are_seconds_or_timedeltas(value: float | timedelta, expected: int) -> None:
    assert duration_ns(value, "wait") == expected


@pytest.mark.parametrize("value", [-1, -0.5, timedelta(seconds=-1), math.nan, math.inf, "5", True, None])
def test_other_durations_are_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidArgument, match="wait must"):
        duration_ns(value, "wait")  # type: ignore[arg-type]


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])))
def test_datetimes_keep_every_microsecond(when: datetime) -> None:
    assert from_ns(instant_ns(when, "when")) == when


def test_the_simulated_clock_moves_only_when_told() -> None:
    clock = SimClock()
    began = clock.time_ns()
    clock.advance(10)
    assert 10 * NS <= clock.time_ns() - began < 10 * NS + 5_000
    elapsed = clock.monotonic()
    clock.set_back(3600)
    assert clock.time_ns() < began
    assert clock.monotonic() >= elapsed
