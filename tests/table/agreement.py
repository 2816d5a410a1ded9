"""Does a table say what the paper says? Now and at any version, along every way, forwards, backwards, by pages."""

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.table import Table
from holdfast.table.storage.table_state import key_in, released
from tests.table.internals import state_of, view_of
from tests.table.model import Entry, Paper, each_once
from tests.table.things import Query

__all__ = ["agree", "described", "no_trace_of"]

FAMILIES = ("table", "keys", "index", "unique", "historic_table", "historic_index", "historic_unique", "update_history")


def agree(table: Table[Any], paper: Paper, queries: Sequence[Query], versions: Iterable[int | None], page: int) -> None:
    """Assert that they say the same of these versions; None is the present."""
    for version in versions:
        for include_deleted in (False, True):
            records = paper.at(version, include_deleted=include_deleted)
            options = {"as_of": version, "include_deleted": include_deleted}
            for key in paper.past.keys() | paper.buried:
                found = table.get(key, **options)  # type: ignore[arg-type]
                assert (None if found is None else said(found)) == records.get(key), (key, version)
            for query in queries:
                _answers(table, query, records, options, page)
    _no_more_than_there_is(table, paper)


def _no_more_than_there_is(table: Table[Any], paper: Paper) -> None:
    """What no scan would show, since each row is tested again: an entry too many, or one left behind."""
    view, content = view_of(table), described(table)
    found = {record.key: record for record in table.scan(include_deleted=True)}
    assert list(found) == list(paper.at(include_deleted=True))
    entries = {
        prefix + entry + key: key
        for prefix, entries_of in view.indexes
        for key, record in found.items()
        for entry in entries_of(record.value)
    }
    owners = {}
    for key, record in found.items():
        for _, name in view.unique_keys(record.value):
            if record.deleted:
                entries[released(name) + key] = key
            else:
                assert name not in owners, "a unique value has two owners"
                owners[name] = key
    assert {name: key_in(value) for name, value in content["index"].items()} == entries
    assert {name: key_in(value) for name, value in content["unique"].items()} == owners


def _answers(table: Table[Any], query: Query, records: dict[bytes, Entry], options: dict[str, Any], page: int) -> None:
    scan = table.scan(query.where, order=query.order or None, **options)
    assert scan.plan.kind == query.kind and bool(scan.plan.sort) == query.sorts, scan.explain()
    found = list(scan)
    keys = each_once(record.key for record in found)
    where = (query.name, options, scan.explain())
    assert set(keys) == query.answer(records), where
    assert table.count(query.where, order=query.order or None, **options) == len(keys), where
    for record in found:
        assert said(record) == records[record.key], where
    if query.rank is not None:
        ranks = [query.rank(key, records[key].values) for key in keys]
        assert ranks == sorted(ranks, reverse=query.down), where
    pages: list[bytes] = []
    cursor = None
    while True:
        part = table.scan(query.where, order=query.order or None, limit=page, cursor=cursor, **options)
        pages += [record.key for record in part]
        cursor = part.cursor
        if cursor is None:
            break
        assert len(pages) < 100, where
    assert pages == keys, where
    if query.kind != "unique" and keys:
        start = keys[len(keys) // 2]
        rest = table.scan(query.where, order=query.order or None, start=start, **options)
        if query.kind != "key":
            assert [record.key for record in rest] == keys[len(keys) // 2 :], where
            rest = table.scan(query.where, order=query.order or None, start=start, include_start=False, **options)
            assert [record.key for record in rest] == keys[len(keys) // 2 + 1 :], where


def said(record: Any) -> Entry:
    """A record as the paper has it."""
    return Entry(record.version, record.created, record.deleted, record.value.to_dict())


def described(table: Table[Any]) -> dict[str, dict[bytes, bytes]]:
    """All that the state has of a table's records."""
    state, prefix = state_of(table), view_of(table).prefix
    return {family: dict(state.scan(family, prefix, _behind(prefix))) for family in FAMILIES}


def no_trace_of(table: Table[Any], keys: Iterable[bytes]) -> None:
    """Assert that of these keys, whose records were deleted for good, the state has but that they were."""
    gone = set(keys)
    for family, content in described(table).items():
        for name, value in content.items():
            match family:
                case "table":
                    assert name[4:] not in gone, name
                case "historic_table":
                    assert name[4:-8] not in gone, name
                case "index" | "historic_index" | "unique" | "historic_unique":
                    assert key_in(value) not in gone, (family, name)
                case "update_history":
                    assert name[12:] not in gone or value == b"\5", name


def _behind(prefix: bytes) -> bytes:
    return (int.from_bytes(prefix, "big") + 1).to_bytes(4, "big")
