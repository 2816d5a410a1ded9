"""What does a replica cost? Against the same load without one, in one run: `python -m benchmarks.replica`.

The bucket is SeaweedFS, a real S3, in a process of its own on the same machine and disk; messages have 1,000 random
bytes. Loads with and without a replica are measured in turns, each in a new store. `--only confirm` measures waiting
for the bucket, `--only load` publishing without waiting, `--only restore` restoring and quiet logs; these keep no
results. It needs the packages of the tests. Raw rounds are in seconds, of a message or of a wait.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.status import Status
from tests.replica.seaweed import running

from benchmarks.command import run
from benchmarks.harness import Line, Workshop
from benchmarks.replica_confirm import measure_waiting
from benchmarks.replica_loads import measure_loads
from benchmarks.replica_restore import measure_quiet_logs, measure_restore
from benchmarks.report import PeerColumns

__all__ = ["main"]

_COLUMNS = PeerColumns({"messages/s": "message_s"}, {"note": "note"})
_PARTS = ("confirm", "load", "restore")


def main() -> int:
    """Measure, show and keep; 1 only where `--check` finds a miss."""
    return run(
        "replica",
        __doc__ or "",
        partial(_measure, _PARTS),
        _COLUMNS,
        {one: partial(_measure, (one,)) for one in _PARTS},
    )


def _measure(
    parts: tuple[str, ...], workshop: Workshop, quick: bool, status: Status
) -> tuple[list[Line], list[dict[str, Any]]]:
    rounds, seconds = (1, 2.0) if quick else (3, 5.0)
    lines: list[Line] = []
    peers: list[dict[str, Any]] = []
    if "confirm" in parts:
        with _server(workshop):
            found, beside = measure_waiting(workshop, rounds, seconds, status)
        lines += found
        peers += beside
    if "load" in parts:
        found, beside = measure_loads(workshop, rounds, seconds, status, partial(_server, workshop))
        lines += found
        peers += beside
    if "restore" in parts:
        with _server(workshop):
            lines += measure_restore(workshop, rounds, 20_000 if quick else 200_000, status)
            lines += measure_quiet_logs(workshop, 100 if quick else 1000, 5 if quick else 15, status)
    return lines, peers


@contextmanager
def _server(workshop: Workshop) -> Iterator[None]:
    """Run a server whose folder goes away: one holds 5 GB at most."""
    with workshop.borrowed() as folder:
        folder.mkdir()
        with running(folder.resolve()) as server:
            os.environ.update(server.environment())
            yield


if __name__ == "__main__":
    raise SystemExit(main())
