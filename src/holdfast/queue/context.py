"""What identifies a queue, for the parts that load, journal and save its state."""

from dataclasses import dataclass, field

from holdfast.base.clock import Clock
from holdfast.log.log import Log
from holdfast.queue.journal import Journal
from holdfast.queue.settings import QueueSettings

__all__ = ["QueueContext"]


@dataclass(frozen=True, slots=True)
class QueueContext:
    """A queue's name, settings, log, journal and clock."""

    name: str
    settings: QueueSettings
    log: Log
    journal: Journal
    clock: Clock
    read_only: bool
    fields: dict[str, str] = field(init=False)
    """The `extra` of log messages about this queue."""

    def __post_init__(self) -> None:
        """Set the fields."""
        object.__setattr__(self, "fields", {"queue": self.name, "log": self.log.name})
