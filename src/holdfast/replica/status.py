"""Status of a replica, as its owner sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from holdfast.replica.owner import Role

__all__ = ["Confirm", "ReplicaStatus"]

Confirm = Literal["local", "replica"]
"""When a message is confirmed: once it is on the local disk, or once it is in the bucket."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Whether a store is being shipped, and how far behind the bucket is."""

    url: str
    role: Role
    epoch: int
    """0 if no epoch was claimed yet."""
    moment: str | None
    """The last moment in the bucket; None if this process has shipped none yet."""
    shipped_at: int | None
    """All that was written before this time, in nanoseconds since 1970, is in the bucket."""
    lag_seconds: float
    """The age of the oldest record that is not in the bucket, at most; 0 if there is none."""
    lag_records: int
    lag_bytes: int
    """Bytes of the open logs that are not in the bucket."""
    lost_records: int
    """Records that were dropped from a full disk before they were shipped: no moment has them."""
    error: str | None
    """Why the last attempt failed; None if it did not."""
    failing_since: int | None
    """When the first attempt of those that failed was made, in nanoseconds since 1970."""
    confirm: Confirm
    """When a message is confirmed."""
    waiting: int
    """How many calls and publishers wait for the bucket, with `confirm="replica"`."""
    waiting_seconds: float
    """For how long the first of them has waited; 0 if none waits."""
    puts: int
    sent_bytes: int
    """Requests that wrote an object, and their bytes, since the store was opened."""
    reason: str | None = None
    """`error` in one word, without the name of anything: `ReplicaError.reason`."""
    last_error: str | None = None
    """The last error since the store was opened, also if it was overcome."""
    last_error_at: int | None = None
    """When that was, in nanoseconds since 1970."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """Requests since the store was opened, by kind: `get`, `put`, `list` and `delete`."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Those that failed."""
    repaired: int = 0
    """Objects that somebody had deleted, and that were uploaded again."""

    @property
    def ok(self) -> bool:
        """Whether this process owns the replica, and its last attempt did not fail."""
        return self.role == "owner" and self.error is None
