"""How do the figures look? Draws charts from a benchmark's JSON, without measuring: `python -m benchmarks.charts`."""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from benchmarks.report import rate, times

__all__ = ["amqp_rate_chart", "main", "queue_rate_chart", "rate_chart", "ratio_chart", "spark_rate_chart"]

_ROOT = Path(__file__).resolve().parent.parent
# A card of its own: GitHub's light and dark pages both show it, and no text depends on the page's colour.
_CARD, _EDGE, _INK, _MUTED, _GRID = "#ffffff", "#d0d7de", "#1f2328", "#656d76", "#e7ebef"
_OURS, _THEIRS, _MET, _MISSED = "#0f766e", "#a8b3bf", "#0f766e", "#c2410c"


def main() -> None:
    """Draw two charts for each benchmark that was kept, as SVG, and as PNG too where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.charts")
    kept = sorted(path for path in (_ROOT / "benchmarks" / "results").glob("*.json") if path.stem != "web")
    parser.add_argument("results", type=Path, nargs="*", default=kept, help="JSON files (default: all that are kept)")
    parser.add_argument("--out", type=Path, default=_ROOT / "docs" / "img")
    parser.add_argument("--png", action="store_true", help="PNG files as well, to look at")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    mpl.rcParams |= {"font.family": "DejaVu Sans", "font.size": 10, "svg.hashsalt": "holdfast", "svg.fonttype": "path"}
    for path in options.results:
        results = json.loads(path.read_text())
        name = results["benchmark"]
        rates = {
            "amqp": amqp_rate_chart,
            "log": rate_chart,
            "queue": queue_rate_chart,
            "spark": spark_rate_chart,
            "table": table_rate_chart,
        }[name]
        figures = {"rates": rates(results)}
        if _judged(results):  # none where there was nothing to compare with
            figures["ratios"] = ratio_chart(results)
        for kind, figure in figures.items():
            figure.savefig(options.out / f"{name}-{kind}.svg", transparent=True, metadata={"Date": None})
            if options.png:
                figure.savefig(options.out / f"{name}-{kind}.png", transparent=True, dpi=130)


def rate_chart(results: dict[str, Any]) -> Figure:
    """Records a second in and out, Holdfast beside its peers, on a logarithmic scale."""
    lines = {line["id"]: line for line in results["lines"]}

    def best(line: str) -> float:
        return float(min(measured["subject"] for measured in lines[line]["rounds"]))

    put = [("Holdfast append_many(100)", best("append_many"), True), ("Holdfast append", best("append"), True)]
    get = [
        ("Holdfast blocks()", best("blocks"), True),
        ("Holdfast read_many(1000)", best("read_many"), True),
        ("Holdfast, one by one", best("read"), True),
    ]
    put += [(peer["name"], peer["put_s"], False) for peer in results["peers"]]
    # A peer's settings differ in how it writes: it is read back once for each library.
    fastest: dict[str, float] = {}
    for peer in results["peers"]:
        fastest[peer["library"]] = min(peer["get_s"], fastest.get(peer["library"], peer["get_s"]))
    get += [(library, seconds, False) for library, seconds in fastest.items()]
    panels = {"Writing, 100 B a record": put, "Reading it back": get}
    return _rates(results, panels, "records a second (logarithmic), best of all rounds", (200, 4e8))


def queue_rate_chart(results: dict[str, Any]) -> Figure:
    """Lifecycles a second, Holdfast beside its peers, on a logarithmic scale."""
    lines = {line["id"]: line for line in results["lines"]}
    ways = {
        "batches": "Put, lease and ack in batches of 100, 100 B a message",
        "one_by_one": "One by one",
        "durable_16": "One by one, each step on disk, 16 threads",
    }
    panels = {}
    for way, title in ways.items():
        mine = float(min(measured["holdfast"] for measured in lines[way]["rounds"]))
        peers = [(_marked(peer["name"]), peer[f"{way}_s"], False) for peer in results["peers"]]
        panels[title] = [("Holdfast", mine, True), *peers]
    return _rates(results, panels, "messages a second (logarithmic), best of all rounds", (100, 4e6))


def amqp_rate_chart(results: dict[str, Any]) -> Figure:
    """Messages a second through the broker, beside RabbitMQ where there was one, on a logarithmic scale."""
    ways = {
        "confirmed": "Persistent 100 B with confirms, 1 producer and 1 consumer",
        "confirmed_10": "10 producers and 10 consumers",
        "varied": "60 to 140 B, each with its own id and headers, acked one by one",
        "large": "64 KiB",
        "lone": "A lone publish at a time, each waits for its confirm",
        "backlog": "All published, then all consumed",
        "transient": "Transient 100 B without confirms, 1 producer and 1 consumer",
    }
    mine, *others = results["peers"]
    if others:
        panels = {
            title: [(peer["name"], peer[f"{way}_s"], peer is mine) for peer in (mine, *others)]
            for way, title in ways.items()
        }
    else:
        panels = {mine["name"]: [(title, mine[f"{way}_s"], True) for way, title in ways.items()]}
    return _rates(results, panels, "messages a second (logarithmic), best of all rounds", (30, 2e6))


def table_rate_chart(results: dict[str, Any]) -> Figure:
    """Records a second into and out of a table with its whole past, beside peers, on a logarithmic scale."""
    ways = {
        "add_batches": "Added in batches of 1000, each on disk",
        "add_durable": "Added one by one, each on disk",
        "change_durable": "Changed one by one, each on disk",
        "get": "Read by key",
        "as_of": "Read by key as of points in the past",
        "scan": "Scanned along an index",
    }
    mine, *others = results["peers"]
    panels = {
        title: [(peer["name"], peer[f"{way}_s"], peer is mine) for peer in (mine, *others)]
        for way, title in ways.items()
    }
    return _rates(results, panels, "records a second (logarithmic), best of all rounds", (500, 1e7))


def _marked(peer: str) -> str:
    return "huey (no ack)" if peer == "huey" else peer


def _rates(
    results: dict[str, Any], panels: dict[str, list[tuple[str, float, bool]]], label: str, limits: tuple[float, float]
) -> Figure:
    heights = [len(bars) for bars in panels.values()]
    figure, axes = _card(len(panels), (8.6, round(1.3 + 0.3 * sum(heights) + 0.3 * len(panels), 1)), heights)
    for axis, (title, bars) in zip(axes, panels.items(), strict=True):
        bars = sorted(bars, key=lambda bar: bar[1], reverse=True)
        axis.barh(
            [name for name, _, _ in bars],
            [1 / seconds for _, seconds, _ in bars],
            color=[_OURS if ours else _THEIRS for _, _, ours in bars],
            height=0.68,
        )
        axis.set_xscale("log")
        axis.set_xlim(*limits)
        axis.minorticks_off()
        for position, (_, seconds, ours) in enumerate(bars):
            weight = "bold" if ours else "normal"
            axis.text(
                1.12 / seconds, position, f"{rate(seconds)}/s", va="center", color=_INK, fontweight=weight, fontsize=9
            )
        axis.set_title(title, loc="left", color=_INK, fontsize=11, fontweight="bold")
    axes[-1].set_xlabel(label, color=_MUTED)
    return _signed(figure, results)


def spark_rate_chart(results: dict[str, Any]) -> Figure:
    """Records a second into and out of Spark, beside its own Parquet and a plain Python source."""
    lines = {line["id"]: line for line in results["lines"]}

    def pair(line: str, ours: str, theirs: str) -> list[tuple[str, float, bool]]:
        rounds = lines[line]["rounds"]
        return [
            (ours, min(measured["subject"] for measured in rounds), True),
            (theirs, min(measured["floor"] for measured in rounds), False),
        ]

    reading = [
        *pair("read", "Holdfast", "Spark's Parquet reader"),
        *pair("read_all", "Holdfast, all columns", "Parquet, all columns"),
        pair("tuples", "", "a source that yields tuples")[1],
    ]
    writing = [*pair("write", "Holdfast, exactly once", "Spark's Parquet writer")]
    writing += pair("archive", "Holdfast archive, to Parquet", "Parquet copied by Spark")
    figure, axes = _card(2, (8.6, 4.6), [len(reading), len(writing)])
    for axis, title, bars in zip(axes, ("Read into Spark", "Written from Spark"), (reading, writing), strict=True):
        rates = [1 / seconds for _, seconds, _ in bars[::-1]]
        axis.barh(
            [name for name, _, _ in bars[::-1]],
            rates,
            color=[_OURS if ours else _THEIRS for _, _, ours in bars[::-1]],
            height=0.62,
        )
        axis.set_xlim(0, max(rates) * 1.15)
        for position, value in enumerate(rates):
            axis.text(value + max(rates) * 0.01, position, rate(1 / value), va="center", color=_INK, fontsize=9)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M")
        axis.set_title(title, loc="left", color=_INK, fontsize=11, fontweight="bold")
        axis.set_xlabel("records of 100 B a second, best round, local[2]", color=_MUTED)
    return _signed(figure, results)


def ratio_chart(results: dict[str, Any]) -> Figure:
    """Each line with a target: where it is, and where it should be at most or at least."""
    lines = _judged(results)
    beside = {"log": "the floor, or the small log", "queue": "the short queue", "spark": "a copy of Parquet"}
    costs = f"Times {beside.get(results['benchmark'], 'the peer')}: less is better"
    faster = " than RabbitMQ" if results["benchmark"] == "amqp" else ""
    panels = {
        costs: [line for line in lines if line["sense"] == "at most"],
        f"Times faster{faster}: more is better": [line for line in lines if line["sense"] == "at least"],
    }
    panels = {title: group for title, group in panels.items() if group}
    size = (8.6, round(1 + 0.9 * len(panels) + 0.3 * len(lines), 1))
    figure, axes = _card(len(panels), size, [len(group) for group in panels.values()])
    for axis, (title, group) in zip(axes, panels.items(), strict=True):
        group = group[::-1]
        values = [line["median"] for line in group]
        colors = [_MET if line["met"] else _MISSED for line in group]
        axis.barh([line["title"] for line in group], values, color=colors, height=0.56)
        widest = max(values + [line["target"] for line in group])
        axis.set_xlim(0, widest * 1.22)
        for position, line in enumerate(group):
            target = line["target"]
            axis.plot([target, target], [position - 0.4, position + 0.4], color=_INK, linewidth=2)
            label = f"{times(line['median'], 'x')}  ({'≤' if line['sense'] == 'at most' else '≥'} {target:g})"
            axis.text(
                max(line["median"], target) + widest * 0.015, position, label, va="center", color=_INK, fontsize=9
            )
        axis.set_title(title, loc="left", color=_INK, fontsize=11, fontweight="bold")
        axis.set_xlabel("ratio, median of paired rounds; the black mark is the target", color=_MUTED)
    return _signed(figure, results)


def _judged(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines that have a ratio and a target."""
    return [line for line in results["lines"] if line["target"] is not None and line["unit"] == "x"]


def _card(count: int, size: tuple[float, float], heights: list[int]) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=size, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.2, h_pad=0.16, rect=(0.01, 0.045, 0.98, 0.945))  # type: ignore[union-attr, call-arg]
    corner = FancyBboxPatch(
        (0.004, 0.005),
        0.992,
        0.99,
        boxstyle="round,pad=0,rounding_size=0.018",
        transform=figure.transFigure,
        facecolor=_CARD,
        edgecolor=_EDGE,
        zorder=-10,
        mutation_aspect=size[0] / size[1],
    )
    figure.add_artist(corner)
    axes = list(figure.subplots(count, 1, height_ratios=heights, squeeze=False)[:, 0])
    for axis in axes:
        axis.set_facecolor("none")
        axis.set_axisbelow(True)
        axis.grid(axis="x", color=_GRID, linewidth=0.8)
        axis.tick_params(colors=_MUTED, length=0)
        axis.tick_params(axis="y", labelcolor=_INK)
        for side in ("top", "right", "bottom"):
            axis.spines[side].set_visible(False)
        axis.spines["left"].set_color(_EDGE)
    return figure, axes


def _signed(figure: Figure, results: dict[str, Any]) -> Figure:
    found = results["environment"]
    text = (
        f"Python {found['python']}, {found['cpu']}, {found['cores']} cores, {found['filesystem']}, {found['date'][:10]}"
    )
    figure.text(0.985, 0.02, text, ha="right", color=_MUTED, fontsize=8)
    return figure


if __name__ == "__main__":
    main()
