"""Checkpoints of a queue's state with its journal position, so that opening replays only the rest of the journal."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from struct import Struct
from struct import error as StructError
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.base.errors import Corrupt, raised_by_handler
from holdfast.queue.attempts import Failure
from holdfast.queue.events import LeasedSpan
from holdfast.queue.lease import Lease
from holdfast.queue.queue_state import Move, QueueState, Totals, available_key
from holdfast.queue.state_keys import after, number, number_of
from holdfast.state import FAMILIES, State, Transaction

__all__ = ["Checkpoint", "KeptPosition", "SpanInLease", "expiry_of", "held_of"]

logger = logging.getLogger("holdfast.queue")

RESIDENT_CHUNKS = 64
"""Chunks of the ready index that stay in memory after a checkpoint, for each priority: 1 MiB."""
_LEASED = Struct("<cQQBI")
_EXPIRY = Struct(">QQ")
_VALUE = Struct("<q")
_FIELDS = {"position", "scanned", "expiring", "last_lease", "delayed", "dedup"}
KeptPosition = dict[str, Any]
"""The value of the family `positions` for a queue."""


class SpanInLease(NamedTuple):
    """Consecutive messages that a lease holds, from the one in the key of the row up to `stop`."""

    lease: int
    stop: int
    priority: int
    attempt: int


class Checkpoint:
    """Writes the changes of a `QueueState` to the state, and reads it back. Used with the queue's lock held.

    Only a checkpoint writes to the state, after log and journal are durable. So the state is never ahead of the
    journal, and after any crash the journal from the saved position on gives the same result.
    """

    def __init__(
        self, state: State, prefix: bytes, journal_id: bytes, fields: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._fields = dict(fields)
        self._state = state
        self._prefix = prefix
        self._journal_id = journal_id.hex()
        self._leases: dict[int, tuple[int, int, list[int]]] = {}
        """Saved leases: expiry, number of messages, the keys of their spans."""
        self._moving: set[int] = set()
        self._last: bytes | None = None
        self.orphans = 0
        """Dangling entries that were found and repaired when the state was read."""
        self._orphaned: list[tuple[str, bytes]] = []
        """Their keys: the next checkpoint deletes them, and saves the repaired entries."""
        self._undumped: bytes | None = None
        """The position of a snapshot that was just restored."""

    def position(self) -> KeptPosition | None:
        """Return the last checkpoint for this journal's id; None if there is none."""
        self._last = self._state.get("positions", self._prefix)
        raw = self._undumped or self._last
        if raw is None:
            return None
        try:
            kept: KeptPosition = json.loads(raw)
            if kept["journal"] != self._journal_id:
                return None
            Totals(**kept["totals"])
            if missing := _FIELDS - kept.keys():
                raise KeyError(*missing)
            return kept
        except (ValueError, KeyError, TypeError) as error:
            if raised_by_handler(error):
                raise
            logger.warning(
                "saved position is damaged, rebuilding the state: queue=%s",
                self._fields.get("queue"),
                extra=self._fields,
            )
            return None

    def adopt(self, queue: str) -> KeptPosition | None:
        """Take over this queue's checkpoint for its old journal, which is lost; return None if there is none.

        The rows get the prefix of the present journal, and the position before its first event.
        """
        others = [
            (kept["scanned"], key, kept)
            for key, raw in self._state.scan("positions")
            if key != self._prefix and (kept := _of_queue(raw, queue)) is not None
        ]
        if not others:
            return None
        _, lost, kept = max(others, key=lambda one: one[0])
        batch = self._state.transaction()
        for family in FAMILIES:
            for key, value in self._state.scan(family, lost, after(lost)):
                batch.put(family, self._prefix + key.removeprefix(lost), value)
            batch.delete_range(family, lost, after(lost))
        batch.put("positions", self._prefix, json.dumps({**kept, "journal": self._journal_id, "position": 0}).encode())
        batch.commit()
        return self.position()

    def save(self, queue_state: QueueState, position: int, now: int) -> None:
        """Save the state as of this position of the journal, atomically and durably."""
        batch = self._state.transaction()
        prefix = self._prefix
        if batch.get("positions", prefix) != self._last:
            logger.warning(
                "state was changed by another writer: queue=%s", self._fields.get("queue"), extra=self._fields
            )
        for family, key in self._orphaned:
            batch.delete(family, key)
        for priority, level in enumerate(queue_state.ready.levels):
            gone, fresh = level.changes()
            for low in gone:
                batch.delete("available", available_key(prefix, priority, low))
            for low, value in fresh:
                batch.put("available", available_key(prefix, priority, low), value)
        delayed = queue_state.delayed.save(batch)
        dedup = queue_state.dedup.save(batch, now)
        queue_state.failures.save(batch)
        for sequence in self._moving - queue_state.moving.keys():  # before the leases: one may have the message again
            batch.delete("in_progress", number(prefix, sequence))
        leases = self._save_leases(queue_state, batch)
        for sequence, move in queue_state.moving.items():
            batch.put("in_progress", number(prefix, sequence), b"M" + json.dumps(move).encode())
        kept = {
            "journal": self._journal_id,
            "queue": queue_state.name,
            "position": position,
            "scanned": queue_state.scanned,
            "expiring": queue_state.expiring,
            "last_lease": queue_state.last_lease,
            "totals": asdict(queue_state.totals),
            "delayed": delayed,
            "dedup": dedup,
        }
        raw = json.dumps(kept).encode()
        batch.put("positions", prefix, raw)
        batch.commit()
        self._last, self._leases, self._moving, self._orphaned = raw, leases, set(queue_state.moving), []
        for level in queue_state.ready.levels:
            level.kept(RESIDENT_CHUNKS)
        queue_state.delayed.saved()
        queue_state.dedup.saved()
        queue_state.failures.saved()

    def load(self, queue_state: QueueState, kept: KeptPosition, now: int) -> None:
        """Restore a checkpoint. Dangling entries are repaired, counted and logged; other damage raises `Corrupt`."""
        queue_state.restore(kept)
        try:
            queue_state.delayed.restore(kept["delayed"])
            queue_state.dedup.restore(kept["dedup"])
            queue_state.failures.restore()
            self._load_ready(queue_state)
            self._load_held(queue_state)
            self._check_failures(queue_state)
        except (ValueError, LookupError, TypeError, StructError) as error:
            if raised_by_handler(error):
                raise
            raise Corrupt(f"the saved state of the queue {queue_state.name!r} is damaged: {error}") from error
        self.orphans += queue_state.delayed.orphans

    def clear(self) -> None:
        """Delete all rows of this queue."""
        batch = self._state.transaction()
        for family in FAMILIES:
            batch.delete_range(family, self._prefix, after(self._prefix))
        batch.commit()
        self._last = None
        self._leases, self._moving = {}, set()

    def dump(self) -> list[tuple[str, bytes, bytes]]:
        """Return all rows of this queue except the dedup ids, which the log has: family, key, value."""
        found = []
        for family in FAMILIES:
            if family != "dedup":
                for key, value in self._state.scan(family, self._prefix, after(self._prefix)):
                    found.append((family, key.removeprefix(self._prefix), value))
        return found

    def undump(self, rows: list[tuple[str, bytes, bytes]]) -> None:
        """Restore the rows that `dump` returned.

        The position is not restored, but written by the next checkpoint: until then the dedup ids, which are read from
        the log, are in memory only, and after a crash this must run again.
        """
        batch = self._state.transaction()
        for family, key, value in rows:
            if family == "positions":
                self._undumped = value
            else:
                batch.put(family, self._prefix + key, value)
        batch.commit()

    def _save_leases(self, queue_state: QueueState, batch: Transaction) -> dict[int, tuple[int, int, list[int]]]:
        leases: dict[int, tuple[int, int, list[int]]] = {}
        live = queue_state.leases.by_id
        for lease_id, old in self._leases.items():
            lease = live.get(lease_id)
            if lease is not None and (lease.expires, len(lease.left)) == old[:2]:
                leases[lease_id] = old
                continue
            batch.delete("leases", number(self._prefix, lease_id))
            batch.delete("lease_expiry", self._prefix + _EXPIRY.pack(old[0], lease_id))
            for start in old[2]:
                batch.delete("in_progress", number(self._prefix, start))
        for lease_id, lease in live.items():
            if lease_id in leases:
                continue
            spans = lease.spans(lease.left)
            batch.put("leases", number(self._prefix, lease_id), _VALUE.pack(lease.expires))
            batch.put("lease_expiry", self._prefix + _EXPIRY.pack(lease.expires, lease_id), b"")
            for start, stop, priority, attempt in spans:
                batch.put(
                    "in_progress", number(self._prefix, start), _LEASED.pack(b"L", lease_id, stop, priority, attempt)
                )
            leases[lease_id] = (lease.expires, len(lease.left), [span.start for span in spans])
        return leases

    def _load_ready(self, queue_state: QueueState) -> None:
        queue_state.ready.has_priorities = True  # until it is checked
        for key, value in self._state.scan("available", self._prefix, after(self._prefix)):
            priority, low = key[-9], number_of(key)
            level = queue_state.ready.level(priority)
            if level.fits(low, value):
                level.restore(low, value)
            else:
                self._orphan("available", key, f"a chunk of priority {priority} from {low} on that overlaps others")
                level.add_all(value)
        for level in queue_state.ready.levels:
            if level and level.last >= queue_state.scanned:
                self._count_orphan("available", f"messages from {queue_state.scanned} on, which are unknown")
                level.remove(queue_state.scanned, level.last + 1)

    def _load_held(self, queue_state: QueueState) -> None:
        """Restore leases and moves. A message belongs to the first lease or move that has it, and is not ready."""
        prefix, state = self._prefix, self._state
        expires = {number_of(key): expiry_of(value) for key, value in state.scan("leases", prefix, after(prefix))}
        ends: set[int] = set()
        for key, _ in state.scan("lease_expiry", prefix, after(prefix)):
            at, lease_id = _EXPIRY.unpack(key[len(prefix) :])
            if expires.get(lease_id) == at:
                ends.add(lease_id)
            else:
                self._orphan("lease_expiry", key, f"the expiry of lease {lease_id}, which does not exist")
        leases: dict[int, Lease] = {}
        starts: dict[int, list[int]] = {}
        taken = 0
        for key, value in state.scan("in_progress", prefix, after(prefix)):
            start, stop = number_of(key), number_of(key) + 1
            held = held_of(value)
            if isinstance(held, SpanInLease):
                lease_id, stop, priority, attempt = held
            first, last = max(start, taken), min(stop, queue_state.scanned)
            if (first, last) != (start, stop):
                self._orphan("in_progress", key, f"messages {start} to {stop - 1}, some unknown or held elsewhere")
                if first >= last:
                    continue
            if isinstance(held, Move):
                queue_state.moving[first] = held
            elif lease_id in expires:
                lease = leases.setdefault(lease_id, Lease(expires[lease_id], set()))
                lease.add(LeasedSpan(first, last, priority, attempt))
                starts.setdefault(lease_id, []).append(start)
            else:  # no consumer can ever return these, so they are ready
                self._orphan("in_progress", key, f"messages {start} to {stop - 1} of a lease that does not exist")
                queue_state.ready.add(priority, first, last)
                continue
            taken = last
            if queue_state.ready.remove_anywhere(first, last):
                self._count_orphan("available", f"messages {first} to {last - 1}, which are held")
        for lease_id in sorted(expires):
            if lease_id not in leases:
                self._orphan("leases", number(prefix, lease_id), f"lease {lease_id} without messages")
                continue
            if lease_id not in ends:
                self._count_orphan("lease_expiry", f"no expiry of lease {lease_id}")
            queue_state.leases.add(lease_id, leases[lease_id])
            # After a repair, a wrong count makes the next checkpoint write the lease again.
            count = -1 if self.orphans else len(leases[lease_id].left)
            self._leases[lease_id] = (expires[lease_id], count, starts[lease_id])
        self._moving = set(queue_state.moving)

    def _check_failures(self, queue_state: QueueState) -> None:
        """Drop failures of messages that are in no set: they would stay forever, or count for other messages later."""
        due = queue_state.delayed.next_due  # reads the first ones from the state, and checks them
        known = {sequence for lease in queue_state.leases.by_id.values() for sequence in lease.left}
        if due is not None and queue_state.delayed.in_memory:
            known |= {sequence for _, sequence, _ in queue_state.delayed}
        for start, stop in queue_state.failures.spans():
            waiting = {
                sequence for level in queue_state.ready.levels for span in level.within(start, stop)
                for sequence in range(*span)
            }  # fmt: skip
            for sequence in set(range(start, stop)) - waiting - known:
                if sequence >= queue_state.scanned or queue_state.delayed.in_memory:
                    self._count_orphan("attempts", f"the failures of message {sequence}, which does not exist")
                    queue_state.failures.forget(sequence, sequence + 1)

    def _orphan(self, family: str, key: bytes, what: str) -> None:
        self._orphaned.append((family, key))
        self._count_orphan(family, what)

    def _count_orphan(self, family: str, what: str) -> None:
        self.orphans += 1
        logger.warning(
            "dangling state entry repaired: queue=%s family=%s entry=%s",
            self._fields.get("queue"),
            family,
            what,
            extra={**self._fields, "family": family},
        )


def _of_queue(raw: bytes, queue: str) -> KeptPosition | None:
    """Return the checkpoint if it is of this queue; rows of earlier versions have no queue name."""
    try:
        kept: KeptPosition = json.loads(raw)
        return kept if kept["queue"] == queue and kept.keys() >= _FIELDS else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if raised_by_handler(error):
            raise
        return None


def held_of(value: bytes) -> SpanInLease | Move:
    """Return what a row of the family `in_progress` says: messages of a lease, or one that is being moved."""
    if value[:1] == b"M":
        time, target, cause, reason, priority, failure = json.loads(value[1:])
        return Move(time, target, cause, reason, priority, Failure(*failure) if failure else None)
    _, lease, stop, priority, attempt = _LEASED.unpack(value)
    return SpanInLease(lease, stop, priority, attempt)


def expiry_of(value: bytes) -> int:
    """Return when the lease of a row of the family `leases` expires."""
    return int(_VALUE.unpack(value)[0])
