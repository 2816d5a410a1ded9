"""The replica on the overview: shown if there is one, with its state in words and colour, on any screen."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright.sync_api", reason="the page is looked at with playwright: pip install playwright")

from playwright.sync_api import Locator, Page, Route, expect

from holdfast.replica import open_bucket
from tests.amqp.serving import eventually
from tests.browser.test_looking import overflow
from tests.browser.visitor import Visitor
from tests.web.serving import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.xdist_group("browser")

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
COLOURS = "(one) => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor]"


@pytest.fixture
def shipped(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "data", replica_lag_limit=5) as served:
        served.store.queue("orders").put(b"1")
        yield served


def ship(served: Served) -> Path:
    """Ship the store to a folder; return it."""
    folder = served.store.path.parent / "replica"
    served.store.ship_to(open_bucket(folder.as_uri()))
    served.site.replica.start()
    served.store.replica.ship()
    return folder


@pytest.fixture
def page(shipped: Served, chromium: "Browser", request: pytest.FixtureRequest) -> Iterator[Page]:
    token = shipped.post("/api/holdfast/login", {"username": "guest", "password": "guest"})["token"]
    visitor = Visitor(chromium, shipped, token, **getattr(request, "param", {}))
    yield visitor.page
    complaints = visitor.complaints()
    visitor.leave()
    assert not complaints, complaints


def opened(page: Page, served: Served) -> Locator:
    """The panel of the replica, on the overview."""
    page.goto(f"{served.url}/#/overview")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    return page.get_by_role("region", name="Replica", exact=True)


def said(page: Page, **changed: Any) -> None:
    """Let the server's answer about the replica be changed."""

    def change(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        alarms = changed.pop("alarms", None) if "alarms" in changed else found["alarms"]
        found["replica"] = {**found["replica"], **changed}
        found["alarms"] = alarms or []
        route.fulfill(response=answer, json=found)

    page.route("**/api/holdfast/overview", change)


def test_without_a_replica_there_is_no_panel(page: Page, shipped: Served) -> None:
    panel = opened(page, shipped)
    expect(page.get_by_role("region", name="Objects", exact=True)).to_contain_text("Queues")
    expect(panel).to_be_hidden()
    expect(page.get_by_role("region", name="Replica lag")).to_be_hidden()


def test_a_replica_that_works_is_shown_with_its_lag_and_its_chart(page: Page, shipped: Served) -> None:
    folder = ship(shipped)
    panel = opened(page, shipped)
    expect(panel.locator(".badge.ok")).to_have_text("shipping")
    expect(panel).to_contain_text("owner, epoch 1")
    expect(panel).to_contain_text(folder.as_uri())
    expect(panel).to_contain_text("put")
    expect(page.get_by_role("region", name="Replica lag").locator(".series").first).to_be_attached()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_bucket_that_is_away_is_said_and_the_page_recovers(page: Page, shipped: Served) -> None:
    folder = ship(shipped)
    panel = opened(page, shipped)
    expect(panel.locator(".badge.ok")).to_have_text("shipping")
    folder.rename(folder.with_suffix(".away"))
    folder.write_text("no folder")
    shipped.store.queue("orders").put(b"2")
    expect(panel.locator(".badge")).to_have_text("behind")
    expect(panel).to_contain_text("Failing for")
    expect(panel).to_contain_text("Not a directory")
    expect(panel).to_contain_text("failed")
    expect(page.get_by_role("alert").filter(has_text="the bucket is")).to_be_visible()
    folder.unlink()
    folder.with_suffix(".away").rename(folder)
    eventually(lambda: shipped.store.replica.status().ok)
    expect(panel.locator(".badge.ok")).to_have_text("shipping")
    expect(panel).to_contain_text("none; the last one")


def test_a_replica_that_was_lost_is_red_and_says_so(page: Page, shipped: Served) -> None:
    ship(shipped)
    alarm = {"alarm": "replica-fenced", "since": 1, "since_time": None, "text": "another process owns the replica"}
    lost = "s3://bucket/prefix: this process has lost the replica (owner.json: other:/data has epoch 4; ours was 3)"
    said(page, role="fenced", error=lost, reason="fenced", failing_since=None, alarms=[alarm])
    panel = opened(page, shipped)
    badge = panel.locator(".badge.bad")
    expect(badge).to_have_text("fenced")
    expect(panel).to_contain_text("other:/data has epoch 4")
    expect(page.get_by_role("alert")).to_contain_text("Replica: another process owns the replica")
    colour, ground = badge.evaluate(COLOURS)
    assert colour != ground


@pytest.mark.parametrize(("role", "word"), [("standby", "standby"), ("none", "not claimed yet"), ("later", "later")])
def test_every_role_has_a_word(page: Page, shipped: Served, role: str, word: str) -> None:
    ship(shipped)
    said(page, role=role, epoch=0, shipped_at=None, moment=None)
    panel = opened(page, shipped)
    expect(panel.locator(".badge")).to_have_text(word)
    expect(panel).to_contain_text("none since the start")


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_on_a_phone_nothing_is_cut_off(page: Page, shipped: Served) -> None:
    ship(shipped)
    long = "s3://" + "a-very-long-bucket-name-" * 6 + "/prefix"
    said(
        page, url=long, error=f"{long}/logs/{'x' * 200}: S3 is not available", reason="unavailable", lost_records=12345
    )
    panel = opened(page, shipped)
    expect(panel).to_contain_text("12.3 k records")
    assert overflow(page) == []
