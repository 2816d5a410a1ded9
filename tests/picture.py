"""The picture of docs/architecture.md, drawn from the lists below: `python -m tests.picture` writes it.

An SVG in the repository renders on GitHub and in the site without a request to anyone. Mermaid would not: the theme of
the site loads its script from another server.
"""

from html import escape
from pathlib import Path
from typing import NamedTuple

__all__ = ["FILE", "drawn"]

FILE = Path(__file__).parent.parent / "docs" / "img" / "architecture.svg"
WIDTH, HEIGHT = 920, 640
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_FILLS = {"client": "#f6f8fa", "server": "#e6f4f1", "core": "#d1ebe6", "data": "#fff4d6", "spark": "#fdebe0"}
_INK, _MUTED, _LINE = "#1f2328", "#57606a", "#8c959f"


class Box(NamedTuple):
    """A rectangle with a title and a line of text."""

    kind: str
    left: int
    top: int
    width: int
    height: int
    title: str
    text: str


class Arrow(NamedTuple):
    """A line with a head at its end, and perhaps a label beside it."""

    path: tuple[tuple[int, int], ...]
    label: str = ""


BOXES = (
    Box("client", 20, 20, 150, 48, "Your program", "import holdfast"),
    Box("client", 210, 20, 150, 48, "AMQP clients", "pika, Celery, ..."),
    Box("client", 380, 20, 150, 48, "HTTP clients", "browser, holdfast.remote"),
    Box("client", 550, 20, 150, 48, "Cap'n Proto", "clients of Queueber"),
    Box("client", 750, 20, 150, 48, "Spark", "jobs and streams"),
    Box("server", 210, 128, 150, 48, "amqp/", "connections, channels"),
    Box("server", 380, 128, 150, 48, "web/", "API, metrics, page"),
    Box("server", 550, 128, 150, 48, "rpc/", "sessions, work queues"),
    Box("server", 210, 206, 490, 48, "broker/", "exchanges, routing, users, delivery to consumers, group commit"),
    Box(
        "core",
        20,
        300,
        680,
        48,
        "Store",
        "one folder, one writing process: transactions, backup, background work",
    ),
    Box("core", 20, 378, 330, 48, "queue/", "leases, retries, dead letters; a journal of events"),
    Box("core", 370, 378, 330, 48, "table/", "models, indexes, history, watchers, migrations"),
    Box("core", 20, 456, 330, 48, "log/", "append-only segments: the truth"),
    Box("core", 370, 456, 330, 48, "state/", "RocksDB: can be rebuilt from the logs"),
    Box("data", 20, 542, 330, 48, "logs/  journals/  tables/", "segments with checksums, sparse indexes"),
    Box("data", 370, 542, 330, 48, "state/  table-state/", "checkpoints of queues; rows and indexes"),
    Box("spark", 750, 128, 150, 126, "spark/", "data source, sink,|pipelines and reports"),
    Box("data", 750, 542, 150, 48, "incoming/", "batches to adopt"),
)
FRAME = (192, 96, 526, 172, "holdfast serve")
ARROWS = (
    Arrow(((95, 68), (95, 300))),
    Arrow(((285, 68), (285, 128))),
    Arrow(((455, 68), (455, 128))),
    Arrow(((625, 68), (625, 128))),
    Arrow(((825, 68), (825, 128))),
    Arrow(((285, 176), (285, 206))),
    Arrow(((455, 176), (455, 206))),
    Arrow(((625, 176), (625, 206))),
    Arrow(((455, 268), (455, 300))),
    Arrow(((185, 348), (185, 378))),
    Arrow(((535, 348), (535, 378))),
    Arrow(((120, 426), (120, 456))),
    Arrow(((600, 426), (600, 456))),
    Arrow(((290, 426), (430, 456))),
    Arrow(((430, 426), (290, 456))),
    Arrow(((185, 504), (185, 542))),
    Arrow(((535, 504), (535, 542))),
    Arrow(((790, 254), (790, 523), (310, 523), (310, 542)), "tasks read segments"),
    Arrow(((860, 254), (860, 542)), "sink"),
    Arrow(((825, 590), (825, 614), (10, 614), (10, 480), (20, 480)), "the store's owner adopts the batches"),
)


def drawn() -> str:
    """Return the picture as SVG."""
    left, top, width, height, name = FRAME
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' font-family="{_FONT}" role="img" aria-labelledby="title">',
        '<title id="title">The packages of Holdfast, from its clients down to its files</title>',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        f' orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{_MUTED}"/></marker></defs>',
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12" fill="#ffffff" stroke="#d0d7de"/>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="none" stroke="{_LINE}"'
        ' stroke-dasharray="5 4"/>',
        _words(540, top + 20, name, _MUTED, 12, "middle"),
        *map(_line, ARROWS),
        *map(_box, BOXES),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(box: Box) -> str:
    middle = box.left + box.width // 2
    lines = box.text.split("|")
    first = box.top + box.height // 2 - 6 * len(lines) + 2
    said = [_words(middle, first, box.title, _INK, 14, "middle", bold=True)]
    said += [_words(middle, first + 17 + 15 * at, line, _MUTED, 11, "middle") for at, line in enumerate(lines)]
    shape = (
        f'<rect x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}" rx="6"'
        f' fill="{_FILLS[box.kind]}" stroke="{_LINE}"/>'
    )
    return "\n".join([shape, *said])


def _line(arrow: Arrow) -> str:
    points = " ".join(f"{x},{y}" for x, y in arrow.path)
    line = f'<polyline points="{points}" fill="none" stroke="{_MUTED}" stroke-width="1.4" marker-end="url(#head)"/>'
    if not arrow.label:
        return line
    if len(arrow.path) == 2:
        return f"{line}\n{_words(arrow.path[0][0] + 6, 400, arrow.label, _MUTED, 11, 'start')}"
    (x, y), (end, _) = arrow.path[1:3]
    return f"{line}\n{_words((x + end) // 2 + 120, y - 5, arrow.label, _MUTED, 11, 'middle')}"


def _words(x: int, y: int, text: str, colour: str, size: int, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
    )


if __name__ == "__main__":
    FILE.write_text(drawn())
