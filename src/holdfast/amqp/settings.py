"""Settings of a served broker, loaded from a file, the environment and the command line."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from holdfast.amqp.listeners import addresses_in
from holdfast.base.errors import InvalidArgument
from holdfast.base.units import parse_duration, parse_size

__all__ = ["PREFIX", "Settings", "describe", "load"]

PREFIX = "HOLDFAST_"
"""What the environment variable of a setting begins with; the rest is its name in capitals."""


_KINDS = {"paths": "list of absolute paths"}
"""How a kind is called in errors, where its own name would not do."""


def _setting(default: Any, kind: str, help: str) -> Any:
    return field(default=default, metadata={"kind": kind, "help": help})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a served broker."""

    host: str = _setting(
        "127.0.0.1,::1",
        "list of addresses",
        "The addresses to listen on, with commas or as a list; `::` for all, `0.0.0.0` for all of IPv4.",
    )
    amqp_port: int | None = _setting(5672, "port", "The port for AMQP; 0 takes a free one, `none` listens on none.")
    amqps_port: int | None = _setting(None, "port", "The port for AMQP over TLS, usually 5671.")
    http_port: int | None = _setting(15672, "port", "The port for the management page and the HTTP API.")
    https_port: int | None = _setting(None, "port", "The same over TLS, usually 15671.")
    http_hosts: str = _setting("", "text", "Names, with commas, by which browsers reach the page, beside localhost.")
    http_connections: int = _setting(
        0, "number", "How many HTTP connections may be open; 0: an eighth of the process's open files, 1000 at most."
    )
    http_connections_per_address: int = _setting(0, "number", "The same from one address; 0: half as many.")
    http_header_timeout: float = _setting(
        10.0, "seconds", "How long a client may take to send the headers of a request; then it is disconnected."
    )
    http_stall_timeout: float = _setting(
        30.0,
        "seconds",
        "How long a client may send a request body, or read an answer, at less than 1 KiB/s; then it is disconnected.",
    )
    allowed_paths: tuple[str, ...] = _setting(
        (),
        "paths",
        "Folders below which backups and pipelines that are started over HTTP may read and write; a list in the file, "
        "elsewhere with colons between. None: such requests are refused.",
    )
    group_readable: bool = _setting(
        False,
        "flag",
        "Let the group of the server's user read the store: folders 0750, files 0640.",
    )
    session: float = _setting(8 * 3600.0, "seconds", "How long a login on the page lasts.")
    history_interval: float = _setting(5.0, "seconds", "How often rates and memory are noted for the page's charts.")
    rpc_port: int | None = _setting(9090, "port", "The port for Cap'n Proto.")
    rpc_connections: int = _setting(
        0, "number", "How many Cap'n Proto clients may be connected; 0: a sixteenth of the open files, 1000 at most."
    )
    rpc_queue: str = _setting("queueber", "text", "The queue that clients of Queueber get over Cap'n Proto.")
    rpc_queueber: str = _setting(
        "loopback", "text", "Who may use that queue, as Queueber knows no passwords: `loopback`, `anyone` or `nobody`."
    )
    tls_certificate: str | None = _setting(None, "text", "The server's certificate chain, a PEM file.")
    tls_key: str | None = _setting(None, "text", "Its private key, a PEM file.")
    tls_ca: str | None = _setting(None, "text", "Certificates that client certificates must be signed by, a PEM file.")
    tls_verify: bool = _setting(False, "flag", "Refuse clients without such a certificate.")
    frame_max: int = _setting(131_072, "number", "The largest frame, in bytes, that is offered to clients.")
    channel_max: int = _setting(2047, "number", "How many channels a connection may have.")
    connection_max: int = _setting(
        20_000, "number", "How many AMQP clients may be connected; the open files limit it too."
    )
    heartbeat: int = _setting(60, "seconds", "The heartbeat that is offered to clients; 0 for none.")
    handshake_timeout: float = _setting(
        10.0, "seconds", "How long a client of AMQP or Cap'n Proto may take to log in, with the handshake of TLS."
    )
    login_delay: float = _setting(0.5, "seconds", "How long the answer to a wrong password is held back.")
    consumer_timeout: float = _setting(
        1800.0, "seconds", "How long a delivery may stay unacknowledged before its channel is closed; 0 for ever."
    )
    memory_bodies: int = _setting(2 << 30, "size", "Bytes of message bodies that all queues may keep in memory.")
    memory_queue_bodies: int = _setting(128 << 20, "size", "Bytes of message bodies that one queue may keep in memory.")
    memory_limit: int = _setting(
        0, "size", "Memory of the whole process above which publishers are blocked; 0: 60 % of the machine's."
    )
    disk_free_limit: int = _setting(50 << 20, "size", "Free disk space below which publishers are blocked.")
    history: float = _setting(
        7 * 86_400.0,
        "seconds",
        "How long messages that are done, and the story of each, are kept for Spark and replay.",
    )

    @property
    def hosts(self) -> list[str]:
        """The addresses to listen on."""
        return addresses_in(self.host)


def load(
    file: Path | None, environment: Mapping[str, str], given: Mapping[str, Any], also: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings. Precedence: `given`, then the environment, then the file, then the defaults.

    `given` are options with a flag of their own, None if not given; `also` are those of `--set`, which `given`
    overrides.
    """
    chosen: dict[str, Any] = {}
    known = {one.name: one for one in fields(Settings)}
    if file is not None:
        chosen |= _from_file(file, known)
    for name, one in known.items():
        text = environment.get(PREFIX + name.upper())
        if text is not None:
            chosen[name] = _parsed(one, text, f"the variable {PREFIX}{name.upper()}")
    for name, text in (also or {}).items():
        chosen[name] = _parsed(known[name], text, f"--set {name}")
    for name, value in given.items():
        if value is not None:
            chosen[name] = _parsed(known[name], value, f"--{name.replace('_', '-')}")
    return _checked(Settings(**chosen))


def _checked(settings: Settings) -> Settings:
    """Reject settings that cannot work."""
    for name, least, most in (
        ("frame_max", 4096, 1 << 30),
        ("channel_max", 0, 65_535),
        ("connection_max", 1, 1 << 30),
        ("heartbeat", 0, 65_535),
    ):
        value = getattr(settings, name)
        if not least <= value <= most:
            raise InvalidArgument(f"{name} is {value}: it must be from {least} to {most}")
    for name in ("amqp_port", "amqps_port", "http_port", "https_port", "rpc_port"):
        port = getattr(settings, name)
        if port is not None and not 0 <= port <= 65_535:  # beyond, a system may take another one than was meant
            raise InvalidArgument(f"{name} is {port}: it must be from 0 to 65535")
    for name in ("http_header_timeout", "http_stall_timeout", "handshake_timeout"):
        if getattr(settings, name) <= 0:
            raise InvalidArgument(f"{name} is {getattr(settings, name)}: it must be more than 0")
    for name in ("login_delay", "consumer_timeout", "history", "session", "history_interval"):
        if getattr(settings, name) < 0:
            raise InvalidArgument(f"{name} is {getattr(settings, name)}: it must not be negative")
    return settings


def describe() -> list[tuple[str, str, str, str]]:
    """Return each setting's name, environment variable, default and purpose."""
    return [(one.name, PREFIX + one.name.upper(), _shown(one), str(one.metadata["help"])) for one in fields(Settings)]


def _from_file(file: Path, known: "Mapping[str, Field[Any]]") -> dict[str, Any]:
    try:
        document = tomllib.loads(file.read_text())
    except OSError as error:
        raise InvalidArgument(f"the configuration {str(file)!r} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the configuration {str(file)!r} is no TOML: {error}") from error
    found = {}
    for name, value in document.items():
        if name not in known:
            raise InvalidArgument(
                f"the configuration {str(file)!r} has a setting {name!r} that does not exist; "
                f"there are: {', '.join(known)}"
            )
        found[name] = _parsed(known[name], value, f"{name} in {str(file)!r}")
    return found


def _parsed(one: "Field[Any]", value: object, where: str) -> Any:
    kind = one.metadata["kind"]
    try:
        if kind == "flag":
            if isinstance(value, bool):
                return value
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[str(value).lower()]
        if isinstance(value, bool):
            raise ValueError(value)
        if kind == "list of addresses":
            return _addresses(value)
        if kind == "text":
            return str(value)
        if kind == "paths":
            return _paths(value)
        if kind == "port" and str(value).lower() in ("", "none"):
            return None
        if kind == "size":
            return value if isinstance(value, int) else parse_size(str(value))
        if kind == "seconds":
            number = float(str(value)) if _is_number(value) else parse_duration(str(value)).total_seconds()
            return int(number) if isinstance(one.default, int) else number
        number = int(str(value))
        if number < 0 and kind != "port":  # how large a port may be is said with the others
            raise ValueError(value)
        return number
    except (KeyError, ValueError, InvalidArgument) as error:
        raise InvalidArgument(f"{where} is {value!r}, which is no {_KINDS.get(kind, kind)}") from error


def _paths(value: object) -> tuple[str, ...]:
    """Absolute paths: a list of texts, or one text with colons between them."""
    found = value.split(os.pathsep) if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(value)
    paths = tuple(one for one in found if one)
    if not all(Path(one).is_absolute() for one in paths):
        raise ValueError(value)
    return paths


def _addresses(value: object) -> str:
    """A list of addresses, or a text with commas, as a text with commas."""
    parts = value if isinstance(value, list) else [value]
    given = [one for one in parts if isinstance(one, str)]
    found = addresses_in(",".join(given))
    if len(given) < len(parts) or not found:
        raise ValueError(value)
    return ",".join(found)


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True


def _shown(one: "Field[Any]") -> str:
    value: Any = one.default
    if value is None or value == ():
        return "none"
    if one.metadata["kind"] == "size" and value:
        return f"{value >> 20} MiB"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
