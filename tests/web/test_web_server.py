"""AMQP, HTTP and Cap'n Proto listeners of one real `holdfast serve`, over the same store."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import holdfast
from holdfast import Model, field
from holdfast.table import text_of_key
from tests.rpc.queueber_client import PATIENCE_S as CLIENT_S
from tests.web.serving import Served

ROOT = Path(__file__).parent.parent.parent


def test_serve_opens_reports_and_closes_every_listener(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "serve",
        "--data",
        str(tmp_path / "data"),
        "--host",
        "127.0.0.1",
        "--amqp-port",
        "0",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert [one["protocol"] for one in said] == ["amqp", "http", "capnp"]
        ports = {one["protocol"]: one["port"] for one in said}
        with holdfast.connect(f"http://127.0.0.1:{ports['http']}") as remote:
            assert remote.queue("orders").put(b"x") == 0
            assert [one.payload for one in remote.queue("orders").peek()] == [b"x"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with holdfast.open(tmp_path / "data") as store:
        assert [one.payload for one in store.queue("orders").peek()] == [b"x"]


def test_listeners_are_disabled_on_the_command_line(tmp_path: Path) -> None:
    shut = ["--host", "127.0.0.1", "--http-port", "none", "--rpc-port", "none", "--amqp-port", "0"]
    command = [sys.executable, "-m", "holdfast", "serve", "--data", str(tmp_path / "data"), *shut, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["protocol"] == "amqp"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == ""
        assert process.wait(60) == 0


def test_a_listener_can_be_disabled(tmp_path: Path) -> None:
    with Served(tmp_path / "data", rpc_port=None) as served:
        assert {one["protocol"] for one in served.get("/api/holdfast/overview")["listeners"]} == {"amqp", "http"}


def add_as_queueber(served: Served) -> "subprocess.CompletedProcess[str]":
    """Let a client of Queueber, in a process of its own, add one item."""
    listeners = served.get("/api/holdfast/overview")["listeners"]
    port = next(one["port"] for one in listeners if one["protocol"] == "capnp")
    script = (
        "import asyncio, capnp, sys\n"
        "from tests.rpc.queueber_client import SCHEMA, Client\n"
        "import tempfile, pathlib\n"
        "async def main():\n"
        "    async with capnp.kj_loop():\n"
        "        path = pathlib.Path(tempfile.mkdtemp()) / 'q.capnp'\n"
        "        path.write_text(SCHEMA)\n"
        "        schema = capnp.load(str(path))\n"
        f"        stream = await capnp.AsyncIoStream.create_connection('127.0.0.1', {port})\n"
        "        print(len(await Client(capnp, schema, stream).add(b'hello')))\n"
        "asyncio.run(main())\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=CLIENT_S,
    )


def test_what_a_client_of_queueber_adds_is_seen_over_http(tmp_path: Path) -> None:
    with Served(tmp_path / "data", rpc_port=0) as served:
        done = add_as_queueber(served)
        assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr
        seen = served.get("/api/holdfast/queues/%2F/queueber/messages")["messages"]
        assert [one["payload"] for one in seen] == ["hello"]


class Customer(Model, id=1, version="1.0"):
    name: str = field(1)


def test_no_listener_accepts_messages_while_the_disk_is_almost_full(tmp_path: Path) -> None:
    with Served(tmp_path / "data", rpc_port=0, disk_free_limit=1 << 60) as served:
        served.post("/api/holdfast/queues", {"name": "orders"})
        key = text_of_key(served.store.table(Customer).add(Customer(name="Ada")).key)
        served.site.on_broker(served.site.broker.memory.look)
        publish = {"properties": {}, "routing_key": "orders", "payload": "x", "payload_encoding": "string"}
        for method, path, content in (
            ("POST", "/api/holdfast/queues/%2F/orders/messages", {"messages": [{"payload": "x"}]}),
            ("POST", "/api/holdfast/logs/clicks/records", {"records": [{"payload": "x"}]}),
            ("POST", "/api/holdfast/tables/Customer/records", {"records": [{"name": "Bob"}]}),
            ("PATCH", f"/api/holdfast/tables/Customer/records/{key}", {"changes": {"name": "Eve"}}),
            ("POST", "/api/exchanges/%2F/amq.default/publish", publish),
        ):
            answer = served.ask(method, path, content)
            assert (answer.status, answer.json["error"]) == (503, "blocked"), (method, path)
        refused = add_as_queueber(served)
        assert refused.returncode != 0
        assert "low on disk" in refused.stderr
        assert served.get("/api/holdfast/queues/%2F/orders")["ready"] == 0
        assert served.store.logs() == ["holdfast.definitions", "holdfast.history", "orders", "queueber"]
        assert served.ask("DELETE", f"/api/holdfast/tables/Customer/records/{key}").status == 200
