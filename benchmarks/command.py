"""How is a benchmark run? From the command line: measure in a folder that goes away, show, keep, and say whether."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from benchmarks.environment import describe, filesystem_of, fingerprint
from benchmarks.harness import Line, Workshop
from benchmarks.report import PeerColumns, show

__all__ = ["Measure", "run"]

_RESULTS = Path(__file__).resolve().parent / "results"
Measure = Callable[[Workshop, bool, Status], tuple[list[Line], list[dict[str, Any]]]]
"""Does the work, small if told so, and says meanwhile what it is at; gives the lines, and what is known of peers."""


def run(
    name: str, method: str, measure: Measure, columns: PeerColumns, parts: Mapping[str, Measure] | None = None
) -> int:
    """Measure, show and keep; 1 only where `--check` finds a miss. With `--only`, one of these parts, kept nowhere."""
    options = _parse(name, method, sorted(parts or {}))
    if parts and options.only is not None:
        measure = parts[options.only]
    # Without a terminal rich would assume 80 columns and break every title.
    console = Console(width=None if sys.stdout.isatty() else 150)
    if filesystem_of(options.dir) == "tmpfs":
        console.print("[yellow]the folder is on tmpfs: figures for Flush.sync() mean nothing there (--dir)")
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.dir) as folder:
        environment = describe(Path(folder))
        with console.status("beginning") as status:
            lines, peers = measure(Workshop(Path(folder)), options.quick, status)
    if fingerprint() != environment["source"]:
        console.print("[yellow]the library's source changed during the run: lines may be of different states")
        environment["source_changed_during_run"] = True
    results = {
        "benchmark": name,
        "quick": options.quick,
        "environment": environment,
        "method": method,
        "lines": [line.as_json() for line in lines],
        "peers": peers,
    }
    show(console, lines, results, columns, informational=options.quick)
    is_whole = not options.quick and options.only is None
    output = options.output or (_RESULTS / f"{name}.json" if is_whole else None)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(results, indent=1) + "\n")
    missed = any(line.met is False for line in lines)
    return 1 if options.check and missed else 0


def _parse(name: str, method: str, parts: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=method.partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="smaller, a minute at most or so; verdicts are informational"
    )
    parser.add_argument(
        "--only", choices=parts, help="measure a part; keeps no results" if parts else argparse.SUPPRESS
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on a real disk (default: this one)")
    parser.add_argument(
        "--output",
        type=Path,
        help=f"where the JSON goes (default: benchmarks/results/{name}.json; a quick run keeps none)",
    )
    return parser.parse_args()
