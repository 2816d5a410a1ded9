"""Parsing and formatting of sizes, durations, rates and times, as people write and read them."""

import re
from datetime import UTC, datetime, timedelta

from holdfast.base.clock import NS, from_ns
from holdfast.base.errors import InvalidArgument

__all__ = [
    "format_count",
    "format_duration",
    "format_instant",
    "format_rate",
    "format_size",
    "format_time",
    "iso_time",
    "parse_duration",
    "parse_size",
    "parse_time",
    "plural",
]

_POWER = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgtp])(i?b?)|b)?", re.IGNORECASE)
_SECONDS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PAIRS = (
    (7_200.0, (60, "min", 1, "s")),
    (172_800.0, (3_600, "h", 60, "min")),
    (float("inf"), (86_400, "d", 3_600, "h")),
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")
_BARE_SECONDS = re.compile(r"\d+(?:\.\d+)?")


def parse_size(text: str) -> int:
    """Return the bytes of `1048576`, `64KiB`, `10 GiB` or `5GB`; a bare `K`, `M`, `G` is binary, as in other tools."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidArgument(f"{text!r} is not a size: write 1048576, 64KiB, 10GiB or 5GB")
    number, prefix, rest = match.groups()
    scale: int = 1 if prefix is None else (1000 if rest.lower() == "b" else 1024) ** _POWER[prefix.lower()]
    try:
        return round(float(number) * scale)
    except OverflowError:
        raise InvalidArgument(f"{text[:20]!r}... is too large for a size: write a smaller number") from None


def parse_duration(text: str) -> timedelta:
    """Return the duration of `7d`, `1h30m`, `15m`, `30s` or `500ms`; a bare number is seconds."""
    compact = text.strip().replace(" ", "").lower()
    if _BARE_SECONDS.fullmatch(text.strip()):
        compact += "s"
    parts = _DURATION.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise InvalidArgument(f"{text!r} is not a duration: write 30 or 30s, 15m, 1h30m or 7d")
    try:
        return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))
    except OverflowError as error:
        raise InvalidArgument(f"{text!r} is too long for a duration: the limit is {timedelta.max.days} days") from error


def parse_time(text: str, now: datetime | None = None) -> datetime:
    """Return a point in time, from ISO 8601 with a time zone, or from `15m` for 15 minutes ago."""
    if _DURATION.match(text.strip().lower()):
        try:
            return (now or datetime.now(UTC)) - parse_duration(text)
        except OverflowError as error:
            raise InvalidArgument(f"{text!r} ago is before the year 1: write a shorter duration") from error
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidArgument(
            f"{text!r} is not a time: write 2026-11-15T12:00:00Z, or 15m for 15 minutes ago"
        ) from error
    if when.tzinfo is None:
        raise InvalidArgument(f"{text!r} has no time zone: add Z for UTC, or an offset as in +02:00")
    return when


def format_size(size: float) -> str:
    """Format bytes for people: `812 B`, `32.1 MiB`."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1023.95:  # a size that would be rounded up to 1024.0 is 1.0 of the next unit
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} PiB"


def format_count(count: float) -> str:
    """Format a whole number with thousands separators."""
    return f"{count:,.0f}"


def format_rate(rate: float) -> str:
    """Format a rate per second for people: `0/s`, `0.25/s`, `3.2/s`, `1,250/s`."""
    if rate == 0 or rate >= 10:
        return f"{rate:,.0f}/s"
    return f"{rate:.1f}/s" if rate >= 1 else f"{rate:.2g}/s"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: `1 record`, `2,000 records`."""
    return f"{format_count(count)} {noun}" + ("" if count == 1 else "s")


def format_duration(seconds: float) -> str:
    """Format a duration for people: `0.4 ms`, `12 ms`, `3.2 s`, `30 s`, `5 min 7 s`, `3 h 20 min`, `12 d`."""
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms" if seconds else "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds % 1 == 0 else f"{seconds:.1f} s"
    large, name, small, part = next(units for longest, units in _PAIRS if seconds < longest)
    rest = f" {seconds % large // small:.0f} {part}" if seconds % large >= small else ""
    return f"{seconds // large:,.0f} {name}{rest}"


def format_time(timestamp_ns: int | None) -> str:
    """Format a timestamp for tables, in UTC to the second; a dash for None."""
    return "-" if timestamp_ns is None else from_ns(timestamp_ns).strftime("%Y-%m-%d %H:%M:%S")


def format_instant(timestamp_ns: int) -> str:
    """Format a timestamp for the view of one record, in UTC to the millisecond."""
    return from_ns(timestamp_ns).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def iso_time(timestamp_ns: int | None) -> str | None:
    """Format a timestamp for programs: ISO 8601 in UTC with all nine digits of its nanoseconds."""
    if timestamp_ns is None:
        return None
    whole = from_ns(timestamp_ns).replace(microsecond=0, tzinfo=None).isoformat()
    return f"{whole}.{timestamp_ns % NS:09d}Z"
