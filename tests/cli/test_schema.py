"""The `schema` commands: set, show, check and list."""

import base64
import json
from pathlib import Path

import pytest

from holdfast.base.checked_json import encode_checked
from tests.cli.terminal import Terminal
from tests.schemas.descriptors import message, text_of
from tests.web.serving import Served


@pytest.fixture
def orders(holdfast: Terminal) -> Terminal:
    """A store with a log of three records."""
    with holdfast.store() as store:
        store.log("orders").append_many([b"{}"] * 3)
    return holdfast


def file(tmp_path: Path, text: str, name: str = "schema") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_schema_is_set_and_shown(orders: Terminal, tmp_path: Path) -> None:
    first = file(tmp_path, "id BIGINT NOT NULL\n")
    result = orders(f"schema set orders {first} --format json --compatibility full --validate --json")
    assert result.code == 0, result.err
    made = json.loads(result.out)
    assert made | {"created": 0, "created_time": ""} == {
        "log": "orders",
        "version": 1,
        "format": "json",
        "message": None,
        "compatibility": "full",
        "validate": True,
        "created": 0,
        "created_time": "",
        "since": 3,
        "columns": "`id` BIGINT NOT NULL",
        "text": "id BIGINT NOT NULL",
    }
    assert json.loads(orders("schema show orders --json").out) == made
    second = file(tmp_path, "id BIGINT NOT NULL, name STRING")
    result = orders(f"schema set orders {second}")
    assert "version        2, set" in result.out and "checked" in result.out and "full" in result.out
    assert json.loads(orders("schema show orders --version 1 --json").out) == made
    assert orders("schema show orders --version 3").err == (
        "holdfast: the schema of the log 'orders' has 2 versions, and no version 3\n"
    )
    listed = json.loads(orders("schema list --json").out)["schemas"]
    assert [(one["log"], one["version"]) for one in listed] == [("orders", 2)]
    assert orders("schema list").lines[1].split()[:5] == ["orders", "2", "json", "full", "yes"]
    refused = orders("log append orders {}")
    assert refused.code == 1 and "does not fit version 2 of the schema" in refused.err


def test_a_check_says_why_and_changes_nothing(orders: Terminal, tmp_path: Path) -> None:
    orders(f"schema set orders {file(tmp_path, 'a INT')} --format json")
    good, bad = file(tmp_path, "a BIGINT", "good"), file(tmp_path, "a STRING", "bad")
    assert (orders(f"schema check orders {good}").code, orders(f"schema check orders {good}").out) == (
        0,
        "the schema can be set\n",
    )
    result = orders(f"schema check orders {bad} --json")
    why = "the schema is not backward compatible: it cannot read version 1: the column 'a' is INT, and STRING"
    assert result.code == 1 and json.loads(result.out)["problem"].startswith(why)
    assert orders(f"schema check orders {bad} --compatibility none").code == 0
    assert orders(f"schema set orders {bad}").err.startswith(f"holdfast: {why}")
    assert json.loads(orders("schema show orders --json").out)["text"] == "a INT"


def test_a_descriptor_set_is_a_file_of_bytes(orders: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(
        base64.b64decode(text_of(message("Order", ("id", 1, "int64")), message("Item", ("n", 1, "int32"))))
    )
    assert "give the name of the message" in orders(f"schema set orders {path} --format protobuf").err
    result = orders(f"schema set orders {path} --format protobuf --message shop.Order")
    assert "protobuf, message shop.Order" in result.out and "`id` BIGINT" in result.out
    assert orders(f"schema check orders {path}").code == 0


def test_what_is_missing_is_an_error(orders: Terminal, tmp_path: Path) -> None:
    path = file(tmp_path, "a INT")
    assert "has no schema yet: pass --format" in orders(f"schema set orders {path}").err
    assert "there is no log 'other'" in orders(f"schema set other {path} --format json").err
    assert orders(f"schema set other {path} --format json --create").code == 0
    assert "there is no file" in orders(f"schema set orders {tmp_path}/none --format json").err
    assert "has no schema: keep one with" in orders("schema show orders").err


def test_a_store_without_schemas_lists_none(orders: Terminal) -> None:
    assert orders("schema list").out == "no log has a schema\n"
    assert json.loads(orders("schema list --json").out) == {"schemas": []}


def test_the_schema_of_a_log_at_a_server_is_set(holdfast: Terminal, tmp_path: Path) -> None:
    first, second = file(tmp_path, "a INT", "first"), file(tmp_path, "a STRING", "second")
    with Served(tmp_path / "data") as served:
        url = f"--url {served.url}"
        assert "there is no log 'orders'" in holdfast(f"schema set orders {first} --format json {url}").err
        result = holdfast(f"schema set orders {first} --format json --create --json {url}")
        assert result.code == 0 and json.loads(result.out)["version"] == 1
        assert "cannot read version 1" in holdfast(f"schema check orders {second} {url}").out
        assert "cannot read version 1" in holdfast(f"schema set orders {second} {url}").err
        assert holdfast(f"schema set orders {second} --compatibility none {url}").code == 0
        assert json.loads(holdfast(f"schema show orders --json {url}").out)["text"] == "a STRING"
        (listed,) = json.loads(holdfast(f"schema list --json {url}").out)["schemas"]
        assert (listed["log"], listed["version"], listed["compatibility"]) == ("orders", 2, "none")


def test_doctor_notices_a_schema_of_a_newer_version(orders: Terminal, tmp_path: Path) -> None:
    (tmp_path / "data/logs/orders/schema.json").write_bytes(encode_checked({"format": 2}))
    checks = {one["name"]: one for one in orders("doctor --json").json_lines}
    assert "schema.json was written by a newer version" in checks["formats"]["found"]
