"""Log lines of failed logins: user, address, protocol and reason in one line, whatever the name contains."""

import base64
import contextlib
import http.client
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.amqp.serving import Client, Closed
from tests.amqp.serving import Served as ServedApart
from tests.web.serving import Served

LINE = re.compile(r"login failed: user=(\S+|\".*\") peer=(127\.0\.0\.1:\d+) protocol=(\w+) reason=([a-z-]+)")
EVIL = 'eve\nlogin failed user=root peer=1.2.3.4 "\x1b[31m'


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str, str]]:
    """Return the logged failed logins, each from a single line."""
    found = [one.getMessage() for one in caplog.records if "login failed" in one.getMessage()]
    caplog.clear()
    matched = [LINE.fullmatch(one) for one in found]
    assert all(matched), found
    return [one.groups() for one in matched if one is not None]  # type: ignore[misc]


def ask(
    served: Served, headers: dict[str, str], method: str = "GET", path: str = "/api/whoami", body: object = None
) -> str:
    """Send a request from a port that is known."""
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=120)
    connection.connect()
    port = connection.sock.getsockname()[1]
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json", **headers})
    assert connection.getresponse().status == 401
    connection.close()
    return f"127.0.0.1:{port}"


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_a_failed_login_over_http_is_one_line_with_the_address(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    peer = ask(served, basic("guest", "wrong"))
    assert lines(caplog) == [("guest", peer, "http", "bad-credentials")]
    peer = ask(served, basic("nobody", "x"))
    assert lines(caplog) == [("nobody", peer, "http", "bad-credentials")]
    peer = ask(served, {"Authorization": "Bearer hf_wrong"})
    assert lines(caplog) == [('""', peer, "http", "bad-token")]
    peer = ask(served, {**basic("guest", "guest"), "X-Forwarded-For": "203.0.113.7"})
    assert lines(caplog) == [("guest", peer, "http", "not-from-loopback")]
    login = {"username": "guest", "password": "wrong"}
    peer = ask(served, {}, "POST", "/api/holdfast/login", login)
    assert lines(caplog) == [("guest", peer, "http", "bad-credentials")]
    ask(served, {})  # without credentials there was no attempt
    assert lines(caplog) == []


def test_a_name_cannot_write_lines_of_its_own(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    peer = ask(served, basic(EVIL, "x"))
    assert lines(caplog) == [(json.dumps(EVIL), peer, "http", "bad-credentials")]
    peer = ask(served, basic("ä b", "x"))
    assert lines(caplog) == [('"\\u00e4 b"', peer, "http", "bad-credentials")]
    ask(served, basic("x" * 10_000, "x"))
    assert len(lines(caplog)[0][0]) == 255


def test_a_failed_login_over_amqp_is_one_line_with_the_address(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for user, said in (("guest", "guest"), (EVIL, json.dumps(EVIL))):
        client = Client(served.amqp)
        peer = f"127.0.0.1:{client.socket.getsockname()[1]}"
        with pytest.raises(Closed, match="ACCESS_REFUSED"):
            client.log_in(user=user, password="wrong")
        client.close()
        assert lines(caplog) == [(said, peer, "amqp", "bad-credentials")]


def test_an_accepted_connection_over_amqp_is_one_line_with_the_same_keys(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = Client(served.amqp)
    peer = f"127.0.0.1:{client.socket.getsockname()[1]}"
    client.log_in()
    client.close()
    assert f"connection accepted: user=guest peer={peer} protocol=amqp" in [one.getMessage() for one in caplog.records]


def test_a_failed_login_over_capnproto_is_one_line_with_the_address(tmp_path: Path) -> None:
    script = """
import asyncio, sys, capnp
from holdfast.rpc.schema import HOLDFAST
async def main():
    async with capnp.kj_loop():
        stream = await capnp.AsyncIoStream.create_connection("127.0.0.1", int(sys.argv[1]))
        service = capnp.TwoPartyClient(stream).bootstrap().cast_as(HOLDFAST.Holdfast)
        for call in (lambda: service.login(user="guest", password="wrong"), lambda: service.enter(token="hf_wrong")):
            try:
                await call()
            except capnp.KjException:
                pass
asyncio.run(main())
"""
    with ServedApart(tmp_path / "data", http_port="none", rpc_port=0) as served:
        assert served.process.stdout is not None
        port = served.process.stdout.readline().rsplit(":", 1)[1].strip()
        subprocess.run([sys.executable, "-c", script, port], check=True, timeout=300)
    logged = [one for one in served.said().splitlines() if " WARNING holdfast.broker: " in one]
    found = [LINE.findall(one)[0] for one in logged]
    assert [(user, protocol, reason) for user, _, protocol, reason in found] == [
        ("guest", "capnp", "bad-credentials"),
        ('""', "capnp", "bad-token"),
    ]


def test_the_server_prints_a_warning_once(tmp_path: Path) -> None:
    with ServedApart(tmp_path / "data") as process:
        with contextlib.closing(Client(process.port)) as client, pytest.raises((Closed, ConnectionError)):
            client.log_in(password="wrong")
        process.stop()
        assert process.said().count("login failed") == 1
