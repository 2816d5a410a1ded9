"""API route for the replica of the served store: its status and its alarms."""

from typing import TYPE_CHECKING

from holdfast.base.units import iso_time
from holdfast.replica.alarms import ReplicaAlarm
from holdfast.web.api.response_types import ReplicaAlarmJson, ReplicaJson, ReplicaReport
from holdfast.web.routes import Call, Needs, Routes

if TYPE_CHECKING:
    from holdfast.replica.status import ReplicaStatus

__all__ = ["replica_json", "replica_routes"]

replica_routes = Routes("system")


def replica_json(call: Call) -> ReplicaReport:
    """Return the status and the alarms as the caller may see them.

    Errors name objects of the bucket, and so queues; the URL is part of the configuration.
    """
    watch = call.site.replica
    status, alarms = watch.look()
    return {
        "replica": None if status is None else _status(status, watch.lag_limit, everything=call.who.sees_all),
        "alarms": [_alarm(one) for one in alarms],
    }


def _status(status: "ReplicaStatus", lag_limit: float, *, everything: bool) -> ReplicaJson:
    return {
        "url": status.url if everything else None,
        "role": status.role,
        "epoch": status.epoch,
        "moment": status.moment,
        "shipped_at": status.shipped_at,
        "shipped_time": iso_time(status.shipped_at),
        "lag_seconds": status.lag_seconds,
        "lag_limit": lag_limit,
        "lag_records": status.lag_records,
        "lag_bytes": status.lag_bytes,
        "lost_records": status.lost_records,
        "repaired": status.repaired,
        "error": status.error if everything else None,
        "reason": status.reason,
        "failing_since": status.failing_since,
        "failing_since_time": iso_time(status.failing_since),
        "last_error": status.last_error if everything else None,
        "last_error_at": status.last_error_at,
        "last_error_time": iso_time(status.last_error_at),
        "requests": dict(status.requests),
        "failures": dict(status.failures),
        "sent_bytes": status.sent_bytes,
    }


def _alarm(one: ReplicaAlarm) -> ReplicaAlarmJson:
    return {"alarm": one.kind, "since": one.since, "since_time": iso_time(one.since), "text": one.text}


@replica_routes.get(
    "/api/holdfast/replica",
    needs=Needs.MONITORING,
    says="Show the role, epoch, lag, errors and alarms of the store's replica in object storage.",
)
def replica(call: Call) -> ReplicaReport:
    """Return the status of the replica, null without one, and its alarms."""
    return replica_json(call)
