"""A served store with the setting `replica`: what AMQP clients publish, with users and definitions, is restored."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from holdfast.replica import open_bucket, restore
from holdfast.replica.manifest import list_moments

_PATIENCE_S = 120.0
_PERSISTENT = pika.BasicProperties(delivery_mode=2)


@contextlib.contextmanager
def serving(data: Path, **settings: str) -> Iterator[dict[str, int]]:
    """Serve a store with these settings in a process of its own; yield the ports. It is killed at the end."""
    command = [sys.executable, "-m", "holdfast", "serve", "--data", str(data), "--json"]
    command += ["--host", "127.0.0.1", "--amqp-port", "0", "--http-port", "0", "--rpc-port", "none"]
    environment = {**os.environ, **{f"HOLDFAST_{name.upper()}": value for name, value in settings.items()}}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert process.stdout is not None
    try:
        ports: dict[str, int] = {}
        while len(ports) < 2:
            said = json.loads(process.stdout.readline())
            ports[said["protocol"]] = said["port"]
        yield ports
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def connected(ports: dict[str, int]) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", ports["amqp"], heartbeat=0))
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.slow
def test_a_server_that_is_killed_is_restored_from_its_replica(tmp_path: Path) -> None:
    url = (tmp_path / "replica").as_uri()
    with serving(tmp_path / "data", replica=url) as ports, connected(ports) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("shop", "direct", durable=True)
        channel.queue_declare("orders", durable=True)
        channel.queue_bind("orders", "shop", "order")
        for number in range(50):
            channel.basic_publish("shop", "order", b"%d" % number, _PERSISTENT)
        await_moment(url, time.time_ns())
    found = restore(url, tmp_path / "restored")
    assert found.ok
    assert [count for name, count in found.queues.items() if "orders" in name] == [50]
    assert found.logs["holdfast.definitions"] > 0


@pytest.mark.slow
def test_a_confirm_means_that_the_bucket_has_the_message(tmp_path: Path) -> None:
    url = (tmp_path / "replica").as_uri()
    with serving(tmp_path / "data", replica=url, confirm="replica") as ports:
        with orders(ports) as channel:
            for number in range(20):
                channel.basic_publish("", "orders", b"%d" % number, _PERSISTENT)
                if number % 7 == 0:
                    assert in_bucket(url, tmp_path / f"restored-{number}") == number + 1
        post(ports)
        assert in_bucket(url, tmp_path / "restored-http") == 21
        assert metric(ports, "holdfast_replica_confirm_seconds_count") >= 21
        with connected(ports) as connection:
            transaction = connection.channel()
            transaction.tx_select()
            transaction.basic_publish("", "orders", b"in a transaction", _PERSISTENT)
            transaction.tx_commit()
            assert in_bucket(url, tmp_path / "restored") == 22


@pytest.mark.slow
def test_publishers_are_blocked_while_the_bucket_is_away_and_go_on_when_it_is_back(tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    with serving(tmp_path / "data", replica=replica.as_uri(), confirm="replica", confirm_timeout="0") as ports:
        with orders(ports) as channel:
            channel.basic_publish("", "orders", b"0", _PERSISTENT)
        confirmed: list[bool] = []

        def publish() -> None:  # waits for its confirm
            with orders(ports) as channel:
                channel.basic_publish("", "orders", b"1", _PERSISTENT)
                confirmed.append(True)

        waiting = threading.Thread(target=publish)
        reasons: list[str] = []
        unblocked: list[bool] = []
        with connected(ports) as other:
            other.add_on_connection_blocked_callback(lambda _, method: reasons.append(method.method.reason))
            other.add_on_connection_unblocked_callback(lambda *_: unblocked.append(True))
            there = other.channel()
            with away(replica):
                waiting.start()
                until(other, lambda: metric(ports, 'holdfast_alarm{reason="replica"}') == 1)
                there.basic_publish("", "orders", b"2", _PERSISTENT)
                until(other, lambda: bool(reasons))
                assert reasons == ["the replica does not confirm what was published"]
                assert metric(ports, "holdfast_replica_waiting") >= 1
                with pytest.raises(urllib.error.HTTPError) as refused:
                    post(ports)
                with refused.value as answer:
                    assert answer.status == 503
                assert not confirmed
            until(other, lambda: bool(unblocked))
            waiting.join(_PATIENCE_S)
            assert confirmed == [True]
        with orders(ports) as channel:
            channel.basic_publish("", "orders", b"3", _PERSISTENT)
    assert in_bucket(replica.as_uri(), tmp_path / "restored") in (3, 4)  # nobody waits for the unconfirmed one


@pytest.mark.slow
def test_a_publisher_gets_a_nack_after_the_timeout(tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    settings = {"replica": replica.as_uri(), "confirm": "replica", "confirm_timeout": "2"}
    with serving(tmp_path / "data", **settings) as ports, orders(ports) as channel:
        channel.basic_publish("", "orders", b"0", _PERSISTENT)
        with away(replica), pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("", "orders", b"1", _PERSISTENT)
        until(channel.connection, lambda: metric(ports, "holdfast_replica_lag_records") == 0)
    assert in_bucket(replica.as_uri(), tmp_path / "restored") == 2


@contextlib.contextmanager
def orders(ports: dict[str, int]) -> Iterator[BlockingChannel]:
    with connected(ports) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.confirm_delivery()
        yield channel


def in_bucket(url: str, folder: Path) -> int:
    found = restore(url, folder)
    return next(count for name, count in found.queues.items() if "orders" in name)


@contextlib.contextmanager
def away(replica: Path) -> Iterator[None]:
    """Inside, nothing can be written to the folder of a replica."""
    manifests = replica / "manifest"
    manifests.rename(replica / "elsewhere")
    manifests.write_text("in the way")
    try:
        yield
    finally:
        manifests.unlink()
        (replica / "elsewhere").rename(manifests)


def until(connection: pika.BlockingConnection, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never happens"
        connection.process_data_events(0.05)


def post(ports: dict[str, int]) -> None:
    """Put a message over HTTP."""
    path = "/api/holdfast/queues/%2F/orders/messages"
    content = json.dumps({"messages": [{"payload": "over HTTP"}]}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{ports['http']}{path}", content, headers=_headers(), method="POST"
    )
    with urllib.request.urlopen(request, timeout=_PATIENCE_S):
        pass


def metric(ports: dict[str, int], name: str) -> float:
    request = urllib.request.Request(f"http://127.0.0.1:{ports['http']}/metrics", headers=_headers())
    with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name + " ")), -1.0)


def _headers() -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(b"guest:guest").decode(), "Content-Type": "application/json"}


def await_moment(url: str, since: int) -> None:
    """Return when the bucket has a moment that is later: it has all that was written before."""
    deadline = time.monotonic() + 120
    while not any(moment.time > since for moment in list_moments(open_bucket(url))):
        assert time.monotonic() < deadline, "it is never shipped"
        time.sleep(0.1)
