"""Schemas of logs over HTTP, by the remote client, and for publishers while the server runs."""

from pathlib import Path

import pytest

import holdfast
from holdfast import InvalidArgument, PayloadSchema
from holdfast.remote.errors import Refused
from tests.web.serving import Served

LOG = "/api/holdfast/logs/orders"
ORDER = PayloadSchema("json", "id BIGINT NOT NULL, name STRING", compatibility="full")
CHECKED = PayloadSchema("json", ORDER.text, compatibility="full", validate=True)


def test_a_schema_is_set_checked_and_shown(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as served:
        assert served.ask("GET", LOG + "/schema").status == 404
        given = {"format": "json", "text": ORDER.text, "compatibility": "full"}
        made = served.ask("PUT", LOG + "/schema", given)
        assert made.status == 200
        assert served.get(LOG + "/schema")["versions"] == [made.json]
        assert (made.json["version"], made.json["since"], made.json["validate"]) == (1, 0, False)
        other = {"format": "json", "text": "id STRING"}
        verdict = served.ask("POST", LOG + "/schema/check", other)
        assert verdict.json["ok"] is False and "cannot read version 1" in verdict.json["problem"]
        refused = served.ask("PUT", LOG + "/schema", other)
        assert refused.status == 400 and "cannot read version 1" in str(refused.json)
        assert served.ask("PUT", LOG + "/schema", {"format": "json"}).status == 400
        assert served.ask("PUT", LOG + "/schema", {**given, "format": "xml"}).status == 400
        assert len(served.get(LOG + "/schema")["versions"]) == 1


def test_a_remote_log_has_a_schema(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as served, holdfast.connect(served.url) as store:
        log = store.log("orders", schema=ORDER)
        wider = PayloadSchema("json", ORDER.text + ", note STRING", compatibility="full")
        log.schema.check(wider)
        assert log.schema.set(wider).number == 2
        newest = log.schema.newest()
        assert newest is not None and newest.schema == wider
        assert [one.schema for one in log.schema.versions()] == [ORDER, wider]
        with pytest.raises(InvalidArgument, match="not backward compatible"):
            log.schema.check(PayloadSchema("json", "id STRING", compatibility="full"))
        with pytest.raises((InvalidArgument, Refused), match="not backward compatible"):
            log.schema.set(PayloadSchema("json", "id STRING", compatibility="full"))


def test_producers_are_checked_from_then_on(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as served, holdfast.connect(served.url) as store:
        queue = store.declare_queue("orders", {})
        queue.put(b"{}")
        store.log("orders").schema.set(CHECKED)
        with pytest.raises(InvalidArgument, match="does not fit version 1"):
            queue.put(b"{}")
        with pytest.raises(InvalidArgument, match="does not fit version 1"):
            store.log("orders").append(b"{}")
        queue.put(b'{"id": 1}')
        assert [one.payload for one in queue.peek()] == [b"{}", b'{"id": 1}']
