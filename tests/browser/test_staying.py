"""The page over time: logins, an unreachable server, and values that change."""

import contextlib
import re
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="the page is looked at with playwright: pip install playwright")

from playwright.sync_api import Browser, Route, TimeoutError, expect

from tests.browser.conftest import SampleServer, Visits
from tests.browser.visitor import Visitor
from tests.web.serving import Served

pytestmark = pytest.mark.xdist_group("browser")


def test_a_wrong_password_is_reported_and_a_right_one_opens_the_requested_page(
    visits: Visits, sample: SampleServer
) -> None:
    visitor = visits(None)
    visitor.allow("401")
    page = visitor.page
    page.goto(f"{sample.served.url}/#/queues/%2F/orders?tab=settings")
    page.get_by_label("Name").fill("guest")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("Wrong user name or password")
    page.get_by_label("Password").fill("guest")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("orders")
    expect(page.get_by_role("tab", name="Settings")).to_have_attribute("aria-selected", "true")


def test_an_expired_session_shows_the_login_and_then_the_same_page(visits: Visits, sample: SampleServer) -> None:
    token = sample.log_in()
    visitor = visits(token)
    visitor.allow("401")
    page = visitor.open("queues?name=shop")
    expect(page.locator("tbody tr")).to_have_count(2)
    sample.served.post("/api/holdfast/logout", {}, token=token)
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    page.get_by_label("Name").fill("guest")
    page.get_by_label("Password").fill("guest")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    expect(page.get_by_label("Filter by name")).to_have_value("shop")


def test_logging_out_forgets_the_token(visits: Visits, sample: SampleServer) -> None:
    token = sample.log_in()
    page = visits(token).open("overview")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('holdfast-token')") is None
    assert sample.served.ask("GET", "/api/holdfast/whoami", token=token).status == 401


def test_while_the_server_is_unreachable_the_page_says_so_and_retries(visitor: Visitor) -> None:
    visitor.allow("Failed to load resource", "net::ERR")
    page = visitor.open("queues")
    expect(page.locator("tbody tr").first).to_be_visible()

    def refuse(route: Route) -> None:
        route.abort()

    page.route("**/api/**", refuse)
    banner = page.locator(".banner")
    expect(banner).to_contain_text("Offline")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.unroute("**/api/**", refuse)
    expect(banner).to_be_hidden()


def test_the_charts_show_what_was_before_a_restart(chromium: Browser, tmp_path: Path) -> None:
    with Served(tmp_path / "data", history_interval=0.2) as served:
        jobs = served.store.queue("jobs")
        jobs.put_many([b"x"] * 4321)
        assert served.site.history is not None
        served.site.history.sample()
        jobs.purge()
    with Served(tmp_path / "data", history_interval=0.2) as served:
        token = served.post("/api/holdfast/login", {"username": "guest", "password": "guest"})["token"]
        visitor = Visitor(chromium, served, token)
        page = visitor.open("overview?range=1h")
        expect(visitor.figure("Ready")).to_have_text("0")
        depth = page.get_by_role("region", name="Messages in queues").first
        depth.get_by_role("button", name="Show as table").click()
        ready = depth.locator("tbody td:nth-child(2)")  # means over five seconds
        expect(ready.filter(has_text=re.compile("[1-9]")).first).to_be_visible()
        assert not visitor.complaints()
        visitor.leave()


ALARMS = {
    "disk": ({"disk_free_limit": 1 << 60}, r"Alarm\. Disk: .+ are free, less than the limit of 1048576 TiB"),
    "memory": ({"memory_limit": 1}, r"Alarm\. Memory: the process uses .+, more than the limit of 1 B"),
}


@pytest.mark.parametrize("low", ALARMS)
def test_an_alarm_says_what_is_low_and_that_publishers_are_blocked(chromium: Browser, tmp_path: Path, low: str) -> None:
    settings, words = ALARMS[low]
    with Served(tmp_path / "data", **settings) as served:
        served.site.on_broker(served.site.broker.memory.look)
        assert served.get("/api/holdfast/overview")["memory"]["alarm"] == low
        token = served.post("/api/holdfast/login", {"username": "guest", "password": "guest"})["token"]
        visitor = Visitor(chromium, served, token)
        page = visitor.open("overview")
        alarm = page.locator("main").get_by_role("alert")
        expect(alarm).to_have_text(re.compile(f"{words}.*; publishers are blocked\\.$"))
        bars = page.get_by_role("region", name="Memory and disk").locator(".gauge")
        assert bars.evaluate_all("(all) => all.map((one) => one.classList.contains('bad'))") == [
            low == "memory", False, low == "disk",
        ]  # fmt: skip
        assert not visitor.complaints()
        visitor.leave()


def test_figures_are_refreshed_and_the_focus_stays(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("queues?name=quiet")
    row = visitor.row("quiet")
    expect(row.locator("td[data-label=Ready]")).to_have_text("0")
    page.get_by_role("link", name="quiet").focus()
    sample.served.store.queue("quiet").put_many([b"one", b"two"])
    expect(row.locator("td[data-label=Ready]")).to_have_text("2")
    expect(page.get_by_role("link", name="quiet")).to_be_focused()


def test_a_hidden_tab_sends_no_requests(visitor: Visitor) -> None:
    page = visitor.open("queues")
    expect(page.locator("tbody tr").first).to_be_visible()
    hide = "(how) => {Object.defineProperty(document, 'visibilityState', {value: how, configurable: true});"
    hide += "document.dispatchEvent(new Event('visibilitychange'))}"
    page.evaluate(hide, "hidden")
    page.wait_for_timeout(2500)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert asked == []
    with page.expect_request(re.compile("/api/holdfast/queues")):
        page.evaluate(hide, "visible")


def test_an_unknown_address_shows_an_error(visitor: Visitor) -> None:
    page = visitor.open("nonsense/here")
    expect(page.get_by_role("heading", level=1)).to_have_text("Page not found")
    visitor.allow("404")
    visitor.open("queues/%2F/no-such-queue")
    expect(page.get_by_role("alert").first).to_contain_text("no-such-queue")


def test_the_skip_link_moves_the_focus_to_the_content_and_the_focus_is_visible(visitor: Visitor) -> None:
    page = visitor.open("queues")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.locator(".skip").focus()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    expect(page).to_have_url(re.compile("#/queues"))
    page.keyboard.press("Tab")
    focused = "getComputedStyle(document.activeElement)"
    assert page.evaluate(f"{focused}.outlineStyle") == "solid"
    assert page.evaluate(f"parseFloat({focused}.outlineWidth)") >= 2


def test_every_jump_opens_its_page(visitor: Visitor) -> None:
    page = visitor.open("overview")
    for key, title in (
        *(("d", "Dead letters"), ("y", "Delayed messages"), ("e", "Exchanges"), ("r", "Routing graph")),
        *(("c", "Connections"), ("l", "Logs"), ("t", "Tables"), ("m", "Migrations"), ("p", "Spark pipelines")),
        *(("u", "Users and permissions"), ("a", "About"), ("o", "Overview"), ("q", "Queues")),
    ):
        heading = page.get_by_role("heading", level=1).get_by_text(title, exact=True)
        for _ in range(5):  # the second key counts only soon after the first, and a busy machine may be slow
            page.keyboard.press("g")
            page.keyboard.press(key)
            with contextlib.suppress(TimeoutError):
                heading.wait_for(timeout=5000)
                break
        expect(page.get_by_role("heading", level=1)).to_have_text(title)


def test_every_control_has_a_name(visitor: Visitor) -> None:
    for where in ("overview", "queues", "queues/%2F/orders?tab=publish", "logs/events", "tables/Customer", "users"):
        page = visitor.open(where)
        page.wait_for_timeout(300)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('button, a, input, select, textarea')].filter((one) =>
                !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length || one.title))
                .map((one) => one.outerHTML)"""
        )
        assert nameless == [], where


def test_reduced_motion_is_respected(visits: Visits) -> None:
    page = visits(reduced_motion="reduce").open("overview")
    moving = page.evaluate(
        """() => [...document.querySelectorAll('*')].filter((one) => {
            const { transitionDuration, animationName } = getComputedStyle(one);
            return parseFloat(transitionDuration) > 0 || animationName !== 'none';
        }).length"""
    )
    assert moving == 0
