"""What the tests with real clients share: a served broker, its two doors, and names that are theirs alone."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.interop.serving import Door, Served

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker that stays up for all tests."""
    serving = Served(tmp_path_factory.mktemp("served"))
    try:
        serving.start()
        yield serving
    finally:
        serving.stop()


@pytest.fixture
def restartable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker that a test may stop and start as it likes."""
    serving = Served(tmp_path_factory.mktemp("restartable"))
    try:
        serving.start()
        yield serving
    finally:
        serving.stop()


@pytest.fixture(params=["plain", "tls"])
def door(served: Served, request: pytest.FixtureRequest) -> Door:
    """The way in: each test goes through both."""
    return served.tls if request.param == "tls" else served.plain


@pytest.fixture(params=["plain", "tls"])
def restarted_door(restartable: Served, request: pytest.FixtureRequest) -> Door:
    """The way into the broker that may be stopped."""
    return restartable.tls if request.param == "tls" else restartable.plain


@pytest.fixture
def name() -> Callable[..., str]:
    """Names that nobody else uses."""
    return lambda label="q": f"interop.{label}.{next(_NUMBERS)}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let clients leak a socket where the broker is stopped under them while they connect over TLS.

    `SSLContext.wrap_socket` does not close what it has made when the other side has reset the connection before.
    """
    for item in items:
        if "restarted_door" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"))
