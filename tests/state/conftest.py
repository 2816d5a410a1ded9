"""What the tests of states share: a place that holds a state of either kind, to be opened as often as needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.state import State
from tests.state.places import KINDS, Place


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = Place(request.param, tmp_path / "state")
    yield place
    place.close()


@pytest.fixture
def state(place: Place) -> State:
    return place.open()
