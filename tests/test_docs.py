"""Every block of the README and the docs runs as it stands, what they link to is there, and the site can be built."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from holdfast.amqp.settings import describe
from holdfast.base.errors import HoldfastError
from holdfast.web.api import OWN
from holdfast.web.stats_history import history_routes
from tests.blocks import ROOT, Block, blocks_of
from tests.page_runner import Interpreter, Story

README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
NOT_RUN_MAX = 8
"""How many blocks may be there only to be looked at."""


def _stories() -> dict[str, list[Block]]:
    """What is run in one folder: a page; of the README, a section."""
    found = {page.name: blocks_of(page) for page in PAGES[1:]}
    for section, blocks in groupby(blocks_of(README), lambda block: block.section):
        found[f"README.md: {section or 'top'}"] = list(blocks)
    return {name: blocks for name, blocks in found.items() if blocks}


STORIES = _stories()


SPARK = [name for name, blocks in STORIES.items() if any("holdfast.spark" in block.text for block in blocks)]


@pytest.mark.parametrize("name", [name for name in STORIES if name not in SPARK])
def test_a_page_runs_as_written(name: str, tmp_path: Path) -> None:
    with Story(tmp_path) as story:
        for block in STORIES[name]:
            story.run(block)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    """One Spark for all pages that have it: each would take ten seconds to start its own."""
    interpreter = Interpreter(tmp_path_factory.mktemp("spark"))
    yield interpreter
    interpreter.end()


@pytest.mark.xdist_group("docs")
@pytest.mark.parametrize("name", SPARK)
def test_a_page_with_spark_runs_as_written(name: str, tmp_path: Path, python: Interpreter) -> None:
    python.clear()
    with Story(tmp_path, python) as story:
        for block in STORIES[name]:
            story.run(block)


WRONG = {
    "python that raises": "```python\nimport holdfast\nholdfast.open()\n```",
    "a command that fails": "```sh\nholdfast put --data data\n```",
    "another output": "```console\n$ holdfast --version\nanother 1.0\n```",
    "an extra that is not there": "```sh\npip install 'holdfast[nothing]'\n```",
    "a target that is not there": "```sh\nmake nothing\n```",
    "no JSON": "```json\n{...}\n```",
    "no YAML": "```yaml\na: b: c\n```",
    "no such setting": "```toml\nno_such_setting = 1\n```",
    "no schema": "```capnp\nstruct A { b @0 :Nothing; }\n```",
    "no such command": "```text\nholdfast nothing\n```",
    "no language": "```\nwhat is this\n```",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_block_that_is_wrong_is_found(wrong: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{WRONG[wrong]}\n")
    with pytest.raises((AssertionError, ValueError, HoldfastError, yaml.YAMLError)), Story(tmp_path) as story:
        for block in blocks_of(page):
            story.run(block)


def test_few_blocks_are_only_looked_at() -> None:
    unrun = [
        (block.place, block.not_run) for blocks in STORIES.values() for block in blocks if block.not_run is not None
    ]
    assert all(reason for _, reason in unrun), f"say why it cannot run: {unrun}"
    assert len(unrun) <= NOT_RUN_MAX, unrun


def test_what_is_linked_to_is_there() -> None:
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _settings() -> str:
    rows = [f"| `{name}` | `{variable}` | {default} | {meaning} |" for name, variable, default, meaning in describe()]
    return "\n".join(["| setting | variable | default | meaning |", "|---|---|---|---|", *rows])


def _routes() -> str:
    needs = ("none", "user", "any tag", "`monitoring`", "`administrator`", "`administrator`, not the default `guest`")
    rows = [
        f"| `{route.method} {route.template.removeprefix('/api/holdfast')}` | {route.says} | {needs[route.needs]} |"
        for part in (*OWN, history_routes)
        for route in part.all
    ]
    return "\n".join(["| Route under `/api/holdfast` | Description | Required permission |", "|---|---|---|", *rows])


GENERATED = {"operations.md": _settings, "http.md": _routes}
"""Tables that are generated from the code: `python -m tests.test_docs` writes them again."""


@pytest.mark.parametrize("page", GENERATED)
def test_a_table_is_that_of_the_code(page: str) -> None:
    assert GENERATED[page]() in (ROOT / "docs" / page).read_text(), "generate it again: python -m tests.test_docs"


def _write_tables() -> None:
    for name, made in GENERATED.items():
        page, table = ROOT / "docs" / name, made()
        before, head, after = page.read_text().partition(table.partition("\n")[0])
        assert head, f"{name} has no such table"
        page.write_text(before + table + re.sub(r"\A(\n\|.*)*", "", after))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built so that a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    return folder


def test_the_site_has_every_page(site: Path) -> None:
    for page in PAGES[1:]:
        path = site / "index.html" if page.stem == "index" else site / page.stem / "index.html"
        assert path.exists(), f"{page.name} is not in the site"
    menu = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in PAGES[1:] if page.name not in menu] == []


class _Fetched(HTMLParser):
    """What a browser fetches for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what is fetched without anyone clicking."""
        given = dict(attrs)
        if tag == "link" and given.get("rel") in ("canonical", "next", "prev", "edit"):
            return
        if tag in ("link", "script", "img", "iframe", "source", "video", "audio", "object", "embed"):
            self.found += [given.get(name) or "" for name in ("href", "src", "srcset", "data")]


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = _Fetched()
        fetched.feed(page.read_text())
        elsewhere = [one for one in fetched.found if re.match(r"(?:\w+:)?//", one)]
        assert elsewhere == [], f"{page.relative_to(site)} fetches {elsewhere}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//|@import", sheet.read_text()), sheet


if __name__ == "__main__":
    _write_tables()
