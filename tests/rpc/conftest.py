"""What tests of the RPC server share: servers in this process or in one of their own, and clients in theirs."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from holdfast import Flush, Queue, Store
from holdfast.rpc import RpcServer, RpcSettings

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 240.0


class Process:
    """A Python module that runs beside the test."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=ROOT, text=True, stdin=-1, stdout=-1, stderr=subprocess.STDOUT
        )

    def line(self) -> str:
        """The next line that it prints."""
        return _pipe(self._process.stdout).readline().strip()

    def go_on(self) -> None:
        """Say something to it."""
        print(file=_pipe(self._process.stdin), flush=True)

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> tuple[int, str]:
        """Its exit code, and the rest of what it printed."""
        output, _ = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode, output


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process, which does not outlive the test."""
    started: list[Process] = []

    def one(*arguments: object) -> Process:
        started.append(Process(*map(str, arguments)))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.end()


@pytest.fixture
def queue(disk_store: Store) -> Queue:
    """The queue that Queueber's clients see."""
    return disk_store.queue("queueber", flush=Flush.sync(), max_attempts=None, dead_letter=None)


@pytest.fixture
def server(queue: Queue) -> Iterator[RpcServer]:
    server = RpcServer(RpcSettings(), find=lambda vhost, name: queue)
    server.start()
    yield server
    server.stop()
