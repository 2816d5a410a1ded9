"""Health checks without authentication: liveness of the broker's event loop, and readiness for clients."""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NotRequired, TypedDict

from holdfast.base.metrics import Registry
from holdfast.base.units import iso_time
from holdfast.broker.memory_alarm import ALARMS
from holdfast.web.routes import Call, Needs, Reply, Routes

if TYPE_CHECKING:
    from holdfast.web.context import ServerContext

__all__ = ["Pulse", "checkpoint_warning", "health_routes", "readiness"]

_BEAT_S = 1.0
DEAD_S = 15.0
"""Seconds without a response after which the broker's thread counts as hanging."""


class Pulse:
    """Monitors the responsiveness of the broker's thread: posts a call each second and measures its delay.

    Threads: one of its own; `stalled_s` may be read by any.
    """

    def __init__(
        self, post: Callable[[Callable[[], None]], None], metrics: Registry, *, beat_s: float = _BEAT_S
    ) -> None:
        """`post` brings a call to the broker's thread."""
        self._post = post
        self._lags = metrics.histogram(
            "holdfast_event_loop_lag_seconds",
            "Delay of the broker's event loop, measured once a second.",
        )
        self._beat_s = beat_s
        self._asked: float | None = None
        """When the pending call was posted; None if none is pending."""
        self._stopping = threading.Event()
        self._answered = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the monitor thread."""
        self._thread = threading.Thread(target=self._beat, name="holdfast-pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the monitor thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def stalled_s(self) -> float:
        """Seconds for which the broker's thread has not responded."""
        asked = self._asked
        return 0.0 if asked is None else time.monotonic() - asked

    def _beat(self) -> None:
        while not self._stopping.wait(self._beat_s):
            self._answered.clear()
            self._asked = asked = time.monotonic()
            self._post(self._answered.set)
            while not self._answered.wait(self._beat_s):
                if self._stopping.is_set():  # the broker's thread may have ended
                    return
            self._asked = None
            self._lags.observe(max(0.0, time.monotonic() - asked))


def readiness(site: "ServerContext") -> dict[str, str | None]:
    """Return the readiness checks: None for each that passes, a reason for each that fails."""
    store, memory = site.store, site.broker.memory
    found: dict[str, str | None] = {}
    found["broker"] = _stall(site)
    try:
        disk = os.statvfs(store.path)
    except OSError as error:
        found["store"] = f"the store's folder cannot be read: {error.strerror}"
    else:
        read_only = disk.f_flag & os.ST_RDONLY
        found["store"] = "the disk is mounted read-only: nothing can be written" if read_only else None
        free, least = disk.f_bavail * disk.f_frsize, memory.limits.disk_free
        low = free < least or memory.blocked == "disk"
        found["disk"] = (
            f"{free} bytes of disk are free, publishers are blocked below {least}: free some, or set disk_free_limit"
            if low
            else None
        )
        if store.disk_full:
            found["disk"] = "the disk is full: acks and leases continue, new messages are rejected until there is space"
    if store.closing:
        found["store"] = "the store is closed"
    found["memory"] = (
        "the process uses more memory than memory_limit: publishers are blocked until consumers catch up"
        if memory.blocked == "memory"
        else None
    )
    if (status := site.replica.status) is not None:
        found["replica"] = _not_owned(status.role)
    if memory.blocked == "replica":
        found["store"] = f"publishers are blocked: {ALARMS['replica']}"
    stopping = "the server is stopping: its listeners are closed"
    found["listeners"] = None if site.server.accepts else stopping
    return found


def checkpoint_warning(site: "ServerContext") -> str | None:
    """Return why, and since when, checkpoints of queues fail; None if they succeed.

    The server is ready nevertheless: the journals are complete, and only a start after a crash takes longer.
    """
    failing = site.store.failing_checkpoints()
    if not failing:
        return None
    first = min(failing.values())
    reason = first.reason.replace(str(site.store.path), "...")  # this is served without a login
    return (
        f"checkpoints of {len(failing)} queues have failed since {iso_time(first.since)} and are retried: {reason}. "
        "Messages are safe; the next start takes longer"
    )


def replica_warnings(site: "ServerContext") -> list[str]:
    """Return the alarms of the replica that do not keep the server from accepting messages."""
    return [one.text for one in site.replica.look()[1] if one.kind != "replica-fenced"]


def _not_owned(role: str) -> str | None:
    """Return why a server in this role takes no messages; None if it does."""
    if role == "fenced":
        return (
            "another process owns the replica, or it was deleted: what is accepted here is on this disk only. Send "
            "clients to the owner"
        )
    return "this server is a standby: it takes no messages before it takes over" if role == "standby" else None


def _stall(site: "ServerContext") -> str | None:
    stalled = site.pulse.stalled_s
    return None if stalled < DEAD_S else f"the broker's event loop has not responded for {stalled:.0f} s"


class Liveness(TypedDict):
    """Whether the process responds; if not, why."""

    live: bool
    reasons: list[str]


class Readiness(TypedDict):
    """Whether messages are accepted, the checks, and why not; warnings do not count, but mean degraded."""

    ready: bool
    degraded: bool
    checks: dict[str, bool]
    reasons: list[str]
    warnings: list[str]


class ReplicaHealth(TypedDict):
    """The state of the replica: ok, degraded (an alarm is active), fenced, or none; without it only role."""

    state: str
    role: str | None
    epoch: NotRequired[int]
    lag_seconds: NotRequired[float]
    lag_limit: NotRequired[float]
    lag_records: NotRequired[int]
    lag_bytes: NotRequired[int]
    lost_records: NotRequired[int]
    reason: NotRequired[str | None]
    failing_since_time: NotRequired[str | None]
    last_error_time: NotRequired[str | None]
    alarms: NotRequired[list[str]]


health_routes = routes = Routes("monitoring")


@routes.get(
    "/health/live",
    needs=Needs.NOTHING,
    says="Liveness: 200, or 503 if the process must be restarted.",
    also={503: Liveness},
)
def live(call: Call) -> Reply[Liveness]:
    """Return 200 while the broker's thread responds, 503 after 15 s without a response."""
    reason = _stall(call.site)
    return Reply({"live": reason is None, "reasons": [reason] if reason else []}, 503 if reason else 200)


@routes.get(
    "/health/ready",
    needs=Needs.NOTHING,
    says="Readiness: 200, or 503 with the reasons why messages are not accepted.",
    also={503: Readiness},
)
def ready(call: Call) -> Reply[Readiness]:
    """Return 200 if messages are accepted, else 503 with the reasons.

    The broker's thread responds, the store is open and writable, no alarm is on and the listeners are open. Warnings do
    not count.
    """
    found = readiness(call.site)
    reasons = [reason for reason in found.values() if reason]
    warning = checkpoint_warning(call.site)
    checks = {name: reason is None for name, reason in found.items()} | {"checkpoints": warning is None}
    warnings = replica_warnings(call.site)
    if "replica" in checks:
        checks["replica"] &= not warnings
    warnings += [warning] if warning else []
    said: Readiness = {
        "ready": not reasons,
        "degraded": bool(warnings),
        "checks": checks,
        "reasons": reasons,
        "warnings": warnings,
    }
    return Reply(said, 503 if reasons else 200)


@routes.get(
    "/health/replica",
    needs=Needs.NOTHING,
    says="The replica: 200, or 503 if another process owns it. Without names of anything.",
    also={503: ReplicaHealth},
)
def replica(call: Call) -> Reply[ReplicaHealth]:
    """Return role, epoch, lag and alarms of the replica; 503 if it is fenced. `role` is null without a replica."""
    status, alarms = call.site.replica.look()
    if status is None:
        return Reply({"state": "none", "role": None})
    is_fenced = status.role == "fenced"
    said: ReplicaHealth = {
        "state": "fenced" if is_fenced else "degraded" if alarms else "ok",
        "role": status.role,
        "epoch": status.epoch,
        "lag_seconds": status.lag_seconds,
        "lag_limit": call.site.replica.lag_limit,
        "lag_records": status.lag_records,
        "lag_bytes": status.lag_bytes,
        "lost_records": status.lost_records,
        "reason": status.reason,
        "failing_since_time": iso_time(status.failing_since),
        "last_error_time": iso_time(status.last_error_at),
        "alarms": [one.kind for one in alarms],
    }
    return Reply(said, 503 if is_fenced else 200)
