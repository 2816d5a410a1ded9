"""Fixtures of the tests of the page: a sample server, a real Chromium, and a visitor that must meet no error."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import sample_store
from tests.web.serving import Served

if TYPE_CHECKING:  # the tests are skipped where it is not installed, and this file is read all the same
    from playwright.sync_api import Browser

    from tests.browser.visitor import Visitor

Visits = Callable[..., "Visitor"]


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """A browser; stopped with the module, as its event loop would disturb other tests."""
    from playwright.sync_api import sync_playwright

    from tests.browser.visitor import chromium_path

    path = chromium_path()
    if path is None:
        pytest.skip("Chromium is not installed: the page cannot be tested")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class SampleServer:
    """A served store with objects of every kind."""

    def __init__(self, served: Served, held: sample_store.Held, crowd: sample_store.Crowd) -> None:
        self.served = served
        self.held = held
        self.crowd = crowd
        self.token = self.log_in()
        """A session of an administrator, for all visitors: checking a password takes a good part of a second."""

    def log_in(self, user: str = "guest") -> str:
        """Create another session."""
        token: str = self.served.post("/api/holdfast/login", {"username": user, "password": user})["token"]
        return token


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> Iterator[SampleServer]:
    """One sample server for each module; without a browser it is not built."""
    data = tmp_path_factory.mktemp("sample") / "data"
    sample_store.prepare(data)
    with Served(data, allowed_paths=(str(tmp_path_factory.getbasetemp()),)) as served:
        served.add_user("operator", tags=("administrator",))
        held = sample_store.fill(served)
        crowd = sample_store.Crowd(served)
        try:
            yield SampleServer(served, held, crowd)
        finally:
            held.release()
            crowd.leave()


@pytest.fixture
def visits(sample: SampleServer, chromium: "Browser") -> Iterator[Visits]:
    """Return a factory of visitors; none may meet an error, and none may send a request to another host."""
    from tests.browser.visitor import Visitor

    seen: list[Visitor] = []

    def visit(token: str | None = sample.token, **context: Any) -> Visitor:
        seen.append(Visitor(chromium, sample.served, token, **context))
        return seen[-1]

    yield visit
    for one in seen:
        complaints, hosts = one.complaints(), one.hosts
        one.leave()
        assert not complaints, complaints
        assert hosts <= {sample.served.url.removeprefix("http://")}, hosts


@pytest.fixture
def visitor(visits: Visits) -> "Visitor":
    """A visitor that is logged in, with a desktop screen."""
    return visits()
