"""The store that the commands of the tests work on: a new one for each test."""

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture
def holdfast(tmp_path: Path) -> Terminal:
    """Types commands on a store that does not exist yet."""
    return Terminal(tmp_path / "data")
