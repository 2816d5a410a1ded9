"""Buttons of all pages, for users without permissions: those for rejected operations are disabled, and say why."""

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import expect

from tests.browser.conftest import SampleServer, Visits

if TYPE_CHECKING:
    from playwright.sync_api import Page

ADMINISTRATOR = "Your user lacks the tag administrator."
CREATE = "Your user has no configure permission in any virtual host."
DEFAULT = "The user guest may not do this with its default password: log in as another administrator."


def no(kind: str, what: str) -> str:
    return f"Your user has no {kind} permission for this {what}."


def watcher(sample: SampleServer) -> str:
    """A session of a user with the tag monitoring and without permissions."""
    sample.served.ask("PUT", "/api/users/watcher", {"password": "watcher", "tags": "monitoring"})
    return sample.log_in("watcher")


def missing(page: "Page", name: str, why: str | None) -> None:
    """Check that every button of this name is enabled, or disabled with this tooltip."""
    buttons = page.locator("main").get_by_role("button", name=name, exact=True)
    expect(buttons.first).to_be_visible()
    for number in range(buttons.count()):
        if why is None:
            expect(buttons.nth(number)).to_be_enabled()
        else:
            expect(buttons.nth(number)).to_have_attribute("title", why)
            expect(buttons.nth(number)).to_be_disabled()


def parcel(sample: SampleServer) -> str:
    """Return the address of a record."""
    table = sample.served.get("/api/holdfast/tables")["tables"][0]["name"]
    key = sample.served.get(f"/api/holdfast/tables/{table}/records?limit=1")["records"][0]["key"]
    return f"{table}/{key}"


def pages(sample: SampleServer, who: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the buttons of each page, and what this user lacks for them."""
    record = parcel(sample)
    watches, reads = who == "watcher", who == "reader"

    def lacks(kind: str, what: str) -> str | None:
        return no(kind, what) if watches or (reads and kind != "read") else None

    administrator = ADMINISTRATOR if watches or reads else None
    operator = administrator or DEFAULT
    create = CREATE if watches or reads else None
    pipeline = sample.served.get("/api/holdfast/pipelines")["pipelines"][0]["name"]
    return [
        ("queues", {"Create a queue": create}),
        ("exchanges", {"Declare an exchange": create}),
        (
            "exchanges/%2F/shop",
            {
                "Publish": lacks("write", "exchange"),
                "Bind…": lacks("read", "exchange"),
                "Unbind…": lacks("read", "exchange"),
                "Delete…": lacks("configure", "exchange"),
            },
        ),
        ("queues/%2F/orders?tab=bindings", {"Bind…": lacks("write", "queue")}),
        ("logs/events", {"Verify": None, "Compact…": lacks("configure", "log"), "Delete…": lacks("configure", "log")}),
        ("connections", {"Close…": administrator}),
        ("migrations", {"Cancel…": administrator}),
        ("pipelines", {f"Run {pipeline}": operator}),
        (f"tables/{record.split('/')[0]}", {"Add a record": lacks("write", "table")}),
        (f"tables/{record}", {"Change…": lacks("write", "table"), "Delete…": lacks("write", "table")}),
        ("about", {"Back up…": operator, "Check again": administrator}),
    ]


@pytest.mark.parametrize("who", ["watcher", "reader", "guest"])
def test_buttons_for_rejected_operations_are_disabled(sample: SampleServer, visits: Visits, who: str) -> None:
    one = visits(watcher(sample) if who == "watcher" else sample.log_in(who))
    if who == "watcher":  # records are rejected, and the page says so
        one.allow("403")
    for where, buttons in pages(sample, who):
        page = one.open(where)
        for name, why in buttons.items():
            missing(page, name, why)


def test_the_page_says_which_permission_is_missing(sample: SampleServer, visits: Visits) -> None:
    page = visits(watcher(sample)).open("logs/events")
    expect(page.get_by_role("status").filter(has_text=no("configure", "log"))).to_be_visible()
    expect(page.locator("section[aria-label=Records]")).to_contain_text(no("read", "log"))
    page = visits().open("about")
    expect(page.get_by_role("status").filter(has_text=DEFAULT)).to_be_visible()
