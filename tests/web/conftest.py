"""Fixtures of the tests of the web."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.serving import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """An empty served store."""
    with Served(tmp_path / "data") as one:
        yield one
