"""Watch of a served store's replica: its status and its alarms, logged once for each change."""

import logging
import threading
from typing import TYPE_CHECKING

from holdfast.base.clock import Clock
from holdfast.replica.alarms import AlarmKind, ReplicaAlarm, ReplicaAlarms

if TYPE_CHECKING:
    from holdfast.replica.status import ReplicaStatus
    from holdfast.store import Store

__all__ = ["ReplicaWatch"]

logger = logging.getLogger("holdfast.replica")

_LOOK_S = 1.0


class ReplicaWatch:
    """Looks at the replica once a second, if the store has one when the server starts, and whenever somebody asks.

    Threads: `holdfast-replica-watch`, and any may ask. `_guard` is held while the alarms are computed.
    """

    def __init__(self, store: "Store", clock: Clock, lag_limit: float) -> None:
        self.lag_limit = lag_limit
        self._store = store
        self._alarms = ReplicaAlarms(clock, lag_limit)
        self._active: dict[AlarmKind, ReplicaAlarm] = {}
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if there is a replica."""
        if self._store.is_replicated:
            self._thread = threading.Thread(target=self._run, name="holdfast-replica-watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def status(self) -> "ReplicaStatus | None":
        """The status of the replica; None if there is none."""
        return self._store.replica.status() if self._store.is_replicated else None

    def look(self) -> "tuple[ReplicaStatus | None, tuple[ReplicaAlarm, ...]]":
        """Return the status, None without a replica, and the alarms that are active."""
        status = self.status
        with self._guard:
            found = self._alarms.look(status)
            before, self._active = self._active, {one.kind: one for one in found}
        for one in found:
            if one.kind not in before:
                logger.warning("replica alarm raised: alarm=%s reason=%s", one.kind, one.text)
        for kind in before.keys() - {one.kind for one in found}:
            logger.warning("replica alarm cleared: alarm=%s", kind)
        return status, found

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            try:
                self.look()
            except Exception:  # of any kind: the next look may succeed
                logger.exception("replica not looked at: will retry")
