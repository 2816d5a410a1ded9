"""What tests share: a simulated store, and names that print the seed."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import holdfast
from holdfast import Store
from holdfast.testing import SimClock, SimFiles

settings.register_profile(
    "holdfast",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,  # what lands is judged by the same examples; everyone else looks for new ones
)
settings.load_profile("holdfast")


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def reopen(files: SimFiles, clock: SimClock) -> Callable[..., Store]:
    """Open the simulated store, as often as needed."""

    def opener(*, read_only: bool = False) -> Store:
        return holdfast.open("data", files=files, clock=clock, background=False, read_only=read_only)

    return opener


@pytest.fixture
def store(reopen: Callable[..., Store]) -> Store:
    """A simulated store; not closed at the end, as a crash would not either."""
    return reopen()


@pytest.fixture
def disk_store(tmp_path: Path) -> Iterator[Store]:
    """A store on the real disk."""
    with holdfast.open(tmp_path / "data") as store:
        yield store
