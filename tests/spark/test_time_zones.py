"""Time zones as Spark names them, and times without one."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import InvalidArgument
from holdfast.spark.options import ReadOptions
from holdfast.spark.time_zones import moment_of, session_zone, task_moment


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("UTC", 0),
        ("Z", 0),
        ("GMT", 0),
        ("+02:00", 2),
        ("-8", -8),
        ("GMT+3", 3),
        ("UTC-04:30", -4.5),
        ("Asia/Tokyo", 9),
        ("PST", -8),
        ("EST", -5),
        ("IST", 5.5),
    ],
)
def test_a_zone_is_known_by_the_names_that_spark_has_for_it(name: str, hours: float) -> None:
    when = datetime(2026, 1, 31, 12)
    assert moment_of(when, session_zone(name)) == when.replace(tzinfo=UTC) - timedelta(hours=hours)


def test_a_zone_that_nobody_knows_is_an_error_that_says_what_to_do() -> None:
    for name in ("Nowhere/Land", "../../etc/passwd", ""):
        with pytest.raises(InvalidArgument, match="give times with a zone"):
            session_zone(name)


def test_summer_time_is_that_of_the_day() -> None:
    zone = session_zone("Europe/Berlin")
    assert [moment_of(datetime(2026, month, 1, 12), zone).hour for month in (1, 7)] == [11, 10]


@pytest.mark.parametrize(("when", "zone"), [(datetime.min, "Asia/Tokyo"), (datetime.max, "America/New_York")])
def test_the_ends_of_the_calendar_are_times_in_every_zone(when: datetime, zone: str) -> None:
    assert moment_of(when, session_zone(zone)) == when.replace(tzinfo=UTC)


def test_outside_of_a_task_a_time_is_utc() -> None:
    assert task_moment(datetime(2026, 1, 1)) == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_plan_is_wide_enough_for_the_time_in_every_zone() -> None:
    given = {"path": "x", "log": "x", "startingTimestamp": "2026-01-31T12:00:00", "endingTimestamp": "2026-02-01"}
    options = ReadOptions.of(given)
    start, end = datetime(2026, 1, 31, 12), datetime(2026, 2, 1)
    assert (options.local_start, options.local_end) == (start, end)
    for name in ("+18:00", "-18:00", "Pacific/Kiritimati", "Pacific/Pago_Pago"):
        zone = session_zone(name)
        first, last = options.starting_time, options.ending_time
        assert isinstance(first, int) and isinstance(last, int)
        assert first <= moment_of(start, zone).timestamp() * 1e9
        assert last >= moment_of(end, zone).timestamp() * 1e9
    exact = ReadOptions.of({**given, "startingTimestamp": "2026-01-31T12:00:00-05:00"})
    assert (exact.local_start, exact.starting_time) == (None, 1_769_878_800 * 10**9)
