"""Status of a standby, as it sees itself."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["StandbyRole", "StandbyStatus"]

StandbyRole = Literal["standby", "promoting", "promoted"]
"""`promoting`: the epoch is claimed, the last moment is being fetched. `promoted`: the folder is a store."""


@dataclass(frozen=True, slots=True)
class StandbyStatus:
    """What a standby has, how far it is behind the bucket, and what it waits for."""

    url: str
    role: StandbyRole
    owner: str
    """Host and path of the owner; empty if there is none."""
    epoch: int
    """The epoch of the owner, or of this process once it has claimed one."""
    yields: bool
    """Whether the owner lets a standby take over automatically. It does some seconds after a standby has its first
    moment."""
    moment: str | None
    """The last moment that is here whole; None if there is none yet."""
    moment_time: int | None
    """Its time, in nanoseconds since 1970 by the clock of the owner."""
    is_warm: bool
    """Whether a whole moment is here: only then this standby takes over."""
    lag_seconds: float
    """For how long there has been a later moment that is not here; 0 if there is none."""
    bytes: int
    """The size of the moment that is here."""
    fetched_bytes: int
    """Bytes that were fetched since the start."""
    owner_quiet_seconds: float
    """For how long the owner has not renewed its claim."""
    error: str | None
    """Why the last attempt failed; None if it did not."""
