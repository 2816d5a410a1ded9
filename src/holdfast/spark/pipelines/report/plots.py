"""Plots as SVG, drawn by matplotlib, with colours and font from the page, light or dark."""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from holdfast.spark.pipelines.report.formatting import clean, duration, per_unit, share, short

__all__ = ["Series", "bars", "columns", "latency", "level", "rates", "strip"]

Values = Sequence[float | None]

# Each colour represents a CSS variable of the page and is replaced by it: one drawing serves light and dark.
_ROLES = {
    "ink": "#010001",
    "muted": "#010002",
    "grid": "#010003",
    "put": "#010004",
    "acked": "#010005",
    "failed": "#010006",
    "backlog": "#010007",
    "p50": "#010008",
    "p95": "#010009",
    "p99": "#01000a",
    "quiet": "#01000b",
    "card": "#01000c",
}
_COLOUR = re.compile(r"((?:fill|stroke|stop-color): ?)(#0100[0-9a-f]{2})")
_VARIABLES = {colour: f"var(--{role})" for role, colour in _ROLES.items()}
_FONT = re.compile(r"font: (?:[a-z0-9]+ )*?([0-9.]+px) [^;\"]+(;?)")
_SIZE = (4.6, 2.55)
_SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text: to be searched, read aloud, and set in the page's own font
    "svg.hashsalt": "holdfast",
    "text.parse_math": False,  # a queue may be named "$a$"
    "font.family": "DejaVu Sans",  # wider than the fonts of pages: text that fits here fits there
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": _ROLES["grid"],
    "axes.labelcolor": _ROLES["muted"],
    "axes.axisbelow": True,
    "text.color": _ROLES["ink"],
    "xtick.color": _ROLES["grid"],
    "ytick.color": _ROLES["grid"],
    "xtick.labelcolor": _ROLES["muted"],
    "ytick.labelcolor": _ROLES["muted"],
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "grid.color": _ROLES["grid"],
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
}
_WIDE = 40.0
"""Ratio of the largest to the smallest value from which on a logarithmic scale is used."""
_MARKED = 80
"""Up to this many points, each is marked."""
_TICKS_MIN = 2
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot: its name, the role that gives its colour, and a value for each bucket."""

    name: str
    role: str
    values: Values


def rates(
    title: str, starts: Sequence[datetime], seconds: int, series: Sequence[Series], noun: str = "messages"
) -> Markup:
    """Plot how much happened in each bucket, as a rate in a suitable unit."""
    peak = max((value or 0 for line in series for value in line.values), default=0) / seconds
    scale, unit = per_unit(peak)
    with _figure() as (figure, axes):
        edges = [*_days(starts), _days(starts)[-1] + seconds / _DAY]
        for place, line in enumerate(series):
            heights = [(value or 0) * scale / seconds for value in line.values]
            steps = [*heights, heights[-1]]
            axes.step(edges, steps, where="post", color=_ROLES[line.role], label=_label(line.name), zorder=3 + place)
            if place == 0:
                axes.fill_between(edges, steps, step="post", color=_ROLES[line.role], alpha=0.14, linewidth=0)
        axes.set_ylim(bottom=0)
        _times(axes, edges)
        _numbers(axes, f"{noun} a {unit}")
        _legend(axes, len(series))
        return _svg(figure, title)


def level(title: str, starts: Sequence[datetime], seconds: int, values: Values, ylabel: str) -> Markup:
    """Plot how many there were at the end of each bucket."""
    with _figure() as (figure, axes):
        edges = [_days(starts)[0], *(start + seconds / _DAY for start in _days(starts))]
        heights = [0.0, *(value or 0 for value in values)]
        axes.plot(edges, heights, color=_ROLES["backlog"], zorder=3)
        axes.fill_between(edges, heights, color=_ROLES["backlog"], alpha=0.16, linewidth=0)
        axes.set_ylim(0, max(*heights, 1) * 1.08)
        _times(axes, edges)
        _numbers(axes, ylabel, whole=True)
        return _svg(figure, title)


def latency(title: str, starts: Sequence[datetime], seconds: int, series: Sequence[Series], ylabel: str) -> Markup:
    """Plot latencies, a line for each percentile; logarithmic if the values are far apart."""
    known = [value for line in series for value in line.values if value]
    with _figure() as (figure, axes):
        middles = [start + seconds / 2 / _DAY for start in _days(starts)]
        for line in series:
            heights = [float("nan") if value is None else value for value in line.values]
            count = sum(value is not None for value in line.values)
            axes.plot(
                middles,
                heights,
                color=_ROLES[line.role],
                label=_label(line.name),
                marker="o" if count <= _MARKED else "",
                markersize=2.2,
                zorder=3,
            )
        low, high = series[0].values, series[-1].values
        spread = [(at, a, b) for at, a, b in zip(middles, low, high, strict=True) if a is not None and b is not None]
        if spread:
            at, least, most = (list(column) for column in zip(*spread, strict=True))
            axes.fill_between(at, least, most, color=_ROLES[series[-1].role], alpha=0.10, linewidth=0)
        if known and max(known) / min(known) > _WIDE:
            axes.set_yscale("log", nonpositive="clip")
            axes.yaxis.set_major_locator(LogLocator(numticks=6))
            axes.yaxis.set_minor_formatter(NullFormatter())
            ylabel += ", logarithmic"
        else:
            axes.set_ylim(0, max(known, default=1) * 1.08)
            axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value) if value >= 0 else ""))
        axes.set_ylabel(ylabel)
        _times(axes, [_days(starts)[0], _days(starts)[-1] + seconds / _DAY])
        _legend(axes, len(series))
        return _svg(figure, title)


def bars(title: str, parts: Sequence[tuple[str, int, str]], xlabel: str) -> Markup:
    """Plot named parts of a whole, one bar each, with the names at the left: name, count, role."""
    with _figure() as (figure, axes):
        names = [_label(name) for name, _, _ in parts]
        counts = [number for _, number, _ in parts]
        places = range(len(parts))
        axes.barh(places, counts, color=[_ROLES[role] for _, _, role in parts], height=0.62, zorder=3)
        axes.set_yticks(places, names)
        axes.tick_params(axis="y", labelcolor=_ROLES["ink"])
        axes.set_ylim(len(parts) - 0.4, -0.6)
        most, whole = max([*counts, 1]), sum(counts) or 1
        for place, number in zip(places, counts, strict=True):
            said = f"{short(number)}  ({share(number, whole)})" if number else "0"
            axes.text(number + most * 0.015, place, said, va="center", color=_ROLES["muted"], zorder=4)
        axes.set_xlim(0, most * 1.32)  # space for the words behind the longest bar
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axes.set_xlabel(xlabel)
        return _svg(figure, title)


def columns(title: str, names: Sequence[str], counts: Sequence[int], xlabel: str, ylabel: str) -> Markup:
    """Plot a histogram with a name for each class; logarithmic if one class dwarfs the others."""
    with _figure() as (figure, axes):
        places = range(len(names))
        roles = ["acked" if place == 0 else "failed" for place in places]
        axes.bar(places, counts, color=[_ROLES[role] for role in roles], width=0.66, zorder=3)
        seen = [number for number in counts if number]
        most = max(seen, default=1)
        if seen and most / min(seen) > _WIDE:
            axes.set_yscale("log")
            axes.set_ylim(0.5, most * 4)
            axes.yaxis.set_major_locator(LogLocator(numticks=5))
            axes.yaxis.set_minor_formatter(NullFormatter())
            ylabel += ", logarithmic"
        else:
            axes.set_ylim(0, most * 1.16)
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        for place, number in zip(places, counts, strict=True):
            axes.annotate(
                short(number) if number else "0",
                (place, max(number, axes.get_ylim()[0])),
                xytext=(0, 2.5),
                textcoords="offset points",
                ha="center",
                color=_ROLES["muted"],
            )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axes.set_xticks(places, list(names))
        axes.tick_params(axis="x", length=0, labelcolor=_ROLES["ink"])
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.grid(axis="y")
        return _svg(figure, title)


def strip(title: str, counts: Sequence[int]) -> Markup:
    """Plot a small histogram without axes, for a cell of a table."""
    most, width, height = max([*counts, 1]), 5, 22
    rects = "".join(
        f'<rect x="{place * width}" y="{height - tall:.1f}" width="{width - 1}" height="{tall:.1f}"/>'
        for place, number in enumerate(counts)
        if (tall := max(2.0, height * number / most) if number else 0)
    )
    wide = width * len(counts)
    line = f'<path d="M0 {height}.5H{wide}"/>'
    head = f'<svg class="strip" viewBox="0 0 {wide} {height + 1}" role="img" aria-label="{escape(clean(title))}">'
    return Markup(f"{head}<title>{escape(clean(title))}</title>{line}{rects}</svg>")


@contextmanager
def _figure() -> Iterator[tuple[Figure, Axes]]:
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # the page's font will have it
        figure = Figure(figsize=_SIZE, layout=ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03))
        yield figure, figure.subplots()


def _days(moments: Sequence[datetime]) -> list[float]:
    """Return times as matplotlib counts them."""
    return [at.timestamp() / _DAY for at in moments]


def _times(axes: Axes, edges: Sequence[float]) -> None:
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
    formatter.zero_formats = ["", "%Y", "%b", "%-d %b", "%H:%M", "%H:%M"]
    formatter.offset_formats = ["", "%Y", "%b %Y", "%-d %b %Y", "%-d %b %Y", "%-d %b %Y %H:%M"]
    axes.xaxis.set_major_formatter(formatter)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xlabel("time, UTC")
    axes.grid(axis="y")


def _numbers(axes: Axes, label: str, *, whole: bool = False) -> None:
    axes.set_ylabel(label)
    if axes.get_ylim()[1] <= _TICKS_MIN:
        axes.yaxis.set_major_locator(FixedLocator([0, 1, 2]))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=whole))
    tick: Callable[[float, int], str] = lambda value, _: f"{value:g}" if value < 10 else short(value)  # noqa: E731
    axes.yaxis.set_major_formatter(FuncFormatter(tick))


def _legend(axes: Axes, entries: int) -> None:
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.99),
        ncols=entries,
        handlelength=1.1,
        columnspacing=1.2,
        borderpad=0.1,
    )


def _label(text: str) -> str:
    text = clean(text)
    return text if len(text) <= 26 else text[:25] + "…"


def _svg(figure: Figure, title: str) -> Markup:
    """Return the plot as part of a page: no fixed size, unique ids, no external references."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, count=1, flags=re.DOTALL)
    mark = f"p{abs(hash((title, text))) % 10**12:x}"
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    text = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{mark}-", text)
    text = _COLOUR.sub(lambda found: found[1] + _VARIABLES.get(found[2], found[2]), text)
    text = _FONT.sub(r"font-size: \1\2", text)
    box = re.search(r'viewBox="[^"]*"', text)
    said = escape(clean(title))
    head = f'<svg class="plot" {box[0] if box else ""} role="img" aria-label="{said}"><title>{said}</title>'
    return Markup(head + text[text.index(">") + 1 :])
