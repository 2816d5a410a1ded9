"""Strict type checks of the Python blocks of README and docs: `python -m tests.doc_types`, part of `make types`.

The blocks of a page, and of a section of the README, are one module, as they are one program when they run as a test.
"""

import re
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

from tests.blocks import ROOT, Block, blocks_of

__all__ = ["main", "modules"]


def modules() -> dict[str, str]:
    """Return the source of each page, and of each section of the README, that has Python blocks."""
    pages: dict[str, list[Block]] = {page.name: blocks_of(page) for page in sorted((ROOT / "docs").glob("*.md"))}
    for section, blocks in groupby(blocks_of(ROOT / "README.md"), lambda block: block.section):
        pages[f"README {section}"] = list(blocks)
    sources = {
        re.sub(r"\W+", "_", name).lower(): [block.text for block in blocks if block.language == "python"]
        for name, blocks in pages.items()
    }
    return {name: "\n\n".join(texts) for name, texts in sources.items() if texts}


def main() -> int:
    """Run mypy; return its exit code."""
    found = modules()
    assert found, "no Python blocks were found"
    with tempfile.TemporaryDirectory() as folder:
        for name, source in found.items():
            (Path(folder) / f"{name}.py").write_text(source)
        files = [f"{Path(folder) / name}.py" for name in found]
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
        done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
        print(done.stdout.replace(f"{folder}/", "").strip(), done.stderr, end="\n")
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
