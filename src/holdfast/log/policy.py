"""Flush, roll and retention policies of a log, which users choose when they open it."""

from dataclasses import dataclass

from holdfast.base.clock import Duration, duration_ns, positive_ns
from holdfast.base.errors import InvalidArgument

__all__ = ["Flush", "Retention", "Roll"]

BLOCK_BYTES = 96 * 1024
"""Bytes of a block under `async` and `sync`; a larger record or batch gets its own block."""
ASYNC_INTERVAL_S = 0.02
"""Under `async`, how long a record may wait in memory before it is written to the operating system."""


@dataclass(frozen=True, slots=True)
class Flush:
    """The policy for writing and syncing appended records. Make one with `sync`, `batch` or `async_`."""

    mode: str
    bytes: int
    interval_ns: int

    @staticmethod
    def sync() -> "Flush":
        """Make `append` return after fdatasync; threads that append at the same time share one."""
        return Flush("sync", BLOCK_BYTES, 0)

    @staticmethod
    def batch(bytes: int = BLOCK_BYTES, interval: Duration = 0.1) -> "Flush":
        """Make `append` return without waiting for the disk; an fdatasync follows after so many bytes or so much time.

        An append that finds so many bytes pending writes and syncs them first.
        """
        if not isinstance(bytes, int) or not 1 <= bytes <= 1 << 28:
            raise InvalidArgument(f"Flush.batch(bytes=...) must be from 1 to {1 << 28}, not {bytes!r}")
        return Flush("batch", bytes, positive_ns(interval, "Flush.batch(interval=...)"))

    @staticmethod
    def async_() -> "Flush":
        """Make `append` return at once: records are written to the operating system after 20 ms, or with a full block.

        The background syncs them about a second later. A killed process may lose the last 20 ms, a power cut about the
        last second.
        """
        return Flush("async", BLOCK_BYTES, round(ASYNC_INTERVAL_S * 1e9))


@dataclass(frozen=True, slots=True)
class Roll:
    """The policy for beginning a new segment. Make one with `size`, `time`, `count` or `any`."""

    bytes: int | None = None
    interval_ns: int | None = None
    records: int | None = None

    @staticmethod
    def size(bytes: int) -> "Roll":
        """Roll before a segment would exceed so many bytes. A larger record or batch gets its own segment."""
        return Roll(bytes=_at_least_one(bytes, "Roll.size"))

    @staticmethod
    def time(interval: Duration) -> "Roll":
        """Roll with the first write after the segment has this age."""
        return Roll(interval_ns=positive_ns(interval, "Roll.time"))

    @staticmethod
    def count(records: int) -> "Roll":
        """Roll after exactly so many records. A batch that does not fit is not divided: it begins the next segment."""
        return Roll(records=_at_least_one(records, "Roll.count"))

    @staticmethod
    def any(*rolls: "Roll") -> "Roll":
        """Roll as soon as one of these policies would."""

        def least(values: "list[int | None]") -> int | None:
            return min((value for value in values if value is not None), default=None)

        return Roll(
            least([roll.bytes for roll in rolls]),
            least([roll.interval_ns for roll in rolls]),
            least([roll.records for roll in rolls]),
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """Which segments may be dropped: whole sealed ones, oldest first, while any limit is exceeded.

    At least `min_segments` are kept, including the active one, and everything that a named tailer has yet to read.
    """

    max_age: Duration | None = None
    max_bytes: int | None = None
    max_segments: int | None = None
    min_segments: int = 1

    def __post_init__(self) -> None:
        """Reject invalid limits."""
        if self.max_age is not None:
            duration_ns(self.max_age, "Retention(max_age=...)")
        for name in ("max_bytes", "max_segments", "min_segments"):
            value = getattr(self, name)
            if value is not None:
                _at_least_one(value, f"Retention({name}=...)")


def _at_least_one(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{what} must be a whole number of at least 1, not {value!r}")
    return value
