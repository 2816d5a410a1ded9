"""How fast is the queue? Everything in one run, as ratios to peers or to itself: `python -m benchmarks.queue`.

A line is judged by its median over rounds. Ratios are of what was measured in the same round, one right after the
other, and a peer is compared in the fastest setting that keeps its promises: a durable one with a durable one, one that
leaves the disk to the operating system with another. Raw rounds are in seconds a lifecycle (put, lease and ack of a
message), or an opening; those of memory in bytes, those of delays in milliseconds. huey's dequeue forgets a message at
once: no ack and no redelivery, so that its lifecycle does less.
"""

import sys
from dataclasses import dataclass
from typing import Any

from rich.status import Status

from benchmarks.command import run
from benchmarks.harness import Line, Workshop, payloads_of
from benchmarks.queue_delays import measure_delays
from benchmarks.queue_peers import QUEUE_PEERS
from benchmarks.queue_rates import compare_queues, measure_orders
from benchmarks.queue_scale import make_backlog, measure_backlog, measure_open_queue, measure_queue_memory
from benchmarks.report import PeerColumns

__all__ = ["main"]

_COLUMNS = PeerColumns(
    {
        "batches/s": "batches_s",
        "one by one/s": "one_by_one_s",
        "durable/s": "durable_1_s",
        "16 threads/s": "durable_16_s",
    },
    {"set up": "setup", "note": "note"},
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each part measures."""

    messages: int
    peer_messages: int
    durable_messages: int
    rounds: int
    backlog: int
    backlog_rounds: int
    backlog_windows: int
    open_rounds: int
    pending: int
    due: int
    spread_s: float


FULL = Sizes(100_000, 4_000, 100, 15, 5_000_000, 31, 8, 7, 1_000_000, 60_000, 60.0)
QUICK = Sizes(40_000, 1_000, 40, 3, 200_000, 5, 2, 3, 50_000, 3_000, 3.0)


def main() -> int:
    """Measure, show and keep; 1 only where `--check` finds a miss."""
    return run("queue", __doc__ or "", _measure, _COLUMNS)


def _measure(workshop: Workshop, quick: bool, status: Status) -> tuple[list[Line], list[dict[str, Any]]]:
    sizes = QUICK if quick else FULL
    payloads = payloads_of(sizes.messages)
    status.update("lifecycles against peers")
    rates = compare_queues(workshop, payloads, sizes.peer_messages, sizes.durable_messages, sizes.rounds)
    lines = rates.lines
    status.update("taking in another order than was put")
    lines += measure_orders(workshop, payloads, sizes.rounds)
    status.update("filling queues")
    stores = {kind: make_backlog(workshop, sizes.backlog, kind) for kind in ("plain", "mixed")}
    status.update("opening a long queue")
    opened = measure_open_queue(workshop, stores, sizes.backlog, sizes.open_rounds)
    status.update("memory of a long queue")
    memory = measure_queue_memory(workshop, stores, sizes.backlog)
    status.update("taking from a long queue against a short one")
    lines += measure_backlog(stores, sizes.backlog, sizes.backlog_rounds, sizes.backlog_windows)
    lines += opened + memory
    status.update("delayed messages")
    lines += measure_delays(workshop, sizes.pending, sizes.due, sizes.spread_s)
    return lines, [
        {"name": peer.name, "library": peer.library, "setup": peer.setup, "note": peer.note}
        | {f"{way}_s": seconds[peer.name] for way, seconds in rates.best.items()}
        for peer in QUEUE_PEERS
    ]


if __name__ == "__main__":
    sys.exit(main())
