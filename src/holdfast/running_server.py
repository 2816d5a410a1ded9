"""The server that has a store open: its process and its listeners, recorded in the store for other processes."""

import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.base.files import SystemFiles, replace_file
from holdfast.store_layout import LOCK

__all__ = ["RunningServer", "note_server", "server_of"]

TRANSIENT = "transient"
"""The folder in a store for files that do not outlive the server, and are not in backups."""
_NAME = "server.json"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server."""

    process: int
    listeners: tuple[dict[str, Any], ...]
    """`protocol`, `host`, `port` and `tls` of each; the host is the address of the socket."""
    certificate: str | None = None
    """The path of the certificate that its TLS listeners present; None if there is none."""
    replica: str | None = None
    """The URL that it ships the store to; None if it does not."""

    def has_port(self, host: str, port: int) -> bool:
        """Return whether it listens on this port of this address, also with a socket for all addresses."""
        return any(one.get("port") == port and _covers(str(one.get("host")), host) for one in self.listeners)


def _covers(listening: str, host: str) -> bool:
    """Return whether a socket that listens on one address accepts connections to the other. `::` includes IPv4."""
    if listening == host or listening == "::":  # noqa: PLR1714 - two reasons
        return True
    try:
        return listening == "0.0.0.0" and ipaddress.ip_address(host).version == 4
    except ValueError:  # a name, which may have several addresses
        return False


def note_server(
    store: Path,
    process: int,
    listeners: Iterable[Mapping[str, Any]],
    certificate: Path | None = None,
    replica: str | None = None,
) -> None:
    """Record what a server does in the folder `transient`, which the server removes when it stops."""
    files = SystemFiles.of_store(store)
    folder = store / TRANSIENT
    files.make_dirs(folder)
    content: dict[str, Any] = {"process": process, "listeners": [dict(one) for one in listeners]}
    if certificate is not None:
        content["certificate"] = str(certificate.absolute())  # the reader may have another working directory
    if replica is not None:
        content["replica"] = replica
    replace_file(files, folder / _NAME, json.dumps(content).encode() + b"\n")


def server_of(store: Path) -> RunningServer | None:
    """Return the server that has this store open; None if no process has, or a program that is not a server."""
    try:
        found = json.loads((store / TRANSIENT / _NAME).read_bytes())
        listeners = tuple(dict(one) for one in found["listeners"])
        server = RunningServer(int(found["process"]), listeners, found.get("certificate"), found.get("replica"))
        holder = (store / LOCK).read_text().strip()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # A record that a crash left names another process than the one that holds the lock.
    return server if holder == str(server.process) and SystemFiles().is_locked(store / LOCK) else None
