"""The server that has a store open: its process and its listeners, noted in the store for who looks at it beside it."""

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
    """A server that runs."""

    process: int
    listeners: tuple[dict[str, Any], ...]
    """`protocol`, `host`, `port` and `tls` of each."""

    def has_port(self, port: int) -> bool:
        """Whether it listens there."""
        return any(one.get("port") == port for one in self.listeners)


def note_server(store: Path, process: int, listeners: Iterable[Mapping[str, Any]]) -> None:
    """Note what a server listens on; the note goes with the server's own folder."""
    files = SystemFiles.of_store(store)
    folder = store / TRANSIENT
    files.make_dirs(folder)
    content = {"process": process, "listeners": [dict(one) for one in listeners]}
    replace_file(files, folder / _NAME, json.dumps(content).encode() + b"\n")


def server_of(store: Path) -> RunningServer | None:
    """The server that has this store open now; None where nobody has, or a program that is no server."""
    try:
        found = json.loads((store / TRANSIENT / _NAME).read_bytes())
        server = RunningServer(int(found["process"]), tuple(dict(one) for one in found["listeners"]))
        holder = (store / LOCK).read_text().strip()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # A note that a crash left is of another process than the one that holds the lock.
    return server if holder == str(server.process) and SystemFiles().is_locked(store / LOCK) else None
