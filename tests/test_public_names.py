"""What users see on a store, queue, log and table is what the pages for users name."""

import re
from pathlib import Path

import pytest

from holdfast import Log, Queue, Store
from holdfast.table import Table

DOCS = Path(__file__).parent.parent / "docs"
ABOUT_THE_CODE = {"architecture.md", "locking.md"}
"""Pages for those who change the code: a name that only they use is not for users."""
PAGES = [path.read_text() for path in sorted(DOCS.glob("*.md")) if path.name not in ABOUT_THE_CODE]
KINDS = (Log, Queue, Store, Table)


def named_in(page: str) -> set[str]:
    """Return what a page names in code font, as `name` or `queue.name(...)`, and as attributes in its blocks."""
    blocks = re.findall(r"^```.*?^```", page, re.DOTALL | re.MULTILINE)
    text = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    found = {name for block in blocks for name in re.findall(r"\.(\w+)", block)}
    for code in re.findall(r"`([^`\n]+)`", text):
        found |= set(re.findall(r"(?:^|(?<=[\w)]\.))(\w+)", code))
    return found


NAMED = set().union(*map(named_in, PAGES))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_public_name_is_on_a_page_for_users(kind: type) -> None:
    names = {name for name in dir(kind) if not name.startswith("_")}
    assert names - NAMED == set(), "describe these in docs/, or move them to a part that only other modules use"


@pytest.mark.parametrize(
    ("page", "name", "found"),
    [
        ("Call `put`, then go on.", "put", True),
        ("Call `put(payload)`, then go on.", "put", True),
        ("Call `hf.queue('jobs').put(b'x')`, then go on.", "put", True),
        ("```python\njobs.put(b'x')\n```\n", "put", True),
        ("Messages that you put are durable.", "put", False),
        ("Set `input` to a file.", "put", False),
        ("```python\nput = 1\n```\n", "put", False),
    ],
)
def test_a_name_counts_in_code_only(page: str, name: str, found: bool) -> None:
    assert (name in named_in(page)) is found
