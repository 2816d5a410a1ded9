"""Continuous shipping of a store to object storage, and restore of any kept moment."""

from holdfast.replica.bucket import open_bucket
from holdfast.replica.inspection import (
    ReplicaOverview,
    ReplicaVerification,
    find_moments,
    overview,
    verify_replica,
)
from holdfast.replica.manifest import Moment
from holdfast.replica.restore import ReplicaRestoreReport, restore
from holdfast.replica.status import ReplicaStatus

__all__ = [
    "Moment",
    "ReplicaOverview",
    "ReplicaRestoreReport",
    "ReplicaStatus",
    "ReplicaVerification",
    "find_moments",
    "open_bucket",
    "overview",
    "restore",
    "verify_replica",
]
