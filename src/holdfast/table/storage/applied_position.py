"""Applied log position of a table's state, stored atomically with each batch of changes."""

import logging
from struct import Struct
from typing import NamedTuple

from holdfast.log.log import Log
from holdfast.state import State, Transaction
from holdfast.table.storage.table_state import after

__all__ = ["AppliedPosition", "clear_table", "keep_place", "place_in"]

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


def keep_place(batch: Transaction, prefix: bytes, place: AppliedPosition) -> None:
    """Add the position to the batch of the changes up to it."""
    batch.put("model", prefix + _POSITION, _PLACE.pack(*place))


def place_in(state: State, prefix: bytes, log: Log) -> AppliedPosition | None:
    """Return the stored position of a table; None if there is none for this log, so that the state must be rebuilt."""
    raw = state.get("model", prefix + _POSITION)
    if raw is None or len(raw) != _PLACE.size:
        return None
    place = AppliedPosition(*_PLACE.unpack(raw))
    start, end = log.readable()
    if place.log == log.id and start <= place.position <= end:
        return place
    # A power cut can lose unsynced records of the log, while the state keeps their effects.
    logger.warning(
        "table state does not match its log and is rebuilt: table=%s position=%d log_end=%d",
        log.name,
        place.position,
        end,
        extra={"table": log.name},
    )
    return None


def clear_table(state: State, prefix: bytes) -> None:
    """Delete a table from a state: rows, index entries, unique values, history, tombstones and log position."""
    batch = state.transaction()
    for family in ("table", "keys", "index", "unique", "historic_table", "historic_index", "historic_unique",
                   "update_history"):  # fmt: skip
        batch.delete_range(family, prefix, after(prefix))
    batch.delete("model", prefix + _POSITION)
    batch.commit()
