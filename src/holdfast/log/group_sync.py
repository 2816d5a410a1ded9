"""Group sync for the broker: callers that wait for the disk return first, readers see the new end afterwards."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.base.clock import Clock
from holdfast.base.errors import Closed, WriterStopped
from holdfast.log.appender import Appender
from holdfast.log.settings import LogSettings

__all__ = ["SYNC_AFTER_S", "GroupSync"]

T = TypeVar("T")

SYNC_AFTER_S = 0.8
"""Under `async`, seconds from a write to its sync in the background: about a second with the write and the sync."""
_ASK_AGAIN_S = 10.0
"""Seconds without a sync after which it is requested again: the syncing thread has ended, as closing a store failed."""


class GroupSync(Appender):
    """An appender for a broker: `sync_without_notifying` makes records durable, and `tell` notifies readers later.

    Under `async` it also requests a call of `sync_if_due`, through `sync_later`, once it has written something, so that
    the durable end follows the visible one without calls of `sync`. A log without unsynced records requests nothing.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: LogSettings,
        clock: Clock,
        wake: Callable[[], None],
        sync_later: Callable[[Any], None] = lambda log: None,
    ) -> None:
        super().__init__(name, folder, settings, clock, wake)
        self._sync_later = sync_later
        self._sync_asked_at: float | None = None
        """When `sync_later` was called, if `sync_if_due` has not synced since."""
        self._unsynced_since: float | None = None

    def tick(self) -> float | None:
        """As in `Appender`; also request a sync of written records, if no other sync is expected."""
        again = super().tick()
        writer, asked_at = self._writer, self._sync_asked_at
        if self.settings.flush.mode != "async" or writer is None or self._append_error is not None or writer.is_durable:
            return again
        now = self.clock.monotonic()
        if asked_at is None or now - asked_at > _ASK_AGAIN_S:
            self._sync_asked_at = now
            self._sync_later(self)
        return again

    def sync_if_due(self) -> float | None:
        """Sync written records `SYNC_AFTER_S` after the first call; return the seconds to the next call, None if done.

        Only records that were written to the operating system, and without the I/O lock during the sync: appends
        continue.
        """
        now = self.clock.monotonic()
        if self._unsynced_since is None:
            self._unsynced_since = now
        left = self._unsynced_since + SYNC_AFTER_S - now
        if left > 0 and self._append_error is None:
            return left
        # Before the sync: records that are written while it runs request another one.
        self._unsynced_since = self._sync_asked_at = None
        with contextlib.suppress(
            Closed, WriterStopped
        ):  # the writer has logged why it stopped; the next append raises it
            self._sync_written()
        return None

    def _sync_written(self) -> None:
        with self._io:
            writer = self._writer
            if writer is None or self._append_error is not None:
                return
            begun = self._stopping(lambda: writer.begin_sync(ahead=False))
        if begun is None:
            return
        is_on_disk = writer.await_disk(begun)
        with self._io:
            if not is_on_disk:
                self._stopping(writer.check)
            if not self.closed:
                writer.tell()

    @property
    def gathered_bytes(self) -> int:
        """How many bytes are appended and not written yet; 0 if the next append must make space first."""
        bytes_left = self.pending_block.bytes_left
        return self.settings.flush.bytes - bytes_left if bytes_left >= 0 else 0

    def sync_without_notifying(self) -> None:
        """As `sync`, but readers are notified by `tell`. Except under `sync`, others may write during the sync.

        Do not call it in the main thread, where signal handlers may raise.
        """
        if self._durable_appends:  # threads that wait for a pending block treat it as durable once it is written
            with self._io:
                self._write_out(sync=True, tell=False)
            return
        self._check_writable()
        with self._io:
            self._write_out(sync=False, tell=False)
            writer = self._writer
            assert writer is not None
            begun = self._stopping(writer.begin_sync)
        if begun is not None and not writer.await_disk(begun):
            with self._io:
                self._stopping(writer.check)

    def tell(self, *, patient: bool = False) -> None:
        """Publish the records that `sync_without_notifying` made durable, to readers here and in other processes.

        Unless `patient`, this is left to the thread that is writing, if there is one.
        """
        held: list[bool] = []
        try:
            held.extend(map(self._io.acquire, (patient,)))  # taken and recorded by one call of C code
            if True in held and self._writer is not None and not self.closed:
                self._writer.tell()
        finally:
            if True in held:
                self._io.release()
        self._notify()

    def _stopping(self, step: Callable[[], T]) -> T:
        """Run a step of the writer; if it raises `WriterStopped`, the log rejects appends. Called with `_io` held."""
        try:
            return step()
        except WriterStopped as stopped:
            if not self.closed:  # by another thread, meanwhile
                self._drop_unconfirmed([], stopped)
            raise
