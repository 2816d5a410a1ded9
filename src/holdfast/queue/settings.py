"""Settings of a queue with their defaults, validated when it is opened, and their JSON form on disk."""

import json
import logging
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from holdfast.base.clock import NS, Duration, duration_ns
from holdfast.base.errors import InvalidArgument
from holdfast.base.names import abbreviate, check_name

__all__ = ["OVERFLOWS", "Backoff", "QueueSettings", "asdict_shallow", "from_json", "to_json"]

logger = logging.getLogger("holdfast.queue")

OVERFLOWS = ("drop-head", "reject", "dead-letter")
_DAY = 86_400


def _in_seconds(settings: object, *names: str) -> None:
    """Convert timedeltas to seconds, so that equal durations are equal settings."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, timedelta):
            object.__setattr__(settings, name, value.total_seconds())


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay before a failed message is delivered again: `base * factor ** (attempt - 1)`, capped."""

    base: Duration = 1
    cap: Duration = 300
    factor: float = 2.0

    def __post_init__(self) -> None:
        """Reject invalid values."""
        _in_seconds(self, "base", "cap")
        base, cap = duration_ns(self.base, "Backoff(base=...)"), duration_ns(self.cap, "Backoff(cap=...)")
        if cap < base:
            raise InvalidArgument(f"Backoff(cap={self.cap!r}) must not be less than its base {self.base!r}")
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float) or not 1 <= self.factor <= 100:
            raise InvalidArgument(f"Backoff(factor=...) must be from 1 to 100, not {self.factor!r}")

    def delay_ns(self, attempt: int) -> int:
        """Return the delay after this failed attempt, the first being 1."""
        base, cap = duration_ns(self.base, "base"), duration_ns(self.cap, "cap")
        # After 64 doublings every cap is reached; without this limit the float would overflow after many attempts.
        return min(cap, round(base * self.factor ** min(attempt - 1, 64)))


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue. Durations are seconds or timedeltas."""

    log: str
    """The log that it is a view of."""
    lease: Duration = 30
    """How long a delivery is leased to its consumer."""
    max_attempts: int | None = 3
    """Deliveries before a message becomes a dead letter; None: no limit."""
    backoff: Backoff = field(default_factory=Backoff)
    dead_letter: str | None = None
    """The queue for dead letters; None: a message that failed too often is dropped."""
    dedup_window: Duration = 300
    dedup_limit: int = 1_000_000
    """The most ids that are kept; if there are more, the window becomes shorter, and `stats` reports it."""
    starvation: Duration | None = 30
    """A message that has waited so long is delivered before higher priorities; None: never."""
    ttl: Duration | None = None
    """How long a message may wait to be delivered, unless it has its own time to live; None: forever."""
    expired: str = "drop"
    """What happens to an expired message: `drop` or `dead-letter`."""
    max_length: int | None = None
    """How many messages may wait (ready or delayed); None: any number."""
    max_bytes: int | None = None
    """How many bytes of payload may wait (ready or delayed); None: any number."""
    overflow: str = "drop-head"
    """When the queue is full: `drop-head` drops the oldest, `dead-letter` dead-letters it, `reject` rejects the put."""
    history: Duration = 7 * _DAY
    """How long the journal, and acknowledged messages, are kept for analysis and replay."""
    shorten_history: bool = True
    """Whether acknowledged messages are dropped early when the disk is full."""

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        check_name(self.log, "log name")
        _in_seconds(self, "lease", "dedup_window", "starvation", "ttl", "history")
        for name in ("lease", "dedup_window", "dedup_limit", "history"):
            if getattr(self, name) is None:
                raise InvalidArgument(f"{name} must not be None")
        for name in ("lease", "dedup_window", "starvation", "ttl", "history"):
            value = getattr(self, name)
            if value is not None and duration_ns(value, name) == 0 and name in ("lease", "ttl"):
                raise InvalidArgument(f"{name} must be more than zero")
        for name in ("max_attempts", "max_length", "max_bytes", "dedup_limit"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidArgument(f"{name} must be a whole number of at least 1, not {value!r}")
        if not isinstance(self.shorten_history, bool):
            raise InvalidArgument(f"shorten_history must be True or False, not {self.shorten_history!r}")
        if not isinstance(self.backoff, Backoff):
            raise InvalidArgument(f"backoff must be a Backoff, not {self.backoff!r}")
        if self.dead_letter is not None:
            check_name(self.dead_letter, "dead letter queue name")
        if self.overflow not in OVERFLOWS:
            raise InvalidArgument(f"overflow must be one of {', '.join(OVERFLOWS)}, not {self.overflow!r}")
        if self.expired not in ("drop", "dead-letter"):
            raise InvalidArgument(f"expired must be drop or dead-letter, not {self.expired!r}")
        if self.dead_letter is None and "dead-letter" in (self.overflow, self.expired):
            raise InvalidArgument("overflow or expired is 'dead-letter': set dead_letter to the name of a queue")

    @classmethod
    def of(cls, name: str, given: dict[str, Any]) -> "QueueSettings":
        """Return settings from those that a user gives, with defaults that depend on the queue's name."""
        known = {one.name for one in fields(cls)}
        if unknown := given.keys() - known:
            raise InvalidArgument(f"a queue has no setting {min(unknown)!r}; there are: {', '.join(sorted(known))}")
        # A dead letter queue has no dead letters by default: messages would be hard to find.
        is_end = name.endswith(".dead")
        defaults: dict[str, Any] = {"log": name, "dead_letter": None if is_end else abbreviate(name, 250) + ".dead"}
        if is_end and given.get("dead_letter") is None:
            defaults["max_attempts"] = None
        settings = cls(**{**defaults, **given})
        if settings.dead_letter == name:
            raise InvalidArgument(f"the queue {name!r} cannot be its own dead letter queue")
        return settings

    def nanoseconds(self, name: str) -> int | None:
        """Return a duration among the settings in nanoseconds."""
        value = getattr(self, name)
        return None if value is None else duration_ns(value, name)


def asdict_shallow(settings: QueueSettings) -> dict[str, Any]:
    """Return the settings by name, as a user would give them."""
    return {one.name: getattr(settings, one.name) for one in fields(settings)}


def to_json(given: dict[str, Any]) -> str:
    """Return a user's settings as they are saved on disk."""
    plain = {
        name: asdict(value)
        if isinstance(value, Backoff)
        else value.total_seconds()
        if isinstance(value, timedelta)
        else value
        for name, value in given.items()
    }
    if isinstance(given.get("backoff"), Backoff):
        backoff: Backoff = given["backoff"]
        plain["backoff"] = {
            "base": duration_ns(backoff.base, "base") / NS,
            "cap": duration_ns(backoff.cap, "cap") / NS,
            "factor": backoff.factor,
        }
    return json.dumps(plain, ensure_ascii=False)


def from_json(kept: dict[str, Any]) -> dict[str, Any]:
    """Return saved settings as a user would give them."""
    known = {one.name for one in fields(QueueSettings)}
    if unknown := kept.keys() - known:
        logger.warning("unknown queue settings ignored: settings=%s", ",".join(sorted(unknown)))
        kept = {name: value for name, value in kept.items() if name in known}
    if isinstance(kept.get("backoff"), dict):
        kept = {**kept, "backoff": replace(Backoff(), **kept["backoff"])}
    return kept
