"""Opens stores on one disk, and closes what a test left open."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.base.files import SystemFiles
from holdfast.testing import SimFiles
from tests.table.migration.opening import Opened


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the store, after it was closed; on simulated files, or with `disk=True` on those of the machine."""
    stores: list[Opened] = []
    simulated = SimFiles()

    def open_one(*, disk: bool = False, **options: Any) -> Opened:
        for one in stores:
            one.close()
        files = SystemFiles() if disk else simulated
        stores.append(Opened(tmp_path / "data" if disk else Path("/data"), files=files, **options))
        return stores[-1]

    yield open_one
    for one in stores:
        one.close()
