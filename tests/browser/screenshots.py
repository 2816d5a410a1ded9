"""Screenshots of the page for the docs: `python -m tests.browser.screenshots` writes docs/images/page-*.png."""

import math
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser import sample_store
from tests.browser.visitor import Visitor, chromium_path
from tests.web.serving import Served

__all__ = ["draw"]

IMAGES = Path(__file__).parents[2] / "docs" / "images"
BYTES_MAX = 200 * 1024
DESK = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}}
SHOTS = (
    ("overview", "overview", {**DESK, "color_scheme": "light"}),
    ("overview-dark", "overview", {**DESK, "color_scheme": "dark"}),
    ("queues", "queues", {**DESK, "color_scheme": "light"}),
    ("queue", "queues/%2F/orders", {**DESK, "color_scheme": "light"}),
    ("delayed", "queues/%2F/orders?tab=delayed", {**DESK, "color_scheme": "light"}),
    ("dead", "queues/%2F/payments?tab=dead", {**DESK, "color_scheme": "dark"}),
    ("graph", "graph", {**DESK, "color_scheme": "light"}),
    ("log", "logs/events", {**DESK, "color_scheme": "light"}),
    ("record", "tables/Customer/", {**DESK, "color_scheme": "light"}),
    ("phone", "queues", {**PHONE, "color_scheme": "light"}),
    ("phone-dark", "overview", {**PHONE, "color_scheme": "dark"}),
)


def bustle(served: Served, over: threading.Event) -> None:
    """Put and acknowledge messages at a varying rate, so that the charts show something."""
    clicks = served.store.queue("clicks")
    while not over.wait(0.25):
        wave = 1 + math.sin(time.monotonic() / 4)
        clicks.put_many([b"click"] * round(40 + 120 * wave))
        if taken := clicks.lease(round(60 + 90 * wave)):
            clicks.ack(taken)


def draw(browser: Browser, served: Served, to: Path) -> list[Path]:
    """Write a screenshot of each page in `SHOTS`; return the files."""
    to.mkdir(parents=True, exist_ok=True)
    token = served.post("/api/holdfast/login", {"username": "guest", "password": "guest"})["token"]
    record = served.get("/api/holdfast/tables/Customer/records?limit=1", token=token)["records"][0]["key"]
    drawn = []
    for name, where, context in SHOTS:
        visitor = Visitor(browser, served, token, **context)
        page = visitor.open(f"{where}{record}" if where.endswith("/") else where)
        expect(page.locator("tbody tr, .series, .node").first).to_be_attached()
        page.mouse.move(0, 0)
        page.wait_for_timeout(2500)  # the charts have some points then
        drawn.append(to / f"page-{name}.png")
        page.screenshot(path=drawn[-1], scale="css")
        visitor.leave()
    return drawn


def main() -> None:
    """Write all screenshots, from a store that is created for them."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        data = Path(folder) / "data"
        sample_store.prepare(data)
        with Served(data) as served:
            held = sample_store.fill(served)
            crowd = sample_store.Crowd(served)
            browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
            over = threading.Event()
            busy = threading.Thread(target=bustle, args=(served, over))
            busy.start()
            time.sleep(45)
            drawn = draw(browser, served, IMAGES)
            over.set()
            busy.join()
            for path in drawn:
                size = path.stat().st_size
                assert size < BYTES_MAX, f"{path.name} has {size} bytes"
                print(path.name, size)
            browser.close()
            held.release()
            crowd.leave()


if __name__ == "__main__":
    main()
