"""What the tests of the web share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.serving import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A served store that is empty."""
    with Served(tmp_path / "data") as one:
        yield one
