"""The end of a connection, and the heartbeats before it."""

import asyncio
import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.amqp import connection as connections
from holdfast.amqp import methods as m
from holdfast.amqp.frames import HEARTBEAT, HEARTBEAT_FRAME, PROTOCOL_HEADER, read_frame
from holdfast.amqp.server import Server
from holdfast.amqp.settings import Settings
from tests.amqp.serving import CAPABILITIES, PATIENCE_S, Client, Served, publish_frames, served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("goodbye") / "data") as one:
        yield one


def test_a_client_that_goes_on_sending_after_its_close_is_read_until_it_hangs_up(broker: Served) -> None:
    more = publish_frames("late", [bytes(60_000)] * 16)
    before = broker.resident()
    with broker.client() as client:
        client.declare("late")
        client.publish("late", [b"in time"])
        client.send(m.method_frame(0, m.ConnectionClose(200, "bye", 0, 0)) + more)
        client.expect(m.ConnectionCloseOk)
        for _ in range(64):  # far more than the buffers between the two hold
            client.send(more)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.socket.recv(1) == b""  # now the broker hangs up too, and not by a reset
    assert broker.resident() - before < 32 << 20
    with broker.client() as other:
        assert other.count("late") == 1


def test_a_client_that_never_hangs_up_after_its_close_is_dropped_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LEAVE_PATIENCE_S", 0.2)
    started, stop, ports = threading.Event(), threading.Event(), []

    async def serve() -> None:
        with holdfast.open(tmp_path / "data") as store:
            server = Server(store, Settings(amqp_port=0))
            await server.start()
            ports.append(server.addresses[0][1])
            started.set()
            await asyncio.to_thread(stop.wait)
            await server.stop()

    serving = threading.Thread(target=lambda: asyncio.run(serve()))
    serving.start()
    try:
        assert started.wait(PATIENCE_S)
        client = Client(ports[0])
        with contextlib.closing(client):
            client.log_in()
            client.send(m.method_frame(0, m.ConnectionClose(200, "bye", 0, 0)))
            client.expect(m.ConnectionCloseOk)
            with contextlib.suppress(ConnectionResetError):
                assert client.socket.recv(1) == b""
    finally:
        stop.set()
        serving.join(PATIENCE_S)


def test_heartbeats_come_within_the_interval_also_if_that_is_a_second(broker: Served) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE_S) as raw:
        raw.sendall(PROTOCOL_HEADER)
        data = b""

        def frame() -> tuple[int, bytes]:
            nonlocal data
            while (found := read_frame(data, 0, 0)) is None:
                more = raw.recv(1 << 16)
                assert more, "the broker hung up"
                data += more
            kind, _, start, stop, following = found
            payload, data = data[start:stop], data[following:]
            return kind, payload

        frame()
        start = m.ConnectionStartOk({"capabilities": dict(CAPABILITIES)}, "PLAIN", b"\0guest\0guest", "en_US")
        raw.sendall(m.method_frame(0, start))
        frame()
        raw.sendall(m.method_frame(0, m.ConnectionTuneOk(2047, 131_072, 1)) + m.method_frame(0, m.ConnectionOpen("/")))
        frame()
        times: list[float] = []
        while len(times) < 8:
            kind, _ = frame()
            assert kind == HEARTBEAT
            times.append(time.monotonic())
            raw.sendall(HEARTBEAT_FRAME)
        # The shortest pause: on a busy machine the others may be longer.
        assert min(later - earlier for earlier, later in itertools.pairwise(times)) < 0.9
