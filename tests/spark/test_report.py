"""Can a report be read anywhere, by anybody, and does nothing in it run? Pages are made of figures, without Spark."""

import re
import tomllib
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from holdfast.spark.pipelines.lifecycle import OUTCOMES
from holdfast.spark.pipelines.report.dead_letters import blame, deadletters_page
from holdfast.spark.pipelines.report.formatting import (
    clean,
    count,
    duration,
    few,
    length,
    moment,
    rate,
    share,
    short,
    span,
)
from holdfast.spark.pipelines.report.lifecycle import DETAILS, LISTED, lifecycle_page
from holdfast.spark.pipelines.report.page import Page, Section, Table, render, write
from holdfast.spark.pipelines.report.plots import Series, bars, latency, level, rates, strip

ROOT = Path(__file__).parent.parent.parent
EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&$a$"
NOON = 1_767_268_800_000_000
TOLD = (moment(NOON), moment(NOON + 3_600_000_000))
Row = dict[str, Any]


class Reader(HTMLParser):
    """What a browser would see: elements, attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._hidden = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._hidden = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._hidden else data


def summary_row(queue: str | None, messages: int, *, dead: int = 0, is_letters: bool = False) -> Row:
    ends = dict.fromkeys(OUTCOMES, 0) | {"acked": messages - dead - 3, "dead": dead, "waiting": 2, "leased": 1}
    more = {"retries": 2 * dead, "attempts": messages + 2 * dead, "by_attempts": [messages - dead, 0, dead, 0, 0, 0]}
    times = {"wait": [0.001, 0.02, 0.3], "ack": [0.041, 1.25, 90.0], "busy": [0.01, 0.1, 1.0], "throughput": 12.34}
    head = {"queue": queue, "is_total": queue is None, "is_letters": is_letters, "messages": messages}
    return head | ends | more | times


def slot(at: int) -> Row:
    counts = {"put": 60, "leased": 58, "acked": 55, "retries": 2, "dead": 1, "dropped": 0, "backlog": at}
    times = {
        f"{kind}_{p}_s": 0.01 * place for kind in ("ack", "wait") for place, p in enumerate(("p50", "p95", "p99"), 1)
    }
    return {"at": NOON // 1_000_000 + 60 * at, "seconds": 60} | counts | times


def reason_row(queue: str, reason: str, failures: int, dead: int, **example: Any) -> Row:
    head = {"queue": queue, "reason": reason, "failures": failures, "messages": failures, "dead": dead}
    seen = {"first_seen": NOON, "last_seen": NOON + 1_000_000, "per_hour": 7.0, "share": 0.5, "strip": [0, 3, 1, 9]}
    shown = {"message": 12345, "said": reason} | example
    return head | seen | {"targets": [f"{queue}.dead"] if dead else [], "examples": [shown]}


def page_of(names: list[str], reasons: list[Row] = [], letters: tuple[str, ...] = ()) -> Page:  # noqa: B006
    queues = [summary_row(name, 5000 - 7 * place, dead=12) for place, name in enumerate(names)]
    letter_rows = [summary_row(name, 100, is_letters=True) for name in letters]
    whole = sum(row["messages"] for row in queues)
    totals = [summary_row(None, whole, dead=12 * len(names))]
    totals += [summary_row(None, 100, is_letters=True)] if letters else []
    detailed = names[:DETAILS]
    times: dict[str | None, list[Row]] = {name: [slot(at) for at in range(5)] for name in [*detailed, None]}
    return lifecycle_page(TOLD, [*queues, *letter_rows, *totals], times, reasons, detailed)


@pytest.fixture(scope="module")
def evil() -> str:
    reasons = [reason_row(EVIL, EVIL, 30, 12), reason_row("b", EVIL, 3, 0, text=EVIL, size=99)]
    return render(page_of([EVIL, "b"], reasons, letters=("b.dead",)))


@pytest.fixture(scope="module")
def evil_letters() -> str:
    reasons = [reason_row(EVIL, EVIL, 30, 12, text=EVIL, size=99), reason_row("b", "plain", 3, 0, text=None, size=None)]
    totals = {"failures": 33, "dead": 12, "reasons": 2, "queues": 5}
    return render(deadletters_page(reasons, totals, TOLD, [(NOON // 1_000_000 + 60 * at, 5, 1) for at in range(61)]))


def test_nothing_comes_from_elsewhere_and_nothing_runs(evil: str, evil_letters: str) -> None:
    for html in (evil, evil_letters):
        page = Reader(html)
        assert not {"script", "img", "link", "iframe", "object", "embed", "base", "form"} & {
            tag for tag, _ in page.elements
        }
        for tag, attributes in page.elements:
            assert not [name for name in attributes if name.startswith("on")], tag
            for name in ("src", "href", "xlink:href", "srcset", "action"):
                assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
        assert "http:" not in html and "https:" not in html and "@import" not in html
        assert not re.findall(r"url\((?!#)", html)
        policy = next(each for tag, each in page.elements if each.get("http-equiv") == "Content-Security-Policy")
        assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_what_users_wrote_is_shown_as_they_wrote_it(evil: str, evil_letters: str) -> None:
    for html in (evil, evil_letters):
        assert "<script" not in html and "<img" not in html
        assert Reader(html).text.count(EVIL) >= 3


def test_every_drawing_has_its_axes_a_title_and_ids_of_its_own(evil: str) -> None:
    page = Reader(evil)
    for label in ("time, UTC", "messages a second", "messages open", "time to ack", "time to first lease", "attempts"):
        assert label in page.text
    for word in ("put", "acked", "failed", "p50", "p95", "p99", "12:0[1-5]"):
        assert re.search(f">{word}</text>", evil)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids) > 10
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', evil))
    assert used <= set(ids)
    drawings = [attributes for tag, attributes in page.elements if tag == "svg" and attributes.get("class") == "plot"]
    assert len(drawings) == 4 + 2 * 6
    assert all(
        each["role"] == "img" and each["aria-label"] and each["viewbox"] and "width" not in each for each in drawings
    )


def test_colours_come_from_the_page_so_that_light_and_dark_both_work(evil: str) -> None:
    defined = set(re.findall(r"(--[a-z0-9]+):", evil))
    used = set(re.findall(r"var\((--[a-z0-9]+)\)", evil))
    assert used <= defined
    drawings = "".join(re.findall(r"<svg.*?</svg>", evil, re.DOTALL))
    assert not re.findall(r"(?:fill|stroke): ?#", drawings)
    assert "prefers-color-scheme: dark" in evil and "@media print" in evil


def test_the_headline_says_what_a_person_would(evil: str) -> None:
    html = render(
        page_of(["orders"], [reason_row("orders", "no customer <n>", 30, 11), reason_row("orders", "late", 1, 1)])
    )
    said = Reader(html).text
    assert "orders received 5,000 messages, and 4,985 of them were acknowledged; half within 41 ms, 99 of 100" in said
    assert "within 90 s. 12 were dead-lettered or dropped, most of them because “no customer <n>”. 3 are still" in said
    assert "still open, 1 of them leased." in said
    assert "2 queues received" in Reader(evil).text
    assert "All queues" not in said  # with one queue there is nothing to sum up


def test_of_many_queues_the_busiest_are_told_and_the_rest_is_not_hidden() -> None:
    page = page_of([f"queue-{number:03}" for number in range(120)])
    assert [section.title for section in page.sections] == ["All queues", *(f"queue-00{n}" for n in range(DETAILS))]
    text = Reader(render(page)).text
    assert f"The {DETAILS} busiest queues are shown in detail. The other {120 - DETAILS} received 9" in text
    assert f"{120 - LISTED} more queues with" in text and f"queue-{LISTED - 1:03}" in text
    assert f"queue-{LISTED:03}" not in text


def test_an_empty_store_makes_a_page_that_says_so() -> None:
    assert "There are no events yet" in Reader(render(lifecycle_page(None, [], {}, [], []))).text
    totals = {"failures": 0, "dead": 0, "reasons": 0, "queues": 3}
    assert "No delivery failed in 3 queues" in Reader(render(deadletters_page([], totals, TOLD, []))).text


def test_blame_is_laid_only_where_it_is_known() -> None:
    one, two = reason_row("a", "x", 9, 5), reason_row("b", "x", 9, 4)
    assert blame([], None, 3) == "" and blame([one], "b", 3) == ""
    assert blame([one], "a", 5) == ", because “x”"
    assert blame([one, two], "a", 8) == ", most of them because “x”"
    assert blame([one, two], None, 50) == ", 9 of them because “x”"


@pytest.mark.parametrize("value", [0.0, 1e-6, 5.0, 1e7])
def test_plots_are_drawn_of_whatever_there_is(value: float) -> None:
    starts = [moment(NOON)]
    line = Series("x" * 99 + "\x1b$\\frac{1}$ 会社", "put", [value])
    for svg in (
        rates("t", starts, 60, [line]),
        level("t", starts, 60, [value], "messages"),
        latency("t", starts, 60, [line, Series("p99", "p99", [None])], "time"),
        bars("t", [("nothing", 0, "quiet"), ("a", int(value), "acked")], "messages"),
        strip("t", [0, int(value)]),
    ):
        assert svg.startswith("<svg") and "nan" not in svg and "\x1b" not in svg


def test_a_page_is_written_whole(tmp_path: Path) -> None:
    table = Table(["queue", "messages"], [["a\ud800\u202e", "1"]])
    write(str(tmp_path / "report.html"), Page("k", "t", "now", "h", sections=[Section("s", table=table)]))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>") and '<td class="number">1</td>' in html and "a\ufffd\ufffd" in html


def test_the_template_is_part_of_the_package() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "src/holdfast" in built["packages"] and "exclude" not in built
    ignored = (ROOT / ".gitignore").read_text()
    assert "html" not in ignored and "j2" not in ignored  # what git ignores, hatchling leaves out


def test_figures_are_written_as_people_read_them() -> None:
    assert [duration(each) for each in (None, 0, 80e-6, 0.0413, 0.9996, 3.25, 90, 754, 12_600, 1_036_800)] == (
        ["–", "0 s", "80 µs", "41 ms", "1 s", "3.2 s", "90 s", "13 min", "3.5 h", "12 d"]  # noqa: RUF001
    )
    assert [short(each) for each in (0, 9_870, 12_430, 20_000, 999_960, 3_140_000)] == (
        ["0", "9,870", "12.4 k", "20 k", "1 M", "3.1 M"]
    )
    assert [rate(each) for each in (None, 0, 0.254, 3.21, 1250)] == ["–", "0/s", "0.25/s", "3.2/s", "1,250/s"]  # noqa: RUF001
    assert [share(*each) for each in ((0, 9), (1, 5000), (1, 30), (4999, 5000), (5, 5), (1, 2))] == (
        ["0 %", "< 0.1 %", "3.3 %", "> 99.9 %", "100 %", "50 %"]
    )
    assert [few(list("abcd"[:n]), 3) for n in range(5)] == ["", "a", "a and b", "a, b and c", "a, b, c and 1 more"]
    assert [length(each) for each in (10, 60, 1800, 7200, 604_800)] == ["10 s", "1 min", "30 min", "2 h", "7 d"]
    assert span(TOLD[0], TOLD[0] + timedelta(hours=1)) == "1 January 2026, 12:00:00 to 13:00:00 UTC"
    assert clean("a\n\tb\x00") == "a b\ufffd" and count(1234567) == "1,234,567"
