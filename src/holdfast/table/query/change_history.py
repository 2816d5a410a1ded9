"""History of records: their versions, and the values that each of them changed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

from holdfast.base.errors import InvalidArgument
from holdfast.base.hlc import version_before, version_of
from holdfast.table.model.differences import above, changed_since, differences, hidden_in, selection, shown
from holdfast.table.model.model import Model
from holdfast.table.query.filters import compile_filter
from holdfast.table.query.planner import Order
from holdfast.table.query.record_reader import Point
from holdfast.table.query.scanner import Scanner, check_limit
from holdfast.table.record import Record
from holdfast.table.storage.row_codec import Row

__all__ = ["ChangeHistory", "RecordChanges", "VersionChanges", "first_version", "limited"]

M = TypeVar("M", bound=Model)

ChangeKind = Literal["add", "change", "delete", "undelete"]


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """Changes of a record by one version."""

    version: int
    kind: ChangeKind
    values: dict[str, Any]
    """By the text of a path (`address.city`, `limits['EUR']`) its new value; None for a removed one."""
    hidden: frozenset[str] = field(default=frozenset(), compare=False)
    """The names of sensitive fields."""

    def __repr__(self) -> str:
        return f"VersionChanges(version={self.version}, kind={self.kind!r}, values={shown(self.hidden, self.values)!r})"


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """Changes of a record, the oldest first."""

    key: bytes
    created: int
    """The version that added it."""
    versions: list[VersionChanges]


class ChangeHistory(Generic[M]):
    """Returns the history of the records of one table. Threads: any; it takes no lock."""

    def __init__(self, scanner: Scanner[M]) -> None:
        self._schema = scanner.schema
        self._state = scanner.state
        self._scanner = scanner

    def changes(
        self,
        keys: Iterable[bytes] | None = None,
        *,
        where: Any = None,
        from_version: Point | None = None,
        to_version: Point | None = None,
        max_versions: int = 1,
        select: Sequence[Any] | None = None,
        order: Order | None = None,
        limit: int | None = None,
        start: bytes | None = None,
        include_start: bool = True,
        include_deleted: bool = False,
        allow_table_scan: bool = False,
    ) -> list[RecordChanges]:
        """Return the changes of records: of those with these keys, or those that a scan finds, in its order.

        From one version to another, both included; a datetime means all versions of its millisecond. Of each value the
        newest `max_versions` are returned; the creation is always returned if it lies in that time. More than one, and
        `to_version`, raise `InvalidArgument` without `keep_all_versions`. Records without a change are left out.
        """
        first = first_version(from_version)
        last = version_before(to_version, "to_version")
        self._check_past(last, max_versions)
        check_limit(limit)
        selected, hidden = selection(self._schema.spec, select), hidden_in(self._schema.spec)
        if keys is not None:
            records = self._given(keys, where, last, include_deleted)
        else:
            records = self._scanner.scan(
                where,
                order=order,
                start=start,
                include_start=include_start,
                as_of=last,
                include_deleted=include_deleted,
                allow_table_scan=allow_table_scan,
            )
        found = []
        for record in records:
            versions = self._versions_of(record, last)
            kept = [
                one
                for version in _newest(versions, max_versions)
                if version.version >= first
                for one in [VersionChanges(version.version, version.kind, selected(version.values), hidden)]
                if one.values or one.kind != "change"
            ]
            if kept:
                found.append(RecordChanges(record.key, record.created, kept))
                if len(found) == limit:
                    break
        return found if limit != 0 else []

    def _given(
        self, keys: Iterable[bytes], where: Any, version: int | None, include_deleted: bool
    ) -> Iterable[Record[M]]:
        """Return the records with these keys that pass a filter, in the order of the keys."""
        test = compile_filter(where, self._scanner.fetcher(version))
        for record in self._scanner.reader.get_many(keys, as_of=version, include_deleted=include_deleted):
            if test(record.value):
                yield record

    def _check_past(self, to_version: int | None, max_versions: int) -> None:
        if isinstance(max_versions, bool) or not isinstance(max_versions, int) or max_versions < 1:
            raise InvalidArgument(f"max_versions must be an int from 1 up, not {max_versions!r}")
        if not self._schema.settings.keep_all_versions and (to_version is not None or max_versions > 1):
            what = "max_versions" if to_version is None else "to_version"
            raise InvalidArgument(
                f"the table {self._schema.name!r} keeps no past versions: open it with keep_all_versions=True to use "
                f"{what}"
            )

    def _versions_of(self, record: Record[M], last: int | None) -> list[VersionChanges]:
        """Return all known changes of a record, the oldest first."""
        if not self._schema.settings.keep_all_versions:
            row = self._state.view.row(record.key)
            return [] if row is None else self._present_of(record, row)
        # Changes after the record was read are left out.
        rows = list(self._state.view.rows_of(record.key))
        until = record.version if last is None else min(last, record.version)
        found: list[VersionChanges] = []
        before: Any = None
        deleted = False
        for row in reversed(rows):
            if row.version > until:
                break
            value = self._state.view.images.decode(record.key, row.image)
            kind: ChangeKind = "change" if found else "add"
            if row.deleted != deleted and found:
                kind = "delete" if row.deleted else "undelete"
            found.append(VersionChanges(row.version, kind, differences(self._schema.spec, before, value)))
            before, deleted = value, row.deleted
        return found

    def _present_of(self, record: Record[M], row: Row) -> list[VersionChanges]:
        """Return the history that the present row contains: when each field was last changed."""
        numbers: dict[int, list[int]] = {row.created: []}
        for one in self._schema.spec.fields.values():
            version = row.fields.get(one.number, row.created)
            if version > row.created or getattr(record.value, one.name) is not None:
                numbers.setdefault(version, []).append(one.number)
        numbers.setdefault(row.version, [])
        found = []
        for version in sorted(numbers):
            values = changed_since(self._schema.spec, record.value, numbers[version])
            kind: ChangeKind = "change"
            if version == row.created:
                kind = "add"
            elif version == row.version and row.deleted:
                kind = "delete"
            elif not numbers[version]:
                kind = "undelete"
            found.append(VersionChanges(version, kind, values))
        return found


def first_version(point: Point | None) -> int:
    """Return the lowest version that a lower bound includes."""
    if isinstance(point, datetime):
        return version_of(point)
    return version_before(point, "from_version") or 0


def _newest(versions: Sequence[VersionChanges], count: int) -> list[VersionChanges]:
    """Return only the newest versions of each value; being deleted or not counts as a value too."""
    seen: dict[str, int] = {}
    kept = []
    for one in reversed(versions):
        values = {
            path: value for path, value in one.values.items() if sum(seen.get(part, 0) for part in above(path)) < count
        }
        for path in values:
            seen[path] = seen.get(path, 0) + 1
        kind = one.kind
        if kind in ("delete", "undelete"):
            kind = kind if seen.get("", 0) < count else "change"
            seen[""] = seen.get("", 0) + 1
        if values or kind != "change":
            kept.append(VersionChanges(one.version, kind, values))
    kept.reverse()
    return kept


def limited(records: Iterable[Record[M]], limit: int | None) -> list[Record[M]]:
    """Return the first `limit` records; all if it is None."""
    check_limit(limit)
    return list(records if limit is None else islice(records, limit))
