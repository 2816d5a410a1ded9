"""The server's log: clients can neither fake a line nor send escape sequences to the reader's terminal."""

import http.client
import json
import logging
import re
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.amqp import methods as m
from holdfast.cli.server_logging import LineFormatter
from tests.amqp.serving import Client, Closed, eventually

LINE = re.compile(r"\d{4}-\d\d-\d\d \S+ (WARNING|INFO|ERROR) [a-z.]+: [ -~]*")


def formatted(message: str, error: Exception | None = None) -> str:
    info = (type(error), error, error.__traceback__) if error is not None else None
    return LineFormatter().format(logging.LogRecord("holdfast", logging.ERROR, "", 1, "%s", (message,), info))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no\nvhost\r", r"no\nvhost\r"),
        ("\x1b[31m\x07\x7f\x9b", r"\x1b[31m\x07\x7f\x9b"),
        ("\u2028\u202e\ud800", r"\u2028\u202e\ud800"),
        ("Größe 漢字 C:\\new", "Größe 漢字 C:\\new"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert formatted(text).endswith(f" ERROR holdfast: {shown}")


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        first, *rest = formatted("a\nb", error).splitlines()
    assert first.endswith(r"a\nb")
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: broken"


def refused_vhost(port: int) -> None:
    client = Client(port)
    with pytest.raises(Closed):
        client.log_in(vhost="no\nvhost\x1b[31m")
    client.close()


def dropped_dead_letter(port: int) -> None:
    client = Client(port)
    client.log_in()
    client.declare("dying", x_dead_letter_exchange="nope\nFAKE\x1b[31m")
    client.publish("dying", [b"x"])
    assert client.get("dying", no_ack=False) is not None
    client.send(m.method_frame(1, m.BasicReject(1, False)))
    client.count("dying")
    client.close()


def closed_for_a_reason(amqp: int, port: int) -> None:
    client = Client(amqp)
    client.log_in()
    web = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    login = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}
    web.request("GET", "/api/connections", headers=login)
    (found,) = json.loads(web.getresponse().read())
    web.request(
        "DELETE", f"/api/connections/{quote(found['name'], safe='')}", headers={**login, "X-Reason": "\x1b[31m"}
    )
    assert web.getresponse().status < 300
    web.close()
    client.close()


def test_names_from_clients_cannot_fake_lines_of_the_log(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "serve", "--data", str(tmp_path / "data"), "--json"]
    command += ["--host", "127.0.0.1", "--amqp-port", "0", "--http-port", "0", "--rpc-port", "none"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        amqp, web = (json.loads(process.stdout.readline())["port"] for _ in range(2))
        refused_vhost(amqp)
        dropped_dead_letter(amqp)
        closed_for_a_reason(amqp, web)
        eventually(lambda: b"dead letters dropped" in (tmp_path / "log").read_bytes())
    finally:
        process.terminate()
        process.wait(120)
        process.stdout.close()
    lines = [one for one in (tmp_path / "log").read_text().split("\n") if one and not one.startswith("holdfast: ")]
    assert [one for one in lines if not LINE.fullmatch(one)] == []
    assert any(r"no\nvhost\x1b[31m" in one for one in lines)
    assert any(r"exchange=nope\nFAKE\x1b[31m" in one for one in lines)
