"""The lock of a store's registries, and whether the store is open."""

import threading
from pathlib import Path

from holdfast.base.errors import Closed

__all__ = ["StoreGuard"]


class StoreGuard:
    """Held while logs, queues or tables of a store are opened, deleted or closed. All its registries share one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lock = threading.RLock()
        self.closing = False
        """Whether `close` has begun: nothing more is opened. An interrupt may cut it off; then `close` continues."""
        self.closed = False
        """Whether everything is closed, and the store's file lock released."""

    def check_open(self) -> None:
        """Raise `Closed` once closing has begun."""
        if self.closing:
            raise Closed(f"the store {str(self._path)!r} is closed: open it again")

    def detach_after_fork(self) -> None:
        """Count as closed, with a lock that no thread of the parent holds."""
        self.lock = threading.RLock()
        self.closing = self.closed = True
