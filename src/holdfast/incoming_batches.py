"""Adoption of batches from other processes: the store's owner adds them to its logs as soon as it sees a manifest."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from holdfast.base.clock import Clock
from holdfast.base.errors import Locked
from holdfast.base.files import Files, translate_os_errors
from holdfast.log.batch_inbox import BatchInbox, Manifest
from holdfast.log.log import Log

__all__ = ["BatchIngester"]

logger = logging.getLogger("holdfast.store")

POLL_S = 0.25


class BatchIngester:
    """Adopts the batches in `incoming/`, in the order in which they were created.

    The file lock of `BatchInbox.guard` keeps other processes from committing meanwhile.
    """

    name = "incoming"

    def __init__(
        self,
        files: Files,
        clock: Clock,
        store: Path,
        opened: Callable[[Manifest], contextlib.AbstractContextManager[Log]],
    ) -> None:
        self.incoming = BatchInbox(files, store)
        self._clock = clock
        self._opened = opened

    @property
    def fields(self) -> dict[str, str]:
        """The `extra` of log messages about it."""
        return {"path": str(self.incoming.folder)}

    def tick(self) -> float | None:
        """Check for committed batches, and adopt them; return in how many seconds to check again."""
        if self.incoming.anything():
            with contextlib.suppress(Locked):  # another process is committing a batch: adopted with the next tick
                self.adopt()
        return POLL_S

    def adopt(self) -> int:
        """Adopt all committed batches; return how many. Raises `Locked` while another process commits one."""
        with translate_os_errors("adopting the batches in", self.incoming.folder):
            return self._adopt()

    def _adopt(self) -> int:
        count = 0
        guard = self.incoming.guard()
        try:
            if plan := self.incoming.plan():
                with self._opened(plan.manifest):  # opening the log finishes the adoption
                    count += 1
            for manifest in self.incoming.pending():
                if self.incoming.last_done(manifest) >= manifest.batch:
                    self.incoming.drop(manifest)
                elif self.incoming.check(manifest):
                    with self._opened(manifest) as log:
                        log.adoption.adopt(self.incoming, manifest)
                    count += 1
            if count and (swept := self.incoming.sweep(self._clock.time_ns())):
                logger.info("removed abandoned parts of batches: count=%d", swept, extra=self.fields)
        finally:
            guard.release()
        return count

    def resume(self, log: Log) -> None:
        """Finish the adoption that a crash interrupted, if it was into this log. Called when a log is opened."""
        if (plan := self.incoming.plan()) is not None and plan.manifest.log == log.name:
            log.adoption.resume(self.incoming, plan)
