"""Alarms of a replica: too far behind, failing, lost to another owner, records lost; with hysteresis."""

from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.base.clock import Clock
from holdfast.base.units import format_time, plural
from holdfast.replica.status import ReplicaStatus

__all__ = ["ALARMS", "AlarmKind", "ReplicaAlarm", "ReplicaAlarms"]

AlarmKind = Literal["replica-fenced", "replica-failing", "replica-lag", "replica-lost"]
ALARMS: tuple[AlarmKind, ...] = get_args(AlarmKind)
"""The most serious first."""
FAILING_S = 30.0
"""Errors that pass sooner raise no alarm: object storage asks for patience now and then."""
CALM_S = 15.0
"""How long no attempt may have failed before the alarm ends: the first one that succeeds may be the only one."""
_LOST_S = 3600.0
"""How long the loss of records is an alarm. Nobody can undo it; the counter stays."""


@dataclass(frozen=True, slots=True)
class ReplicaAlarm:
    """An alarm that is active."""

    kind: AlarmKind
    since: int
    """When it began, in nanoseconds since 1970."""
    text: str
    """What is wrong and what to do; without the name of anything, because it is shown without a login."""


class ReplicaAlarms:
    """Which alarms are active. They block no publishers. For one thread at a time."""

    def __init__(self, clock: Clock, lag_limit: float) -> None:
        """`lag_limit`, in seconds, begins the alarm of the lag, and half of it ends it; 0: there is none."""
        self.lag_limit = lag_limit
        self._clock = clock
        self._since: dict[AlarmKind, int] = {}
        self._failing_from: float | None = None
        self._calm_from: float | None = None
        self._lost = 0
        self._lost_at = float("-inf")

    def look(self, status: ReplicaStatus | None) -> tuple[ReplicaAlarm, ...]:
        """Return the alarms that are active, the most serious first; None: there is no replica."""
        if status is None:
            self._since.clear()
            return ()
        now = self._clock.monotonic()
        active: dict[AlarmKind, bool] = {
            "replica-fenced": status.role == "fenced",
            "replica-failing": self._is_failing(status, now),
            "replica-lag": self._is_behind(status),
            "replica-lost": self._has_lost(status, now),
        }
        for kind, is_active in active.items():
            if is_active:
                self._since.setdefault(kind, self._clock.time_ns())
            else:
                self._since.pop(kind, None)
        return tuple(
            ReplicaAlarm(kind, self._since[kind], _text(kind, status, self.lag_limit))
            for kind in ALARMS
            if kind in self._since
        )

    def _is_failing(self, status: ReplicaStatus, now: float) -> bool:
        if status.error is None:
            self._calm_from = now if self._calm_from is None else self._calm_from
            if now - self._calm_from >= CALM_S or "replica-failing" not in self._since:
                self._failing_from = None
                return False
            return True
        self._calm_from = None
        self._failing_from = now if self._failing_from is None else self._failing_from
        failing_for = now - self._failing_from
        if status.failing_since is not None:  # it may have begun before anybody looked
            failing_for = max(failing_for, (self._clock.time_ns() - status.failing_since) / 1e9)
        return failing_for >= FAILING_S or "replica-failing" in self._since

    def _is_behind(self, status: ReplicaStatus) -> bool:
        limit = self.lag_limit / 2 if "replica-lag" in self._since else self.lag_limit
        return self.lag_limit > 0 and status.lag_seconds > limit

    def _has_lost(self, status: ReplicaStatus, now: float) -> bool:
        if status.lost_records > self._lost:
            self._lost, self._lost_at = status.lost_records, now
        return now - self._lost_at < _LOST_S


def _text(kind: AlarmKind, status: ReplicaStatus, limit: float) -> str:
    if kind == "replica-fenced":
        return (
            "another process owns the replica, or it was deleted: this server ships nothing more, and what it accepts "
            "is on its own disk only. Stop it, and compare both stores"
        )
    if kind == "replica-failing":
        since = "" if status.failing_since is None else f" since {format_time(status.failing_since)} UTC"
        why = "" if status.reason is None else f" ({status.reason})"
        return f"attempts to ship have failed{since}{why}. They go on, and records wait on the local disk"
    if kind == "replica-lag":
        return (
            f"the bucket is {status.lag_seconds:.0f} s behind, and the limit is {limit:g} s: a loss of this machine "
            "would lose that much"
        )
    return (
        f"{plural(status.lost_records, 'record')} left the full disk before they were in the bucket: no moment of the "
        "replica has them"
    )
