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
from holdfast.log.policy import Retention

__all__ = ["PREFIX", "Settings", "describe", "load"]

LEAST_TTL_S = 1.0
"""Below, a pause of a second would end a claim."""
PREFIX = "HOLDFAST_"
"""The environment variable of a setting is this prefix and the name of the setting in capitals."""


_KINDS = {
    "flag": "a flag (use true or false)",
    "list of addresses": "a list of addresses (use 127.0.0.1,::1)",
    "number": "a whole number (use 0 or more)",
    "paths": "a list of absolute paths (use /srv/backups)",
    "port": "a port (use a number from 0 to 65535, or none)",
    "seconds": "a duration (use 30 or 30s)",
    "size": "a size (use 1048576, 64KiB or 10GiB)",
}
"""The kinds of settings, as errors describe them."""


def _setting(default: Any, kind: str, help: str) -> Any:
    return field(default=default, metadata={"kind": kind, "help": help})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a served broker."""

    host: str = _setting(
        "127.0.0.1,::1",
        "list of addresses",
        "Addresses to listen on, separated by commas or as a list; `::` for all, `0.0.0.0` for all of IPv4.",
    )
    amqp_port: int | None = _setting(5672, "port", "AMQP port; 0: any free port, `none`: disabled.")
    amqps_port: int | None = _setting(None, "port", "AMQP port with TLS, usually 5671.")
    http_port: int | None = _setting(15672, "port", "Port of the management page and the HTTP API.")
    https_port: int | None = _setting(None, "port", "The same with TLS, usually 15671.")
    http_hosts: str = _setting(
        "", "text", "Host names of this server for browsers, separated by commas, in addition to localhost."
    )
    http_connections: int = _setting(
        0, "number", "Maximum number of HTTP connections; 0: an eighth of the open-file limit, at most 1000."
    )
    http_connections_per_address: int = _setting(
        0, "number", "Maximum number of HTTP connections from one address; 0: half of all."
    )
    http_header_timeout: float = _setting(
        10.0, "seconds", "Time for a client to send the headers of a request, before it is disconnected."
    )
    http_stall_timeout: float = _setting(
        30.0,
        "seconds",
        "Time that a client may send a request body, or read a response, at less than 1 KiB/s, before it is "
        "disconnected.",
    )
    allowed_paths: tuple[str, ...] = _setting(
        (),
        "paths",
        "Folders in which backups and pipelines that are started over HTTP may read and write: a list in the file, "
        "otherwise separated by colons. Without any, such requests are refused.",
    )
    group_readable: bool = _setting(
        False,
        "flag",
        "Let the group of the server's user read the store: folders 0750, files 0640.",
    )
    replica: str | None = _setting(
        None,
        "text",
        "Ship the store to this URL: `s3://bucket/prefix`, `gs://`, `az://` or `file:///folder`. Credentials come from "
        "the environment.",
    )
    replica_lag_limit: float = _setting(
        60.0,
        "seconds",
        "Lag of the replica above which an alarm is raised; it ends below half of this. 0: no such alarm.",
    )
    confirm: str = _setting(
        "local",
        "text",
        "When a message is confirmed: `local`, when it is on the local disk, or `replica`, when it is in the bucket.",
    )
    confirm_timeout: float = _setting(
        60.0, "seconds", "How long a message waits for the bucket before its publisher gets an error; 0: forever."
    )
    replica_ttl: float = _setting(
        15.0,
        "seconds",
        "How long a claim on the replica lasts. A standby takes over so long after the last sign of the owner, and an "
        "owner with a standby that cannot reach the bucket stops confirming after so long.",
    )
    standby: bool = _setting(
        False,
        "flag",
        "Follow the replica of another server, and take over when it ends. A server that still owns the replica serves "
        "at once.",
    )
    local_retention_bytes: int = _setting(
        0,
        "size",
        "With a replica, keep so much of each log on the local disk; older records are read from the replica. 0: all.",
    )
    local_retention_age: float = _setting(
        0.0, "seconds", "With a replica, keep records of this age on the local disk, as above. 0: of any age."
    )
    remote_cache: int = _setting(
        256 << 20, "size", "Size of the cache on the local disk for records that are only in the replica."
    )
    session: float = _setting(8 * 3600.0, "seconds", "How long a login on the page lasts.")
    history_interval: float = _setting(
        5.0, "seconds", "Interval at which rates and memory are recorded for the page's charts."
    )
    rpc_port: int | None = _setting(9090, "port", "Cap'n Proto port.")
    rpc_connections: int = _setting(
        0, "number", "Maximum number of Cap'n Proto connections; 0: a sixteenth of the open-file limit, at most 1000."
    )
    rpc_queue: str = _setting("queueber", "text", "The queue that Queueber clients use over Cap'n Proto.")
    rpc_queueber: str = _setting(
        "loopback", "text", "Who may use that queue, since Queueber has no login: `loopback`, `anyone` or `nobody`."
    )
    tls_certificate: str | None = _setting(None, "text", "Certificate chain of the server, a PEM file.")
    tls_key: str | None = _setting(None, "text", "Private key of the certificate, a PEM file.")
    tls_ca: str | None = _setting(None, "text", "CA certificates for client certificates, a PEM file.")
    tls_verify: bool = _setting(False, "flag", "Reject clients without a certificate signed by `tls_ca`.")
    frame_max: int = _setting(131_072, "number", "Largest frame offered to clients, in bytes.")
    channel_max: int = _setting(2047, "number", "Maximum number of channels per connection.")
    connection_max: int = _setting(
        20_000, "number", "Maximum number of AMQP connections; the open-file limit applies, too."
    )
    heartbeat: int = _setting(60, "seconds", "Heartbeat interval offered to clients; 0: none.")
    handshake_timeout: float = _setting(
        10.0, "seconds", "Time for an AMQP or Cap'n Proto client to log in, including the TLS handshake."
    )
    login_delay: float = _setting(0.5, "seconds", "Delay of the answer to a wrong password.")
    consumer_timeout: float = _setting(
        1800.0, "seconds", "How long a delivery may stay unacknowledged before its channel is closed; 0: never."
    )
    memory_bodies: int = _setting(2 << 30, "size", "Size of message bodies that all queues together keep in memory.")
    memory_queue_bodies: int = _setting(128 << 20, "size", "Size of message bodies that one queue keeps in memory.")
    memory_limit: int = _setting(
        0, "size", "Memory of the process above which publishers are blocked; 0: 60 % of the machine's memory."
    )
    disk_free_limit: int = _setting(50 << 20, "size", "Free disk space below which publishers are blocked.")
    history: float = _setting(
        7 * 86_400.0, "seconds", "How long acknowledged messages and their events are kept for Spark and replay."
    )

    @property
    def local_retention(self) -> Retention | None:
        """What stays on the local disk of each log; None: everything."""
        size, age = self.local_retention_bytes, self.local_retention_age
        return Retention(max_bytes=size or None, max_age=age or None) if size or age else None

    @property
    def hosts(self) -> list[str]:
        """The addresses to listen on."""
        return addresses_in(self.host)


def load(
    file: Path | None, environment: Mapping[str, str], given: Mapping[str, Any], also: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings. Precedence: `given`, then the environment, then the file, then the defaults.

    `given` are settings with their own option, None if not given; `also` are those of `--set`, which `given` overrides.
    """
    chosen: dict[str, Any] = {}
    known = {one.name: one for one in fields(Settings)}
    if file is not None:
        chosen |= _from_file(file, known)
    for name, one in known.items():
        text = environment.get(PREFIX + name.upper())
        if text is not None:
            chosen[name] = _parsed(one, text, f"{PREFIX}{name.upper()}")
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
        ("local_retention_bytes", 0, 1 << 60),
        ("remote_cache", 1 << 20, 1 << 60),
    ):
        value = getattr(settings, name)
        if not least <= value <= most:
            raise InvalidArgument(f"{name} is {value}: it must be from {least} to {most}")
    for name in ("amqp_port", "amqps_port", "http_port", "https_port", "rpc_port"):
        port = getattr(settings, name)
        if port is not None and not 0 <= port <= 65_535:  # beyond, a system may choose another port
            raise InvalidArgument(f"{name} is {port}: it must be from 0 to 65535")
    if settings.replica_ttl < LEAST_TTL_S:
        raise InvalidArgument(f"replica_ttl is {settings.replica_ttl:g}: it must be at least {LEAST_TTL_S:g}")
    if settings.standby and settings.replica is None:
        raise InvalidArgument("standby needs the URL of the replica that is followed: set replica, or use --replica")
    for name in ("http_header_timeout", "http_stall_timeout", "handshake_timeout"):
        if getattr(settings, name) <= 0:
            raise InvalidArgument(f"{name} is {getattr(settings, name):g}: it must be more than 0")
    if settings.confirm not in ("local", "replica"):
        raise InvalidArgument(f"confirm is {settings.confirm!r}: it must be local or replica")
    if settings.confirm == "replica" and not settings.replica:
        raise InvalidArgument("confirm is replica, and no replica is set: set replica to the URL of a bucket, too")
    for name in (
        "login_delay",
        "consumer_timeout",
        "history",
        "session",
        "history_interval",
        "confirm_timeout",
        "replica_lag_limit",
        "local_retention_age",
    ):
        if getattr(settings, name) < 0:
            raise InvalidArgument(f"{name} is {getattr(settings, name):g}: it must not be negative")
    return settings


def describe() -> list[tuple[str, str, str, str]]:
    """Return each setting's name, environment variable, default and purpose."""
    return [(one.name, PREFIX + one.name.upper(), _shown(one), str(one.metadata["help"])) for one in fields(Settings)]


def _from_file(file: Path, known: "Mapping[str, Field[Any]]") -> dict[str, Any]:
    try:
        document = tomllib.loads(file.read_text())
    except OSError as error:
        raise InvalidArgument(f"{file}: the settings cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{file}: not a TOML file: {error}") from error
    found = {}
    for name, value in document.items():
        if name not in known:
            raise InvalidArgument(f"{file}: unknown setting {name!r}; the settings are: {', '.join(known)}")
        found[name] = _parsed(known[name], value, f"{file}: {name}")
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
        if number < 0 and kind != "port":  # the range of ports is checked with the other ranges
            raise ValueError(value)
        return number
    except (KeyError, ValueError, InvalidArgument) as error:
        raise InvalidArgument(f"{where}: {value!r} is not {_KINDS[kind]}") from error


def _paths(value: object) -> tuple[str, ...]:
    """Return absolute paths from a list of texts, or from one text with colons."""
    found = value.split(os.pathsep) if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(value)
    paths = tuple(one for one in found if one)
    if not all(Path(one).is_absolute() for one in paths):
        raise ValueError(value)
    return paths


def _addresses(value: object) -> str:
    """Return a list of addresses, or a text with commas, as a text with commas."""
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
