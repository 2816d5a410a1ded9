"""Effect of an event on a table's state: rows, index entries, unique values and their history.

Every event is applied here: of a request, the replay of a log's tail, a rebuild, an update from another store.
`docs/formats.md` describes the keys.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from holdfast.state import State, Transaction
from holdfast.table.model.field_path import parse_path
from holdfast.table.model.fields import FieldSpec
from holdfast.table.model.indexes import Index, compile_index, paths_of
from holdfast.table.model.model import ModelSpec
from holdfast.table.storage.row_codec import (
    Event,
    EventKind,
    Images,
    Row,
    decode_row,
    encode_row,
    row_after,
    versions_of,
)

__all__ = [
    "BEHIND",
    "RANGE_DELETE",
    "TableState",
    "added_in",
    "after",
    "inverted",
    "key_in",
    "number_of",
    "past_in",
    "prefix_of",
    "released",
    "stamp",
    "version_in",
]

_ALL_ONES = (1 << 64) - 1
_VERSION = 8
BEHIND = b"\xff" * 9
"""A suffix that sorts after every version at the end of a key."""
RANGE_DELETE = 1000
"""Number of versions from which on they are deleted as one range. Each range slows down reads of its family until
RocksDB has merged it away: with one for each of 4000 deleted records, a delete took 0.8 ms, and 0.13 with none."""

Entries = Callable[[Any], list[bytes]]


class TableState:
    """The present rows of one table in the state and, if it is kept, their history."""

    def __init__(self, state: State, spec: ModelSpec, images: Images, *, history: bool, updates: bool) -> None:
        self.state = state
        self.spec = spec
        self.images = images
        self.history = history
        self.updates = updates
        assert spec.id is not None, "only models with an id have a table"
        self.prefix = prefix_of(spec.id)
        self.uniques: list[tuple[FieldSpec, bytes]] = [
            (field, self.prefix + number_of(field)) for field in spec.fields.values() if field.unique
        ]
        self.indexes: list[tuple[bytes, Entries]] = []
        self.set_indexes(spec.indexes)

    def set_indexes(self, indexes: Sequence[Index]) -> None:
        """Choose which indexes `apply` maintains from now on."""
        self.indexes = [(self.prefix + index.id, compile_index(self.spec, index)) for index in indexes]
        paths = [path for index in indexes for part in index.parts for path in paths_of(part)]
        names = {parse_path(path)[0] for path in paths} | {
            field.name for field in self.spec.fields.values() if field.unique
        }
        self._entered = sorted(map(str, names))
        """The fields that entries are made of."""

    def keeps_entries(self, before: Any, record: Any) -> bool:
        """Return whether a record certainly has the same index entries and unique values as before.

        True if the values they are made of are the same objects, as in a shallow copy. After False they may be the same
        or not.
        """
        for name in self._entered:  # noqa: SIM110 - a generator would take twice as long
            if getattr(before, name) is not getattr(record, name):
                return False
        return True

    def row(self, key: bytes) -> Row | None:
        """Return the present row of a record, also if it is soft-deleted; None if there is none."""
        raw = self.state.get("table", self.prefix + key)
        return None if raw is None else decode_row(raw)

    def row_at(self, key: bytes, version: int) -> Row | None:
        """Return the row of a record at a version; None if it did not exist. For tables with history."""
        raw = self.raw_at(key, self.state.get("table", self.prefix + key), version)
        return None if raw is None else decode_row(raw)

    def raw_at(self, key: bytes, present: bytes | None, version: int) -> bytes | None:
        """Return the encoded row of a record at a version, given the one it has now or had a moment ago."""
        if present is None:
            return None
        created, last = versions_of(present)
        if last <= version:
            return present
        found = None if created > version else self.past_row(key, version)
        return None if found is None else found[2]

    def past_row(self, key: bytes, version: int) -> tuple[int, int, bytes] | None:
        """Return the past row of a record at a version: its own version, the one that ended it, and the encoded row.

        None if there is none. The version must be below that of the present row.
        """
        start = self.prefix + key
        found = self._past("historic_table", start + inverted(version), start + BEHIND)
        if found is None:
            return None
        name, raw = found
        return version_in(name), int.from_bytes(raw[:_VERSION], "big"), past_in(raw)

    def rows_of(self, key: bytes) -> Iterator[Row]:
        """Return every version of a record, the newest first; none after a hard delete. For tables with history."""
        start = self.prefix + key
        present = self.state.get("table", start)
        if present is None:
            return
        yield decode_row(present)
        for _, raw in self.state.scan("historic_table", start, start + BEHIND):
            yield decode_row(past_in(raw))

    def tombstone(self, key: bytes) -> int | None:
        """Return the version at which a key was hard-deleted.

        None if it was not, was added again since, or the tombstone was compacted.
        """
        raw = self.state.get("keys", self.prefix + key)
        return None if raw is None else int.from_bytes(raw, "big")

    def owner_of(self, name: bytes) -> bytes | None:
        """Return the key of the live record that has a unique value, given as by `unique_keys`; None if none has."""
        raw = self.state.get("unique", name)
        return None if raw is None else key_in(raw)

    def owner_at(self, name: bytes, version: int) -> bytes | None:
        """As `owner_of`, at a version. For tables with history."""
        raw = self.state.get("unique", name)
        if raw is None or added_in(raw) > version:
            found = self._past("historic_unique", name + stamp(version + 1), name + BEHIND)
            raw = None if found is None else found[1]
        return None if raw is None or added_in(raw) > version else key_in(raw)

    def unique_keys(self, record: Any) -> list[tuple[FieldSpec, bytes]]:
        """Return the unique values of a record, as keys of the state; absent ones are left out."""
        found = []
        for field, prefix in self.uniques:
            value = getattr(record, field.name)
            if value is not None:
                found.append((field, prefix + self.images.unique(field, value)))
        return found

    def _past(self, family: str, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """Return the first entry of a range, not older than what was read before.

        A present row that was replaced in between is then found among the past ones.
        """
        return self.state.first(family, start, stop, since=self.state.commits)

    def apply(
        self,
        batch: Transaction,
        key: bytes,
        event: Event,
        old: Row | None,
        before: Any,
        record: Any,
        holds: Sequence[tuple[FieldSpec, bytes]] | None = None,
    ) -> Row | None:
        """Add the changes that an event makes to a batch; return the new row, None after a hard delete.

        `before` and `record` are the record before and after the event, None where there is none. `holds` are its
        unique values, if the caller has checked that no other record has them. A hard delete reads from the state what
        it must delete: the batch must not contain earlier changes of the same record.
        """
        row = row_after(old, event)
        if row is None:
            self._forget(batch, key, old, before)
            batch.put("keys", self.prefix + key, event.version.to_bytes(8, "big"))
        else:
            name, version = self.prefix + key, event.version
            batch.put("table", name, encode_row(row))
            if old is None:
                if before is None:
                    batch.delete("keys", name)
            elif self.history and old.version < version:
                batch.put("historic_table", name + inverted(old.version), stamp(version) + encode_row(old))
            if self.indexes or self.uniques:
                self.update_entries(batch, key, event, old, before, record, holds)
        if self.history and self.updates and event.kind is not EventKind.SNAPSHOT:
            batch.put("update_history", self.prefix + inverted(event.version) + key, bytes((event.kind,)))
        return row

    def update_entries(
        self,
        batch: Transaction,
        key: bytes,
        event: Event,
        old: Row | None,
        before: Any,
        record: Any,
        unique: Sequence[tuple[FieldSpec, bytes]] | None,
    ) -> None:
        """Add the changes of index entries and unique values to a batch. The arguments are those of `apply`."""
        was_live, is_live = old is not None and not old.deleted, not event.deleted
        if before is not None and was_live == is_live and self.keeps_entries(before, record):
            return
        version = event.version
        value = key + stamp(version if self.history else 0)
        for prefix, entries in self.indexes:
            now = entries(record)
            if before is None:
                for entry in now:
                    batch.put("index", prefix + entry + key, value)
                continue
            was = entries(before)
            if now != was:
                for entry in set(was).difference(now):
                    self._end(batch, "index", prefix + entry + key, version)
                for entry in set(now).difference(was):
                    batch.put("index", prefix + entry + key, value)
        if before is None and is_live and unique is not None:  # the common case: a new record
            for _, name in unique:
                batch.put("unique", name, value)
        elif self.uniques:
            self._update_uniques(batch, key, event, was_live, before, record, unique)

    def _update_uniques(
        self,
        batch: Transaction,
        key: bytes,
        event: Event,
        was_live: bool,
        before: Any,
        record: Any,
        unique: Sequence[tuple[FieldSpec, bytes]] | None,
    ) -> None:
        is_live, version = not event.deleted, event.version
        value = key + stamp(version if self.history else 0)
        in_turn = unique is not None
        if unique is None:
            unique = self.unique_keys(record)
            self._make_way(batch, key, unique if is_live else (), version)
        held = set() if before is None else {name for _, name in self.unique_keys(before)}
        holds = {name for _, name in unique}
        if was_live == is_live and held == holds:
            return
        owned, owns = held if was_live else set(), holds if is_live else set()
        for name in owned - owns:
            if (
                in_turn or key_in(batch.get("unique", name) or b"") == key
            ):  # its new owner's event may have been applied first
                self._end(batch, "unique", name, version)
        for name in owns - owned:
            batch.put("unique", name, value)
        # Soft-deleted records own no unique values; scans that include them use a separate index of these values.
        left, leaves = held - owned, holds - owns
        for name in left - leaves:
            self._end(batch, "index", released(name) + key, version)
        for name in leaves - left:
            batch.put("index", released(name) + key, value)

    def _make_way(
        self, batch: Transaction, key: bytes, unique: Sequence[tuple[FieldSpec, bytes]], version: int
    ) -> None:
        """Remove other owners of these unique values; their own event may follow later, as when two records swap."""
        for _, name in unique:
            raw = batch.get("unique", name)
            if raw is not None and key_in(raw) != key:
                self._end(batch, "unique", name, version)

    def _end(self, batch: Transaction, family: str, name: bytes, version: int) -> None:
        """Remove an entry; with history, keep it with the versions between which it existed."""
        if self.history:
            raw = batch.get(family, name)
            if raw is not None and added_in(raw) < version:
                batch.put("historic_" + family, name + stamp(version), raw)
        batch.delete(family, name)

    def _forget(self, batch: Transaction, key: bytes, old: Row | None, before: Any) -> None:
        """Delete a record's row, index entries, unique values and history from the state."""
        start = self.prefix + key
        if old is not None:
            names, uniques = self._names(key, before)
            for name in names:
                batch.delete("index", name)
            for name in uniques:
                raw = batch.get("unique", name)
                if raw is not None and key_in(raw) == key:  # not if another record owns it since, in this very batch
                    batch.delete("unique", name)
        batch.delete("table", start)
        if not self.history:
            return
        entered: set[bytes] = set()
        owned: set[bytes] = set()
        for row in self.rows_of(key):
            names, uniques = self._names(key, self.images.decode(key, row.image))
            entered.update(names)
            owned.update(uniques)
            if self.updates:
                batch.delete("update_history", self.prefix + inverted(row.version) + key)
        self._clear(batch, "historic_table", start)
        for name in entered:
            self._clear(batch, "historic_index", name)
        for name in owned:  # other records may have had the value too: only our entries are deleted
            for entry, raw in self.state.scan("historic_unique", name, name + BEHIND):
                if key_in(raw) == key:
                    batch.delete("historic_unique", entry)

    def _clear(self, batch: Transaction, family: str, name: bytes) -> None:
        """Delete all versions of an entry, one by one unless they are many."""
        found = [entry for entry, _ in islice(self.state.scan(family, name, name + BEHIND), RANGE_DELETE)]
        if len(found) == RANGE_DELETE:
            batch.delete_range(family, name, name + BEHIND)
            return
        for entry in found:
            batch.delete(family, entry)

    def _names(self, key: bytes, record: Any) -> tuple[list[bytes], list[bytes]]:
        """Return the keys of a record's index entries, and those of its unique values."""
        names = [prefix + entry + key for prefix, entries in self.indexes for entry in entries(record)]
        uniques = [name for _, name in self.unique_keys(record)]
        return names + [released(name) + key for name in uniques], uniques


def prefix_of(model_id: int) -> bytes:
    """Return the prefix of all keys of a table in the state."""
    return model_id.to_bytes(4, "big")


def number_of(field: FieldSpec) -> bytes:
    """Return a field's number as bytes of a key."""
    return field.number.to_bytes(2, "big")


def released(unique: bytes) -> bytes:
    """Return the index entry, without the record's key, of a unique value whose record is soft-deleted."""
    return unique[:4] + b"\0\0" + unique[4:]


def inverted(version: int) -> bytes:
    """Return a version as bytes of a key, of which the newest sorts first."""
    return (_ALL_ONES - version).to_bytes(8, "big")


def version_in(name: bytes) -> int:
    """Return the version at the end of a key, as `inverted` wrote it."""
    return _ALL_ONES - int.from_bytes(name[-_VERSION:], "big")


def stamp(version: int) -> bytes:
    """Return a version as the last bytes of a key or of an entry's value; the oldest sorts first."""
    return version.to_bytes(_VERSION, "big")


def added_in(entry: bytes) -> int:
    """Return the version at the end of an entry: as a rule the one that added it; 0 without history."""
    return int.from_bytes(entry[-_VERSION:], "big")


def key_in(entry: bytes) -> bytes:
    """Return the key of the record that an entry of an index, or of unique values, belongs to."""
    return entry[:-_VERSION]


def past_in(raw: bytes) -> bytes:
    """Return the row in a historic entry, which begins with the version that ended it."""
    return raw[_VERSION:]


def after(name: bytes) -> bytes:
    """Return the first key after all that begin with this one; empty if there is none."""
    raw = name.rstrip(b"\xff")
    return raw[:-1] + bytes((raw[-1] + 1,)) if raw else b""
