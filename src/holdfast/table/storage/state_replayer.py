"""Replay of a table's log into its state: when it is opened, after a failure, and to rebuild the state."""

from typing import Any

from holdfast.base.errors import Corrupt
from holdfast.base.hlc import HybridLogicalClock
from holdfast.log.log import Log
from holdfast.table.storage.applied_state import AppliedPosition, AppliedState
from holdfast.table.storage.deferred_unique import LateUnique
from holdfast.table.storage.row_codec import EventKind, Row, decode_event
from holdfast.table.storage.schema_history import NEVER
from holdfast.table.storage.table_schema import TableSchema

__all__ = ["REPLAY_BATCH", "StateReplayer"]

REPLAY_BATCH = 1000
"""Records whose events are replayed in one batch."""


class StateReplayer:
    """Applies the log of one table to its state. Callers ensure that nothing else changes the state meanwhile."""

    def __init__(self, schema: TableSchema[Any], state: AppliedState, log: Log, versions: HybridLogicalClock) -> None:
        self._schema = schema
        self._state = state
        self._log = log
        self._versions = versions

    def open(self) -> None:
        """Bring the state to the end of the log; rebuild it if it belongs to another log or keeps another history."""
        place = self._state.stored()
        if place is not None and place.kept != self._state.kept:
            self.rebuild()  # the log has the history that the state lacks
        else:
            self._resume_at(place)

    def resume(self) -> None:
        """Apply the log from the stored position on; rebuild the state if there is none."""
        self._resume_at(self._state.stored())

    def _resume_at(self, place: AppliedPosition | None) -> None:
        if place is None:
            self.rebuild(force=True)
        else:
            self._state.position, self._state.last_version = place.position, place.version
            self.follow()

    def rebuild(self, *, force: bool = False) -> int:
        """Delete the state and build it from the log; return how many events were applied.

        With a damaged log the state would be incomplete: that raises `Corrupt`, before anything is deleted, unless
        `force`.
        """
        if not force:
            self._check_log()
        self._state.clear()
        return self.follow(cleared=True)

    def _check_log(self) -> None:
        """Raise if the log does not have all records: `Corrupt` for damage, or `KeyMissing` for a key that was dropped.

        The state may have what the log has lost, so this comes before the state is deleted.
        """
        if damage := self._log.verify().damage:
            raise Corrupt(
                f"the log of the table {self._schema.name!r} is damaged ({damage[0]}): the state was not changed; "
                "rebuild(force=True) builds it from the readable records"
            )
        for record in self._log.read(self._log.start, self._log.readable()[1]):
            event = decode_event(record.payload)
            if event.image:
                self._state.view.images.decode(record.key or b"", event.image)

    def follow(self, *, cleared: bool = False) -> int:
        """Apply the log from the state's position to its readable end; return how many events.

        With `cleared`, the state is empty: fields that became unique later start again without that constraint.
        """
        state, view = self._state, self._state.view
        count = 0
        late = LateUnique(view, self._schema.past.unique_since, 0 if cleared else state.last_version)
        current: dict[bytes, tuple[Row | None, Any]] = {}
        batch = state.store.transaction()
        end = self._log.readable()[1]
        version = state.last_version
        for record in self._log.read(state.position, end):
            event = decode_event(record.payload)
            key = record.key or b""
            if len(current) >= REPLAY_BATCH or (event.kind is EventKind.HARD_DELETE and key in current):
                state.commit_many(batch, record.sequence, late.kept(version))
                batch, current = state.store.transaction(), {}
            while (since := late.due(event.version - 1)) is not None:
                state.commit_many(batch, record.sequence, late.kept(version))
                late.start(since)
                batch, current = state.store.transaction(), {}
            if key not in current:
                row = view.row(key)
                current[key] = (row, None if row is None else view.images.decode(key, row.image))
            old, before = current[key]
            after_it = view.images.decode(key, event.image) if event.image else None
            current[key] = (view.apply(batch, key, event, old, before, after_it), after_it)
            version = max(version, event.version)
            count += 1
        while (since := late.due(NEVER - 1)) is not None:
            state.commit_many(batch, end, late.kept(version))
            late.start(since)
            batch, version = state.store.transaction(), max(version, since)
        if state.position != end or state.last_version != version:
            state.commit_many(batch, end, version)
        self._versions.see(state.last_version)
        return count
