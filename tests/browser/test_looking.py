"""Appearance of every page: its content, on any screen, in both colour schemes; data never runs as script."""

import re

import pytest

pytest.importorskip("playwright.sync_api", reason="the page is looked at with playwright: pip install playwright")

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import SampleServer, Visits
from tests.browser.sample_store import SCRIPT
from tests.browser.visitor import PAGES, Visitor

pytestmark = pytest.mark.xdist_group("browser")

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SEEN = {
    "overview": ("Messages per second", "Messages in queues", "Memory", "amqp", "Virtual hosts"),
    "queues": ("orders", "invoices", "shop.orders", "running"),
    "queues/%2F/orders": ("Peeking leases no messages",),
    "queues/%2F/shop.orders?tab=bindings": ("order.#", "(the default exchange)"),
    "queues/%2F/shop.orders?tab=consumers": ("packer", "guest"),
    "queues/%2F/orders?tab=settings": ("max attempts", "orders.dead", "total acked"),
    "queues/%2F/payments?tab=dead": ("card refused", "timeout of the bank"),
    "dead?vhost=%2F&queue=payments": ("shipping", "address unknown", "Dead letters of payments"),
    "delayed": ("orders", "emails", "85 messages"),
    "exchanges": ("(default)", "amq.topic", "by-region"),
    "exchanges/%2F/shop": ("order.#", "audit", "topic"),
    "connections": ("worker", "shop front", "confirms"),
    "logs": ("events", "intact"),
    "logs/events": ("search-index", "mailer", "320"),
    "tables": ("Customer", "all versions"),
    "tables/Customer": ("c1@example.org", "29 records, 1 deleted"),
    "migrations": ("Parcel", "Expand"),
    "pipelines": ("archive", "deadletters"),
    "users": ("reader", "monitoring", "staging"),
    "about": ("Python", "Doctor"),
}


@pytest.mark.parametrize("where", SEEN)
def test_a_page_shows_what_is_there(visitor: Visitor, where: str) -> None:
    page = visitor.open(where)
    for text in SEEN[where]:
        expect(page.locator("main")).to_contain_text(text)
    expect(page.locator("nav [aria-current=page]")).to_have_count(1)


def overflow(page: Page) -> list[str]:
    """Return the elements beyond the right edge, if the page scrolls sideways."""
    found: list[str] = page.evaluate(
        """() => document.documentElement.scrollWidth <= innerWidth ? [] :
        [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
        .map((one) => one.outerHTML.slice(0, 120))"""
    )
    return found


LONG = "a-very-long-name-" * 13
OLDER = "{ const now = Date.now.bind(Date); Date.now = () => now() + %d * 1000; }"
CUT = """() => [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1)
    .map((one) => `${one.getAttribute('aria-label')}: ${one.scrollWidth} of ${one.clientWidth}`)"""


def test_no_table_is_cut_off_at_a_desk_and_long_names_are_shortened(sample: SampleServer, visitor: Visitor) -> None:
    sample.served.post("/api/holdfast/queues", {"name": LONG}, token=sample.token)
    sample.served.ask("PUT", f"/api/holdfast/logs/events/tailers/{LONG}", {"position": 7}, token=sample.token)
    page = visitor.page
    for where in ("queues", "tables", "tables/Customer", "connections", "exchanges", "logs", "logs/events"):
        visitor.open(where)
        expect(page.locator("tbody tr").first).to_be_visible()
        assert page.evaluate(CUT) == [], where
    for where in ("queues", f"queues/%2F/{LONG}"):
        visitor.open(where)
        name = page.locator(f"main [title='{LONG}']").first
        expect(name).to_contain_text("…")
        height = name.evaluate("(one) => one.getBoundingClientRect().height")
        assert height < 110
    visitor.open("queues/%2F/orders?tab=settings")
    expect(page.get_by_role("region", name="Counters")).not_to_contain_text("next due")


@pytest.mark.parametrize("age_s", [103, 1674, 12 * 86_400 + 5000])
def test_no_table_is_cut_off_however_old_what_it_shows_is(visits: Visits, age_s: int) -> None:
    visitor = visits()
    visitor.context.add_init_script(OLDER % age_s)
    for where in ("connections", "logs/events", "tables/Customer", "dead", "queues/%2F/payments?tab=dead"):
        page = visitor.open(where)
        expect(page.locator("tbody tr").first).to_be_visible()
        assert page.evaluate(CUT) == [], where
    page = visitor.open("connections")
    expect(visitor.row("worker").get_by_role("button", name="Close…")).to_be_in_viewport(ratio=1)


def test_no_figure_of_a_queue_is_cut_off(visitor: Visitor) -> None:
    page = visitor.page
    large = {"oldest_age": 1674.2, "lag": 12_345_678, "put_rate": 12_345, "lease_rate": 99_940, "ack_rate": 9_999.4}

    def grow(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), **large})

    page.route("**/api/holdfast/queues/%2F/orders", grow)
    visitor.open("queues/%2F/orders")
    expect(visitor.figure("Oldest")).to_have_text("28 min")
    expect(visitor.figure("Put")).to_have_text("12.3 k/s")
    for width in (1280, 1100):
        page.set_viewport_size({"width": width, "height": 800})
        cut = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
        assert page.locator(".figures dd").evaluate_all(cut) == [], width
    page.unroute_all(behavior="wait")


def test_words_are_not_broken_next_to_free_space(visitor: Visitor) -> None:
    """A cell with a short word has the height of one line, also next to a long text."""
    page = visitor.open("tables")
    one_line = "(one) => one.getClientRects().length === 1"
    assert page.get_by_role("link", name="Customer").evaluate(one_line)
    visitor.open("tables/Customer")
    email = visitor.row("c10@example.org").locator("td[data-label=email]")
    lines = """(one) => {
        const text = document.createRange();
        text.selectNodeContents(one);
        return new Set([...text.getClientRects()].map((line) => line.top)).size;
    }"""
    assert email.evaluate(lines) == 1
    assert visitor.row("<script>").locator("td[data-label=name]").evaluate(lines) > 1


def test_no_page_scrolls_sideways_on_a_phone(visits: Visits) -> None:
    phone = visits(**PHONE)
    for where in PAGES:
        page = phone.open(where)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (where, overflow(page))


def test_on_a_phone_a_table_is_cards_with_the_names_of_the_columns(visits: Visits) -> None:
    page = visits(**PHONE).open("queues")
    cell = page.locator("tbody tr").first.locator("td[data-label=Ready]")
    expect(cell).to_be_visible()
    assert cell.evaluate("(one) => getComputedStyle(one, '::before').content") == '"Ready"'
    assert page.locator("table").first.evaluate("(one) => getComputedStyle(one).display") == "block"


def test_on_a_phone_the_chosen_tab_is_visible(visits: Visits) -> None:
    phone = visits(**PHONE)
    page = phone.open("queues/%2F/payments?tab=settings")
    expect(page.get_by_role("tab", name="Settings")).to_be_in_viewport(ratio=0.9)
    phone.open("queues/%2F/payments?tab=dead")
    expect(page.get_by_role("tab", name="Dead letters 12")).to_be_in_viewport(ratio=0.9)
    page.get_by_role("tab", name="Dead letters 12").press("ArrowRight")
    expect(page.get_by_role("tab", name="Replay")).to_be_in_viewport(ratio=0.9)


def test_on_a_phone_a_table_is_sorted_and_all_of_it_selected(visits: Visits) -> None:
    phone = visits(**PHONE)
    page = phone.open("queues")
    page.get_by_role("button", name="Ready").tap()
    expect(page.locator("tbody tr").first).to_contain_text("invoices")
    page.get_by_role("button", name="Ack").tap()  # outside of the visible part, and scrolled into it
    expect(page).to_have_url(re.compile("sort=ack_rate"))
    phone.open("queues/%2F/payments?tab=dead")
    page.get_by_text("Select all").tap()
    expect(phone.button("Redrive 12…")).to_be_visible()
    phone.open("exchanges")
    expect(page.locator("tbody tr").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def luminance(colour: str) -> float:
    """Return the relative luminance of a CSS colour, from which contrast is computed."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


PAIRS = [
    (text, ground)
    for text in ("text", "muted", "accent", "ok", "warn", "bad", "second", "third")
    for ground in ("panel", "ground", "sunk")
] + [("on-accent", "accent"), ("ok", "ok-weak"), ("warn", "warn-weak"), ("bad", "bad-weak"), ("accent", "accent-weak")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(visits: Visits, scheme: str) -> None:
    page = visits(color_scheme=scheme).open("overview")
    colours: dict[str, str] = page.evaluate(
        """(names) => Object.fromEntries(names.map((name) => {
            const box = document.createElement('p');
            box.style.color = `var(--${name})`;
            document.body.append(box);
            const found = getComputedStyle(box).color;
            box.remove();
            return [name, found];
        }))""",
        sorted({name for pair in PAIRS for name in pair}),
    )
    assert luminance(colours["ground"]) > 0.5 if scheme == "light" else luminance(colours["ground"]) < 0.05
    for text, ground in PAIRS:
        assert contrast(colours[text], colours[ground]) >= 4.5, (scheme, text, ground, colours[text], colours[ground])


def test_the_colours_can_be_changed_and_stay_so(visits: Visits) -> None:
    visitor = visits(color_scheme="light")
    page = visitor.open("queues")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.get_by_role("button", name="Dark mode").click()
    after = page.evaluate(ground)
    assert luminance(after) < 0.05 < luminance(before)
    page.reload()
    expect(page.locator("main h1")).to_be_visible()
    assert page.evaluate(ground) == after


def test_the_security_policy_forbids_foreign_and_inline_scripts(sample: SampleServer, visitor: Visitor) -> None:
    answer = sample.served.ask("GET", "/", user=None)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    page = visitor.open("queues")
    assert page.locator("[style]").evaluate_all("(all) => all.filter((one) => !one.style.length).length") == 0
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    )
    assert page.evaluate("window.ran") is None
    visitor.allow("Content Security Policy", "inline script")


def test_markup_in_data_is_shown_and_not_run(visitor: Visitor) -> None:
    page = visitor.open("queues/%2F/orders")
    visitor.row("evil").click()
    dialog = page.locator("dialog[open]")
    expect(dialog.locator("pre")).to_have_text(SCRIPT)
    expect(dialog).to_contain_text("<b>bold</b>")
    assert dialog.locator("script, img, b, i").count() == 0
    for where in ("queues/%2F/payments?tab=dead", "tables/Customer"):
        visitor.open(where)
        expect(page.locator("main")).to_contain_text("<script>")
        assert page.locator("main tbody").locator("script, img").count() == 0
    assert "owned" not in page.title()


def test_a_payload_is_text_or_json_or_hex(visitor: Visitor) -> None:
    page = visitor.open("queues/%2F/orders")
    dialog = page.locator("dialog[open]")
    visitor.row("c2").click()
    expect(dialog.locator("pre")).to_contain_text('  "order": ')
    visitor.button("Text").click()
    expect(dialog.locator("pre")).to_contain_text('{"order": ')
    visitor.button("Hex").click()
    expect(dialog.locator("pre")).to_contain_text("00000000  7b 22 6f 72 64 65 72")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    visitor.row("00 01 02").click()
    expect(dialog.locator("pre")).to_contain_text("000001f0  f0 f1")
    page.keyboard.press("Escape")
    visitor.row("long").click()
    expect(dialog).to_contain_text("truncated")
    visitor.button("Show all").click()
    expect(dialog.locator("pre")).to_have_text("x" * 10_000)


def test_charts_read_out_their_values_and_can_be_tables(visitor: Visitor) -> None:
    page = visitor.open("overview")
    panel = page.get_by_role("region", name="Messages in queues")
    chart = panel.get_by_role("img")
    expect(panel.locator("path.series").first).to_have_attribute("d", re.compile("M"))
    chart.focus()
    chart.press("ArrowLeft")
    expect(panel.get_by_role("status")).to_have_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"))
    expect(panel.locator(".cross")).to_have_count(1)
    panel.get_by_role("button", name="Show as table").click()
    expect(panel.locator("tbody tr").first).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
    for name in ("1 h", "24 h", "7 d"):
        with page.expect_response(lambda answer: "/history?range=" in answer.url) as answer:
            page.get_by_role("button", name=name, exact=True).click()
        assert answer.value.ok
    expect(page).to_have_url(re.compile("range=7d"))


def test_a_chart_leaves_a_gap_where_nothing_was_measured(visitor: Visitor) -> None:
    page = visitor.open("overview")
    drawn = page.evaluate(
        """async () => {
            const { chart } = await import('/page/chart.js');
            const one = chart({ label: 'Gaps', series: [{ id: 'a', label: 'a' }] });
            document.querySelector('main').append(one.element);
            one.update([0, 1000, 2000, 3000, 4000], { a: [1, 2, null, 4, 5] });
            return one.element.querySelector('path.series').getAttribute('d');
        }"""
    )
    assert drawn.count("M") == 2


def test_numbers_are_short_and_their_titles_exact(visitor: Visitor) -> None:
    page = visitor.open("queues")
    shown = page.evaluate(
        """async () => {
            const { bytes, count, duration, exact, parse, json, rate } = await import('/page/format.js');
            return [count(9999), count(12_400), count(1_500_000), bytes(1023), bytes(1536), bytes(5 * 2 ** 30),
                duration(0.25), duration(75), duration(93784), exact(12400), rate(0), rate(1234.4),
                json(parse('{"v": 1882026114340093952}'))];
        }"""
    )
    assert shown == [
        *("9,999", "12.4 k", "1.5 M", "1023 B", "1.5 KiB", "5.0 GiB", "250 ms"),
        *("1 min 15 s", "1 d 2 h", "12,400", "0/s", "1,234/s", '{"v":1882026114340093952}'),
    ]
    expect(visitor.row("invoices").locator("td[data-label=Ready]")).to_have_attribute("title", "120")
