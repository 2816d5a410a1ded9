"""How fast is the log? Everything in one run, as ratios to a floor or a peer: `python -m benchmarks.log`.

Absolute times depend on the machine and are context. A line is judged by the median of the ratios of its rounds, in
each of which floor and subject were measured one right after the other. Raw rounds are in seconds a record, or an
opening; those of memory in MiB.
"""

import argparse
import itertools
import json
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.environment import describe, filesystem_of, fingerprint
from benchmarks.harness import Line, Workshop
from benchmarks.log_rates import PeerTable, compare_peers, measure_append, measure_read
from benchmarks.log_scale import measure_open, measure_read_memory, measure_sync
from benchmarks.peers import PEERS
from benchmarks.report import show

__all__ = ["main"]

_RESULTS = Path(__file__).resolve().parent / "results" / "log.json"
_PAYLOAD = 100


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
    options = _parse()
    sizes = QUICK if options.quick else FULL
    # Without a terminal rich would assume 80 columns and break every title.
    console = Console(width=None if sys.stdout.isatty() else 150)
    if filesystem_of(options.dir) == "tmpfs":
        console.print("[yellow]the folder is on tmpfs: figures for Flush.sync() mean nothing there (--dir)")
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.dir) as folder:
        environment = describe(Path(folder))
        lines, peers = _measure(Workshop(Path(folder)), sizes, console)
    if fingerprint() != environment["source"]:
        console.print("[yellow]the library's source changed during the run: lines may be of different states")
        environment["source_changed_during_run"] = True
    results = _results(lines, peers, options.quick, environment)
    show(console, lines, results, informational=options.quick)
    output = options.output or (None if options.quick else _RESULTS)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(results, indent=1) + "\n")
    missed = any(line.met is False for line in lines)
    return 1 if options.check and missed else 0


def _measure(workshop: Workshop, sizes: Sizes, console: Console) -> tuple[list[Line], PeerTable]:
    payloads = _payloads(sizes.records)
    lines: list[Line] = []
    with console.status("append against the floor") as status:
        lines += measure_append(workshop, payloads, sizes.rounds)
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
    return lines, peers


def _payloads(count: int) -> list[bytes]:
    # Drawn from a pool that fits a processor's cache, as a payload does that was made just before it is appended.
    source = random.Random(1)
    pool = [source.randbytes(_PAYLOAD) for _ in range(4096)]
    return list(itertools.islice(itertools.cycle(pool), count))


def _results(lines: list[Line], peers: PeerTable, quick: bool, environment: dict[str, Any]) -> dict[str, Any]:
    return {
        "benchmark": "log",
        "quick": quick,
        "environment": environment,
        "method": __doc__,
        "lines": [line.as_json() for line in lines],
        "peers": [
            {
                "name": peer.name,
                "library": peer.library,
                "setup": peer.setup,
                "reading": peer.reading,
                "put_s": peers.put[peer.name],
                "get_s": peers.get[peer.name],
            }
            for peer in PEERS
        ],
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller, under a minute; verdicts are informational")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on a real disk (default: this one)")
    parser.add_argument(
        "--output", type=Path, help="where the JSON goes (default: benchmarks/results/log.json; a quick run keeps none)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
