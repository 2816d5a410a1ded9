"""Hybrid logical clock that numbers changes: Unix milliseconds, and a counter for changes in the same millisecond."""

import threading
from datetime import datetime

from holdfast.base.clock import Clock, Instant, from_ns, instant_ns
from holdfast.base.critical_section import Condition
from holdfast.base.errors import InvalidArgument
from holdfast.base.fair_lock import Ticket

__all__ = ["VERSION_MAX", "Fenced", "HybridLogicalClock", "check_not_ahead", "time_of", "version_before", "version_of"]

_LOGICAL_BITS = 20
_MS = 1_000_000
VERSION_MAX = (1 << 64) - 1
_AHEAD_MS = 3_600_000
_AGAIN_S = 0.2
"""Seconds after which a thread that waits for the end of a fence checks it again."""
_LAST_TIME = 253_402_300_799_999 << _LOGICAL_BITS
"""The end of the year 9999, the last year of a datetime."""
_LOGICAL_MAX = (1 << _LOGICAL_BITS) - 1
_BELOW_FENCE = 1 << 14
"""The least number of versions below a transaction's that others can take until it ends. With more, versions would run
ahead of the clock if there are many transactions: with this number they do so from 64 a millisecond on."""


class Fenced(Exception):
    """All versions below that of the running transaction are used up: wait for its end, holding no lock."""


class HybridLogicalClock:
    """Issues increasing versions for the changes of a store: 44 bits of Unix milliseconds and 20 bits of count.

    Versions never go back, whatever the machine's clock does. Threads: any.

    A transaction takes its version when it begins, as a fence. Tables that it has not touched are written meanwhile,
    with versions below the fence. So versions rise in every table, and no version above the transaction's exists before
    its commit.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.RLock()
        self._lifted = Condition(self._guard)
        self._fence = 0
        """The version of the running transaction; 0 if there is none."""
        self._fenced_at = 0
        """The time when it began. Versions that are issued below the fence afterwards have this time."""
        self._owner = Ticket()
        """The ticket of that transaction: the fence ends with it."""
        self.last = 0
        """The highest version that was issued or seen."""

    def next(self) -> int:
        """Return a version above every one that was issued or seen.

        It is not before the present time, except below a fence: there it may have the time when the fence began.
        Raises `Fenced` if no version below the fence is left.
        """
        with self._guard:
            if self._fence and self._owner.ended:
                self._lift()
            version = max(self.last + 1, self._clock.time_ns() // _MS << _LOGICAL_BITS)
            if self._fence and version >= self._fence:
                version = max(self.last + 1, self._fenced_at)
                if version >= self._fence:
                    raise Fenced
            if version >= VERSION_MAX:
                _check_end(version)
            self.last = version
            return version

    def begin_fence(self, owner: Ticket) -> int:
        """Return a version for a transaction: until its ticket is over all others are below it. One at a time."""
        with self._guard:
            if self._fence and self._owner.ended:
                self._lift()
            assert not self._fence, "there is one transaction at a time"
            now = self._clock.time_ns() // _MS << _LOGICAL_BITS
            fence = max(self.last + _BELOW_FENCE, now | 1 << (_LOGICAL_BITS - 1))
            _check_end(fence)
            self._fence, self._fenced_at, self._owner = fence, now, owner
            return fence

    def tidy(self) -> None:
        """Lift a fence whose ticket is over, and wake waiting threads. Without this they notice within 0.2 seconds."""
        with self._guard:
            if self._fence and self._owner.ended:
                self._lift()
                self._lifted.notify_all()

    def wait_for_end(self) -> None:
        """Return when there is no fence. The caller holds no lock that the transaction may want.

        Raises `InvalidArgument` in the thread of that transaction, which would wait for itself.
        """
        with self._guard:
            while self._fence and not self._owner.ended:
                if self._owner.mine:
                    raise InvalidArgument("this thread has a running transaction: end it first")
                self._lifted.wait(_AGAIN_S)

    def admit(self, version: int) -> None:
        """As `see`, but raise `Fenced` if there is a fence and the version is not below it."""
        with self._guard:
            if self._fence and self._owner.ended:
                self._lift()
            if self._fence and version >= self._fence:
                raise Fenced
            self.last = max(self.last, version)

    def _lift(self) -> None:
        """End the fence: later versions are above that of the transaction. Called with the lock held."""
        self.last, self._fence = max(self.last, self._fence), 0

    def see(self, version: int) -> None:
        """Note a version that came from elsewhere: later ones are above it."""
        with self._guard:
            self.last = max(self.last, version)


def _check_end(version: int) -> None:
    if version >= VERSION_MAX:
        raise InvalidArgument(
            "there are no versions left: a version that this store accepted is thousands of years ahead"
        )


def time_of(version: int) -> datetime:
    """Return the time of a version, to the millisecond."""
    return from_ns((min(version, _LAST_TIME) >> _LOGICAL_BITS) * _MS)


def version_of(when: Instant) -> int:
    """Return the first version of that millisecond."""
    return instant_ns(when, "when") // _MS << _LOGICAL_BITS


def check_not_ahead(version: int, clock: Clock) -> None:
    """Raise `InvalidArgument` for a version from elsewhere that is over an hour ahead: later ones must be above it."""
    if version >> _LOGICAL_BITS > clock.time_ns() // _MS + _AHEAD_MS:
        raise InvalidArgument(
            f"version {version} has the time {time_of(version)}, more than an hour ahead: synchronize the clocks"
        )


def version_before(point: "int | datetime | None", what: str) -> int | None:
    """Return the highest version that a point includes: the version itself, or the last of a time's millisecond."""
    if point is None:
        return None
    if isinstance(point, datetime):
        return min(max(version_of(point) | _LOGICAL_MAX, 0), VERSION_MAX - 1)
    if isinstance(point, bool) or not isinstance(point, int):
        raise InvalidArgument(f"{what} must be a version or an aware datetime, not {type(point).__name__}")
    if not 0 <= point <= VERSION_MAX:
        raise InvalidArgument(f"{what} must be a version of 64 bits, but is {point}")
    return min(point, VERSION_MAX - 1)
