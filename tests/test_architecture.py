"""docs/architecture.md lists every module once, names functions that exist, and has the picture that the code draws."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import holdfast
from tests import replica_picture
from tests.picture import FILE, drawn
from tests.walks import embedded_walks

SRC = Path(holdfast.__file__).parent
PAGE = SRC.parent.parent / "docs" / "architecture.md"
TEXT = PAGE.read_text()
MODULES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py") if path.name != "__init__.py")
NAMED = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) \(`([\w/]+\.py)`\)", TEXT)
"""Functions and classes, each with the module that follows it in parentheses."""


def test_each_module_is_listed_once_with_a_phrase() -> None:
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (\S.*) \|$", TEXT, re.MULTILINE)
    assert sorted(module for module, _ in rows) == MODULES, (
        "docs/architecture.md lists each module of src/holdfast once"
    )
    assert [module for module, phrase in rows if phrase.endswith(".")] == [], "a phrase, not a sentence"


def test_each_package_has_a_heading() -> None:
    packages = {path.parent.relative_to(SRC).as_posix() for path in SRC.rglob("*.py")} - {"."}
    listed = set(re.findall(r"^### `([\w/]+)/`$", TEXT, re.MULTILINE))
    nested = {one for one in packages if any(one.startswith(f"{other}/") for other in listed)}
    assert packages - listed - nested == set()


@pytest.mark.parametrize(("names", "module"), NAMED)
def test_what_a_walk_names_is_in_its_module(names: str, module: str) -> None:
    for name in re.findall(r"`([\w.]+)`", names):
        assert name in _names_in(module), f"there is no {name} in {module}"


def test_the_walks_name_functions() -> None:
    walks = TEXT.partition("## Three walks")[2].partition("## Layers")[0]
    assert len(re.findall(r"^### ", walks, re.MULTILINE)) == 3
    for walk in walks.split("### ")[1:]:
        steps = re.findall(r"^(\d+)\. (.*)$", walk, re.MULTILINE)
        assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
        assert 8 <= len(steps) <= 12
        assert all(re.search(r"\(`[\w/]+\.py`\)", step) for _, step in steps)


def test_modules_that_the_page_mentions_exist() -> None:
    for path in re.findall(r"`([\w/]+\.py)`", TEXT):
        assert (SRC / path).exists() or (SRC.parent.parent / path).exists(), f"{path} is gone"


def test_the_picture_is_the_one_that_the_code_draws() -> None:
    assert FILE.read_text() == drawn(), "draw it again: python -m tests.picture"
    assert replica_picture.FILE.read_text() == replica_picture.drawn(), "draw it again: python -m tests.replica_picture"
    assert f"](img/{FILE.name})" in TEXT


@cache
def _names_in(module: str) -> set[str]:
    found: set[str] = set()
    for node in ast.parse((SRC / module).read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {f"{node.name}.{one.name}" for one in inner}
    return found


def test_walks_get_no_longer_than_the_page_says(tmp_path: Path) -> None:
    """Those of the broker depend on how the event loop divides its work into turns, and are not compared."""
    section = TEXT.partition("## How long the walks are")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w.]+) \| (\d+) \| (\d+) \| (\d+) \|", section, re.MULTILINE)
    said = {name: [int(figure) for figure in figures] for name, *figures in rows}
    for walk in embedded_walks(tmp_path):
        for found, most in zip(walk[1:], said[walk.name], strict=True):
            assert found <= most, f"{walk}: shorten it, or write the new figures into docs/architecture.md"
