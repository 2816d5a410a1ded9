"""`holdfast doctor` for a served store: its ports count as its own, and unsafe settings are reported."""

import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.amqp.settings import Settings
from holdfast.broker.definitions import open_definitions
from holdfast.cli.doctor import ports_of
from holdfast.doctor import Check, examine
from holdfast.running_server import RunningServer, server_of
from holdfast.web.server_checks import check_certificate, check_encryption, check_users
from tests.amqp.serving import Served as ServedApart
from tests.interop.certificates import Authority
from tests.web.serving import Served


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {one.name: one for one in checks}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def doctor(data: Path, **environment: object) -> tuple[int, str]:
    """Exit code and output of the command."""
    variables = {f"HOLDFAST_{name.upper()}": str(value) for name, value in environment.items()}
    command = [sys.executable, "-m", "holdfast", "doctor", "--data", str(data), "--json"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_healthy_server_passes_all_checks(tmp_path: Path) -> None:
    ports = {"http_port": free_port(), "rpc_port": free_port()}
    with ServedApart(tmp_path / "data", **ports) as served:
        assert served.process.stdout is not None
        for _ in range(2):  # until it listens on all
            served.process.stdout.readline()
        code, said = doctor(tmp_path / "data", amqp_port=served.port, **ports)
        assert code == 0, said
        assert said.count(f"is used by the server of this store, process {served.pid}") in (3, 6)  # with IPv6
    assert server_of(tmp_path / "data") is None


def test_the_running_server_is_judged_and_not_the_configuration_of_the_command(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).for_server()
    tls = {"tls_certificate": certificate.chain, "tls_key": certificate.key, "https_port": free_port()}
    with ServedApart(tmp_path / "data", host="0.0.0.0", http_port=0, rpc_port="none", **tls) as served:
        assert served.process.stdout is not None
        for _ in range(2):
            served.process.stdout.readline()
        code, said = doctor(tmp_path / "data")  # whose own settings are the defaults
        assert code == 0, said
        checks = {one["name"]: one for one in map(json.loads, said.splitlines())}
        assert checks["encryption"]["state"] == "warn"
        assert "AMQP on 0.0.0.0, HTTP on 0.0.0.0" in checks["encryption"]["found"]
        assert "HTTPS" not in checks["encryption"]["found"]
        assert checks["port for AMQP"]["found"].startswith(f"0.0.0.0:{served.port} is used by the server")
        assert checks["port for HTTPS"]["found"].startswith(f"0.0.0.0:{tls['https_port']} is used by the server")
        assert "is free" not in said
        assert str(certificate.chain) in checks["certificate"]["found"]
        code, said = doctor(tmp_path / "data", heartbeat="soon")
        assert code == 1  # for the configuration; the server is judged all the same
        assert "AMQP on 0.0.0.0, HTTP on 0.0.0.0" in said
    code, said = doctor(tmp_path / "data", amqp_port=0, http_port=0, rpc_port=0)
    assert "listeners without TLS are reachable only from this machine" in said
    assert "certificate" not in said


def test_a_configured_port_that_is_taken_is_bad_where_no_server_runs(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        code, said = doctor(tmp_path / "data", amqp_port=other.getsockname()[1], http_port=0, rpc_port=0)
    assert code == 1
    assert "is in use by another process" in said


@pytest.mark.parametrize(
    ("listening", "host", "has"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "::1", False),
        ("127.0.0.1", "0.0.0.0", False),
        ("0.0.0.0", "192.0.2.1", True),
        ("0.0.0.0", "::1", False),
        ("0.0.0.0", "localhost", False),
        ("::", "192.0.2.1", True),
        ("::", "::1", True),
    ],
)
def test_a_port_is_the_servers_only_on_its_address(listening: str, host: str, has: bool) -> None:
    server = RunningServer(1, ({"protocol": "amqp", "host": listening, "port": 5672, "tls": False},))
    assert server.has_port(host, 5672) is has
    assert not server.has_port(host, 5673)


def test_a_note_that_a_crash_left_is_no_server(tmp_path: Path) -> None:
    with ServedApart(tmp_path / "data", http_port=0, rpc_port="none") as served:
        assert served.process.stdout is not None
        served.process.stdout.readline()
        found = server_of(tmp_path / "data")
        assert found is not None
        assert found.process == served.pid
        assert found.has_port("127.0.0.1", served.port)
        served.kill()
    assert server_of(tmp_path / "data") is None
    with holdfast.open(tmp_path / "data"):  # another process has it now, which is no server
        assert server_of(tmp_path / "data") is None


def test_the_default_user_is_said_until_it_is_gone(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as served:
        checks = {one["name"]: one for one in served.get("/api/holdfast/doctor")["checks"]}
        assert checks["default user"]["state"] == "warn"
        assert "guest" in checks["default user"]["found"]
        assert "holdfast user add" in checks["default user"]["advice"]
    code, said = doctor(tmp_path / "data", amqp_port=0, http_port=0, rpc_port=0)
    assert code == 0
    assert "default password" in said
    with holdfast.open(tmp_path / "data") as store:
        users = open_definitions(store).users()
        (check,) = check_users(users)
        assert check.state == "warn"
        users.change_password("guest", "another")
        (check,) = check_users(users)
        assert check.state == "ok"
        users.delete("guest")
        (check,) = check_users(users)
        assert check.state == "ok"


def test_files_that_every_user_can_read_are_said(tmp_path: Path) -> None:
    data = tmp_path / "my data"
    with holdfast.open(data) as store:
        store.log("events").append(b"x")
    assert by_name(examine(data))["file modes"].state == "ok"
    data.chmod(0o755)
    assert by_name(examine(data))["file modes"].state == "ok"  # what is in it is closed
    for path in data.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    check = by_name(examine(data))["file modes"]
    assert check.state == "warn"
    assert f"chmod -R go-rwx '{data}'" in check.advice
    data.chmod(0o700)
    assert by_name(examine(data))["file modes"].state == "ok"


@pytest.mark.parametrize(
    ("host", "ports", "state"),
    [
        ("127.0.0.1", {}, "ok"),
        ("::1", {}, "ok"),
        ("localhost", {}, "ok"),
        ("0.0.0.0", {}, "warn"),
        ("192.0.2.1", {}, "warn"),
        ("0.0.0.0", {"amqp_port": None, "http_port": None, "rpc_port": None, "amqps_port": 5671}, "ok"),
        ("0.0.0.0", {"amqp_port": None, "http_port": None, "https_port": 1}, "warn"),
    ],
)
def test_plain_text_on_a_network_is_said(host: str, ports: Any, state: str) -> None:
    (check,) = check_encryption(ports_of(Settings(host=host, **ports)))
    assert check.state == state
    assert bool(check.advice) == (state == "warn")


def test_a_certificate_that_has_expired_or_soon_will_is_said(tmp_path: Path) -> None:
    chain = str(Authority(tmp_path).for_server().chain)
    (check,) = check_certificate(chain)
    assert check.state in ("ok", "warn")
    for years, state in ((-1, "ok"), (200, "bad")):
        (check,) = check_certificate(chain, datetime.now(UTC) + timedelta(days=365 * years))
        assert check.state == state
    assert list(check_certificate(None)) == []


def test_how_old_the_last_backup_is_is_said(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert "last backup" not in by_name(examine(data))
    with holdfast.open(data) as store:
        store.log("events").append(b"x")
        check = by_name(examine(data, running=True))["last backup"]
        assert (check.state, "no backup" in check.found) == ("warn", True)
        backup = store.backup(tmp_path / "backups").path
    check = by_name(examine(data))["last backup"]
    assert check.state == "ok"
    assert str(backup) in check.found
    assert not (backup / "last-backup.json").exists()


def test_an_old_backup_is_said(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        store.log("events").append(b"x")
        store.backup(tmp_path / "backups")
    note = tmp_path / "data" / "last-backup.json"
    note.write_text(note.read_text().replace('"time": 1', '"time": 0'))  # long ago
    check = by_name(examine(tmp_path / "data"))["last backup"]
    assert (check.state, bool(check.advice)) == ("warn", True)
    note.write_text("nonsense")
    assert "no backup" in by_name(examine(tmp_path / "data"))["last backup"].found
