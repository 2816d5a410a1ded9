"""Settings of a log with their defaults, validated when it is opened."""

from dataclasses import dataclass, field
from typing import Any

from holdfast.base.errors import InvalidArgument
from holdfast.log.compression import codec_by_name
from holdfast.log.policy import Flush, Retention, Roll
from holdfast.log.writer import WriterSettings

__all__ = ["MESSAGE_MAX", "LogSettings"]

MESSAGE_MAX = 10 << 20
_MESSAGE_CEILING = 400 << 20
_LOCAL_SEGMENTS = 8
"""With a local retention by bytes, at least about so many segments are on the local disk."""
_ROLL_LEAST = 64 << 10


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of a log. They are not stored, so they may differ from one opening to the next."""

    flush: Flush = field(default_factory=Flush.async_)
    roll: Roll = field(default_factory=lambda: Roll.size(256 << 20))
    index_interval: int = 1024
    """Records between two entries of the sparse index."""
    compression: str | None = None
    retention: Retention | None = None
    """Applied at each roll, by `compact` and, for `max_age`, by the background; None keeps everything."""
    local_retention: Retention | None = None
    """What stays on the local disk of a store with a replica: what is dropped here is read from the bucket. Segments
    roll at an eighth of its `max_bytes`. None: the default of the store. Without a replica it has no effect."""
    verify_on_open: bool = False
    max_message: int = MESSAGE_MAX
    """Bytes of payload, key and headers together."""

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        for name, kind in (("flush", Flush), ("roll", Roll), ("index_interval", int), ("max_message", int)):
            if not isinstance(getattr(self, name), kind):
                raise InvalidArgument(f"{name} must be a {kind.__name__}, not {getattr(self, name)!r}")
        for name in ("retention", "local_retention"):
            if not isinstance(policy := getattr(self, name), Retention | None):
                raise InvalidArgument(f"{name} must be a Retention, not {policy!r}")
        if self.index_interval < 1:
            raise InvalidArgument(f"index_interval must be at least 1, not {self.index_interval}")
        if not 1 <= self.max_message <= _MESSAGE_CEILING:
            raise InvalidArgument(f"max_message must be from 1 to {_MESSAGE_CEILING}, not {self.max_message}")
        codec_by_name(self.compression)

    @classmethod
    def of(cls, given: dict[str, Any]) -> "LogSettings":
        """Make settings from keyword arguments; the error names an unknown one."""
        unknown = given.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise InvalidArgument(f"a log has no setting {min(unknown)!r}; there are: {known}")
        return cls(**given)

    def writer(self, local_retention: Retention | None = None) -> WriterSettings:
        """Return the settings that the segment writer needs, for a log of which so much stays on the local disk."""
        roll = self.roll
        if local_retention is not None and local_retention.max_bytes is not None:
            # The last segment is always there: it should be a small part of what may be.
            most = max(_ROLL_LEAST, local_retention.max_bytes // _LOCAL_SEGMENTS)
            roll = Roll.any(roll, Roll.size(most))
        return WriterSettings(
            roll=roll,
            index_interval=self.index_interval,
            codec=codec_by_name(self.compression),
            durable_only=self.flush.mode == "sync",
        )
