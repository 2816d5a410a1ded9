"""HTML reports of cards, plots and tables, each a single self-contained file.

Without scripts, external fonts or external images: it can be mailed, printed and archived. The template escapes all
text from users, and a policy in the page's head forbids browsers to load or run anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast.spark.pipelines.report.formatting import clean

__all__ = ["Card", "Cell", "Example", "Page", "Plot", "Reason", "Section", "Table", "render", "write"]

Cell = str | Markup
"""The content of a table cell: text, or one of our drawings."""


@dataclass(frozen=True, slots=True)
class Card:
    """A key figure: its name, its value, and a note."""

    label: str
    value: str
    note: str = ""
    tone: str = ""
    """`good`, `bad` or nothing."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with a title and a line on how to read it."""

    title: str
    svg: Markup
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; all columns but the first `words` hold figures, and are right-aligned."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """A message that failed: its reason, and the beginning of its payload."""

    message: int
    said: str
    text: str | None
    size: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """Failures with the same reason."""

    queue: str
    text: str
    failures: str
    share: str
    part: float
    """Its bar's length, from 0 to 1."""
    strip: Markup
    facts: Sequence[tuple[str, str]]
    examples: Sequence[Example] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report under a heading."""

    title: str
    lead: str = ""
    cards: Sequence[Card] = ()
    plots: Sequence[Plot] = ()
    table: Table | None = None
    reasons: Sequence[Reason] = ()
    is_queue: bool = False
    """The title is the name of a queue, and is set like one."""


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report."""

    kind: str
    title: str
    period: str
    headline: str
    detail: str = ""
    cards: Sequence[Card] = ()
    sections: Sequence[Section] = ()
    notes: Sequence[tuple[str, str]] = ()
    """Terms and their meanings on this page."""
    written: datetime = field(default_factory=lambda: datetime.now(UTC))


def render(page: Page) -> str:
    """Return the report as HTML."""
    environment = Environment(
        loader=PackageLoader("holdfast.spark.pipelines.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = lambda text: text if isinstance(text, Markup) else clean(text)
    return environment.get_template("report.html.j2").render(page=page).lstrip()


def write(path: str, page: Page) -> None:
    """Write the report into the folder of a run, which replaces that of the last run when it is complete."""
    Path(path).write_text(render(page), encoding="utf-8", errors="replace")
