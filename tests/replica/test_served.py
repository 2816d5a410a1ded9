"""A served store with the setting `replica`: what AMQP clients publish, with users and definitions, is restored."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pika
import pytest

from holdfast.replica import open_bucket, restore
from holdfast.replica.manifest import list_moments


@pytest.mark.slow
def test_a_server_that_is_killed_is_restored_from_its_replica(tmp_path: Path) -> None:
    url = (tmp_path / "replica").as_uri()
    command = [sys.executable, "-m", "holdfast", "serve", "--data", str(tmp_path / "data"), "--json"]
    command += ["--host", "127.0.0.1", "--amqp-port", "0", "--http-port", "0", "--rpc-port", "none"]
    environment = {**os.environ, "HOLDFAST_REPLICA": url}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert process.stdout is not None
    try:
        ports: dict[str, int] = {}
        while len(ports) < 2:
            said = json.loads(process.stdout.readline())
            ports[said["protocol"]] = said["port"]
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", ports["amqp"]))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("shop", "direct", durable=True)
        channel.queue_declare("orders", durable=True)
        channel.queue_bind("orders", "shop", "order")
        for number in range(50):
            channel.basic_publish("shop", "order", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        await_moment(url, time.time_ns())
        connection.close()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    found = restore(url, tmp_path / "restored")
    assert found.ok
    assert [count for name, count in found.queues.items() if "orders" in name] == [50]
    assert found.logs["holdfast.definitions"] > 0


def await_moment(url: str, since: int) -> None:
    """Return when the bucket has a moment that is later: it has all that was written before."""
    deadline = time.monotonic() + 120
    while not any(moment.time > since for moment in list_moments(open_bucket(url))):
        assert time.monotonic() < deadline, "it is never shipped"
        time.sleep(0.1)
