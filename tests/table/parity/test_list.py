"""Does the list of facts name tests that are there, and all of this suite?"""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
LIST = TESTS.parent / "docs" / "tables-parity.md"


def names_in(path: Path) -> set[str]:
    """The names of all tests of a file, with its path."""
    functions = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    return {f"{path.relative_to(TESTS)}::{name}" for name in functions if name.startswith("test_")}


def rows() -> list[list[str]]:
    lines = [line for line in LIST.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def named() -> set[str]:
    return set(re.findall(r"`([\w/]+\.py::\w+)`", LIST.read_text()))


def test_every_test_that_the_list_names_is_there() -> None:
    files = {TESTS / name.partition("::")[0] for name in named()}
    there = {name for path in files if path.exists() for name in names_in(path)}
    assert named() - there == set()


def test_every_test_of_this_suite_is_in_the_list() -> None:
    here = {name for path in Path(__file__).parent.glob("test_*.py") for name in names_in(path)}
    assert here - names_in(Path(__file__)) - named() == set()


def test_every_fact_has_a_test_or_a_reason() -> None:
    assert len(rows()) > 200
    for row in rows():
        _, _, answer = row
        assert "::test_" in answer or answer.startswith("does not apply: "), row
