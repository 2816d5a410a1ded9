"""Buttons of all pages, for users who may not: none can be pressed that the server would refuse, and each says why."""

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import expect

from tests.browser.conftest import House, Visits

if TYPE_CHECKING:
    from playwright.sync_api import Page

ADMINISTRATOR = "Your user has no tag administrator."
CREATE = "Your user has no configure permission in any virtual host."
DEFAULT = "The user guest with its default password may not do this: log in as an administrator of your own."


def no(kind: str, what: str) -> str:
    return f"Your user has no {kind} permission for this {what}."


def watcher(home: House) -> str:
    """A session of a user who only monitors, and has no permission anywhere."""
    home.served.ask("PUT", "/api/users/watcher", {"password": "watcher", "tags": "monitoring"})
    return home.log_in("watcher")


def missing(page: "Page", name: str, why: str | None) -> None:
    """Every button of this name can be pressed, or says what is missing."""
    buttons = page.locator("main").get_by_role("button", name=name, exact=True)
    expect(buttons.first).to_be_visible()
    for number in range(buttons.count()):
        if why is None:
            expect(buttons.nth(number)).to_be_enabled()
        else:
            expect(buttons.nth(number)).to_have_attribute("title", why)
            expect(buttons.nth(number)).to_be_disabled()


def parcel(home: House) -> str:
    """The address of a record."""
    table = home.served.get("/api/holdfast/tables")["tables"][0]["name"]
    key = home.served.get(f"/api/holdfast/tables/{table}/records?limit=1")["records"][0]["key"]
    return f"{table}/{key}"


def pages(home: House, who: str) -> list[tuple[str, dict[str, str | None]]]:
    """For each page its buttons, and what this user lacks for them."""
    record = parcel(home)
    watches, reads = who == "watcher", who == "reader"

    def lacks(kind: str, what: str) -> str | None:
        return no(kind, what) if watches or (reads and kind != "read") else None

    administrator = ADMINISTRATOR if watches or reads else None
    operator = administrator or DEFAULT
    create = CREATE if watches or reads else None
    pipeline = home.served.get("/api/holdfast/pipelines")["pipelines"][0]["name"]
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
        ("logs/events", {"Verify": None, "Compact…": lacks("configure", "log"), "Forget…": lacks("configure", "log")}),
        ("connections", {"Close…": administrator}),
        ("migrations", {"Cancel…": administrator}),
        ("pipelines", {f"Run {pipeline}": operator}),
        (f"tables/{record.split('/')[0]}", {"Add a record": lacks("write", "table")}),
        (f"tables/{record}", {"Change…": lacks("write", "table"), "Delete…": lacks("write", "table")}),
        ("about", {"Back up…": operator, "Check again": administrator}),
    ]


@pytest.mark.parametrize("who", ["watcher", "reader", "guest"])
def test_no_button_can_be_pressed_that_the_server_would_refuse(home: House, visits: Visits, who: str) -> None:
    one = visits(watcher(home) if who == "watcher" else home.log_in(who))
    if who == "watcher":  # who reads no table: the records are refused, and the page says so
        one.allow("403")
    for where, buttons in pages(home, who):
        page = one.open(where)
        for name, why in buttons.items():
            missing(page, name, why)


def test_the_page_says_in_words_what_is_missing(home: House, visits: Visits) -> None:
    page = visits(watcher(home)).open("logs/events")
    expect(page.get_by_role("status").filter(has_text=no("configure", "log"))).to_be_visible()
    expect(page.locator("section[aria-label=Records]")).to_contain_text(no("read", "log"))
    page = visits().open("about")
    expect(page.get_by_role("status").filter(has_text=DEFAULT)).to_be_visible()
