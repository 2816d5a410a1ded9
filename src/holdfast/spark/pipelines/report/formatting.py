"""Formatting of counts, times, rates and shares for people, short and with units."""

import re
from datetime import UTC, datetime, timedelta

__all__ = [
    "clean",
    "clock",
    "count",
    "duration",
    "few",
    "length",
    "micros",
    "moment",
    "per_unit",
    "plural",
    "rate",
    "share",
    "short",
    "span",
]

DASH = "\N{EN DASH}"
"""Shown for a missing value."""
_MANY = 10_000
_UNSEEN = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def clean(text: str) -> str:
    """Return a user's text on one line, with control characters and direction marks replaced. HTML is not escaped."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"[\t\r\n]+", " ", text))


def count(number: float | None) -> str:
    """Format a whole number with thousands separators."""
    return DASH if number is None else f"{number:,.0f}"


def short(number: float | None) -> str:
    """Format a whole number briefly: `9,870`, `12.4 k`, `3.1 M`."""
    if number is None or abs(number) < _MANY:
        return count(number)
    for unit in ("k", "M", "G"):
        number /= 1000
        if abs(number) < 999.95:
            return f"{number:.1f}".removesuffix(".0") + f" {unit}" if abs(number) < 99.95 else f"{number:.0f} {unit}"
    return f"{number / 1000:,.1f} T"


def plural(number: int, noun: str) -> str:
    """`1 message`, `12,430 messages`."""
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


def duration(seconds: float | None) -> str:
    """Format a duration with at most three digits: `80 µs`, `41 ms`, `3.2 s`, `12 min`, `3.5 h`, `12 d`."""
    if seconds is None:
        return DASH
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs" if seconds else "0 s"
    for scale, unit, most in ((1e-3, "ms", 0.9995), (1, "s", 119.5), (60, "min", 7170), (3600, "h", 172_000)):
        if seconds < most:
            return _digits(seconds / scale) + f" {unit}"
    return _digits(seconds / 86_400) + " d"


def length(seconds: int) -> str:
    """Format a whole duration in its own unit: `10 s`, `1 min`, `2 h`, `7 d`."""
    for scale, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds % scale == 0:
            return f"{count(seconds // scale)} {unit}"
    return f"{count(seconds)} s"


def rate(number: float | None, per: str = "s") -> str:
    """Format a rate per `per`, a unit of time: `0.25/s`, `3.2/s`, `1,250/h`."""
    if number is None:
        return DASH
    if number == 0 or number >= 10:
        return f"{short(number)}/{per}"
    return f"{number:.1f}/{per}" if number >= 1 else f"{number:.2g}/{per}"


def per_unit(rate_s: float) -> tuple[int, str]:
    """Return the shortest unit in which a rate is at least 1, or else the hour: its length in seconds, and its name."""
    for seconds, unit in ((1, "second"), (60, "minute")):
        if rate_s * seconds >= 1:
            return seconds, unit
    return 3600, "hour"


def share(part: float, whole: float) -> str:
    """Format a part of a whole in percent; a part that exists is never `0 %`, a partial one never `100 %`."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "< 0.1 %"
    if percent > 99.9 and part < whole:
        return "> 99.9 %"
    return f"{percent:.1f} %" if percent < 10 or 99 < percent < 100 else f"{percent:.0f} %"


def moment(micros: int) -> datetime:
    """Return the time that is `micros` microseconds after 1970: exact, and with its zone."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def micros(at: datetime) -> int:
    """Return a time as microseconds after 1970: exact, which a float is not."""
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def clock(at: datetime) -> str:
    """Format a time, in UTC to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def span(first: datetime, last: datetime) -> str:
    """Format a period, with what both ends share written once."""
    start, end = first.astimezone(UTC), last.astimezone(UTC)
    if start.date() == end.date():
        return f"{start:%-d %B %Y, %H:%M:%S} to {end:%H:%M:%S} UTC"
    return f"{start:%-d %B %Y, %H:%M} to {end:%-d %B %Y, %H:%M} UTC"


def few(words: list[str], most: int = 3) -> str:
    """Join words: `a`, `a and b`, `a, b and 4 more`."""
    shown = words[:most]
    if len(words) > most:
        return f"{', '.join(shown)} and {count(len(words) - most)} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1]))) if shown else ""


def _digits(number: float) -> str:
    """Format a number as `3.2`, `41`, `1,250`: one decimal below ten, and none if it would be zero."""
    return f"{number:.1f}".removesuffix(".0") if number < 9.95 else f"{number:,.0f}"
