"""What the tests of the page share: a served house, a real Chromium, and a visitor who must have no complaints."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import house
from tests.web.serving import Served

if TYPE_CHECKING:  # the tests are skipped where it is not installed, and this file is read all the same
    from playwright.sync_api import Browser

    from tests.browser.visitor import Visitor

Visits = Callable[..., "Visitor"]


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """A browser; stopped with the module, as its event loop would be in the way of other tests."""
    from playwright.sync_api import sync_playwright

    from tests.browser.visitor import chromium_path

    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium is installed here: the page cannot be looked at")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class House:
    """A served store with something of everything in it."""

    def __init__(self, served: Served, held: house.Held, crowd: house.Crowd) -> None:
        self.served = served
        self.held = held
        self.crowd = crowd
        self.token = self.log_in()
        """A session of an administrator, for all visitors: a password costs a good part of a second."""

    def log_in(self, user: str = "guest") -> str:
        """Another session."""
        token: str = self.served.post("/api/holdfast/login", {"username": user, "password": user})["token"]
        return token


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> Iterator[House]:
    """One house a module; without a browser it is not even built."""
    data = tmp_path_factory.mktemp("house") / "data"
    house.prepare(data)
    with Served(data, allowed_paths=(str(tmp_path_factory.getbasetemp()),)) as served:
        served.add_user("operator", tags=("administrator",))
        held = house.furnish(served)
        crowd = house.Crowd(served)
        try:
            yield House(served, held, crowd)
        finally:
            held.let_go()
            crowd.leave()


@pytest.fixture
def visits(home: House, chromium: "Browser") -> Iterator[Visits]:
    """Makes visitors; none may have met an error, and none may have asked another host."""
    from tests.browser.visitor import Visitor

    seen: list[Visitor] = []

    def visit(token: str | None = home.token, **context: Any) -> Visitor:
        seen.append(Visitor(chromium, home.served, token, **context))
        return seen[-1]

    yield visit
    for one in seen:
        complaints, hosts = one.complaints(), one.hosts
        one.leave()
        assert not complaints, complaints
        assert hosts <= {home.served.url.removeprefix("http://")}, hosts


@pytest.fixture
def visitor(visits: Visits) -> "Visitor":
    """Somebody who is logged in, at a desk."""
    return visits()
