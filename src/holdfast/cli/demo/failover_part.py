"""The demo's fifth part: a server ships its store to a bucket, its machine is lost, and the standby serves."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.amqp.client import Address, Client
from holdfast.base.errors import HoldfastError
from holdfast.base.units import format_count, format_duration
from holdfast.broker.basic_properties import Properties, encode_properties
from holdfast.cli.demo.orders import orders
from holdfast.cli.demo.stage import Stage, pace
from holdfast.replica.bucket import open_bucket
from holdfast.replica.owner import read_owner
from holdfast.replica.standbys import read_standbys

__all__ = ["run_failover_part"]

_QUEUE = "invoices"
_BATCH = 20
_PUBLISHING_S = 2.0
_TTL_S = 5
_TIMEOUT_S = 120.0


class _Machine:
    """A process of `holdfast serve` with a folder of its own, which is its disk."""

    def __init__(self, folder: Path, url: str, *options: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "holdfast", "serve", "--json", "--data", str(folder), "--replica", url]
        command += ["--host", "127.0.0.1", "--amqp-port", "0", "--http-port", "0", "--rpc-port", "none"]
        command += ["--set", "confirm=replica", "--set", f"replica_ttl={_TTL_S}", *options]
        self.log = folder.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )

    def amqp(self) -> Address:
        """Return the address of the AMQP listener, once there is one."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if said.get("protocol") == "amqp":
                return Address.parse(f"amqp://guest:guest@127.0.0.1:{said['port']}")
        raise HoldfastError(f"the server ended with exit code {self.process.wait()}: {self.log.read_text().strip()}")

    def end(self) -> None:
        """Kill the process, if it has not ended."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def run_failover_part(stage: Stage) -> None:
    """Publish to an owner that confirms by its replica, lose it with its disk, and count at the standby."""
    stage.chapter("The machine is lost: a standby serves from the bucket")
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-machines-") as folder:
        _run(Path(folder), stage)


def _run(folder: Path, stage: Stage) -> None:
    url = (folder / "bucket").as_uri()
    with _machine(folder / "machine-a", url) as owner:
        address = owner.amqp()
        with Client(address) as client:
            client.open_channel()
            client.declare(_QUEUE)
        with _machine(folder / "machine-b", url, "--standby") as standby:
            _await_standby(url)
            confirmed, seconds = _publish_until_killed(owner, address)
            shutil.rmtree(owner.folder)
            stage.say(f"{format_count(confirmed)} invoices confirmed, each when the bucket had it; then kill -9")
            stage.say("the folder of the first machine is deleted: the bucket and the standby are left")
            began = time.perf_counter()
            address = _await_takeover(standby, stage)
            took = time.perf_counter() - began
            with Client(address) as client:
                client.open_channel()
                found = client.look(_QUEUE)[0]
    stage.say(f"the standby serves after {format_duration(took)}: {format_count(found)} invoices ready")
    stage.promise("every message confirmed by the bucket is at the standby", found >= confirmed > 0)
    stage.note(failover_confirmed=confirmed, failover_found=found, failover_seconds=took)
    stage.line("confirmed by the bucket", format_count(confirmed), pace(confirmed, seconds, "messages"))
    stage.line("machine lost, standby serves", format_duration(took), f"its claim lasted {_TTL_S} s; 15 s by default")


@contextlib.contextmanager
def _machine(folder: Path, url: str, *options: str) -> Iterator[_Machine]:
    machine = _Machine(folder, url, *options)
    try:
        yield machine
    finally:
        machine.end()


def _await_standby(url: str) -> None:
    """Wait until a standby has a whole copy, and the owner has promised to yield to it: else nobody may take over."""
    bucket, deadline = open_bucket(url), time.monotonic() + _TIMEOUT_S
    while not (read_standbys(bucket) and (owner := read_owner(bucket)) is not None and owner.yields):
        if time.monotonic() > deadline:
            raise HoldfastError(f"no standby follows {url} after {_TIMEOUT_S:.0f} s")
        time.sleep(0.1)


def _publish_until_killed(owner: _Machine, address: Address) -> tuple[int, float]:
    """Publish with confirms, and kill the owner meanwhile; return how many were confirmed, and in how many seconds."""
    raw = encode_properties(Properties(delivery_mode=2))
    confirmed, began = 0, time.perf_counter()
    kill = threading.Timer(_PUBLISHING_S, owner.process.kill)
    kill.start()
    try:
        with contextlib.suppress(HoldfastError, OSError), Client(address) as client:
            while True:
                client.open_channel()
                confirmed += client.publish(_QUEUE, list(orders(confirmed, confirmed + _BATCH)), raw)
    finally:
        kill.join()
    owner.process.wait()
    return confirmed, time.perf_counter() - began


def _await_takeover(standby: _Machine, stage: Stage) -> Address:
    """Return the address at which the standby serves; show how long its claim still lasts."""
    found: list[Address] = []

    def wait() -> None:
        with contextlib.suppress(HoldfastError):  # it is raised again below
            found.append(standby.amqp())

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    began = time.monotonic()
    with stage.progress("waiting until the claim has run out", _TTL_S) as show:
        while waiting.is_alive():
            show(min(_TTL_S, int(time.monotonic() - began)))
            if time.monotonic() - began > _TIMEOUT_S:
                raise HoldfastError(f"the standby did not take over within {_TIMEOUT_S:.0f} s")
            waiting.join(0.2)
        show(_TTL_S)
    return found[0] if found else standby.amqp()
