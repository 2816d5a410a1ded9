"""A Node client, amqplib, against a served broker. Skipped where Node is missing or the package cannot be fetched."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from tests.interop.serving import DEADLINE_S, Served

COUNT = 20_000
SEND_AND_CLOSE = """
const amqp = require("amqplib");
(async () => {
  const [url, queue, count] = JSON.parse(process.argv[2]);
  const connection = await amqp.connect(url);
  const channel = await connection.createChannel();
  await channel.assertQueue(queue);
  for (let number = 0; number < count; number++) channel.sendToQueue(queue, Buffer.alloc(100, "x"), {persistent: true});
  await connection.close();
  console.log("closed");
})();
"""


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Node finds amqplib."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not installed")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text("{}")
    try:
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "amqplib"],
            cwd=folder,
            capture_output=True,
            check=False,
            text=True,
            timeout=DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("amqplib could not be fetched in time")
    if done.returncode:
        pytest.skip(f"amqplib could not be fetched: {done.stderr[-200:]}")
    return folder


def test_a_node_client_that_sends_much_and_closes_at_once_ends_well(
    served: Served, node: Path, name: Callable[..., str]
) -> None:
    (node / "send.js").write_text(SEND_AND_CLOSE)
    queue = name("node")
    for _ in range(3):  # whether bytes are under way when the broker answers is a matter of luck
        done = subprocess.run(
            ["node", "send.js", json.dumps([f"amqp://guest:guest@127.0.0.1:{served.plain.port}", queue, COUNT])],
            cwd=node,
            capture_output=True,
            check=False,
            text=True,
            timeout=DEADLINE_S,
        )
        assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr
    # What comes after the close is dropped, as RabbitMQ does; the client writes it round-robin with the close.
    with pika.BlockingConnection(served.plain.parameters()) as connection:
        connection.channel().queue_delete(queue)
