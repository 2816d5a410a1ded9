"""The examples of the README and the docs run as they stand, each in an empty folder."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
AMQP_PORT = "5672"
"""An example that names this port runs beside `holdfast serve`, and is given a port that is free instead."""


def _examples(page: Path) -> list[list[str]]:
    """Stories: programs that run one after the other in the same folder."""
    found = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    if page.name == "spark.md":
        return [["\n".join(found)]]  # one start of Spark
    return [found] if page.name == "amqp.md" else [[one] for one in found]


EXAMPLES = {f"{page.name}-{number}": story for page in PAGES for number, story in enumerate(_examples(page))}


def test_there_are_examples() -> None:
    pages = [name.split("-")[0] for name in EXAMPLES]
    assert [pages.count(page) for page in ("README.md", "queues.md", "spark.md", "amqp.md")] == [5, 3, 1, 1]
    assert len(EXAMPLES["amqp.md-0"]) == 4


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_written(name: str, tmp_path: Path) -> None:
    for example in EXAMPLES[name]:
        if AMQP_PORT in example:
            with _served(tmp_path) as port:
                _run(example.replace(AMQP_PORT, port), tmp_path)
        else:
            _run(example, tmp_path)


def test_what_the_readme_links_to_is_there() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _run(example: str, folder: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", example], cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """`holdfast serve --data data`, as the texts say it, on a free port; it must end well and without complaint."""
    command = [sys.executable, "-m", "holdfast", "serve", "--data", "data", "--amqp-port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            _, colon, port = process.stdout.readline().rpartition(":")
            assert colon, "the server does not listen"
            yield port.strip()
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
