"""How are those who wait for the disk served first? What was made durable is told to others a little later."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.base.errors import WriterStopped
from holdfast.log.appender import Appender

__all__ = ["Untold"]

T = TypeVar("T")


class Untold(Appender):
    """An appender for a broker: it syncs for many who wait, and each call of `tell` is one that nobody waits for."""

    @property
    def gathered_bytes(self) -> int:
        """What was appended and is not written yet, in bytes; 0 where the next append looks for room first."""
        room = self._draft.room
        return self.settings.flush.bytes - room if room >= 0 else 0

    def sync_untold(self) -> None:
        """As `sync`, but those who follow the log are told by `tell`, and others may write while the disk works.

        Not for a thread that signals interrupt.
        """
        if self._durable_appends:  # whoever waits for a draft takes it for safe once it is written
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
        """Let those who follow the log, here and in other processes, see what was made durable untold.

        Unless `patient`, this is left to whoever is writing, if anyone is.
        """
        if self._io.acquire(blocking=patient):
            try:
                if self._writer is not None and not self.closed:
                    self._writer.tell()
            finally:
                self._io.release()
        self._notify()

    def _stopping(self, step: Callable[[], T]) -> T:
        """Take a step of the writer; where that has stopped for good, so does the log. Called with `_io` held."""
        try:
            return step()
        except WriterStopped as stopped:
            if not self.closed:  # by someone else, meanwhile
                self._give_up([], stopped)
            raise
