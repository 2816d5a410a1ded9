"""The picture of docs/replication.md, drawn from the lists below: `python -m tests.replica_picture` writes it."""

from html import escape
from pathlib import Path
from typing import NamedTuple

__all__ = ["FILE", "drawn"]

FILE = Path(__file__).parent.parent / "docs" / "img" / "replication.svg"
WIDTH, HEIGHT = 920, 470
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_FILLS = {"client": "#f6f8fa", "machine": "#e6f4f1", "object": "#fff4d6", "other": "#fdebe0"}
_INK, _MUTED, _LINE = "#1f2328", "#57606a", "#8c959f"


class Box(NamedTuple):
    """A rectangle with a title and lines of text."""

    kind: str
    left: int
    top: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...]


class Arrow(NamedTuple):
    """A line with a head at its end, dashed or not, and a label at a point."""

    path: tuple[tuple[int, int], ...]
    label: str = ""
    at: tuple[int, int] = (0, 0)
    is_dashed: bool = False


BOXES = (
    Box("client", 330, 20, 260, 50, "AMQP and HTTP clients", ("know both addresses",)),
    Box("machine", 30, 120, 240, 110, "Owner", ("holdfast serve", "logs, journals, tables: the truth", "epoch 7")),
    Box("machine", 650, 120, 240, 110, "Standby", ("holdfast serve --standby", "a warm copy", "health checks only")),
    Box("object", 330, 250, 260, 44, "owner.json", ("epoch, claim of 15 s, yields",)),
    Box("object", 330, 304, 125, 44, "standbys.json", ("who follows",)),
    Box("object", 465, 304, 125, 44, "promote.json", ("by hand",)),
    Box("object", 330, 358, 260, 36, "manifest/7-1042", ()),
    Box("object", 330, 402, 260, 36, "logs/... journals/... tables/...", ()),
    Box("other", 30, 330, 240, 70, "Restore", ("any moment of the last days,", "verified, into a new folder")),
    Box(
        "other",
        650,
        330,
        240,
        70,
        "After a takeover",
        ("epoch 8: the old owner finds it,", "stops, and keeps what it has"),
    ),
)
ARROWS = (
    Arrow(((330, 45), (150, 45), (150, 120)), "before", (170, 38)),
    Arrow(((590, 45), (770, 45), (770, 120)), "after a takeover", (675, 38), is_dashed=True),
    Arrow(((120, 230), (120, 272), (330, 272)), "renews every 5 s", (140, 265)),
    Arrow(((70, 230), (70, 310), (300, 310), (300, 420), (330, 420)), "ships every second", (80, 303)),
    Arrow(((590, 272), (800, 272), (800, 230)), "watches the claim", (632, 265)),
    Arrow(((590, 420), (620, 420), (620, 310), (850, 310), (850, 230)), "fetches what is new", (632, 303)),
    Arrow(((330, 376), (270, 376)), "", (0, 0)),
    Arrow(((770, 230), (770, 330)), "", (0, 0), is_dashed=True),
)
FRAME = (310, 215, 300, 235, "Object storage")


def drawn() -> str:
    """Return the picture as SVG. It has a background of its own, so that it is legible in light and dark."""
    left, top, width, height, name = FRAME
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' font-family="{_FONT}" role="img" aria-labelledby="title">',
        '<title id="title">An owner ships its store to object storage, and a standby follows it there</title>',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        f' orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{_MUTED}"/></marker></defs>',
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12" fill="#ffffff" stroke="#d0d7de"/>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="none" stroke="{_LINE}"'
        ' stroke-dasharray="5 4"/>',
        _words(left + width // 2, top + 22, name, _MUTED, 12, "middle"),
        *map(_line, ARROWS),
        *map(_box, BOXES),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(box: Box) -> str:
    middle = box.left + box.width // 2
    first = box.top + (box.height - 16 * len(box.lines)) // 2 + 5
    said = [_words(middle, first, box.title, _INK, 14, "middle", bold=True)]
    said += [_words(middle, first + 17 + 16 * at, line, _MUTED, 11, "middle") for at, line in enumerate(box.lines)]
    shape = (
        f'<rect x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}" rx="6"'
        f' fill="{_FILLS[box.kind]}" stroke="{_LINE}"/>'
    )
    return "\n".join([shape, *said])


def _line(arrow: Arrow) -> str:
    points = " ".join(f"{x},{y}" for x, y in arrow.path)
    dashes = ' stroke-dasharray="4 3"' if arrow.is_dashed else ""
    line = (
        f'<polyline points="{points}" fill="none" stroke="{_MUTED}" stroke-width="1.4"{dashes}'
        ' marker-end="url(#head)"/>'
    )
    return f"{line}\n{_words(*arrow.at, arrow.label, _MUTED, 11, 'start')}" if arrow.label else line


def _words(x: int, y: int, text: str, colour: str, size: int, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
    )


if __name__ == "__main__":
    FILE.write_text(drawn())
