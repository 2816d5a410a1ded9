"""What tests share: a simulated store, and names that print the seed."""

import os
import signal
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

# Servers that tests start in processes of their own take any ports that are free.
os.environ.update(HOLDFAST_HTTP_PORT="0", HOLDFAST_RPC_PORT="0")

# Who starts the tests in the background lets them ignore Ctrl-C or the end of the terminal, and so would every process
# that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A Java that lives for a test is mostly busy with compiling what it runs a few times: it does so in the quick way.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


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
