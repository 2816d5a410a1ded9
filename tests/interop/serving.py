"""How is a broker of its own served for a test, plain and over TLS, and stopped and started again?"""

import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pika

from tests.interop.certificates import Authority, Certificate

__all__ = ["DEADLINE_S", "Door", "Served", "until"]

Seen = TypeVar("Seen")

DEADLINE_S = 120.0
"""After so long a test gives up: long enough for a machine that does much else."""


@dataclass(frozen=True, slots=True)
class Door:
    """One way to the broker: where it listens, and how it is spoken to."""

    port: int
    authority: Authority | None = None
    """Whom a client trusts over TLS; None where it speaks in the clear."""
    host: str = "localhost"

    def parameters(self, certificate: Certificate | None = None, **options: Any) -> pika.ConnectionParameters:
        """What pika needs to connect."""
        secure = self.authority and pika.SSLOptions(self.authority.context(certificate), self.host)
        limits = {"socket_timeout": 60, "stack_timeout": 90, "blocked_connection_timeout": 60}
        return pika.ConnectionParameters(self.host, self.port, ssl_options=secure, **(limits | options))

    @property
    def url(self) -> str:
        """The address, as aio-pika takes it."""
        if self.authority is None:
            return f"amqp://guest:guest@{self.host}:{self.port}/"
        return f"amqps://guest:guest@{self.host}:{self.port}/?cafile={self.authority.file}"

    @property
    def address(self) -> str:
        """The address, as kombu and Celery take it: TLS is another setting there."""
        return f"amqp://guest:guest@{self.host}:{self.port}//"

    @property
    def ssl(self) -> dict[str, Any] | bool:
        """How kombu and Celery speak TLS."""
        if self.authority is None:
            return False
        return {"ca_certs": str(self.authority.file), "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": self.host}


class Served:
    """`holdfast serve` in a process of its own. Its ports stay the same when it is started again."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.authority = Authority(folder)
        self._certificate = self.authority.for_server()
        self._ports = {"AMQP": 0, "AMQP over TLS": 0}
        self._process: subprocess.Popen[str] | None = None
        self._readers: list[threading.Thread] = []
        self.said: list[str] = []
        """The lines of its log."""

    @property
    def plain(self) -> Door:
        """The door where all is in the clear."""
        return Door(self._ports["AMQP"])

    @property
    def tls(self) -> Door:
        """The door where TLS is spoken."""
        return Door(self._ports["AMQP over TLS"], self.authority)

    def start(self) -> None:
        """Serve, and wait until it listens."""
        command = [sys.executable, "-m", "holdfast", "serve", "--data", str(self.data)]
        command += ["--amqp-port", str(self._ports["AMQP"]), "--amqps-port", str(self._ports["AMQP over TLS"])]
        for name, value in (
            ("tls_certificate", self._certificate.chain),
            ("tls_key", self._certificate.key),
            ("tls_ca", self.authority.file),
        ):
            command += ["--set", f"{name}={value}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._readers = [self._read(process.stderr, self.said)]
        for _ in self._ports:
            line = process.stdout.readline()
            protocol, found, address = line.partition(" on ")
            assert found, f"the server does not listen: {line!r} {self.said}"
            self._ports[protocol] = int(address.rsplit(":", 1)[1])
        self._readers.append(self._read(process.stdout, []))

    def ask_to_stop(self) -> None:
        """Ask it to stop, as an operator does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop it: it must end well and leave no error behind in its log."""
        process = self._process
        if process is None:
            return
        self.ask_to_stop()
        self._process = None
        try:
            code = process.wait(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait()
            for reader in self._readers:
                reader.join()
        log = "".join(self.said)
        assert code == 0, f"the server ended with {code}: {log}"
        assert "Traceback" not in log, log
        assert " ERROR " not in log, log

    def crash(self) -> None:
        """End it in the middle of whatever it does."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait()
        for reader in self._readers:
            reader.join()

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    @staticmethod
    def _read(pipe: Any, lines: list[str]) -> threading.Thread:
        """Read all the time, as a full pipe would stop the server."""

        def read() -> None:
            with pipe:
                lines.extend(pipe)

        reader = threading.Thread(target=read)
        reader.start()
        return reader


def until(look: Callable[[], Seen], what: str) -> Seen:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + DEADLINE_S
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)
    return seen
