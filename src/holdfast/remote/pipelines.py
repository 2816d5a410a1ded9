"""How does a pipeline run on the server's machine? It is begun there, and asked after until it is done."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.remote.wire import Wire, path_of

__all__ = ["RemotePipelines"]

_PAUSE_S = 0.5


class RemotePipelines:
    """The pipelines of a server, and their runs; all of it as JSON."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def all(self) -> list[dict[str, Any]]:
        """The pipelines there are: `name`, `description`, `options`."""
        return list(self._wire.get(path_of("pipelines"))["pipelines"])

    def runs(self) -> list[dict[str, Any]]:
        """The runs that the server remembers."""
        return list(self._wire.get(path_of("pipelines"))["runs"])

    def begin(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a run; it goes on whether anybody waits for it or not."""
        return dict(self._wire.request("POST", path_of("pipelines", name, "runs"), {"options": dict(options)}))

    def status(self, id: str) -> dict[str, Any]:
        """How far a run is."""
        return dict(self._wire.get(path_of("pipelines", "runs", id)))

    def wait(self, id: str, told: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Wait until a run is done or has failed; `told` is called with each status."""
        while True:
            status = self.status(id)
            if told is not None:
                told(status)
            if status["state"] != "running":
                return status
            time.sleep(_PAUSE_S)
