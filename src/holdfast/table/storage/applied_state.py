"""The rows of a table in the state, with the log position up to which they are applied."""

import logging
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from holdfast.log.log import Log
from holdfast.state import State, Transaction
from holdfast.table.model.model_spec import ModelSpec
from holdfast.table.settings import TableSettings
from holdfast.table.storage.row_cache import RowCache
from holdfast.table.storage.row_codec import Images
from holdfast.table.storage.table_state import TableState, after

__all__ = ["AppliedPosition", "AppliedState", "clear_table"]

logger = logging.getLogger("holdfast.table")

_POSITION = b"\0position"
_PLACE = Struct(">16sQQB")


class AppliedPosition(NamedTuple):
    """The applied position of a state in a log."""

    log: bytes
    position: int
    version: int
    kept: int
    """Which history the state keeps: 1 past versions, plus 2 the list of updates."""


class AppliedState:
    """The rows of one table, their cache, and the log position up to which the log is applied to them.

    Each batch of changes contains the position after it, so both are in the state or neither is. `position` and
    `last_version` change only when the batch is committed: a thread that sees a version finds its changes. Reading
    needs no lock; one thread at a time changes it, with `CommitPipeline.apply_lock` held or exclusive access.
    """

    def __init__(self, store: State, log: Log, spec: ModelSpec, images: Images, settings: TableSettings) -> None:
        self.store = store
        """The state of all tables."""
        self.cache = RowCache()
        self.position = 0
        """The log position up to which the state is applied."""
        self.last_version = 0
        """A version that no change in the state is above. After updates of another store it may be higher than that of
        any change."""
        self.rebuilt = False
        """Whether the state was rebuilt from the log, at opening or since then."""
        self.kept = settings.keep_all_versions + 2 * settings.update_history
        """As `AppliedPosition.kept`."""
        self._log = log
        self._settings = settings
        self.bind(spec, images)
        self._position_key = self.view.prefix + _POSITION

    def bind(self, spec: ModelSpec, images: Images) -> None:
        """Use this codec for the records; it may replace one of an equal definition."""
        history, updates = self._settings.keep_all_versions, self._settings.update_history
        self.view = TableState(self.store, spec, images, history=history, updates=updates)

    def stored(self) -> AppliedPosition | None:
        """Return the stored position; None if there is none for this log, so that the state must be rebuilt."""
        raw = self.store.get("model", self._position_key)
        if raw is None or len(raw) != _PLACE.size:
            return None
        place = AppliedPosition(*_PLACE.unpack(raw))
        start, end = self._log.readable()
        if place.log == self._log.id and start <= place.position <= end:
            return place
        # A power cut can lose unsynced records of the log, while the state keeps their effects.
        logger.warning(
            "table state does not match its log and is rebuilt: table=%s position=%d log_end=%d",
            self._log.name,
            place.position,
            end,
            extra={"table": self._log.name},
        )
        return None

    def begin(self, batch: Transaction, position: int, version: int, keys: Iterable[bytes]) -> None:
        """Remove the changed records from the cache, and add the position after their changes to the batch.

        The caller commits the batch, and then calls `end`.
        """
        self.cache.hold(keys)
        batch.put("model", self._position_key, _PLACE.pack(self._log.id, position, version, self.kept))

    def end(self, position: int, version: int) -> None:
        """Show that a batch is committed."""
        self.cache.release()
        # Only now: a read as of this version must not return older records.
        self.position, self.last_version = position, version

    def commit(self, batch: Transaction, position: int, version: int, keys: Iterable[bytes]) -> None:
        """Commit a batch that changes these records together with the position after it, without a sync."""
        self.begin(batch, position, version, keys)
        batch.commit(sync=False)
        self.cache.release()
        # Only now: a read as of this version must not return older records.
        self.position, self.last_version = position, version

    def commit_many(self, batch: Transaction, position: int, version: int) -> None:
        """As `commit`, for so many changes that the whole cache is cleared."""
        batch.put("model", self._position_key, _PLACE.pack(self._log.id, position, version, self.kept))
        batch.commit(sync=False)
        self.cache.clear()
        # Only now: a thread that sees the version must find its changes in the state.
        self.position, self.last_version = position, version

    def clear(self) -> None:
        """Delete everything, in order to rebuild it."""
        clear_table(self.store, self.view.prefix)
        self.position = self._log.start
        self.rebuilt = True


def clear_table(state: State, prefix: bytes) -> None:
    """Delete a table from a state: rows, index entries, unique values, history, tombstones and log position."""
    batch = state.transaction()
    for family in ("table", "keys", "index", "unique", "historic_table", "historic_index", "historic_unique",
                   "update_history"):  # fmt: skip
        batch.delete_range(family, prefix, after(prefix))
    batch.delete("model", prefix + _POSITION)
    batch.commit()
