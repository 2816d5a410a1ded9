"""Parsing and formatting of sizes, durations and times."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.base.units import (
    format_duration,
    format_rate,
    format_size,
    format_time,
    iso_time,
    parse_duration,
    parse_size,
    parse_time,
    plural,
)

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("512B", 512),
        ("64KiB", 64 << 10),
        ("10GiB", 10 << 30),
        ("5GB", 5_000_000_000),
        ("2k", 2048),
        ("1.5 MiB", 3 << 19),
        ("1tib", 1 << 40),
    ],
)
def test_a_size_is_read_as_meant(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "ten", "-1", "1.2.3", "5XB", "1iB", "GiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", timedelta(days=7)),
        ("1h30m", timedelta(minutes=90)),
        ("2w", timedelta(days=14)),
        ("500ms", timedelta(seconds=0.5)),
        ("1.5h", timedelta(minutes=90)),
        ("0s", timedelta(0)),
        ("60", timedelta(minutes=1)),
        (" 0.5 ", timedelta(seconds=0.5)),
        ("0", timedelta(0)),
        ("1H 5M", timedelta(minutes=65)),
    ],
)
def test_a_duration_is_read_as_meant(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "-7d", "-7", "7y", "d", "1h-5m", "1h30", "1 5", "9" * 30 + "w", "9" * 400])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_duration(text)


@pytest.mark.parametrize("text", ["60", "2026"])
def test_a_bare_number_is_a_duration_and_not_a_time(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a time"):
        parse_time(text)


def test_a_relative_time_is_that_long_ago() -> None:
    assert parse_time("1h30m", now=NOON) == datetime(2026, 11, 15, 10, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-15T12:00:00Z", NOON),
        ("2026-11-15 13:00+01:00", datetime(2026, 11, 15, 13, tzinfo=timezone(timedelta(hours=1)))),
        ("20261115T120000Z", NOON),
        ("2026-11-15T12:00:00.000000000Z", NOON),
    ],
)
def test_an_iso_time_is_read_as_meant(text: str, expected: datetime) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ["", "noon", "2026-11-15", "2026-11-15T12:00", "2026-13-01T00:00Z", "999999w"])
def test_what_is_no_aware_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_time(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 20, "1.0 MiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (5 << 50, "5.0 PiB"),
    ],
)
def test_a_size_is_written_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0004, "0.4 ms"),
        (0.012, "12 ms"),
        (3.21, "3.2 s"),
        (30, "30 s"),
        (307, "5 min 7 s"),
        (300, "5 min"),
        (119 * 60 + 59.9, "119 min 59 s"),
        (3 * 3600 + 20 * 60 + 9, "3 h 20 min"),
        (12.25 * 86_400, "12 d 6 h"),
        (7 * 86_400, "7 d"),
    ],
)
def test_a_duration_is_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(0, "0/s"), (0.25, "0.25/s"), (0.0123, "0.012/s"), (3.21, "3.2/s"), (1250.4, "1,250/s")]
)
def test_a_rate_is_written_for_people(rate: float, text: str) -> None:
    assert format_rate(rate) == text


def test_times_are_utc_and_keep_their_nanoseconds_for_machines() -> None:
    timestamp = 1_794_744_000_123_456_789
    assert format_time(timestamp) == "2026-11-15 12:00:00"
    assert iso_time(timestamp) == "2026-11-15T12:00:00.123456789Z"
    assert (format_time(None), iso_time(None)) == ("-", None)


def test_one_is_singular() -> None:
    assert [plural(count, "record") for count in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]
