"""What `holdfast doctor` says of a replica: beside a server, for a folder, of each fault, and with a probe."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Model, field
from holdfast.base.bucket import Bucket
from holdfast.doctor import Check
from holdfast.replica import open_bucket
from holdfast.replica.doctor_checks import check_replica
from holdfast.replica.owner import OWNER, read_owner
from holdfast.table.storage.keyring import Keyring
from tests.cli.terminal import Terminal
from tests.replica.s3_server import S3Server, running_s3


class Secret(Model, id=1, version="1.0"):
    """A record with a sealed field."""

    name: str = field(1)
    number: str = field(2, sensitive=True)


def found(checks: Iterator[Check]) -> dict[str, Check]:
    return {one.name: one for one in checks}


def states(checks: Iterator[Check]) -> dict[str, str]:
    return {one.name.removeprefix("replica "): one.state for one in checks}


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The replica, in a folder, of a store in the folder `data`."""
    where = (tmp_path / "replica").as_uri()
    with holdfast.open(tmp_path / "data", replica=where) as store:
        store.queue("orders").put(b"order")
    return where


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    pytest.importorskip("obstore")
    monkeypatch.setattr("holdfast.replica.bucket.ANSWER_S", 2)
    monkeypatch.setattr("holdfast.replica.bucket.RETRY_S", 0.1)
    with running_s3() as server:
        for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("REGION", "us-east-1")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        yield server


def test_a_store_without_a_replica_is_said_to_have_none(tmp_path: Path) -> None:
    [check] = check_replica(None, tmp_path)
    assert (check.name, check.state, check.advice) == ("replica", "ok", "")


def test_a_replica_of_a_closed_store(url: str, tmp_path: Path) -> None:
    checks = found(check_replica(url, tmp_path / "data"))
    assert {one.state for one in checks.values()} == {"ok"}, checks
    assert "nobody now; it was" in checks["replica owner"].found
    assert "the newest 1-" in checks["replica moments"].found
    assert "agree" in checks["replica clock"].found
    assert "were not tried" in checks["replica rights"].found


def test_the_probe_leaves_nothing_behind(url: str, tmp_path: Path, s3: S3Server) -> None:
    before = open_bucket(url).list("")
    checks = found(check_replica(url, tmp_path / "data", probe=True))
    assert checks["replica rights"].state == "ok", checks["replica rights"]
    assert open_bucket(url).list("") == before
    assert found(check_replica("s3://tests/x", tmp_path, probe=True))["replica rights"].state == "ok"
    assert s3.objects == {}


def test_a_storage_without_conditional_writes_is_bad(s3: S3Server, tmp_path: Path) -> None:
    s3.ignores_conditions = True
    check = found(check_replica("s3://tests/x", tmp_path, probe=True))["replica rights"]
    assert check.state == "bad"
    assert "ignores the conditions" in check.found
    assert s3.objects == {}


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("refused", "refused access"),
        ("expired", "the credentials have expired"),
        ("wrong-region", "another region"),
        ("clock", "the clock of this machine is wrong"),
        ("no-bucket", "no such bucket"),
        ("slow-down", "SlowDown"),
    ],
)
def test_each_fault_is_named(s3: S3Server, tmp_path: Path, fault: str, text: str) -> None:
    s3.fail(fault)
    check = found(check_replica("s3://tests/x", tmp_path))["replica"]
    assert check.state == "bad" and text in check.found
    served = found(check_replica("s3://tests/x", tmp_path, is_served=True))["replica"]
    assert served.state == "warn" and text in served.found


def test_a_url_that_is_none_is_bad_and_its_secret_is_not_shown(tmp_path: Path) -> None:
    check = found(check_replica("s3://key:hidden-secret@bucket/x", tmp_path))["replica"]
    assert check.state == "bad" and "hidden-secret" not in check.found


def test_the_replica_of_another_store_and_of_another_folder(url: str, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "other", replica=(tmp_path / "elsewhere").as_uri()) as store:
        store.log("events").append(b"x")
    other = found(check_replica(url, tmp_path / "other"))["replica owner"]
    assert other.state == "bad" and "another store" in other.found
    bucket = open_bucket(url)
    changed(bucket, instance="another", released=False)
    assert found(check_replica(url, tmp_path / "data"))["replica owner"].state == "warn"


def changed(bucket: Bucket, **fields: Any) -> None:
    owner = read_owner(bucket)
    assert owner is not None
    bucket.put(OWNER, replace(owner, **fields).encode())


@pytest.mark.parametrize(("ahead_s", "state"), [(0, "ok"), (300, "warn"), (3600, "bad")])
def test_a_clock_that_is_off_is_found_without_writing(url: str, tmp_path: Path, ahead_s: int, state: str) -> None:
    changed(open_bucket(url), time=time.time_ns() + ahead_s * 10**9)
    assert found(check_replica(url, tmp_path / "data"))["replica clock"].state == state


def test_a_clock_is_compared_with_that_of_s3(s3: S3Server, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", replica="s3://tests/x") as store:
        store.log("events").append(b"x")
    assert states(check_replica("s3://tests/x", tmp_path / "data"))["clock"] == "ok"
    s3.skew_s = -700
    assert states(check_replica("s3://tests/x", tmp_path / "data"))["clock"] == "bad"


def test_an_endpoint_without_tls_beyond_this_machine_is_flagged(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert states(check_replica("s3://tests/x", tmp_path))["transport"] == "ok"
    monkeypatch.setattr("holdfast.replica.bucket.CONNECT_S", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hidden-secret@storage.invalid:9000")
    check = found(check_replica("s3://tests/x", tmp_path))["replica transport"]
    assert check.state == "warn"
    assert check.found == "requests to storage.invalid are sent without TLS"


def test_a_damaged_moment_and_an_empty_bucket_are_reported(url: str, tmp_path: Path) -> None:
    bucket = open_bucket(url)
    newest = bucket.list("manifest/")[-1].key
    bucket.put(newest, b"nonsense")
    assert states(check_replica(url, tmp_path / "data"))["moments"] == "bad"
    empty = (tmp_path / "empty").as_uri()
    assert states(check_replica(empty, tmp_path / "data"))["moments"] == "warn"


def test_encrypted_fields_are_flagged_because_their_keys_are_not_shipped(url: str, tmp_path: Path) -> None:
    assert states(check_replica(url, tmp_path / "data"))["keys"] == "ok"
    with holdfast.open(tmp_path / "data", replica=url) as store:
        secrets: Any = store.table(Secret, keyring=Keyring.generate("2026a"))
        secrets.add({"name": "ann", "number": "17"})
    check = found(check_replica(url, tmp_path / "data"))["replica keys"]
    assert check.state == "warn" and "Secret" in check.found and "keyrings are not shipped" in check.found


def test_the_lag_and_the_error_of_a_running_store(url: str, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", replica=url) as store:
        store.replica.ship()
        status = store.replica.status()
        assert states(check_replica(url, tmp_path / "data", status=status))["rights"] == "ok"
        behind = replace(status, lag_seconds=90.0, error="s3://x: refused", failing_since=time.time_ns())
        checks = found(check_replica(url, tmp_path / "data", status=behind))
        assert checks["replica moments"].state == "warn"
        assert checks["replica shipping"].state == "bad"
        lost = replace(status, role="fenced", lost_records=3)
        checks = found(check_replica(url, tmp_path / "data", status=lost))
        assert "3 records left a full disk" in checks["replica moments"].found
        assert "lost to another process" in checks["replica shipping"].found


def test_the_command_checks_the_replica_of_the_settings(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(tmp_path / "data")
    monkeypatch.setenv("HOLDFAST_REPLICA", url)
    said = terminal("doctor --json --probe-replica")
    checks = {one["name"]: one for one in map(json.loads, said.out.splitlines())}
    assert checks["replica"]["state"] == checks["replica rights"]["state"] == "ok"
    assert "replaced, read, listed and deleted" in checks["replica rights"]["found"]
    monkeypatch.delenv("HOLDFAST_REPLICA")
    checks = {one["name"]: one for one in map(json.loads, terminal("doctor --json").out.splitlines())}
    assert checks["replica"]["found"].startswith("none")
