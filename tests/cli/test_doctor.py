"""`holdfast doctor` finds problems, and says what to do."""

import socket
from pathlib import Path
from typing import Any

import pytest

import holdfast as library
from holdfast.doctor import Check, Port, examine
from tests.cli.terminal import Terminal


def found(checks: list[Check], name: str) -> Check:
    (check,) = [one for one in checks if one.name == name]
    return check


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMQP_PORT", "HTTP_PORT", "RPC_PORT"):
        monkeypatch.setenv(f"HOLDFAST_{name}", "0")


@pytest.mark.usefixtures("free")
def test_where_all_is_well_every_check_says_what_it_found(holdfast: Terminal) -> None:
    assert holdfast("put orders hello").code == 0
    result = holdfast("doctor --json")
    states: dict[str, Any] = {line["name"]: line["state"] for line in result.json_lines}
    assert result.code == 0
    assert {"configuration", "open files", "disk sync", "clock", "lock", "state", "damage"} <= set(states)
    assert "bad" not in states.values()
    assert all(line["found"] for line in result.json_lines)


def test_a_folder_may_be_given_as_text(tmp_path: Path) -> None:
    with library.open(tmp_path / "data") as store:
        store.queue("orders").put(b"hello")
    checks = examine(str(tmp_path / "data"))
    assert [one.name for one in checks] == [one.name for one in examine(tmp_path / "data")]
    assert "1 queue" in found(checks, "damage").found


def test_a_setting_that_does_not_exist_is_bad(holdfast: Terminal, tmp_path: Path) -> None:
    config = tmp_path / "holdfast.toml"
    config.write_text("amqp_prot = 1\n")
    result = holdfast(f"doctor --config {config}")
    assert result.code == 1
    assert "amqp_prot" in result.out and "does not start" in result.out


@pytest.mark.parametrize("port", ["amqps_port", "https_port"])
def test_a_certificate_that_cannot_be_read_is_bad_and_named(holdfast: Terminal, tmp_path: Path, port: str) -> None:
    config = tmp_path / "holdfast.toml"
    config.write_text(f'{port} = 0\namqp_port = 0\nhttp_port = 0\nrpc_port = 0\ntls_certificate = "nope.pem"\n')
    result = holdfast(f"doctor --config {config} --json")
    assert result.code == 1
    assert "'nope.pem'" in found([Check(**line) for line in result.json_lines], "configuration").found
    served = holdfast(f"serve --config {config}")
    assert served.code == 1
    assert "tls_certificate 'nope.pem' cannot be read" in served.complaint


def test_a_key_that_does_not_fit_is_named(holdfast: Terminal, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    config = tmp_path / "holdfast.toml"
    config.write_text(f'amqps_port = 0\ntls_certificate = "{tmp_path}/empty.pem"\n')
    result = holdfast(f"doctor --config {config} --json")
    assert "empty.pem' cannot be used" in found([Check(**line) for line in result.json_lines], "configuration").found


def test_damage_in_the_last_segment_is_bad(tmp_path: Path) -> None:
    with library.open(tmp_path / "data") as store:
        store.log("events").append(b"x" * 500)
    segment = next((tmp_path / "data" / "logs").rglob("*.data"))
    raw = bytearray(segment.read_bytes())
    raw[-100] ^= 255
    segment.write_bytes(raw)
    check = found(examine(tmp_path / "data"), "damage")
    assert check.state == "bad" and "events" in check.found and check.advice


def test_a_port_that_another_has_is_bad(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = Port("AMQP", "127.0.0.1", taken.getsockname()[1])
        assert found(examine(tmp_path, ports=[port]), "port for AMQP").state == "bad"
        assert found(examine(tmp_path, ports=[port], running=True), "port for AMQP").state == "ok"


def test_a_store_in_memory_and_a_newer_format_are_said(tmp_path: Path) -> None:
    if Path("/dev/shm").is_dir():
        assert found(examine(Path("/dev/shm") / "holdfast-none"), "file system").state == "warn"
    with library.open(tmp_path / "data") as store:
        store.log("events").append(b"x")
    meta = tmp_path / "data" / "logs" / "events" / "log.json"
    meta.write_text(meta.read_text().replace('"format": 1', '"format": 2'))
    assert found(examine(tmp_path / "data"), "formats").state == "bad"


def test_a_state_that_cannot_be_opened_is_said_and_left_as_it_is(tmp_path: Path) -> None:
    with library.open(tmp_path / "data") as store:
        store.queue("orders").put(b"x")
    (manifest,) = (tmp_path / "data" / "state").glob("MANIFEST-*")
    manifest.write_bytes(b"nothing")
    check = found(examine(tmp_path / "data"), "state")
    assert check.state == "warn" and manifest.read_bytes() == b"nothing"


def test_who_has_the_store_open_is_said(tmp_path: Path) -> None:
    with library.open(tmp_path / "data") as store:
        store.queue("orders").put(b"x")
        assert "held by" in found(examine(tmp_path / "data"), "lock").found
    assert "which has ended" in found(examine(tmp_path / "data"), "lock").found
