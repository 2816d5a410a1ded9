"""Remote tables: get, scan and write with the interface of `holdfast.Table`; the server provides the model."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Self, TypeVar

from holdfast.base.clock import instant_ns
from holdfast.base.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.base.units import iso_time
from holdfast.log.settings import LogSettings
from holdfast.remote.errors import error_of
from holdfast.remote.filter_text import filter_text, names_text
from holdfast.remote.http_client import HttpClient, path_of
from holdfast.remote.table_codec import changes_texts, value_of, values_of
from holdfast.table import (
    Add,
    Change,
    Delete,
    Done,
    Model,
    NoRecord,
    Record,
    TableSettings,
    Undelete,
    key_from_text,
    model_from,
    text_of_key,
)
from holdfast.table.model.differences import hidden_in
from holdfast.table.model.model import ModelSpec
from holdfast.table.operations import Operation, Outcome
from holdfast.table.query.change_history import RecordChanges, VersionChanges
from holdfast.table.query.planner import Order
from holdfast.table.query.record_reader import Point, selected
from holdfast.table.query.scanner import check_limit

__all__ = ["RemoteScan", "RemoteTable", "TableLog"]

M = TypeVar("M", bound=Model)
_PAGE = 500
CHANGES_MAX = 10_000
"""Changes that one request asks for."""
KEYS_MAX = 100
"""Keys of one request: they are in its URL, whose length servers limit."""


@dataclass(frozen=True, slots=True)
class TableLog:
    """What a client knows of the log of a table's changes."""

    settings: LogSettings


class RemoteTable(Generic[M]):
    """A table that a server keeps; made by `RemoteStore.table`. All methods may be called from any thread.

    Without a class of your own, `model` is made from the table's stored definition.
    """

    def __init__(self, wire: HttpClient, name: str, model: type[M] | None = None) -> None:
        self.name = name
        self._wire = wire
        self._path = path_of("tables", name)
        known = self.describe()
        definition = known["definition"]
        # As in table.json, or only the part of it that describes the model.
        self.model: type[M] = model or model_from(definition.get("definition", definition))  # type: ignore[assignment]
        self.spec: ModelSpec = self.model.__spec__
        settings = definition.get("settings") or {}
        self.settings = TableSettings(
            keep_all_versions=settings.get("keep_all_versions", known.get("keep_all_versions", False)),
            update_history=settings.get("update_history", known.get("update_history", False)),
        )

    def describe(self) -> dict[str, Any]:
        """Return everything that the server reports about it, as JSON."""
        return dict(self._wire.get(self._path))

    @property
    def last_version(self) -> int:
        """The version of the last change; 0 if there was none."""
        return int(self.describe().get("last_version") or 0)

    @property
    def log(self) -> TableLog:
        """The log of the table's changes: a client knows only the size limit of a record."""
        return TableLog(LogSettings())

    # Reading.

    def get(
        self,
        key: bytes,
        *,
        as_of: Point | None = None,
        include_deleted: bool = False,
        select: Sequence[Any] | None = None,
    ) -> Record[M] | None:
        """Return the record with this key; None if there is none or, without `include_deleted`, if it is deleted."""
        try:
            one = self._wire.get(
                path_of("records", text_of_key(key), root=self._path),
                as_of=_point(as_of, "as_of"),
                include_deleted=include_deleted or None,
            )
        except NotFound:
            self.describe()  # raises NotFound if the table itself does not exist
            return None
        record = self._record(one)
        if record.deleted and not include_deleted:
            return None
        return selected(self.spec, record, select) if select else record

    def get_many(
        self,
        keys: Iterable[bytes],
        *,
        as_of: Point | None = None,
        include_deleted: bool = False,
        select: Sequence[Any] | None = None,
    ) -> list[Record[M]]:
        """Return the existing records of these keys, in the order of the keys; a request for each."""
        found = (self.get(key, as_of=as_of, include_deleted=include_deleted, select=select) for key in keys)
        return [record for record in found if record is not None]

    def scan(
        self,
        where: Any = None,
        *,
        order: Order | None = None,
        limit: int | None = None,
        start: bytes | None = None,
        include_start: bool = True,
        cursor: str | None = None,
        as_of: Point | None = None,
        include_deleted: bool = False,
        select: Sequence[Any] | None = None,
        allow_table_scan: bool = False,
    ) -> "RemoteScan[M]":
        """Return the records for which `where` is true, in an order; pages are fetched on demand.

        `where` is an expression, or a text in the syntax of `holdfast table scan --where`. `start` is the key of a
        record to begin with, `cursor` the `.cursor` of an earlier result.
        """
        if start is not None and cursor is not None:
            raise InvalidArgument("give a start or a cursor, not both")
        query = {
            "where": filter_text(where),
            "order": names_text(order, "an order"),
            "as_of": _point(as_of, "as_of"),
            "include_deleted": include_deleted or None,
            "select": names_text(select, "a selection"),
            "allow_table_scan": allow_table_scan,
        }
        return RemoteScan(self, query, limit, cursor, _start(start, include_start))

    def count(self, where: Any = None, **options: Any) -> int:
        """Return how many records there are for which `where` is true; the options are those of `scan`.

        With a filter or an option, all these records are fetched to be counted. Without `where`, `allow_table_scan` is
        True by default.
        """
        if where is None and not options:
            return int(self.describe()["count"])
        options.setdefault("allow_table_scan", where is None)
        return sum(1 for _ in self.scan(where, **options))

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

        At most 10,000 records, or 100 keys, are fetched with one request.
        """
        check_limit(limit)
        query = {
            "where": filter_text(where),
            "from": _point(from_version, "from_version"),
            "to": _point(to_version, "to_version"),
            "max_versions": max_versions,
            "select": names_text(select, "a selection"),
            "include_deleted": include_deleted,
            "allow_table_scan": allow_table_scan,
        }
        if keys is None:
            return self._scanned_changes(
                query | {"order": names_text(order, "an order")}, limit, _start(start, include_start)
            )
        found: list[RecordChanges] = []
        texts = list(map(text_of_key, keys))
        for place in range(0, len(texts), KEYS_MAX):
            if limit is not None and len(found) >= limit:
                break
            found += self._changes({**query, "keys": ",".join(texts[place : place + KEYS_MAX])}, CHANGES_MAX)
        return found[:limit]

    def _scanned_changes(
        self, query: Mapping[str, Any], limit: int | None, start: Mapping[str, Any]
    ) -> list[RecordChanges]:
        found: list[RecordChanges] = []
        while limit is None or len(found) < limit:
            size = CHANGES_MAX if limit is None else min(CHANGES_MAX, limit - len(found))
            page = self._changes({**query, **start}, size)
            found += page
            if len(page) < size:
                break
            start = _start(page[-1].key, include_start=False)
        return found

    def _changes(self, query: Mapping[str, Any], limit: int) -> list[RecordChanges]:
        answer = self._wire.get(f"{self._path}/changes", **query, limit=limit)
        return [
            RecordChanges(
                key_from_text(one["key"]),
                one["created"],
                [
                    VersionChanges(
                        each["version"], each["kind"], values_of(self.spec, each["values"] or {}), hidden_in(self.spec)
                    )
                    for each in one["versions"]
                ],
            )
            for one in answer["records"]
        ]

    # Writing.

    def add(self, record: M | Mapping[str, Any], *, key: bytes | None = None) -> Done:
        """Add a record; raises its validation error, or `AlreadyExists`."""
        return _only(self.write([Add(record, key)]))

    def add_many(self, records: Iterable[M | Mapping[str, Any]]) -> list[Outcome]:
        """Add records in one request; return for each its outcome, or its error.

        An error of the request itself, as `OutcomeUnknown`, is raised.
        """
        return self.write([Add(record) for record in records])

    def change(
        self,
        key: bytes,
        changes: Mapping[Any, Any],
        *,
        check: Mapping[Any, Any] | None = None,
        if_version: int | None = None,
    ) -> Done:
        """Change fields of a record: by path the new value, None to remove one, or an edit."""
        return _only(self.write([Change(key, changes, check or {}, if_version)]))

    def delete(self, key: bytes, *, hard: bool = False, if_version: int | None = None) -> Done:
        """Hide a record and free its unique values; with `hard`, remove it and its history."""
        return _only(self.write([Delete(key, hard, if_version)]))

    def undelete(self, key: bytes) -> Done:
        """Restore a softly deleted record, if its unique values are still free."""
        return _only(self.write([Undelete(key)]))

    def write(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Carry out operations, in their order; return for each its outcome, or its error.

        Consecutive new records without a key of their own are one request, whose own failure is raised. Every other
        operation is a request of its own. The requests are not one transaction.
        """
        outcomes: list[Outcome] = []
        adding: list[Add] = []
        for one in operations:
            if isinstance(one, Add) and one.key is None:
                adding.append(one)
                continue
            outcomes += self._added(adding)
            adding = []
            outcomes.append(self._done(one))
        return outcomes + self._added(adding)

    def _added(self, adding: list[Add]) -> list[Outcome]:
        if not adding:
            return []
        body = {"records": [_record_json(self.model, one.record) for one in adding]}
        return self._outcomes(self._wire.request("POST", f"{self._path}/records", body))

    def _done(self, one: Operation) -> Outcome:
        try:
            match one:
                case Add(record, key):
                    added = {"records": [_record_json(self.model, record)], "key": text_of_key(key or b"")}
                    return self._outcomes(self._wire.request("POST", f"{self._path}/records", added))[0]
                case Change(key, changes, check, if_version):
                    body: dict[str, Any] = {
                        "changes": changes_texts(self.spec, changes),
                        "check": changes_texts(self.spec, check),
                        "if_version": if_version,
                    }
                    return self._outcome(self._wire.request("PATCH", self._of(key), body), key)
                case Delete(key, hard, if_version):
                    query = {"hard": hard or None, "if_version": if_version}
                    return self._outcome(self._wire.request("DELETE", self._of(key), query=query), key)
                case Undelete(key):
                    return self._outcome(self._wire.request("POST", f"{self._of(key)}/undelete"), key)
        except NotFound as error:
            self.describe()  # raises NotFound if the table itself does not exist
            return NoRecord(str(error), key or b"")
        except HoldfastError as error:
            return error
        raise InvalidArgument(f"this is not an operation on a table: {one!r}")

    def _of(self, key: bytes) -> str:
        return path_of("records", text_of_key(key), root=self._path)

    def _outcomes(self, answer: Mapping[str, Any]) -> list[Outcome]:
        return [self._outcome(one, b"") for one in answer["outcomes"]]

    def _outcome(self, answer: Mapping[str, Any] | None, key: bytes) -> Outcome:
        one: Mapping[str, Any] = answer or {}
        one = one["outcomes"][0] if "outcomes" in one else one
        if one.get("error") or one.get("errors"):
            word = one.get("error") or "bad_request"
            wrong = one.get("errors") or ()
            reason = one.get("reason") or "; ".join(map(str, wrong))
            return error_of(400, {"error": word, "reason": reason}, "", self._path)
        made_for = one.get("key")
        return Done(
            key if made_for is None else key_from_text(made_for),
            one.get("version") or 0,
            one.get("changed", one.get("status") != "unchanged"),
        )

    def _record(self, one: Mapping[str, Any], *, selected: bool = False) -> Record[M]:
        values = one["values"]
        value: Any = values_of(self.spec, values) if selected else value_of(self.model, values)
        return Record(key_from_text(one["key"]), value, one["version"], one["created"], bool(one.get("deleted", False)))

    def __repr__(self) -> str:
        return f"RemoteTable({self.name!r} at {self._wire.address})"


class RemoteScan(Generic[M]):
    """The result of a scan. It can be iterated more than once; each time it is read again."""

    def __init__(
        self,
        table: RemoteTable[M],
        query: Mapping[str, Any],
        limit: int | None,
        cursor: str | None,
        start: Mapping[str, Any],
    ) -> None:
        check_limit(limit)
        self._table = table
        self._query = dict(query)
        self._limit = limit
        self._from = cursor
        self._start = start
        self.cursor: str | None = None
        """Set when the scan was iterated to its limit: the cursor of the next page. None if there is none."""

    @property
    def plan(self) -> Self:
        """The scan's plan: `describe()` returns it."""
        return self

    def describe(self) -> dict[str, Any]:
        """Return the scan's plan, as JSON."""
        return dict(self._explained().get("plan") or {})

    def explain(self) -> str:
        """Return the scan's plan, as a sentence."""
        return str(self._explained()["explain"])

    def _explained(self) -> Mapping[str, Any]:
        table = self._table
        answer: Mapping[str, Any] = table._wire.get(
            f"{table._path}/records", **self._query, **self._start, explain=True
        )
        return answer

    def __iter__(self) -> Iterator[Record[M]]:
        table, cursor, left = self._table, self._from, self._limit
        begin: Mapping[str, Any] = self._start
        self.cursor = None
        selected = self._query["select"] is not None
        while left is None or left > 0:
            size = _PAGE if left is None else min(left, _PAGE)
            answer = table._wire.get(f"{table._path}/records", **self._query, **begin, limit=size, cursor=cursor)
            begin = {}  # a later page begins at its cursor
            for one in answer["records"]:
                yield table._record(one, selected=selected)
            cursor = answer.get("next")
            if cursor is None:
                return
            left = None if left is None else left - len(answer["records"])
        self.cursor = cursor

    def first(self) -> Record[M] | None:
        """Return the first record, None if there is none."""
        return next(iter(self), None)


def _record_json(model: type[Model], record: Any) -> Any:
    if isinstance(record, Model):
        return json.loads(record.to_json())
    return json.loads(model.from_dict(record).to_json())


def _start(start: bytes | None, include_start: bool) -> dict[str, Any]:
    """Return the query parameters for the first record."""
    if start is None:
        return {}
    if not isinstance(start, bytes):
        raise InvalidArgument(f"start must be the key of a record, as bytes, not {type(start).__name__}")
    return {"start": text_of_key(start), "include_start": include_start}


def _point(point: Point | None, what: str) -> int | str | None:
    if point is None or isinstance(point, int):
        return point
    if isinstance(point, datetime):
        return iso_time(instant_ns(point, what))
    raise InvalidArgument(f"{what} must be a version or an aware datetime, not {type(point).__name__}")


def _only(outcomes: list[Outcome]) -> Done:
    (outcome,) = outcomes
    if isinstance(outcome, HoldfastError):
        raise outcome
    return outcome
