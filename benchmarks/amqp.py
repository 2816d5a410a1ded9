"""How fast is the broker? Beside RabbitMQ on the same disk, in one run: `python -m benchmarks.amqp`.

`holdfast serve` and a rabbitmq-server with its default settings take the same loads in turns, from the same thin client
(benchmarks/amqp_load.py) on the same machine; the first turn is not counted, and who begins changes with each round. A
ratio is of the rates of one round. Raw rounds are in seconds a message: from the common start of all producers and
consumers until the last message was consumed, or confirmed where nobody consumes. RabbitMQ is the one at
HOLDFAST_BENCH_AMQP_URL, or else one that is started here if rabbitmq-server is installed; without either, only
Holdfast's own rates are shown. Queues are durable and classic. Messages of one size have bodies of their own and the
same properties, which Holdfast takes in many at a time; the line with differing messages shows what it does without.
"""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.status import Status

from benchmarks.amqp_load import Load, Wire
from benchmarks.command import run
from benchmarks.harness import Line, Sample, Workshop, measure_pairs, quiet
from benchmarks.report import PeerColumns
from holdfast.broker.amqp_values import decode_table

__all__ = ["CASES", "URL", "Case", "main"]

URL = "HOLDFAST_BENCH_AMQP_URL"
"""The address of a RabbitMQ to compare with: on this machine and disk, or the ratios mean nothing."""
_ACCOUNT = "rabbitmq"
_DEBIAN = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_START_S, _STOP_S, _SAMPLE_S = 90.0, 30.0, 180.0


@dataclass(frozen=True, slots=True)
class Case:
    """One line: a load, and how many times RabbitMQ's rate is wanted."""

    id: str
    heading: str
    """Short, for a column."""
    title: str
    target: float | None
    load: Load
    quick_messages: int
    rounds: int = 5
    quick_rounds: int = 1


CASES = (
    Case(
        "confirmed",
        "confirmed/s",
        "persistent 100 B with confirms, 1 producer and 1 consumer",
        3.0,
        Load(60_000),
        8_000,
    ),
    Case(
        "confirmed_10",
        "10 and 10/s",
        "  10 producers and 10 consumers",
        5.0,
        Load(60_000, producers=10, consumers=10),
        10_000,
    ),
    Case(
        "varied",
        "varied/s",
        "  60 to 140 B, each with its own id and headers, acked one by one",
        None,
        Load(40_000, varied=True),
        6_000,
    ),
    Case(
        "large",
        "64 KiB/s",
        "  64 KiB",
        1.0,
        Load(3_000, size=65_536, block=4, window=100, prefetch=100, ack_every=10),
        600,
        rounds=15,  # single ones differ by a factor of two: they depend on the disk
    ),
    Case(
        "lone",
        "lone/s",
        "  a lone publish at a time, each waits for its confirm",
        1.5,
        Load(500, consumers=0, block=1, window=1),
        50,
        rounds=15,
    ),
    Case(
        "backlog",
        "backlog/s",
        "  all published, then all consumed",
        None,
        Load(200_000, backlog=True),
        6_000,
        rounds=3,
    ),
    Case(
        "transient",
        "transient/s",
        "transient 100 B without confirms, 1 producer and 1 consumer",
        1.5,
        Load(100_000, persistent=False, confirms=False),
        20_000,
    ),
)
_COLUMNS = PeerColumns({case.heading: f"{case.id}_s" for case in CASES}, {"set up": "setup"})


@dataclass(frozen=True, slots=True)
class _Broker:
    """Where it listens, and what it says it is."""

    url: str
    name: str
    version: str
    setup: str


def main() -> int:
    """Measure, show and keep; 1 only where `--check` finds a miss."""
    return run("amqp", __doc__ or "", _measure, _COLUMNS)


def _measure(workshop: Workshop, quick: bool, status: Status) -> tuple[list[Line], list[dict[str, Any]]]:
    # A broker that was started here ends with the benchmark, also where that is told to stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as serving:
        status.update("starting Holdfast")
        mine = serving.enter_context(_holdfast(workshop))
        status.update("looking for RabbitMQ")
        peer = serving.enter_context(_rabbitmq(workshop))
        lines = []
        for case in CASES:
            status.update(case.title.strip())
            load = replace(case.load, messages=case.quick_messages) if quick else case.load
            rounds = case.quick_rounds if quick else case.rounds
            ours = partial(_sample, mine, load)
            if peer is None:
                lines.append(_alone(case, ours, rounds))
            else:
                line = Line(case.id, case.title, "at least", case.target)
                lines.append(measure_pairs(line, partial(_sample, peer, load), ours, rounds))
    brokers = [(mine, "message_s" if peer is None else "subject")] + ([] if peer is None else [(peer, "floor")])
    return lines, [
        {"name": f"{broker.name} {broker.version}", "version": broker.version, "setup": broker.setup}
        | {f"{line.id}_s": line.best(side) for line in lines}
        for broker, side in brokers
    ]


def _sample(broker: _Broker, load: Load) -> float:
    """The seconds a message; by a process of its own, so that its workers fork from one without threads."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.amqp_load", broker.url, load.as_json()],
        capture_output=True,
        text=True,
        timeout=_SAMPLE_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{broker.name} failed under {load}:\n{done.stderr[-3000:]}")
    return float(json.loads(done.stdout)["seconds"]) / load.messages


def _alone(case: Case, sample: Sample, rounds: int) -> Line:
    """Rates without a peer: no ratio, and so no target."""
    line = Line(case.id, case.title, "at least", unit="k/s")
    sample()  # the first time pays for imports, page cache and clock speed
    for _ in range(rounds):
        line.rounds.append({"message_s": quiet(sample)})
        line.values.append(1e-3 / line.rounds[-1]["message_s"])
    return line


@contextmanager
def _holdfast(workshop: Workshop) -> Iterator[_Broker]:
    """`holdfast serve` with the default settings on a fresh folder."""
    place = workshop.place().absolute()
    place.mkdir()
    # Settings come from the environment too: this run is of the defaults.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    port = _free_port()
    command = [sys.executable, "-m", "holdfast", "serve", "--data", str(place / "data"), "--amqp-port", str(port)]
    with _running(command, plain, port, place / "output") as found:
        try:
            loop = f"uvloop {version('uvloop')}"
        except PackageNotFoundError:
            loop = "asyncio"
        yield replace(found, name="Holdfast", version=version("holdfast"), setup=f"holdfast serve, {loop}")


@contextmanager
def _rabbitmq(workshop: Workshop) -> Iterator[_Broker | None]:
    """The one at the address, or else one of our own; None where there is none."""
    if url := os.environ.get(URL):
        yield _introduced(url, f"the one at {URL}")
        return
    on_path = shutil.which("rabbitmq-server")
    if on_path is None:
        yield None
        return
    place = workshop.place().absolute()
    place.mkdir()
    port, epmd_port = _free_port(), _free_port()
    plugins = place / "enabled_plugins"
    plugins.write_text("[].\n")
    environment = os.environ | {
        "HOME": str(place),  # for an Erlang cookie of its own
        "RABBITMQ_NODENAME": f"holdfast-benchmark-{os.getpid()}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(_free_port()),
        "RABBITMQ_MNESIA_BASE": str(place / "mnesia"),
        "RABBITMQ_LOG_BASE": str(place / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        # A daemon of its own, so that it can be ended without a look at other nodes of this machine.
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    account = _ACCOUNT if os.geteuid() == 0 and _has_account() else None
    if account is not None:
        workshop.folder.chmod(0o711)  # it was made for its owner alone, and the server has another
        for path in (place, plugins):
            shutil.chown(path, account, account)
    # Debian's wrapper on the PATH refuses all but two users and writes over the log of the machine's own server.
    command = [str(_DEBIAN) if _DEBIAN.exists() else on_path]
    try:
        with _running(command, environment, port, place / "output", account) as found:
            yield replace(found, setup="rabbitmq-server, default settings, no plugins")
    finally:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["epmd", "-port", str(epmd_port), "-kill"], capture_output=True, timeout=10, check=False)


@contextmanager
def _running(
    command: list[str], environment: Mapping[str, str], port: int, output: Path, account: str | None = None
) -> Iterator[_Broker]:
    """A broker in a process group of its own, from when it answers until the end of the block."""
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=output.parent,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            user=account,
            group=account,
            extra_groups=None if account is None else [],
        )
    try:
        yield _awaited(process, f"amqp://guest:guest@127.0.0.1:{port}/", output)
    finally:
        _stop(process)


def _awaited(process: "subprocess.Popen[bytes]", url: str, output: Path) -> _Broker:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            return _introduced(url, "")
        except OSError:
            if process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
        said = output.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{process.args!r} does not answer at {url}; it said:\n{said}")


def _introduced(url: str, setup: str) -> _Broker:
    """The broker as its greeting names it."""
    wire = Wire(url)
    properties, _ = decode_table(wire.server_properties)
    wire.close()
    return _Broker(url, str(properties.get("product", "?")), str(properties.get("version", "?")), setup)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the whole group: politely, then not."""
    for number, patience in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + patience
        while _group_lives(process) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not _group_lives(process):
            return


def _group_lives(process: "subprocess.Popen[bytes]") -> bool:
    process.poll()  # takes note of its end, or it would stay in the group
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _has_account() -> bool:
    try:
        pwd.getpwnam(_ACCOUNT)
    except KeyError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
