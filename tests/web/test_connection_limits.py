"""Clients that do not log in, send incomplete requests or read nothing do not keep others out."""

import contextlib
import json
import resource
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.amqp.file_limits import shares_of
from holdfast.amqp.frames import PROTOCOL_HEADER
from holdfast.amqp.settings import Settings
from tests.amqp.serving import Client
from tests.interop.certificates import Authority
from tests.web.serving import Served

HALF = b"GET /api/holdfast/overview HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
WAITS = (
    b"POST /api/holdfast/queues/%2F/orders/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nConnection: close\r\nContent-Length: 11\r\n\r\n{"wait": 8}'
)
"""A request that is worked on for a while."""
PATIENCE_S = 120.0
FILES = 512


Ports = dict[str, int]


@contextlib.contextmanager
def served_with_few_files(folder: Path, **settings: object) -> Iterator[Ports]:
    """The ports of a server that may have few files open, by protocol."""
    certificate = Authority(folder).for_server()
    command = [sys.executable, "-m", "holdfast", "serve", "--data", str(folder / "data"), "--json"]
    ports = {f"{name}_port": 0 for name in ("amqp", "amqps", "http", "https", "rpc")}
    tls = {"tls_certificate": certificate.chain, "tls_key": certificate.key}
    for name, value in {"host": "127.0.0.1", **ports, **tls, **settings}.items():
        command += ["--set", f"{name}={value}"]

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=few_files)  # noqa: PLW1509
        assert process.stdout is not None
        try:
            said = [json.loads(process.stdout.readline()) for _ in ports]
            yield {one["protocol"]: one["port"] for one in said}
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
            process.stdout.close()
    logged = (folder / "errors").read_bytes()
    assert b"Traceback" not in logged
    assert logged.count(b"\n") < 100  # however many connections there were


def silent(port: int, said: bytes = b"") -> socket.socket:
    """A connection on which no more comes than this."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    with contextlib.suppress(ConnectionError):  # turned away already
        connection.sendall(said)
    return connection


def lives(port: int) -> bool:
    """Whether HTTP is answered."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/live", timeout=PATIENCE_S) as answer:
        return bool(answer.status == 200)


def ended(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            received += data
    return received


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("http", HALF),
        ("https", b""),
        ("amqp", b""),
        ("amqp", PROTOCOL_HEADER),
        ("amqps", b"\x16"),
        ("capnp", b""),
    ],
)
def test_connections_that_do_not_log_in_keep_nobody_out_and_are_closed_in_time(
    tmp_path: Path, protocol: str, said: bytes
) -> None:
    timeouts = {"http_header_timeout": 5, "handshake_timeout": 5}
    with contextlib.ExitStack() as stack, served_with_few_files(tmp_path, **timeouts) as ports:
        strangers = [stack.enter_context(silent(ports[protocol], said)) for _ in range(FILES + 50)]
        time.sleep(1)  # until the server has accepted them all
        began = time.monotonic()
        for number in range(20):
            client = Client(ports["amqp"])
            stack.callback(client.close)
            client.log_in()
            client.declare(f"orders {number}")
            client.publish(f"orders {number}", [b"x"])
            got = client.get(f"orders {number}")
            assert got is not None
            assert got.body == b"x"
            assert lives(ports["http"])
        for one in strangers:  # each ends, without being asked to
            ended(one)
        assert time.monotonic() - began < 30
        assert client.declare("still here") == 0


def test_a_connection_without_a_handshake_ends_as_soon_as_one_without_a_login(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack, served_with_few_files(tmp_path, handshake_timeout=2) as ports:
        began = time.monotonic()
        for protocol in ("amqp", "amqps", "capnp"):
            ended(stack.enter_context(silent(ports[protocol])))
        assert time.monotonic() - began < 20


def test_clients_of_all_protocols_together_leave_files_to_the_store(tmp_path: Path) -> None:
    shares = {"http_connections": 10_000, "rpc_connections": 10_000, "http_connections_per_address": 10_000}
    with contextlib.ExitStack() as stack, served_with_few_files(tmp_path, **shares) as ports:
        for protocol in ("https", "capnp", "amqps", "http", "amqp"):
            for _ in range(FILES):
                stack.enter_context(silent(ports[protocol]))
        client = Client(ports["amqp"])
        stack.callback(client.close)
        client.log_in()
        for number in range(30):  # each opens files of its own
            client.declare(f"orders {number}")
            client.publish(f"orders {number}", [b"x"])
            assert client.count(f"orders {number}") == 1


def test_one_address_cannot_take_all_connections(tmp_path: Path) -> None:
    settings = {"http_connections": 6, "http_connections_per_address": 2, "host": "0.0.0.0"}
    with Served(tmp_path / "data", **settings) as served, contextlib.ExitStack() as stack:
        port = int(served.url.rsplit(":", 1)[1])

        def connect(address: str, said: bytes = HALF) -> socket.socket:
            one = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(address, 0))
            one.sendall(said)
            return stack.enter_context(one)

        for address in ("127.0.0.2", "127.0.0.3"):
            silent = [connect(address) for _ in range(3)]
            assert ended(silent[0]) == b""  # closed in favour of the last one
        served.post("/api/holdfast/queues", {"name": "orders"})
        waiting = [connect("127.0.0.2", WAITS) for _ in range(2)]
        time.sleep(1)  # until they are worked on: such a one is not closed for another
        assert ended(connect("127.0.0.2")).startswith(b"HTTP/1.1 503")
        live = connect("127.0.0.4", HALF + b"x\r\nConnection: close\r\n\r\n")
        assert ended(live).startswith(b"HTTP/1.1 401")
        assert [ended(one)[:12] for one in waiting] == [b"HTTP/1.1 200"] * 2


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
                raise AssertionError("it may send without end")
        assert (b"200 OK" in received) == bool(after)


def test_a_request_that_takes_long_to_answer_is_not_disconnected(tmp_path: Path) -> None:
    with Served(tmp_path / "data", http_header_timeout=0.5) as served:
        served.post("/api/holdfast/queues", {"name": "orders"})
        began = time.monotonic()
        assert served.post("/api/holdfast/queues/%2F/orders/leases", {"wait": 2})["messages"] == []
        assert time.monotonic() - began >= 2


def test_half_of_the_open_files_is_divided_between_the_protocols() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = shares_of(Settings())
    assert found.http == min(1000, soft // 8)
    assert found.http_per_address == found.http // 2
    assert found.rpc == min(1000, soft // 16)
    assert found.amqp == min(20_000, soft // 2 - found.http - found.rpc)
    greedy = shares_of(Settings(http_connections=soft, rpc_connections=soft, connection_max=soft))
    assert greedy.amqp + greedy.http + greedy.rpc <= soft // 2
    assert shares_of(Settings(http_connections=10, http_connections_per_address=3))[1:3] == (10, 3)


@pytest.mark.parametrize("protocol", ["http", "https"])
@pytest.mark.parametrize("requests", [1, 60])
def test_a_client_that_never_reads_its_answers_is_disconnected(tmp_path: Path, protocol: str, requests: int) -> None:
    """Also if the whole answer is in the buffers of the server: uvicorn would wait for the client without end."""
    timeouts = {"http_stall_timeout": 2, "http_header_timeout": 2}
    with contextlib.ExitStack() as stack, served_with_few_files(tmp_path, **timeouts) as ports:
        raw = stack.enter_context(socket.socket())
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        raw.settimeout(PATIENCE_S)
        raw.connect(("127.0.0.1", ports[protocol]))
        port, deaf = raw.getsockname()[1], raw
        if protocol == "https":
            context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
            deaf = stack.enter_context(context.wrap_socket(raw, server_hostname="localhost"))
        deaf.sendall(b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * requests)
        began = time.monotonic()
        while is_established(ports[protocol], port):
            assert time.monotonic() - began < 30
            time.sleep(0.2)
        assert lives(ports["http"])


def is_established(local: int, remote: int) -> bool:
    """Whether the server's end of a connection between these ports is open."""
    ends = f":{local:04X} 0100007F:{remote:04X} 01"
    return ends in Path("/proc/net/tcp").read_text()


def test_a_client_that_reads_slowly_gets_its_whole_answer(tmp_path: Path) -> None:
    with served_with_few_files(tmp_path, http_stall_timeout=1) as ports, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.connect(("127.0.0.1", ports["http"]))
        asked = b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        slow.sendall(asked)
        began, received = time.monotonic(), b""
        while data := slow.recv(2048 if time.monotonic() - began < 4 else 1 << 16):
            received += data
            time.sleep(0.05 if time.monotonic() - began < 4 else 0)
        head, _, body = received.partition(b"\r\n\r\n")
        assert f"content-length: {len(body)}".encode() in head.lower()


BODY = (
    b"POST /api/holdfast/queues HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Length: 60000\r\n\r\n"
)


def test_a_body_that_trickles_in_is_cut_off_and_one_that_comes_steadily_is_not(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack, Served(tmp_path / "data", http_stall_timeout=1.5) as served:
        port = int(served.url.rsplit(":", 1)[1])
        slow = stack.enter_context(silent(port, BODY))
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - began < 40:
                slow.sendall(b" ")
                time.sleep(0.1)
        steady = stack.enter_context(silent(port, BODY))
        content = b'{"name": "orders"}'.ljust(60_000)
        for start in range(0, 60_000, 4000):
            steady.sendall(content[start : start + 4000])
            time.sleep(0.2)
        assert steady.recv(1 << 16).startswith(b"HTTP/1.1 20")
