"""Continuous shipping of a store to object storage, and restore of any kept moment."""

from holdfast.replica.bucket import open_bucket
from holdfast.replica.forget import ForgetReport, forget
from holdfast.replica.inspection import (
    ReplicaOverview,
    ReplicaVerification,
    find_moments,
    overview,
    verify_replica,
)
from holdfast.replica.manifest import Moment
from holdfast.replica.promotion import Promotion, promote
from holdfast.replica.restore import ReplicaRestoreReport, restore
from holdfast.replica.standby import Standby
from holdfast.replica.standby_status import StandbyStatus
from holdfast.replica.status import ReplicaStatus

__all__ = [
    "ForgetReport",
    "Moment",
    "Promotion",
    "ReplicaOverview",
    "ReplicaRestoreReport",
    "ReplicaStatus",
    "ReplicaVerification",
    "Standby",
    "StandbyStatus",
    "find_moments",
    "forget",
    "open_bucket",
    "overview",
    "promote",
    "restore",
    "verify_replica",
]
