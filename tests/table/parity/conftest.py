"""The three modes that every test of this suite runs in."""

from typing import Any

import pytest

from holdfast import Model, Store
from tests.table.parity.asking import MODES, Open


@pytest.fixture(params=MODES.values(), ids=list(MODES))
def mode(request: pytest.FixtureRequest) -> dict[str, bool]:
    """No history, history, or history with a list of updates."""
    return dict(request.param)


@pytest.fixture
def open_table(store: Store, mode: dict[str, bool]) -> Open:
    """Opens a table in the mode of the test."""

    def opened(model: type[Model]) -> Any:
        return store.table(model, **mode)  # type: ignore[arg-type]

    return opened
