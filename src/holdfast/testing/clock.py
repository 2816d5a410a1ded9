"""Simulated clock, which the test advances."""

from holdfast.base.clock import NS, Duration, Waitable, duration_ns

__all__ = ["SimClock"]

START_NS = 1_767_225_600 * NS  # 2026-01-01T00:00:00Z
_TICK_NS = 1_000


class SimClock:
    """A clock that advances by a microsecond with each call of `time_ns`, and by what the test adds."""

    def __init__(self, start_ns: int = START_NS) -> None:
        self._now_ns = start_ns
        self._elapsed_ns = 0

    def time_ns(self) -> int:
        """Return the simulated time; each call advances it by a microsecond, so that no two results are the same."""
        self._pass(_TICK_NS)
        return self._now_ns

    def monotonic(self) -> float:
        """Return the simulated seconds since the clock was made; not changed by `set_back` and `set_ahead`."""
        return self._elapsed_ns / NS

    def sleep(self, seconds: float) -> None:
        """Advance the simulated time, and return at once."""
        self.advance(seconds)

    def wait(self, condition: Waitable, seconds: float) -> None:
        """Advance the simulated time, without releasing the lock or waiting for a notification."""
        self.advance(seconds)

    def advance(self, duration: Duration) -> None:
        """Advance the simulated time."""
        self._pass(duration_ns(duration, "duration"))

    def set_back(self, duration: Duration) -> None:
        """Set the wall clock back, as a wrong time server does."""
        self._now_ns -= duration_ns(duration, "duration")

    def set_ahead(self, duration: Duration) -> None:
        """Set the wall clock ahead; the monotonic clock is not changed."""
        self._now_ns += duration_ns(duration, "duration")

    def _pass(self, nanoseconds: int) -> None:
        self._now_ns += nanoseconds
        self._elapsed_ns += nanoseconds
