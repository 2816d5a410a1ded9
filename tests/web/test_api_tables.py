"""Tables under /api/holdfast: records now and as of earlier, changes and migrations."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import holdfast
from holdfast import Index, Model, field
from tests.web.serving import Served

TABLE = "/api/holdfast/tables/Account"


class Account(Model, id=1, version="1.0"):
    email: str = field(1, unique=True, max_length=200)
    name: str = field(2)
    tags: set[str] = field(3, default_factory=set)
    __indexes__ = (Index("name"),)


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    """A store with a table of four records, one with three versions and one softly deleted."""
    with holdfast.open(tmp_path / "data") as store:
        table = store.table(Account, keep_all_versions=True)
        keys = [table.add(Account(email=f"{name}@x", name=name)).key for name in ("Ada", "Bob", "Cyd", "Dan")]
        table.change(keys[0], {"name": "Ada L."})
        table.change(keys[0], {"name": "Ada Lovelace"})
        table.delete(keys[3])
    return tmp_path / "data"


def records(served: Served, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = served.get(f"{TABLE}/records{query}")["records"]
    return found


def names(served: Served, query: str = "") -> list[str]:
    return [one["values"]["name"] for one in records(served, query)]


def test_tables_are_shown_with_their_fields_and_counts(accounts: Path) -> None:
    with Served(accounts) as served:
        one = served.get("/api/holdfast/tables")["tables"][0]
        assert (one["name"], one["count"], one["deleted"], one["indexes"]) == ("Account", 3, 1, ["name"])
        assert [(each["name"], each["type"], each["unique"]) for each in one["fields"]] == [
            ("email", "str", True),
            ("name", "str", False),
            ("tags", "set[str]", False),
        ]
        assert served.get(TABLE)["definition"]["name"] == "Account"
        assert served.ask("GET", "/api/holdfast/tables/None").status == 404


def test_records_are_filtered_ordered_and_come_in_pages(accounts: Path) -> None:
    with Served(accounts) as served:
        assert sorted(names(served)) == ["Ada Lovelace", "Bob", "Cyd"]
        assert names(served, "?where=" + quote("name == 'Bob'")) == ["Bob"]
        assert names(served, "?order=name&limit=2") == ["Ada Lovelace", "Bob"]
        cursor = served.get(f"{TABLE}/records?order=name&limit=2")["next"]
        assert names(served, f"?order=name&limit=2&cursor={quote(cursor)}") == ["Cyd"]
        assert "Dan" in names(served, "?include_deleted=true")
        assert records(served, "?select=name&limit=1")[0]["values"].keys() == {"name"}
        assert "index name" in served.get(f"{TABLE}/records?explain=true&where=" + quote("name == 'Bob'"))["explain"]
        wrong = served.ask("GET", f"{TABLE}/records?where=" + quote("colour == 1"))
        assert (wrong.status, "colour" in wrong.json["reason"]) == (400, True)
        slow = served.ask("GET", f"{TABLE}/records?allow_table_scan=false&where=" + quote("email > 'a'"))
        assert (slow.status, slow.json["error"]) == (400, "table_scan_refused")


def test_the_past_is_there(accounts: Path) -> None:
    with Served(accounts) as served:
        key = records(served, "?where=" + quote("name == 'Ada Lovelace'"))[0]["key"]
        versions = served.get(f"{TABLE}/records/{key}/history")["versions"]
        assert [one["values"]["name"] for one in versions] == ["Ada", "Ada L.", "Ada Lovelace"]
        assert versions[1]["changes"] == [{"path": "name", "old": "Ada", "new": "Ada L."}]
        then = versions[0]["version"]
        assert served.get(f"{TABLE}/records/{key}?as_of={then}")["values"]["name"] == "Ada"
        last = versions[1]["version"]
        assert sorted(names(served, f"?as_of={last}")) == ["Ada L.", "Bob", "Cyd", "Dan"]
        span = served.get(f"{TABLE}/span")
        assert span["first_at"] < span["last_at"] + 1_000_000_000 and span["keeps_versions"]
        changed = served.get(f"{TABLE}/changes?keys={key}&max_versions=10")["records"]
        assert [one["kind"] for one in changed[0]["versions"]] == ["add", "change", "change"]
        assert served.ask("GET", f"{TABLE}/records/AAAA/history").status == 404
        assert served.ask("GET", f"{TABLE}/records/!!!").status == 400


def test_records_are_added_changed_deleted_and_brought_back(accounts: Path) -> None:
    with Served(accounts) as served:
        given = [{"email": "eve@x", "name": "Eve"}, {"email": "eve@x", "name": "again"}, {"email": 7}]
        outcomes = served.post(f"{TABLE}/records", {"records": given})["outcomes"]
        assert [one["status"] for one in outcomes] == ["done", "failed", "failed"]
        assert "unique" in outcomes[1]["reason"]
        key, version = outcomes[0]["key"], outcomes[0]["version"]
        path = f"{TABLE}/records/{key}"
        changed = served.ask("PATCH", path, {"changes": {"name": "Eve 2"}, "if_version": version})
        assert changed.status == 200
        assert served.ask("PATCH", path, {"changes": {"name": "Eve 3"}, "if_version": version}).status in (400, 409)
        assert served.ask("PATCH", path, {"changes": ["tags+=vip"]}).status == 200
        assert served.get(path)["values"] == {"email": "eve@x", "name": "Eve 2", "tags": ["vip"]}
        assert served.ask("DELETE", path).status == 200
        assert served.ask("GET", path).status == 404
        assert served.ask("POST", path + "/undelete").status == 200
        assert served.ask("DELETE", path + "?hard=true").status == 200
        assert served.ask("GET", path + "?include_deleted=true").status == 404
        wrong: dict[str, Any]
        for wrong in ({}, {"changes": {}}, {"changes": {"colour": 1}}, {"changes": ["name"]}, {"changes": {"name": 7}}):
            assert served.ask("PATCH", path, wrong).status in (400, 404), wrong


def test_migrations_are_listed_with_their_state(accounts: Path) -> None:
    with Served(accounts) as served:
        assert [(one["table"], one["state"]) for one in served.get("/api/holdfast/migrations")["migrations"]] == [
            ("Account", "idle")
        ]
        assert served.ask("POST", "/api/holdfast/migrations/Account/explode").status == 404
