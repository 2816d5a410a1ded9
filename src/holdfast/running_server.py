"""The server that has a store open: its process and its listeners, noted in the store for other processes."""

import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.base.files import SystemFiles, replace_file
from holdfast.store import LOCK

__all__ = ["RunningServer", "note_server", "server_of"]

TRANSIENT = "transient"
"""The folder, in that of a store, of what does not outlive the server, and is in no backup."""
_NAME = "server.json"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server."""

    process: int
    listeners: tuple[dict[str, Any], ...]
    """`protocol`, `host`, `port` and `tls` of each; the host is the address of the socket."""
    certificate: str | None = None
    """The path of the certificate that its TLS listeners show; None where there is none."""

    def has_port(self, host: str, port: int) -> bool:
        """Whether it listens on this port of this address, by itself or as one of all addresses."""
        return any(one.get("port") == port and _covers(str(one.get("host")), host) for one in self.listeners)


def _covers(listening: str, host: str) -> bool:
    """Whether a socket that listens on one address gets what comes for the other. `::` serves IPv4 as well."""
    if listening == host or listening == "::":  # noqa: PLR1714 - two reasons
        return True
    try:
        return listening == "0.0.0.0" and ipaddress.ip_address(host).version == 4
    except ValueError:  # a name, which may be of several addresses
        return False


def note_server(
    store: Path, process: int, listeners: Iterable[Mapping[str, Any]], certificate: Path | None = None
) -> None:
    """Note what a server listens on, and its certificate; the note goes with the server's own folder."""
    files = SystemFiles.of_store(store)
    folder = store / TRANSIENT
    files.make_dirs(folder)
    content: dict[str, Any] = {"process": process, "listeners": [dict(one) for one in listeners]}
    if certificate is not None:
        content["certificate"] = str(certificate.absolute())  # who reads the note may be in another folder
    replace_file(files, folder / _NAME, json.dumps(content).encode() + b"\n")


def server_of(store: Path) -> RunningServer | None:
    """Return the server that has this store open now; None if nobody has, or a program that is not a server."""
    try:
        found = json.loads((store / TRANSIENT / _NAME).read_bytes())
        listeners = tuple(dict(one) for one in found["listeners"])
        server = RunningServer(int(found["process"]), listeners, found.get("certificate"))
        holder = (store / LOCK).read_text().strip()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # A note that a crash left is of another process than the one that holds the lock.
    return server if holder == str(server.process) and SystemFiles().is_locked(store / LOCK) else None
