"""HTTP clients that open connections and send no whole request: others, and AMQP clients, get in all the same."""

import contextlib
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.web.connections import connections_allowed
from tests.amqp.serving import Client
from tests.web.serving import Served

HALF = b"GET /api/holdfast/overview HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
PATIENCE_S = 120.0
FILES = 256


@contextlib.contextmanager
def served_with_few_files(data: Path, **settings: object) -> Iterator[tuple[int, int]]:
    """The ports of AMQP and HTTP of a server that may have few files open."""
    command = [sys.executable, "-m", "holdfast", "serve", "--data", str(data), "--amqp-port", "0", "--http-port", "0"]
    for name, value in {"rpc_port": "none", **settings}.items():
        command += ["--set", f"{name}={value}"]

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    with (data.parent / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=few_files)  # noqa: PLW1509
        assert process.stdout is not None
        try:
            ports = [int(process.stdout.readline().rstrip("/\n").rsplit(":", 1)[1]) for _ in range(2)]
            yield ports[0], ports[1]
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
            process.stdout.close()
    assert b"Traceback" not in (data.parent / "errors").read_bytes()


def half_request(port: int) -> socket.socket:
    """A connection with a request that does not end."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    connection.sendall(HALF)
    return connection


def ended(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            received += data
    return received


def test_unfinished_requests_keep_no_amqp_client_out_and_are_closed_in_time(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack, served_with_few_files(tmp_path / "data", http_header_timeout=3) as ports:
        amqp, http = ports
        strangers = [stack.enter_context(half_request(http)) for _ in range(FILES + 50)]
        for number in range(20):  # while they are all there
            client = Client(amqp)
            stack.callback(client.close)
            client.log_in()
            client.declare(f"orders {number}")
            client.publish(f"orders {number}", [b"x"])
            got = client.get(f"orders {number}")
            assert got is not None
            assert got.body == b"x"
        answers = [ended(one) for one in strangers]  # each ends, without being asked to
        refused = [one for one in answers if one.startswith(b"HTTP/1.1 503")]
        assert len(refused) >= FILES + 50 - FILES // 4
        assert set(answers) <= {b"", refused[0]}
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/health/live", timeout=PATIENCE_S) as answer:
            assert answer.status == 200


def test_one_address_cannot_take_all_connections(tmp_path: Path) -> None:
    settings = {"http_connections": 6, "http_connections_per_address": 2, "host": "0.0.0.0"}
    with Served(tmp_path / "data", **settings) as served, contextlib.ExitStack() as stack:
        port = int(served.url.rsplit(":", 1)[1])

        def connect(address: str) -> socket.socket:
            one = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(address, 0))
            one.sendall(HALF)
            return stack.enter_context(one)

        for address in ("127.0.0.2", "127.0.0.3"):
            for _ in range(2):
                connect(address)
            assert ended(connect(address)).startswith(b"HTTP/1.1 503")
        live = connect("127.0.0.4")
        live.sendall(b"x\r\nConnection: close\r\n\r\n")
        assert ended(live).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("after", ["", "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_client_that_sends_a_byte_now_and_then_is_disconnected(tmp_path: Path, after: str) -> None:
    with Served(tmp_path / "data", http_header_timeout=2.0) as served:
        port = int(served.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=0.2) as slow:
            slow.sendall(after.encode() + b"GET / HTTP/1.1\r\nX-Slow: ")
            deadline, received = time.monotonic() + PATIENCE_S, b""
            while time.monotonic() < deadline:
                with contextlib.suppress(TimeoutError):
                    data = slow.recv(1 << 16)
                    if not data:
                        break
                    received += data
                    continue
                try:
                    slow.sendall(b"x")
                except OSError:
                    break
            else:
                raise AssertionError("it may send for ever")
        assert (b"200 OK" in received) == bool(after)


def test_a_request_that_takes_long_to_answer_is_not_disconnected(tmp_path: Path) -> None:
    with Served(tmp_path / "data", http_header_timeout=0.5) as served:
        served.post("/api/holdfast/queues", {"name": "orders"})
        began = time.monotonic()
        assert served.post("/api/holdfast/queues/%2F/orders/leases", {"wait": 2})["messages"] == []
        assert time.monotonic() - began >= 2


def test_a_quarter_of_the_open_files_is_for_http() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most, each = connections_allowed(0, 0)
    assert most == max(8, min(1000, soft // 4))
    assert each == most // 2
    assert connections_allowed(10, 3) == (10, 3)
