"""Terminals of the tests: commands run in this process for speed, or in a child process for signals and pipes."""

import contextlib
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from typer.testing import CliRunner

import holdfast
from holdfast import Backoff, Roll, Store
from holdfast.cli import main
from holdfast.typed_options import QueueOptions

__all__ = ["Result", "Terminal", "damage_segment"]

_COLORS = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100"}
_PLAIN = dict.fromkeys(("FORCE_COLOR", "NO_COLOR", "COLUMNS", "TTY_COMPATIBLE"))


@dataclass(frozen=True, slots=True)
class Result:
    """What a command left behind."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        """Standard output as text."""
        return self.raw.decode()

    @property
    def lines(self) -> list[str]:
        """Standard output line by line."""
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """The one object on standard output."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """One object a line of standard output."""
        return [json.loads(line) for line in self.lines]

    @property
    def complaint(self) -> str:
        """The one line that an error leaves on standard error, with nothing on standard output."""
        assert self.raw == b""
        assert self.err.count("\n") == 1 and self.err.startswith("holdfast: "), self.err
        return self.err.removeprefix("holdfast: ").removesuffix("\n")


class Terminal:
    """Types `holdfast ...` commands, all on one store."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def __call__(self, command: str, stdin: bytes = b"", *, colors: bool = False, width: int | None = None) -> Result:
        """Run a command in this process; with `width`, as at a terminal that wide, and without its control codes."""
        env = _PLAIN | {"HOLDFAST_DATA": str(self.data)} | (_COLORS if colors else {})
        if width is not None:
            env |= {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(width)}
        with CliRunner().isolation(input=stdin, env=env) as (out, err, _):
            code = main(shlex.split(command))
            sys.stdout.flush()
            sys.stderr.flush()
            raw = out.getvalue() if width is None else re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", out.getvalue())
            return Result(code, raw, err.getvalue().decode())

    @contextlib.contextmanager
    def spawn(self, command: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a command in a process of its own, which is gone when the block is left."""
        with subprocess.Popen(
            [sys.executable, "-m", "holdfast", *shlex.split(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"HOLDFAST_DATA": str(self.data)},
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def converse(self, command: str, answer: str) -> tuple[int, str]:
        """Run a command at a terminal of its own and type an answer to what it asks; its exit code and all it said."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *shlex.split(command)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"HOLDFAST_DATA": str(self.data), "TERM": "dumb"},
        )
        os.close(theirs)
        said = b""
        try:
            while b"[y/N]" not in said and (part := _read_all_there_is(ours)):
                said += part
            os.write(ours, answer.encode())
            while part := _read_all_there_is(ours):
                said += part
            return process.wait(60), said.decode().replace("\r\n", "\n")
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    def store(self) -> Store:
        """The store of this terminal, opened for writing."""
        return holdfast.open(self.data)

    def put(self, queue: str, *payloads: bytes, **settings: Unpack[QueueOptions]) -> None:
        """Put messages into a queue."""
        with self.store() as store:
            store.queue(queue, **settings).put_many(payloads)

    def fail(self, queue: str, *payloads: bytes, reason: str = "no good") -> None:
        """Put messages into a queue and let each fail so often that it is a dead letter."""
        with self.store() as store:
            failing = store.queue(queue, max_attempts=2, backoff=Backoff(base=0))
            failing.put_many(payloads)
            for _ in range(2):
                failing.nack(failing.lease(len(payloads)), reason)

    def fill(self, name: str, count: int, *, per_segment: int = 1000) -> None:
        """Append `record 0`, `record 1`, ... to a log."""
        with self.store() as store:
            log = store.log(name, roll=Roll.count(per_segment))
            for number in range(count):
                log.append(b"record %d" % number)


def _read_all_there_is(terminal: int) -> bytes:
    with contextlib.suppress(OSError):  # the other side has hung up
        return os.read(terminal, 4096)
    return b""


def damage_segment(data: Path, log: str, number: int, marker: bytes) -> Path:
    """Flip a bit in the first byte of `marker` in a segment, as a failing disk would."""
    path = sorted((data / "logs" / log).rglob("*.data"))[number]
    content = bytearray(path.read_bytes())
    content[content.index(marker)] ^= 1
    path.write_bytes(content)
    return path
