"""How does a benchmark look on a terminal? One table of lines with their verdicts, one of rates."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Line

__all__ = ["PeerColumns", "rate", "show", "times"]


@dataclass(frozen=True, slots=True)
class PeerColumns:
    """What is shown of peers: headings, and under which name the results have it."""

    rates: dict[str, str]
    """From seconds each; where a peer has none it stays empty."""
    words: dict[str, str]


def show(
    console: Console, lines: list[Line], results: dict[str, Any], columns: PeerColumns, *, informational: bool
) -> None:
    """Print the verdicts, then the rates of peers and how each was set up."""
    table = Table(title=f"Holdfast {results['benchmark']} benchmark", caption=_caption(results, informational))
    table.add_column("what")
    for heading in ("median", "of minima", "target", "Holdfast", "beside"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for line in lines:
        target = (
            "-" if line.target is None else f"{'≤' if line.sense == 'at most' else '≥'} {line.target:g} {line.unit}"
        )
        paired = "subject" in line.rounds[0]
        table.add_row(
            line.title,
            times(line.median, line.unit),
            "-" if line.of_minima is None else times(line.of_minima, line.unit),
            target,
            seconds(line.best("subject")) if paired else "-",
            seconds(line.best("floor")) if paired else "-",
            {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[line.met],
        )
    console.print(table)
    peers = Table(title="Peers, best of all rounds")
    peers.add_column("peer")
    for heading in columns.rates:
        peers.add_column(heading, justify="right", no_wrap=True)
    for heading in columns.words:
        peers.add_column(heading)
    for peer in results["peers"]:
        rates = [rate(peer[name]) if peer.get(name) else "-" for name in columns.rates.values()]
        peers.add_row(peer["name"], *rates, *(peer[name] for name in columns.words.values()))
    console.print(peers)


def times(value: float, unit: str) -> str:
    """A ratio or a size with its unit."""
    return f"{value:.2f} {unit}" if value < 10 else f"{value:.1f} {unit}"


def seconds(value: float) -> str:
    """A time in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.2f} {unit}"
    return f"{value / 1e-9:.0f} ns"


def rate(seconds_each: float) -> str:
    """Records a second, to three figures."""
    value = 1 / seconds_each
    for suffix, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {suffix}"
    return f"{value:.3g}"


def _caption(results: dict[str, Any], informational: bool) -> str:
    found = results["environment"]
    where = f"Python {found['python']}, {found['cpu']}, {found['cores']} cores, {found['filesystem']}"
    return where + (" - quick: verdicts are informational" if informational else "")
