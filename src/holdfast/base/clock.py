"""Injected time: the `Clock` protocol, the system clock, and conversion of durations and instants to nanoseconds."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from holdfast.base.errors import InvalidArgument, raised_by_handler

__all__ = [
    "NS",
    "Clock",
    "Duration",
    "Instant",
    "SystemClock",
    "Waitable",
    "duration_ns",
    "from_ns",
    "instant_ns",
    "positive_ns",
]

NS = 1_000_000_000
_LONGEST_NS = 200 * 365 * 86_400 * NS
"""The longest duration that is accepted. Added to any time before 2054 it stays within 64 bits."""

Duration = int | float | timedelta
"""A length of time as users write it: seconds, or a timedelta."""
Instant = int | datetime
"""A point in time as users write it: nanoseconds since 1970, or an aware datetime."""


class Waitable(Protocol):
    """An object to wait for while its lock is held, such as a condition variable."""

    def wait(self, seconds: float, /) -> object:
        """Release the lock, and return with it held: after a notification, or so many seconds."""
        ...


class Clock(Protocol):
    """A source of time. Implementations: `SystemClock`, and `holdfast.testing.SimClock` for tests."""

    def time_ns(self) -> int:
        """Return the nanoseconds since 1970 in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards, for intervals."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...

    def wait(self, condition: Waitable, seconds: float) -> None:
        """Wait until the condition is notified, for at most so many seconds. The caller holds its lock."""
        ...


class SystemClock:
    """The machine's clock. The methods are the C functions themselves: one is called for every append."""

    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def wait(self, condition: Waitable, seconds: float) -> None:
        """Wait for the condition."""
        condition.wait(seconds)


def duration_ns(value: Duration, what: str) -> int:
    """Return a duration in whole nanoseconds; `what` names the argument in the error."""
    if isinstance(value, timedelta):
        nanoseconds = _exact_ns(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{what} must be seconds or a timedelta, not {type(value).__name__}")
    else:
        try:
            nanoseconds = round(value * NS)
        except (OverflowError, ValueError) as error:
            if raised_by_handler(error):
                raise
            raise InvalidArgument(f"{what} must be a finite number of seconds, not {value!r}") from error
    if nanoseconds < 0:
        raise InvalidArgument(f"{what} must not be negative, but is {value!r}")
    if nanoseconds > _LONGEST_NS:
        raise InvalidArgument(f"{what} must not be more than 200 years, but is {value!r}")
    return nanoseconds


def positive_ns(value: Duration, what: str) -> int:
    """As `duration_ns`, for a duration that must not be zero."""
    nanoseconds = duration_ns(value, what)
    if nanoseconds == 0:
        raise InvalidArgument(f"{what} must be more than zero")
    return nanoseconds


def instant_ns(value: Instant, what: str) -> int:
    """Return a point in time in nanoseconds since 1970; `what` names the argument in the error."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidArgument(f"{what} must be an aware datetime: {value!r} has no time zone")
        return _exact_ns(value - datetime(1970, 1, 1, tzinfo=UTC))
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{what} must be an aware datetime or integer nanoseconds, not {type(value).__name__}")
    return value


def _exact_ns(value: timedelta) -> int:
    # total_seconds() is a float and would round points in time to about 0.2 us.
    return (value.days * 86_400 + value.seconds) * NS + value.microseconds * 1_000


def from_ns(value: int) -> datetime:
    """Return the aware UTC datetime of a timestamp, rounded down to microseconds."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value // 1_000)
