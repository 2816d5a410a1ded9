"""Batches of finished blocks for a server: parts are uploaded, then one request commits them."""

import time

from holdfast.base.errors import Closed
from holdfast.log.batch_inbox import Manifest
from holdfast.remote.address import Address
from holdfast.remote.errors import Unreachable
from holdfast.remote.http_client import HttpClient, path_of

__all__ = ["ServedBatches"]

_TIMEOUT_S = 60.0
_WAIT_S = 30.0
"""How long one request waits until a batch is added."""
_PAUSE_S = 0.5


class ServedBatches:
    """Sends batches to a server. Threads: any."""

    def __init__(self, address: Address) -> None:
        self.url = str(address)
        self._wire = HttpClient(address, _TIMEOUT_S)

    def check(self) -> None:
        """Raise `Unreachable` or `Refused` unless the server answers, and accepts the token."""
        self._wire.get(path_of("whoami"))

    def target(self, log: str | None, queue: str | None, query: str) -> tuple[str, int]:
        """Return the log of a target, and the last batch of a query that was added to it; -1 if there is none."""
        answer = self._wire.get(path_of("batches"), **_target(log, queue), query=query)
        return str(answer["log"]), int(answer["last"])

    def send(self, manifest: Manifest, name: str, content: bytes) -> None:
        """Upload a part."""
        self._wire.send_content(path_of("batches", name), content, **_target(manifest.log, manifest.queue))

    def remove(self, manifest: Manifest, names: list[str]) -> None:
        """Delete parts, unless their batch was committed."""
        target = _target(manifest.log, manifest.queue)
        for name in names:
            self._wire.request("DELETE", path_of("batches", name), query=target, again=True)

    def keep_position(self, log: str, name: str, position: int) -> None:
        """Commit the position of a named reader of a log. Needs configure permission for the log."""
        self._wire.request("PUT", path_of("logs", log, "tailers", name), {"position": position}, again=True)

    def commit(self, manifest: Manifest, wait: float) -> tuple[str, bool]:
        """Commit a batch and wait until it is added; return what became of it, and whether it was committed before.

        A server that does not answer is asked again until the time is up: a batch is added once, however often it is
        committed.
        """
        deadline = time.monotonic() + wait
        body = {
            **_target(manifest.log, manifest.queue),
            "query": manifest.query,
            "batch": manifest.batch,
            "once": True,  # a commit whose answer is lost is sent again
            "created": manifest.created,
            "parts": [{"file": one.file, "records": one.records, "bytes": one.bytes} for one in manifest.parts],
        }
        repeated: bool | None = None
        while True:
            left = max(0.0, min(_WAIT_S, deadline - time.monotonic()))
            try:
                answer = self._wire.request("POST", path_of("batches"), {**body, "wait": left}, again=True, wait=left)
            except (Unreachable, Closed):
                if time.monotonic() >= deadline:
                    raise
                repeated = False  # this request may have committed it
                time.sleep(_PAUSE_S)
                continue
            repeated = bool(answer["repeated"]) if repeated is None else repeated
            if answer["outcome"] != "waiting" or time.monotonic() >= deadline:
                return str(answer["outcome"]), repeated


def _target(log: str | None, queue: str | None) -> dict[str, str]:
    if queue is not None:
        return {"queue": queue}
    assert log is not None
    return {"log": log}
