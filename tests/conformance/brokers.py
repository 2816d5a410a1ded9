"""Which broker is tested, and how is Holdfast's own started?"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pika

import holdfast

__all__ = ["LIMITED", "Broker", "ServeMissing", "broker_at", "served_holdfast"]


class ServeMissing(Exception):
    """This Holdfast cannot serve AMQP."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a broker listens, and who may log in."""

    host: str
    port: int
    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    is_holdfast: bool = False
    other_vhost: str | None = None
    """A second virtual host that the user may use."""
    limited: tuple[str, str] | None = None
    """Name and password of a user with the permissions of LIMITED."""

    def parameters(self, **options: object) -> pika.ConnectionParameters:
        """What pika needs to connect."""
        settings: dict[str, object] = {
            "host": self.host,
            "port": self.port,
            "virtual_host": self.vhost,
            "credentials": pika.PlainCredentials(self.user, self.password),
            "socket_timeout": 60,
            "stack_timeout": 90,
            "blocked_connection_timeout": 60,
        }
        return pika.ConnectionParameters(**(settings | options))


LIMITED = (r"^conformance\.(own|c)\.", r"^conformance\.(own|w)\.", r"^conformance\.(own|r)\.")
"""What the limited user may configure, write and read."""


def broker_at(url: str, other_vhost: str | None = None, limited: str | None = None) -> Broker:
    """The broker of an amqp:// address; the limited user as `name:password`."""
    parts = urlsplit(url)
    path = parts.path.removeprefix("/")
    return Broker(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 5672,
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
        vhost=unquote(path) or "/",
        other_vhost=other_vhost,
        limited=(limited.partition(":")[0], limited.partition(":")[2]) if limited else None,
    )


@contextmanager
def served_holdfast(data: Path, **settings: object) -> Iterator[Broker]:
    """`holdfast serve` with these settings in a process of its own, until the end of the block."""
    _prepare(data)
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "serve",
        "--data",
        str(data),
        "--amqp-port",
        "0",
        "--host",
        "127.0.0.1",
    ]
    environment = os.environ | {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said: list[str] = []
        errors = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        errors.start()  # read all the time: a full pipe would stop the server
        try:
            port = None
            for line in process.stdout:
                if line.startswith("AMQP on "):
                    port = int(line.rsplit(":", 1)[1])
                    break
            if port is None:
                process.wait(timeout=10)
                errors.join(timeout=10)
                words = "".join(said).strip()[-2000:]
                if "No such command" in words:
                    raise ServeMissing("this Holdfast has no command `serve`")
                raise RuntimeError(f"holdfast serve ended with {process.returncode}: {words}")
            threading.Thread(target=lambda: list(process.stdout or ()), daemon=True).start()
            yield Broker("127.0.0.1", port, is_holdfast=True, other_vhost="conformance", limited=("limited", "limited"))
        finally:
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
            errors.join(timeout=10)


def _prepare(data: Path) -> None:
    """Make the second virtual host and the limited user before the broker starts."""
    try:
        from holdfast.broker.definitions import open_definitions
    except ImportError as missing:
        raise ServeMissing(f"this Holdfast has no broker ({missing})") from missing
    with holdfast.open(data) as store:
        definitions = open_definitions(store)
        if definitions.is_new:
            definitions.begin()
        if "conformance" in definitions.vhosts():
            return
        definitions.add_vhost("conformance")
        users = definitions.users()
        users.permit("guest", "conformance", ".*", ".*", ".*")
        users.add("limited", "limited")
        users.permit("limited", "/", *LIMITED)
