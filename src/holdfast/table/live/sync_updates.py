"""Incremental updates for clients: records added, changed and removed since a version, and the present order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from holdfast.base.errors import InvalidArgument
from holdfast.table.live.watch_scope import scope_of
from holdfast.table.model.differences import changed_since, differences, hidden_in, selection, shown
from holdfast.table.model.model import Model
from holdfast.table.query.change_history import first_version, limited
from holdfast.table.query.filters import compile_filter
from holdfast.table.query.planner import Order
from holdfast.table.query.record_reader import Point
from holdfast.table.query.scanner import Scanner, check_limit
from holdfast.table.record import Record
from holdfast.table.storage.row_codec import EventKind
from holdfast.table.storage.table_state import after, inverted, version_in

__all__ = ["Addition", "Alteration", "ChangeFeed", "InitialValues", "OrderedKeys", "Reason", "Removal", "Update"]

M = TypeVar("M", bound=Model)

Reason = Literal["not-in-range", "soft-delete", "hard-delete"]


@dataclass(frozen=True, slots=True)
class OrderedKeys:
    """The keys of the present records, in order."""

    keys: tuple[bytes, ...]
    version: int
    """The highest that one of them has; 0 if there are none."""


@dataclass(frozen=True, slots=True)
class InitialValues(Generic[M]):
    """The records with which a watch begins."""

    records: list[Record[M]]
    version: int
    """The highest that one of them has; 0 if there are none."""


@dataclass(frozen=True, slots=True)
class Addition(Generic[M]):
    """A record that is new, or new to the client."""

    record: Record[M]
    index: int | None = None
    """Its index in the order."""

    @property
    def key(self) -> bytes:
        """Return the record's key."""
        return self.record.key

    @property
    def version(self) -> int:
        """Return the record's version."""
        return self.record.version


@dataclass(frozen=True, slots=True)
class Alteration(Generic[M]):
    """A record that has changed."""

    record: Record[M]
    """As it is now."""
    changes: dict[str, Any]
    """By the text of a path the new value, None where it is gone."""
    index: int | None = None
    """Its present index in the order."""
    from_index: int | None = None
    """Its former index in the order; from `updates`, which does not know that, the present one."""

    def __repr__(self) -> str:
        spec = getattr(self.record.value, "__spec__", None)
        changes = self.changes if spec is None else shown(hidden_in(spec), self.changes)
        return (
            f"Alteration(record={self.record!r}, changes={changes!r}, index={self.index}, from_index={self.from_index})"
        )

    @property
    def key(self) -> bytes:
        """Return the record's key."""
        return self.record.key

    @property
    def version(self) -> int:
        """Return the record's version."""
        return self.record.version


@dataclass(frozen=True, slots=True)
class Removal:
    """A record that is deleted, or no longer in the client's scope."""

    key: bytes
    reason: Reason
    version: int
    """The version of the change that removed it; if it left the range, of that record's or another one's change.

    0 from `updates` if nothing is known of the record."""
    index: int | None = None
    """Its former index in the order; None from `updates`."""


Update = OrderedKeys | InitialValues[M] | Addition[M] | Alteration[M] | Removal


class ChangeFeed(Generic[M]):
    """Computes the updates of one table for its clients. Threads: any; it takes no lock."""

    def __init__(self, scanner: Scanner[M]) -> None:
        self._schema = scanner.schema
        self._state = scanner.state
        self._scanner = scanner

    def updates(
        self,
        keys: Sequence[bytes] | None = None,
        *,
        where: Any = None,
        order: Order | None = None,
        limit: int | None = None,
        start: bytes | None = None,
        include_start: bool = True,
        from_version: Point | None = None,
        to_version: Point | None = None,
        ordered_keys: Sequence[bytes] | None = None,
        select: Sequence[Any] | None = None,
        allow_table_scan: bool = False,
    ) -> list[Update[M]]:
        """Return the updates for a client that has seen all before `from_version` and has the records `ordered_keys`.

        First `OrderedKeys`, then a `Removal` for each record that the client has and should no longer have, then an
        `Addition` or `Alteration` for each that it does not have as it is, in the order of their versions. Clients keep
        `OrderedKeys.version`, and ask from the next one on. The records are those of `keys`, or those that a scan with
        these options finds; with `order=NEWEST_FIRST` the last changed record comes first.
        """
        last = None if to_version is None else self._scanner.reader.version_of(to_version)
        scope = scope_of(self._scanner, keys, where, order, start, include_start, last, allow_table_scan)
        first = None if from_version is None else first_version(from_version)
        known = ordered_keys if ordered_keys is not None or first is None else keys
        return self.updates_of(limited(scope.records(), limit), first, ordered_keys, known, select)

    def updates_of(
        self,
        records: Sequence[Record[M]],
        first: int | None,
        ordered_keys: Sequence[bytes] | None,
        asked: Sequence[bytes] | None,
        select: Sequence[Any] | None,
    ) -> list[Update[M]]:
        """Return the updates for these records; `asked` are keys of which the client may have deleted records."""
        keys = tuple(record.key for record in records)
        selected = selection(self._schema.spec, select)
        version = max((record.version for record in records), default=0)
        here = set(keys)
        removals = [
            removal
            for key in dict.fromkeys(asked or ())
            if key not in here and (removal := self._removal(key, first if ordered_keys is None else None)) is not None
        ]
        news: list[Addition[M] | Alteration[M]] = []
        for index, record in enumerate(records):
            if (ordered_keys is not None and record.key not in ordered_keys) or first is None:
                news.append(Addition(record, index))
            elif record.version >= first:
                changes = self._changes_since(record, first)
                if changes is None:
                    news.append(Addition(record, index))
                elif chosen := selected(changes):
                    news.append(Alteration(record, chosen, index, index))
        news.sort(key=lambda one: one.version)
        return [OrderedKeys(keys, version), *removals, *news]

    def _changes_since(self, record: Record[M], first: int) -> dict[str, Any] | None:
        """Return the changed values of a record from a version on; None if it is new since then, or if unknown."""
        if record.created >= first:
            return None
        if self._schema.settings.keep_all_versions:
            row = self._state.view.row_at(record.key, first - 1)
            if row is None or row.deleted:
                return None
            return differences(self._schema.spec, self._state.view.images.decode(record.key, row.image), record.value)
        row = self._state.view.row(record.key)
        numbers = [] if row is None else [number for number, version in row.fields.items() if version >= first]
        return changed_since(self._schema.spec, record.value, numbers) if numbers else None

    def _removal(self, key: bytes, first: int | None) -> Removal | None:
        """Return the removal of a record; with `first`, None if it was removed before that version or never existed."""
        row = self._state.view.row(key)
        if row is None:
            version = self._state.view.tombstone(key)
            if version is None and first is not None:
                return None
            reason: Reason = "hard-delete"
        else:
            version = row.version
            reason = "soft-delete" if row.deleted else "not-in-range"
        if first is not None and (version or 0) < first:
            return None
        return Removal(key, reason, version or 0)

    def update_history(
        self,
        limit: int | None = 100,
        *,
        before: "Point | Addition[M] | Alteration[M] | Removal | None" = None,
        from_version: Point | None = None,
        where: Any = None,
        select: Sequence[Any] | None = None,
        include_deleted: bool = False,
    ) -> "list[Addition[M] | Alteration[M] | Removal]":
        """Return the changes of the whole table, the newest first; each record as it was then.

        `before` is a version, a point in time, or the last update of the page before. A soft delete is listed only with
        `include_deleted`, as an `Alteration` without changes whose record is deleted. Raises `InvalidArgument` unless
        the table has `update_history=True`.
        """
        if not self._schema.settings.update_history:
            raise InvalidArgument(
                f"the table {self._schema.name!r} has no update history: open it with keep_all_versions=True and "
                "update_history=True"
            )
        check_limit(limit)
        self._scanner.reader.catch_up()
        test = compile_filter(where, self._scanner.fetcher(None))
        selected = selection(self._schema.spec, select)
        oldest = first_version(from_version)
        found: list[Addition[M] | Alteration[M] | Removal] = []
        for version, key, kind in self._entries(before):
            if version < oldest or len(found) == limit:
                break
            if kind is EventKind.HARD_DELETE:
                found.append(Removal(key, "hard-delete", version))
                continue
            record = self._scanner.reader.get(key, as_of=version, include_deleted=include_deleted)
            if record is None or not test(record.value):
                continue
            if kind in (EventKind.ADD, EventKind.SNAPSHOT):
                found.append(Addition(record))
                continue
            old = self._state.view.row_at(key, version - 1)
            was = None if old is None else self._state.view.images.decode(key, old.image)
            changes = selected(differences(self._schema.spec, was, record.value))
            if changes or kind is not EventKind.CHANGE:
                found.append(Alteration(record, changes))
        return found

    def _entries(self, before: Any) -> Iterator[tuple[int, bytes, EventKind]]:
        prefix = self._state.view.prefix
        start = prefix
        if isinstance(before, Addition | Alteration | Removal):
            start = prefix + inverted(before.version) + before.key + b"\0"
        elif before is not None:
            start = after(prefix + inverted(first_version(before)))
        stop = after(prefix)
        if start < stop:
            for name, kind in self._state.store.scan("update_history", start, stop):
                place = name[len(prefix) :]
                yield version_in(place[:8]), place[8:], EventKind(kind[0])
