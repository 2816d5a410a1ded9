"""Visitor: drives the page in a real Chromium, and records errors."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Page, Request, expect

from tests.web.serving import Served

__all__ = ["PAGES", "Visitor", "chromium_path"]

expect.set_options(timeout=60_000)  # a busy machine is slow, and a test waits only as long as necessary

PAGES = (
    "overview",
    "queues",
    "queues/%2F/orders",
    "queues/%2F/orders?tab=publish",
    "queues/%2F/orders?tab=leases",
    "queues/%2F/orders?tab=delayed",
    "queues/%2F/payments?tab=dead",
    "queues/%2F/orders?tab=replay",
    "queues/%2F/shop.orders?tab=bindings",
    "queues/%2F/shop.orders?tab=consumers",
    "queues/%2F/orders?tab=settings",
    "dead?vhost=%2F&queue=payments",
    "delayed",
    "exchanges",
    "exchanges/%2F/shop",
    "graph",
    "connections",
    "logs",
    "logs/events",
    "tables",
    "tables/Customer",
    "migrations",
    "pipelines",
    "users",
    "about",
)
"""Every page, except that of a record, whose key is different each time."""


def chromium_path() -> str | None:
    """Return the path of Chromium; None if there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return found or next((one for one in ("/usr/bin/chromium",) if Path(one).exists()), None)


class Visitor:
    """A browser tab, logged in with `token` unless it is None."""

    def __init__(self, browser: Browser, served: Served, token: str | None, **context: Any) -> None:
        self.served = served
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **context})
        self.context.set_default_timeout(60_000)
        if token is not None:
            user = served.get("/api/holdfast/whoami", token=token)
            who = json.dumps({"name": user["name"], "tags": user["tags"]})
            # Only on the first page of the tab, so that a logout is not undone.
            self.context.add_init_script(
                "if (!sessionStorage.getItem('visited')) {"
                "sessionStorage.setItem('visited', '1');"
                f"sessionStorage.setItem('holdfast-token', {json.dumps(token)});"
                f"sessionStorage.setItem('holdfast-who', {json.dumps(who)}); }}"
            )
        self.page: Page = self.context.new_page()
        self.said: list[str] = []
        self.hosts: set[str] = set()
        self.allowed: tuple[str, ...] = ()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", self._request)
        self.page.on("dialog", self._dialog)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.said.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        self.hosts.add(urlsplit(request.url).netloc)

    def _dialog(self, dialog: Dialog) -> None:
        self.said.append(f"a dialog of the browser: {dialog.message}")
        dialog.dismiss()

    def allow(self, *words: str) -> None:
        """Accept browser errors with these words, as for a rejected request."""
        self.allowed = words

    def open(self, where: str) -> Page:
        """Open a page and wait for its heading."""
        self.page.goto(f"{self.served.url}/#/{where}")
        at = "/".join(unquote(part) for part in where.partition("?")[0].split("/") if part)
        self.page.wait_for_function(
            "at => [undefined, at].includes(document.querySelector('main')?.dataset.at)", arg=at
        )
        expect(self.page.locator("main h1").first).to_be_visible()
        return self.page

    def row(self, text: str | re.Pattern[str]) -> Locator:
        """Return the table row with this text."""
        return self.page.locator("tbody tr").filter(has_text=text).first

    @property
    def _in_front(self) -> Locator:
        """The open dialog, or the page while there is none; located again at each use."""
        return self.page.locator("dialog[open], body:not(:has(dialog[open]))")

    def button(self, name: str, *, exact: bool = True) -> Locator:
        """Return a button by its label; in the open dialog, if there is one."""
        return self._in_front.get_by_role("button", name=name, exact=exact).first

    def fill(self, label: str, text: str) -> None:
        """Type into a field by its label."""
        self._in_front.get_by_label(label).first.fill(text)

    def notified(self, text: str | re.Pattern[str]) -> None:
        """Check that the result of an action is shown, and announced to screen readers."""
        expect(self.page.locator(".toast").filter(has_text=text).first).to_be_visible()
        expect(self.page.locator("#announce")).to_contain_text(text)

    def figure(self, label: str) -> Locator:
        """Return a figure at the top of a page."""
        return self.page.locator(".figures > div").filter(has=self.page.get_by_text(label, exact=True)).locator("dd")

    def complaints(self) -> list[str]:
        """Return the errors of the browser that were not allowed."""
        return [one for one in self.said if not any(word in one for word in self.allowed)]

    def leave(self) -> None:
        """Close the tab."""
        self.context.close()
