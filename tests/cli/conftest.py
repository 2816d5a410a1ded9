"""Where do the commands of the tests run? On a store of their own."""

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture
def holdfast(tmp_path: Path) -> Terminal:
    """Types commands on a store that does not exist yet."""
    return Terminal(tmp_path / "data")
