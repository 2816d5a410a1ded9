"""Starting Spark pipelines on the server's machine, and waiting for their results."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.remote.http_client import HttpClient, path_of

__all__ = ["RemotePipelines"]

_PAUSE_S = 0.5


class RemotePipelines:
    """The pipelines of a server, and their runs; all of it as JSON."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def all(self) -> list[dict[str, Any]]:
        """Return the pipelines: `name`, `description`, `options`."""
        return list(self._wire.get(path_of("pipelines"))["pipelines"])

    def runs(self) -> list[dict[str, Any]]:
        """Return the runs that the server has recorded."""
        return list(self._wire.get(path_of("pipelines"))["runs"])

    def begin(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Start a run and return its status; it continues whether a client waits for it or not."""
        return dict(self._wire.request("POST", path_of("pipelines", name, "runs"), {"options": dict(options)}))

    def status(self, id: str) -> dict[str, Any]:
        """Return the status of a run."""
        return dict(self._wire.get(path_of("pipelines", "runs", id)))

    def wait(self, id: str, report: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Ask for a run's status twice a second until it is no longer running; return the last one.

        `report` is called with each status. A run that failed is returned, not raised.
        """
        while True:
            status = self.status(id)
            if report is not None:
                report(status)
            if status["state"] != "running":
                return status
            time.sleep(_PAUSE_S)
