"""The examples of the README and the docs run as they stand, each in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def _examples(page: Path) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    return ["\n".join(found)] if page.name == "spark.md" else found  # one story, and one start of Spark


EXAMPLES = {f"{page.name}-{number}": example for page in PAGES for number, example in enumerate(_examples(page))}


def test_there_are_examples() -> None:
    pages = [name.split("-")[0] for name in EXAMPLES]
    assert [pages.count(page) for page in ("README.md", "queues.md", "spark.md")] == [4, 3, 1]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_written(name: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", EXAMPLES[name]], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_what_the_readme_links_to_is_there() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
