"""pika and aio-pika over a failover of `holdfast serve`: clients that know both addresses, with confirms and acks."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aio_pika
import pika
import pytest

from holdfast.replica import open_bucket, promote
from holdfast.replica.manifest import list_moments
from holdfast.replica.owner import read_owner

pytestmark = pytest.mark.slow
_PATIENCE_S = 180.0
_QUEUE = "orders"
MODES = ["local", "replica"]
"""With the second one, nothing that was confirmed may be lost."""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as sockets:
        found = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def await_(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + _PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)
    return found


class Server:
    """A process of `holdfast serve`."""

    def __init__(self, folder: Path, name: str, url: str, *options: str) -> None:
        self.amqp, self.http = free_ports(2)
        command = [sys.executable, "-m", "holdfast", "serve", "--data", str(folder / name), "--replica", url, "--json"]
        command += ["--host", "127.0.0.1", "--amqp-port", str(self.amqp), "--http-port", str(self.http)]
        command += ["--rpc-port", "none", "--set", "replica_ttl=3", *options]
        self._errors = (folder / f"{name}.log").open("w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        self.log = folder / f"{name}.log"

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the code and the answer to a request; 0 if there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError:
            return 0, {}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    found: list[Server] = []
    yield found
    for one in found:
        one.end()


def has_confirms_of(publisher: "PikaPublisher | AioPublisher", port: int) -> bool:
    return sum(at == port for _, at in list(publisher.confirmed.values())) > 50


class PikaPublisher(threading.Thread):
    """Publishes with confirms, each message until it is confirmed, at whichever address answers."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__()
        self.confirmed: dict[str, tuple[float, int]] = {}
        """By message: when, and at which port."""
        self._ports = ports
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for port in self._ports:
                with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                    parameters = pika.ConnectionParameters("127.0.0.1", port, blocked_connection_timeout=10)
                    with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
                        channel = connection.channel()
                        channel.confirm_delivery()
                        while not self._stopping.is_set():
                            name = f"pika {number}"
                            properties = pika.BasicProperties(delivery_mode=2)
                            channel.basic_publish("", _QUEUE, name.encode(), properties, mandatory=True)
                            self.confirmed[name] = time.time(), port
                            number += 1
            self._stopping.wait(0.1)


class AioPublisher(threading.Thread):
    """The same with aio-pika, several at once."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__()
        self.confirmed: dict[str, tuple[float, int]] = {}
        self._ports = ports
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        asyncio.run(self._publish())

    async def _publish(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for port in self._ports:
                with contextlib.suppress(OSError, aio_pika.exceptions.AMQPError, asyncio.TimeoutError, RuntimeError):
                    async with await aio_pika.connect(
                        f"amqp://guest:guest@127.0.0.1:{port}/", timeout=10
                    ) as connection:
                        channel = await connection.channel(publisher_confirms=True)
                        while not self._stopping.is_set():
                            names = [f"aio {number + one}" for one in range(5)]
                            done = [self._send(channel, name) for name in names]
                            await asyncio.wait_for(asyncio.gather(*done), 10)
                            self.confirmed.update({name: (time.time(), port) for name in names})
                            number += 5
            await asyncio.sleep(0.1)

    async def _send(self, channel: Any, name: str) -> None:
        message = aio_pika.Message(name.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key=_QUEUE)


async def consume(port: int, count: int, *, acks: int) -> list[tuple[str, bool]]:
    """Take so many messages, acknowledge the first of them, and return when the server has the acknowledgements."""
    found: list[tuple[str, bool]] = []
    async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/") as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=count)
        queue = await channel.declare_queue(_QUEUE, durable=True)
        async with asyncio.timeout(_PATIENCE_S):
            while len(found) < count:
                message = await queue.get(fail=False)
                if message is None:
                    await asyncio.sleep(0.05)
                    continue
                found.append((message.body.decode(), bool(message.redelivered)))
                if len(found) <= acks:
                    await message.ack()
            await channel.declare_queue(_QUEUE, passive=True)  # answered after the acknowledgements were taken
        if acks < count:  # held until the process is killed
            await asyncio.sleep(0)
    return found


async def drain(port: int) -> list[tuple[str, bool]]:
    """Take and acknowledge everything that is there."""
    found: list[tuple[str, bool]] = []
    async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/") as connection:
        queue = await (await connection.channel()).declare_queue(_QUEUE, durable=True)
        while (message := await queue.get(fail=False)) is not None:
            found.append((message.body.decode(), bool(message.redelivered)))
            await message.ack()
    return found


@pytest.mark.parametrize("mode", MODES)
def test_clients_that_know_both_addresses_go_on_at_the_standby(
    mode: str, tmp_path: Path, servers: list[Server]
) -> None:
    url = (tmp_path / "replica").as_uri()
    confirm = ("--set", f"confirm={mode}")
    owner = Server(tmp_path, "first", url, *confirm)
    servers.append(owner)
    await_(lambda: owner.get("/health/ready")[0] == 200, "the owner serves")
    with contextlib.closing(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", owner.amqp))) as connection:
        connection.channel().queue_declare(_QUEUE, durable=True)
    standby = Server(tmp_path, "second", url, "--standby", *confirm)
    servers.append(standby)
    await_(lambda: standby.get("/health/standby")[0] == 200, "the standby is warm")
    code, said = standby.get("/health/ready")
    assert (code, said["role"]) == (503, "standby")
    assert standby.get("/api/overview")[0] == 503
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", standby.amqp)) != 0
    ports = [owner.amqp, standby.amqp]
    publishers: list[PikaPublisher | AioPublisher] = [PikaPublisher(ports), AioPublisher(ports)]
    try:
        for one in publishers:
            one.start()
        acked = [name for name, _ in asyncio.run(consume(owner.amqp, 60, acks=60))]
        bucket = open_bucket(url)
        since = time.time_ns()
        await_(lambda: any(moment.time > since for moment in list_moments(bucket)), "the acknowledgements are shipped")
        await_(lambda: (record := read_owner(bucket)) is not None and record.yields, "the owner yields")
        held = [name for name, _ in asyncio.run(consume(owner.amqp, 20, acks=0))]
        owner.process.kill()
        owner.process.wait()
        await_(lambda: standby.get("/health/ready")[0] == 200, "the standby serves")
        for one in publishers:
            await_(partial(has_confirms_of, one, standby.amqp), "confirms of the standby")
    finally:
        for one in publishers:
            one.stop()
    found = [name for name, _ in asyncio.run(drain(standby.amqp))]
    check(mode, bucket, owner, publishers, set(found), acked)
    assert not set(acked) & set(found), "acknowledged before the last moment, and delivered again"
    assert set(held) <= set(found), "not acknowledged, and lost"
    assert standby.get("/health/live")[0] == 200
    old = Server(tmp_path, "first", url)
    servers.append(old)
    assert old.process.wait(_PATIENCE_S) == 3
    assert "another process has taken the replica since" in old.log.read_text()


def check(mode: str, bucket: Any, owner: Server, publishers: list[Any], found: set[str], acked: list[str]) -> None:
    """What is lost was confirmed after the last moment of the owner that was killed: that is the lag. Or nothing is."""
    epoch = min(moment.epoch for moment in list_moments(bucket))
    last = max(moment.time for moment in list_moments(bucket) if moment.epoch == epoch) / 1e9
    for one in publishers:
        lost = [
            (name, when)
            for name, (when, port) in one.confirmed.items()
            if name not in found and name not in acked and (mode == "replica" or port != owner.amqp or when < last)
        ]
        assert not lost, f"confirmed, and lost: {lost[:10]}; the last moment is of {last}"


@pytest.mark.parametrize("how", ["paused", "promoted"])
def test_a_server_that_has_lost_its_replica_ends_with_a_code_of_its_own(
    how: str, tmp_path: Path, servers: list[Server]
) -> None:
    url = (tmp_path / "replica").as_uri()
    owner = Server(tmp_path, "first", url)
    servers.append(owner)
    await_(lambda: owner.get("/health/ready")[0] == 200, "the owner serves")
    standby = Server(tmp_path, "second", url, "--standby")
    servers.append(standby)
    await_(lambda: standby.get("/health/standby")[0] == 200, "the standby is warm")
    await_(lambda: (record := read_owner(open_bucket(url))) is not None and record.yields, "the owner yields")
    with contextlib.closing(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", owner.amqp))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(_QUEUE, durable=True)
        for number in range(100):
            channel.basic_publish("", _QUEUE, b"%d" % number, pika.BasicProperties(delivery_mode=2))
    if how == "paused":
        owner.process.send_signal(signal.SIGSTOP)
        await_(lambda: standby.get("/health/ready")[0] == 200, "the standby serves")
        owner.process.send_signal(signal.SIGCONT)
    else:
        done = promote(url, force=True)
        assert done.owner.epoch == 2
        await_(lambda: standby.get("/health/ready")[0] == 200, "the standby serves")
    assert owner.process.wait(_PATIENCE_S) == 3
    said = owner.log.read_text()
    assert ("has lost the replica" if how == "paused" else "has handed the replica over") in said
    if how == "promoted":  # all that was confirmed
        assert len(asyncio.run(drain(standby.amqp))) == 100
