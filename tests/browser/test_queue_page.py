"""Pages of queues, messages and dead letters: every action, in a real browser, on a real store."""

import contextlib
import re

import pytest

pytest.importorskip("playwright.sync_api", reason="the page is looked at with playwright: pip install playwright")

from playwright.sync_api import TimeoutError, expect

from holdfast import Message
from tests.browser.conftest import SampleServer, Visits
from tests.browser.visitor import Visitor

pytestmark = pytest.mark.xdist_group("browser")
Q = "/api/holdfast/queues/%2F/"


def test_queues_are_filtered_sorted_and_paged_by_the_server(visitor: Visitor) -> None:
    page = visitor.open("queues?size=25")
    page.keyboard.press("/")
    page.keyboard.type("shop.")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page).to_have_url(re.compile("name=shop"))
    page.get_by_label("Filter by name").fill("^in.+es$")
    page.get_by_label("Regular expression").check()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("invoices")
    page.get_by_label("Regular expression").uncheck()
    page.get_by_label("Filter by name").fill("")
    page.get_by_role("button", name="Ready").click()
    expect(page.locator("thead th[aria-sort=descending]")).to_contain_text("Ready")
    expect(page.locator("tbody tr").first).to_contain_text("invoices")
    page.get_by_role("button", name="Ready").click()
    expect(page.locator("tbody tr").first).not_to_contain_text("invoices")


def test_esc_leaves_the_filter_as_it_is(visitor: Visitor) -> None:
    page = visitor.open("queues")
    page.keyboard.press("/")
    page.keyboard.type("shop.")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    page.keyboard.press("Escape")
    box = page.get_by_label("Filter by name")
    expect(box).not_to_be_focused()
    expect(box).to_have_value("shop.")
    expect(rows).to_have_count(2)
    page.keyboard.press("/")  # selects the text, so that typing replaces it
    page.keyboard.press("Delete")
    expect(rows).not_to_have_count(2)


def test_a_long_list_has_pages(sample: SampleServer, visitor: Visitor) -> None:
    for number in range(30):
        sample.served.store.queue(f"many-{number:02}", dead_letter=None)
    page = visitor.open("queues?size=25&name=many")
    pages = page.get_by_role("navigation", name="Pages of the list")
    expect(pages).to_contain_text("Page 1 of 2")
    expect(page.locator("tbody tr")).to_have_count(25)
    pages.get_by_role("button", name="Next").click()
    expect(page.locator("tbody tr")).to_have_count(5)
    expect(pages.get_by_role("button", name="Next")).to_be_disabled()
    pages.get_by_role("button", name="Previous").click()
    expect(page.locator("tbody tr")).to_have_count(25)


def test_a_queue_is_created_paused_resumed_and_deleted(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("queues")
    visitor.button("Create a queue").click()
    visitor.button("Create queue").click()
    expect(page.locator("dialog[open]")).to_contain_text("This field is required.")
    visitor.fill("Name", "fresh")
    visitor.fill("Time to live, seconds", "45")
    visitor.fill("Maximum messages", "1000")
    visitor.button("Create queue").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("fresh")
    assert sample.served.get(f"{Q}fresh")["arguments"] == {"x-message-ttl": 45_000, "x-max-length": 1000}
    visitor.button("Pause").click()
    visitor.notified("is paused")
    expect(page.get_by_role("heading", level=1)).to_contain_text("paused")
    assert sample.served.get(f"{Q}fresh")["paused"]
    visitor.button("Resume").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("running")
    visitor.button("Delete…").click()
    expect(visitor.button("Delete queue")).to_be_disabled()
    visitor.fill("Type fresh to confirm", "wrong")
    expect(visitor.button("Delete queue")).to_be_disabled()
    visitor.fill("Type fresh to confirm", "fresh")
    visitor.allow("404 (Not Found)")  # the page may ask for its figures just then
    visitor.button("Delete queue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert sample.served.ask("GET", f"{Q}fresh", token=sample.token).status == 404


def test_a_message_is_published_with_all_its_properties(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("queues/%2F/quiet?tab=publish")
    for label, text in (("Payload", '{"a": 1}'), ("Key", "k1"), ("Priority", "4"), ("Deduplication id", "only once")):
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_label("Headers").fill("trace: t-1\nnumber: 7")
    page.get_by_label("Payload type").select_option("json")
    page.get_by_label("Time to live, seconds").fill("600")
    visitor.button("Publish").click()
    visitor.notified("1 message published to quiet")
    visitor.button("Publish").click()
    visitor.notified("duplicates")
    (message,) = sample.served.get(f"{Q}quiet/messages")["messages"]
    assert (message["payload"], message["key"], message["priority"]) == ('{"a": 1}', "k1", 4)
    assert message["headers"]["trace"] == "t-1"
    page.get_by_label("Payload", exact=True).fill("{no json")
    visitor.button("Publish").click()
    expect(page.locator(".toast.bad")).to_be_visible()
    page.get_by_label("Payload type").select_option("base64")
    page.get_by_label("Payload", exact=True).fill("/wA=")
    page.get_by_label("Deduplication id", exact=True).fill("")
    page.get_by_label("Delay, seconds").fill("3600")
    visitor.button("Publish").click()
    visitor.notified("1 message published to quiet")
    assert sample.served.get(f"{Q}quiet/delayed")["messages"][0]["payload"] == {"base64": "/wA="}


def test_a_lease_is_listed_and_revoked(sample: SampleServer, visitor: Visitor) -> None:
    sample.served.post(f"{Q}invoices/leases", {"count": 7, "lease": 3000}, token=sample.token)
    page = visitor.open("queues/%2F/invoices?tab=leases")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("td[data-label=Messages]")).to_have_text("7")
    expect(row).to_contain_text("in 4")
    visitor.button("Revoke lease…").click()
    visitor.button("Revoke lease").click()
    visitor.notified("revoked")
    expect(page.locator(".empty")).to_contain_text("No messages of this queue are leased")
    assert sample.served.get(f"{Q}invoices")["leased"] == 0


def test_delayed_messages_are_shown_on_a_time_axis(visitor: Visitor) -> None:
    page = visitor.open("queues/%2F/orders?tab=delayed")
    bars = page.locator(".axis g[tabindex]")
    expect(bars.first).to_be_visible()
    bars.first.focus()
    expect(page.locator(".axis [role=status]")).to_contain_text("due")
    page.keyboard.press("ArrowRight")
    expect(bars.nth(1)).to_be_focused()
    expect(page.locator("tbody tr").first).to_contain_text("reminder")
    visitor.open("delayed")
    expect(page.locator(".axis text.lane").filter(has_text="emails")).to_have_count(1)
    expect(page.locator(".axis text.lane").filter(has_text="orders")).to_have_count(1)


def test_dead_letters_are_chosen_redriven_and_deleted(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("dead")
    expect(visitor.row("payments")).to_contain_text("card refused · 4")
    visitor.row("payments").get_by_role("button", name="payments").click()
    letters = page.get_by_role("region", name="Dead letters of payments")
    expect(letters.locator("tbody tr")).to_have_count(12)
    page.get_by_role("button", name="card refused").click()
    expect(letters.locator("tbody tr")).to_have_count(4)
    for number in (0, 1):
        letters.locator("tbody input").nth(number).check()
    visitor.button("Redrive 2…").click()
    visitor.button("Redrive").click()
    visitor.notified("2 messages redriven")
    expect(letters.locator("tbody tr")).to_have_count(2)
    assert sample.served.get(f"{Q}payments")["ready"] == 2
    letters.get_by_label("Select all").check()
    visitor.button("Delete 2…").click()
    visitor.button("Delete").click()
    visitor.notified("2 dead letters deleted")
    page.get_by_role("button", name="All 8").click()
    expect(letters.locator("tbody tr")).to_have_count(8)
    letters.locator("tbody tr").first.locator("td[data-label=Payload]").click()
    expect(page.locator("dialog[open]")).to_contain_text("Original queue")
    visitor.button("Redrive…").click()
    visitor.button("Redrive").click()
    expect(letters.locator("tbody tr")).to_have_count(7)
    visitor.button("Delete all…").click()
    visitor.fill("Type payments to confirm", "payments")
    visitor.button("Delete").click()
    expect(letters.locator(".empty")).to_be_visible()
    assert sample.served.get(f"{Q}payments/dead")["total"] == 0


def test_a_group_acts_on_its_dead_letters_and_on_no_others(sample: SampleServer, visitor: Visitor) -> None:
    queue = sample.served.store.queue("refunds", max_attempts=1)
    queue.put_many([b"unsaid", b"unsaid", b"tried", b"refused"])
    *unsaid, tried, refused = queue.lease(4)
    queue.nack(unsaid)
    tried.nack("no money")
    queue.reject_ids({refused.lease: [refused.id]}, "no money")
    page = visitor.open("queues/%2F/refunds?tab=dead")
    rows = page.get_by_role("region", name="Dead letters of refunds").locator("tbody tr")
    page.get_by_role("button", name="attempts · 2", exact=True).click()  # those without a reason
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("unsaid")
    page.get_by_role("button", name="no money, rejected · 1").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("refused")
    visitor.button("Redrive all…").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text('the 1 dead letter of refunds with the reason "no money" (rejected)')
    visitor.button("Redrive").click()
    visitor.notified("1 message redriven")
    assert [one["payload"] for one in sample.served.get(f"{Q}refunds/messages")["messages"]] == ["refused"]
    expect(page.get_by_role("button", name="All 3")).to_have_attribute(
        "aria-pressed", "true"
    )  # the list is complete again
    page.get_by_role("button", name="attempts · 2", exact=True).click()
    visitor.button("Delete all…").click()
    expect(dialog).to_contain_text("all 2 dead letters of refunds with no reason (attempts)")
    visitor.fill("Type refunds to confirm", "refunds")
    visitor.button("Delete").click()
    visitor.notified("2 dead letters deleted")
    assert [one["payload"] for one in sample.served.get(f"{Q}refunds/dead")["letters"]] == ["tried"]
    expect(page.get_by_role("button", name="All 1")).to_have_attribute("aria-pressed", "true")


def test_dead_letters_of_several_queues_are_distinguished(sample: SampleServer, visitor: Visitor) -> None:
    for name in ("north", "south"):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "lost", "x-message-ttl": 1}
        for one, with_ in ((name, arguments), ("lost", {})):
            sample.served.post("/api/holdfast/queues", {"name": one, "arguments": with_}, token=sample.token)
        sample.served.post(f"{Q}{name}/messages", {"messages": [{"payload": f"to the {name}"}]}, token=sample.token)
    page = visitor.open("queues/%2F/lost?tab=dead")
    rows = page.get_by_role("region", name="Dead letters of lost").locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="expired, from south · 1").click()
    expect(rows).to_have_count(1)
    visitor.button("Delete all…").click()
    expect(page.locator("dialog[open]")).to_contain_text("the 1 dead letter of south with")
    visitor.fill("Type lost to confirm", "lost")
    visitor.button("Delete").click()
    visitor.notified("1 dead letter deleted")
    assert [one["payload"] for one in sample.served.get(f"{Q}lost/dead")["letters"]] == ["to the north"]


def test_a_long_dead_letter_can_be_read_whole(sample: SampleServer, visitor: Visitor) -> None:
    queue = sample.served.store.queue("novels", max_attempts=1)
    queue.put(b"word " * 2000)
    queue.nack(queue.lease(1), "too long")
    page = visitor.open("queues/%2F/novels?tab=dead")
    visitor.row("too long").locator("td[data-label=Payload]").click()
    text = page.locator("dialog[open] pre")
    expect(page.locator("dialog[open]")).to_contain_text("truncated")
    visitor.button("Show all").click()
    expect(text).to_have_text("word " * 2000)
    expect(visitor.button("Show all")).to_be_hidden()


def test_a_list_of_dead_letters_that_is_not_complete_says_so(
    sample: SampleServer, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = sample.served.store.queue("floods", max_attempts=1)
    queue.put_many([b"drop"] * 40)
    queue.nack(queue.lease(40), "too much")
    monkeypatch.setattr("holdfast.web.api.dead_letters.LOOKED_AT", 30)
    page = visitor.open("dead")
    expect(visitor.row("floods").locator("td[data-label='Dead letters']")).to_have_text("30+")
    expect(page.locator("main")).to_contain_text(re.compile(r"At least \d+ dead letters in"))
    visitor.open("queues/%2F/floods?tab=dead")
    expect(page.locator("main")).to_contain_text("The first 30 of at least 30 are shown.")
    visitor.button("Redrive all…").click()
    expect(page.locator("dialog[open]")).to_contain_text("all dead letters of floods, at least 30,")
    visitor.button("Redrive").click()
    visitor.notified("40 messages redriven")


def test_queues_that_are_not_drawn_are_counted(sample: SampleServer, visitor: Visitor) -> None:
    for number in range(30):
        queue = sample.served.store.queue(f"later-{number:02}", dead_letter=None)
        queue.put_many([Message(b"x", delay=3600)] * (number + 1))
    store = sample.served.store
    found = [one.counts().delayed for name in store.queues() if (one := store.find_queue(name)) is not None]
    waiting = [count for count in found if count]
    page = visitor.open("delayed")
    expect(page.locator("tbody tr")).to_have_count(24)
    # The server looks for queues that are not in the broker every other second, and the page polls.
    expect(page.locator("main")).to_contain_text(f"{sum(waiting)} messages; 24 of {len(waiting)} queues")
    listed = sample.served.get("/api/holdfast/queues?page_size=500")["items"]
    assert sorted(row["delayed"] for row in listed if row["delayed"]) == sorted(waiting)


def test_dead_letters_of_amqp_say_where_they_died(visitor: Visitor) -> None:
    page = visitor.open("queues/%2F/failed?tab=dead")
    expect(page.locator("tbody tr").first).to_contain_text("expired")
    expect(page.locator("tbody tr").first).to_contain_text("failing")


def test_a_replay_is_previewed_before_it_happens(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("queues/%2F/invoices?tab=replay")
    sample.served.post(f"{Q}invoices/purge", token=sample.token)
    page.get_by_label("From", exact=True).select_option("position")
    page.get_by_label("Position in the log").fill("100")
    visitor.button("Preview").click()
    expect(visitor.figure("Will be delivered")).to_have_text("20")
    expect(page.locator("tbody tr").first).to_contain_text("invoice 100")
    assert sample.served.get(f"{Q}invoices")["ready"] == 0, "a preview must change nothing"
    visitor.button("Replay from here…").click()
    visitor.button("Replay").click()
    visitor.notified("20 messages to deliver")
    assert sample.served.get(f"{Q}invoices")["ready"] == 20
    page.get_by_label("From", exact=True).select_option("time")
    page.get_by_label("Time", exact=True).fill("2020-01-01T00:00:00")
    visitor.button("Preview").click()
    expect(visitor.figure("Will be delivered")).to_have_text("120")
    page.get_by_label("From", exact=True).select_option("end")
    visitor.button("Preview").click()
    expect(visitor.figure("Dropped from the queue")).to_have_text("20")


def test_a_queue_is_bound_and_unbound(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("queues/%2F/shop.returns?tab=bindings")
    visitor.button("Bind…").click()
    visitor.fill("Source exchange", "billing")
    visitor.fill("Routing key", "refund")
    visitor.button("Bind").click()
    visitor.notified("Binding added.")
    expect(visitor.row("refund")).to_contain_text("billing")
    visitor.row("refund").get_by_role("button", name="Unbind…").click()
    visitor.button("Unbind").click()
    visitor.notified("Binding removed.")
    expect(page.locator("tbody tr").filter(has_text="refund")).to_have_count(0)
    bound = sample.served.get("/api/queues/%2F/shop.returns/bindings")
    assert [one["routing_key"] for one in bound if one["source"]] == ["return.*"]


def test_a_journey_by_keyboard_alone(visitor: Visitor, sample: SampleServer) -> None:
    sample.served.post(f"{Q}emails/messages", {"messages": [{"payload": "hello"}]}, token=sample.token)
    page = visitor.page
    sample.served.ask("GET", "/", user=None)
    page.goto(f"{sample.served.url}/#/login")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("guest")
    page.keyboard.press("Tab")
    page.keyboard.type("guest")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("?")
    expect(page.locator("dialog[open]")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    queues = page.get_by_role("heading", level=1, name="Queues")
    for _ in range(5):  # the second key counts only soon after the first, and a busy machine may be slow
        page.keyboard.press("g")
        page.keyboard.press("q")
        with contextlib.suppress(TimeoutError):
            queues.wait_for(timeout=5000)
            break
    expect(queues).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("emails")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="emails")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("emails")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("j")
    expect(page.locator("tbody tr")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open] pre")).to_have_text("hello")
    page.keyboard.press("Escape")
    expect(page.locator("tbody tr")).to_be_focused()
    purge = page.get_by_role("button", name="Purge…")
    for _ in range(40):
        if purge.evaluate("(one) => one === document.activeElement"):
            break
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Type emails to confirm")).to_be_focused()
    page.keyboard.type("emails")
    page.keyboard.press("Enter")
    visitor.notified("removed from emails")
    expect(purge).to_be_focused()
    assert sample.served.get(f"{Q}emails")["ready"] == 0


def test_a_user_with_the_tag_monitoring_sees_the_figures_and_all_buttons_disabled(
    sample: SampleServer, visits: Visits
) -> None:
    sample.served.ask("PUT", "/api/users/watcher", {"password": "watcher", "tags": "monitoring"})
    token = sample.served.post("/api/holdfast/login", {"username": "watcher", "password": "watcher"})["token"]
    page = visits(token).open("queues/%2F/orders")
    expect(page.get_by_role("status").filter(has_text="no read, write, configure permission")).to_be_visible()
    expect(page.locator("dl.figures")).to_contain_text("Ready")
    for name in ("Pause", "Purge…", "Delete…"):
        expect(page.get_by_role("button", name=name)).to_be_disabled()
    expect(page.get_by_role("tabpanel")).to_contain_text("no read permission for this queue")
    page.get_by_role("tab", name="Publish").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("no write permission for this queue")


def test_a_queue_with_a_dead_letter_exchange_shows_where_its_dead_letters_went(
    sample: SampleServer, visitor: Visitor
) -> None:
    declare = sample.served.post
    declare("/api/holdfast/queues", {"name": "graves"})
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
    declare("/api/holdfast/queues", {"name": "mortal", "arguments": {**arguments, "x-message-ttl": 1}})
    declare("/api/holdfast/queues/%2F/mortal/messages", {"messages": [{"payload": "x"}] * 3})
    page = visitor.open("queues/%2F/mortal")
    expect(page.locator("main")).to_contain_text(
        "Dead letters of this queue: 3, routed by the default exchange to graves (3"
    )
    declare("/api/holdfast/queues", {"name": "lossy", "arguments": {"x-dead-letter-exchange": "x", "x-message-ttl": 1}})
    declare("/api/holdfast/queues/%2F/lossy/messages", {"messages": [{"payload": "x"}] * 2})
    page = visitor.open("queues/%2F/lossy")
    expect(page.locator("main")).to_contain_text("2 were lost because no queue received them")
