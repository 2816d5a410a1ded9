"""Which version is next? A hybrid logical clock: time where it moves on, a count where it does not."""

import threading
from datetime import datetime

from holdfast.base.clock import Clock, Instant, from_ns, instant_ns
from holdfast.base.errors import InvalidArgument

__all__ = ["VERSION_MAX", "Versions", "check_not_ahead", "time_of", "version_before", "version_of"]

_LOGICAL_BITS = 20
_MS = 1_000_000
VERSION_MAX = (1 << 64) - 1
_AHEAD_MS = 3_600_000
_LAST_TIME = 253_402_300_799_999 << _LOGICAL_BITS
"""The end of the year 9999, which is the last that a datetime can be in."""
_LOGICAL_MAX = (1 << _LOGICAL_BITS) - 1


class Versions:
    """Gives each change of a store a number above all before it: 44 bits of Unix milliseconds and 20 bits of count.

    Numbers never go back, whatever the machine's clock does. May be used from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self.last = 0
        """The highest version that was given or seen."""

    def next(self) -> int:
        """A version above every one that was given or seen, and not before now."""
        with self._guard:
            version = max(self.last + 1, self._clock.time_ns() // _MS << _LOGICAL_BITS)
            if version >= VERSION_MAX:
                raise InvalidArgument("there are no more versions: one that was taken in lies thousands of years ahead")
            self.last = version
            return version

    def see(self, version: int) -> None:
        """Take note of a version that came from elsewhere: those to come are above it."""
        with self._guard:
            self.last = max(self.last, version)


def time_of(version: int) -> datetime:
    """When a version was given, to the millisecond."""
    return from_ns((min(version, _LAST_TIME) >> _LOGICAL_BITS) * _MS)


def version_of(when: Instant) -> int:
    """The first version of that millisecond."""
    return instant_ns(when, "when") // _MS << _LOGICAL_BITS


def check_not_ahead(version: int, clock: Clock) -> None:
    """Refuse a version from elsewhere that lies more than an hour ahead: those to come would all lie behind it."""
    if version >> _LOGICAL_BITS > clock.time_ns() // _MS + _AHEAD_MS:
        raise InvalidArgument(
            f"version {version} is of {time_of(version)}, more than an hour ahead: set the clocks right"
        )


def version_before(point: "int | datetime | None", what: str) -> int | None:
    """The highest version that is meant by a version, or by a point in time: the last one of its millisecond."""
    if point is None:
        return None
    if isinstance(point, datetime):
        return min(max(version_of(point) | _LOGICAL_MAX, 0), VERSION_MAX - 1)
    if isinstance(point, bool) or not isinstance(point, int):
        raise InvalidArgument(f"{what} must be a version or an aware datetime, not {type(point).__name__}")
    if not 0 <= point <= VERSION_MAX:
        raise InvalidArgument(f"{what} must be a version of 64 bits, but is {point}")
    return min(point, VERSION_MAX - 1)
