"""How fast is the log? Everything in one run, as ratios to a floor or a peer: `python -m benchmarks.log`.

Absolute times depend on the machine and are context. A line is judged by the median of the ratios of its rounds, in
each of which floor and subject were measured one right after the other. Raw rounds are in seconds a record, or an
opening; those of memory in MiB.
"""

import sys
from dataclasses import dataclass
from typing import Any

from rich.status import Status

from benchmarks.command import run
from benchmarks.harness import Line, Workshop, payloads_of
from benchmarks.log_rates import compare_peers, measure_append, measure_read
from benchmarks.log_scale import measure_open, measure_read_memory, measure_sync
from benchmarks.peers import PEERS
from benchmarks.report import PeerColumns

__all__ = ["main"]

_COLUMNS = PeerColumns({"put/s": "put_s", "get/s": "get_s"}, {"set up": "setup", "read back by": "reading"})


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each part measures."""

    records: int
    rounds: int
    peer_records: int
    peer_rounds: int
    sync_records: int
    sync_rounds: int
    small_mib: int
    large_mib: int
    open_rounds: int


FULL = Sizes(100_000, 25, 5_000, 9, 200, 11, 64, 1024, 51)
QUICK = Sizes(50_000, 5, 1_000, 3, 100, 3, 16, 128, 11)


def main() -> int:
    """Measure, show and keep; 1 only where `--check` finds a miss."""
    return run("log", __doc__ or "", _measure, _COLUMNS)


def _measure(workshop: Workshop, quick: bool, status: Status) -> tuple[list[Line], list[dict[str, Any]]]:
    sizes = QUICK if quick else FULL
    payloads = payloads_of(sizes.records)
    status.update("append against the floor")
    lines = measure_append(workshop, payloads, sizes.rounds)
    status.update("append against peers")
    peers = compare_peers(workshop, payloads, sizes.peer_records, sizes.peer_rounds)
    lines += peers.lines
    status.update("reading against the floor")
    lines += measure_read(workshop, payloads, sizes.rounds)
    status.update("Flush.sync() against fdatasync")
    lines += measure_sync(workshop, payloads[: sizes.sync_records], sizes.sync_rounds)
    status.update("opening a large log against a small one")
    opened, large = measure_open(workshop, sizes.small_mib, sizes.large_mib, sizes.open_rounds)
    lines += opened
    status.update("memory that reading takes")
    lines += measure_read_memory(large, sizes.large_mib)
    return lines, [
        {
            "name": peer.name,
            "library": peer.library,
            "setup": peer.setup,
            "reading": peer.reading,
            "put_s": peers.put[peer.name],
            "get_s": peers.get[peer.name],
        }
        for peer in PEERS
    ]


if __name__ == "__main__":
    sys.exit(main())
