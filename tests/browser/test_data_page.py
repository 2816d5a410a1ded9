"""Pages of logs, tables, migrations, pipelines and the doctor."""

import re

import pytest

pytest.importorskip("playwright.sync_api", reason="the page is looked at with playwright: pip install playwright")

from playwright.sync_api import expect

from holdfast import Roll
from tests.browser.conftest import SampleServer, Visits
from tests.browser.visitor import Visitor

pytestmark = pytest.mark.xdist_group("browser")
LOGS = "/api/holdfast/logs/events"
TABLE = "/api/holdfast/tables/Customer"


def test_records_are_browsed_by_sequence_and_by_time(visitor: Visitor) -> None:
    page = visitor.open("logs/events")
    rows = page.get_by_role("region", name="Records").locator("tbody tr")
    expect(rows.last).to_contain_text("319")
    page.get_by_label("From sequence").fill("100")
    visitor.button("Go to sequence").click()
    expect(rows.first).to_contain_text('{"event": 100')
    visitor.button("Later →").click()
    expect(rows.first).to_contain_text('{"event": 150')
    visitor.button("← Earlier").click()
    expect(rows.first).to_contain_text('{"event": 100')
    page.get_by_label("From time").fill("2020-01-01T00:00:00")
    visitor.button("Go to time").click()
    expect(rows.first).to_contain_text('{"event": 0')
    page.locator(".segments button").nth(3).click()
    expect(rows.first).to_contain_text('{"event": 120')
    rows.first.click()
    expect(page.locator("dialog[open] pre")).to_contain_text('"event": 120')


def test_a_log_is_verified_and_a_tailer_deleted(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("logs/events")
    visitor.button("Verify").click()
    expect(page.locator(".notice.ok")).to_contain_text("Intact: 320 records in 8 segments")
    tailers = page.get_by_role("region", name="Tailers").locator("tbody tr")
    expect(tailers.filter(has_text="search-index")).to_contain_text("180")
    tailers.filter(has_text="archive").get_by_role("button", name="Delete…").click()
    visitor.button("Delete tailer").click()
    visitor.notified("deleted")
    expect(tailers).to_have_count(2)
    assert {one["name"] for one in sample.served.get(LOGS)["tailers"]} == {"mailer", "search-index"}


def test_the_position_of_a_queue_cannot_be_deleted(visitor: Visitor) -> None:
    page = visitor.open("logs/invoices")
    tailers = page.get_by_role("region", name="Tailers").locator("tbody tr")
    expect(tailers).to_have_count(1)
    expect(tailers.get_by_role("link", name="queue invoices")).to_have_attribute("href", "#/queues/%2F/invoices")
    expect(page.get_by_role("button", name="Delete…")).to_have_count(0)
    settings = page.get_by_role("region", name="Settings")
    expect(settings.locator("dt:text-is('max message') + dd")).to_have_text(re.compile("MiB$"))
    expect(settings.locator("dt:text-is('flush bytes') + dd")).to_have_text("96.0 KiB")
    expect(settings.locator("dt:text-is('flush interval') + dd")).to_have_text(re.compile("s$"))


def test_logs_of_other_virtual_hosts_are_named_by_host_and_name(sample: SampleServer, visitor: Visitor) -> None:
    sample.served.post("/api/holdfast/queues", {"vhost": "staging", "name": "orders"}, token=sample.token)
    page = visitor.open("logs?name=orders")
    row = visitor.row("orders staging")
    expect(row).to_be_visible()
    assert "\x1f" not in page.locator("tbody").inner_text()
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Logs / staging / orders")
    page.get_by_role("region", name="Segments").get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Queues / staging / orders")
    expect(visitor.figure("Ready")).to_have_text("0")


def test_a_table_that_cannot_be_opened_says_so(visitor: Visitor) -> None:
    visitor.open("tables")
    row = visitor.row("Parcel")
    expect(row).to_contain_text("not open")
    expect(row).to_contain_text("is in progress")
    expect(visitor.row("Customer")).to_contain_text("ok")


def test_a_log_is_compacted_after_a_preview(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("logs/events")
    visitor.button("Compact…").click()
    visitor.fill("Maximum segments", "6")
    page.get_by_label("Also remove what queues and tailers still need").check()
    visitor.button("Preview").click()
    expect(page.locator("dialog[open]")).to_contain_text("2 segments would be removed")
    assert sample.served.get(LOGS)["stats"]["segments"] == 8, "a preview must change nothing"
    visitor.button("Remove segments").click()
    visitor.notified("2 segments removed")
    expect(visitor.figure("Segments")).to_have_text("6")
    assert sample.served.get(LOGS)["stats"]["start"] == 80


def test_a_compaction_that_would_remove_nothing_says_why_and_offers_nothing(
    sample: SampleServer, visitor: Visitor
) -> None:
    held = sample.served.store.log("held", roll=Roll.count(10))
    for _ in range(8):
        held.append_many([b"x"] * 10)
    with held.tailer("slow") as tailer:
        tailer.seek(5)
        tailer.commit()
    page = visitor.open("logs/held")
    dialog = page.locator("dialog[open]")
    visitor.button("Compact…").click()
    visitor.fill("Maximum segments", "3")
    visitor.button("Preview").click()
    expect(dialog).to_contain_text("Nothing would be removed.")
    expect(dialog).to_contain_text("5 segments kept, because queues or tailers still need them.")
    expect(dialog).to_contain_text("Remaining8 segments, ")
    expect(dialog).not_to_contain_text("{")
    expect(dialog.locator("button.danger")).to_have_count(0)
    visitor.button("Close").click()
    expect(dialog).to_have_count(0)
    assert sample.served.get("/api/holdfast/logs/held")["stats"]["segments"] == 8


def test_records_of_a_table_are_found_by_a_condition_and_in_an_order(visitor: Visitor) -> None:
    page = visitor.open("tables/Customer")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(29)
    page.keyboard.press("/")
    page.keyboard.type("city == 'Graz' and orders > 3")
    page.keyboard.press("Enter")
    expect(rows.first).to_contain_text("Graz")
    page.get_by_label("Order").fill("-orders")
    visitor.button("Search").click()
    expect(rows.first.locator("td[data-label=orders]")).to_have_text("8")
    page.get_by_label("Where").fill("nonsense ===")
    visitor.allow("400")
    visitor.button("Search").click()
    expect(page.get_by_role("alert").filter(has_text=re.compile("nonsense|=="))).to_be_visible()
    page.get_by_label("Where").fill("")
    page.get_by_label("Order").fill("")
    page.get_by_label("Include deleted").check()
    expect(rows).to_have_count(30)
    expect(rows.filter(has_text="c29@")).to_contain_text("deleted")


def test_a_table_is_shown_as_of_an_earlier_time(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("tables/Customer")
    expect(page.locator("tbody tr")).to_have_count(29)
    slider = page.get_by_label("As of")
    slider.focus()
    with page.expect_response(lambda answer: "as_of=" in answer.url) as answer:
        slider.press("Home")
    assert answer.value.ok
    expect(page.locator("output")).to_have_text(re.compile(r"\d{4}-\d\d-\d\d"))
    visitor.button("Now").click()
    expect(page.locator("output")).to_have_text("now")
    expect(page.locator("tbody tr")).to_have_count(29)


def key_of(sample: SampleServer, email: str) -> str:
    (found,) = sample.served.get(f"{TABLE}/records?where=email%20%3D%3D%20'{email}'")["records"]
    return str(found["key"])


def test_two_versions_of_a_record_are_shown_side_by_side(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open(f"tables/Customer/{key_of(sample, 'c0@example.org')}")
    before, after = page.get_by_role("region", name="Before"), page.get_by_role("region", name="After")
    expect(before.locator("del")).to_have_count(2)
    expect(after.locator("ins").filter(has_text="17")).to_have_count(1)
    expect(page.locator("tbody tr")).to_have_count(3)
    page.locator("tbody tr").last.get_by_label(re.compile("^Before")).check()
    expect(before.locator("del").filter(has_text="Bergen")).to_be_visible()
    expect(after.locator("ins").filter(has_text="Oslo")).to_be_visible()


def test_a_record_is_added_changed_deleted_and_restored(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("tables/Customer")
    expect(page.locator("tbody tr").first).to_be_visible()
    visitor.button("Add a record").click()
    record = '{"name": "Ada", "email": "ada@example.org", "joined": "2026-02-03T04:05:06Z"}'
    visitor.fill("Record (JSON)", record.replace('"Ada"', "17"))
    visitor.button("Add record").click()
    expect(page.locator(".toast.bad")).to_contain_text("name")
    visitor.fill("Record (JSON)", record)
    visitor.button("Add record").click()
    visitor.notified("added")
    key = key_of(sample, "ada@example.org")
    visitor.open(f"tables/Customer/{key}")
    expect(page.locator("tbody tr")).to_have_count(1)  # before, the record is not loaded and cannot be changed
    visitor.button("Change…").click()
    shown = page.get_by_label("Record (JSON)").input_value()
    visitor.fill("Record (JSON)", shown.replace('"orders": 0', '"orders": 5'))
    visitor.button("Save record").click()
    visitor.notified("Record saved")
    expect(page.get_by_role("region", name="After").locator("ins")).to_contain_text("5")
    assert sample.served.get(f"{TABLE}/records/{key}")["values"]["orders"] == 5
    visitor.button("Change…").click()
    shown = page.get_by_label("Record (JSON)").input_value()
    answer = sample.served.ask("PATCH", f"{TABLE}/records/{key}", {"changes": {"name": "Ada L."}})
    assert answer.status == 200, answer
    expect(page.locator("tbody tr")).to_have_count(3, timeout=30_000)  # the page has loaded the other change
    visitor.fill("Record (JSON)", shown.replace('"orders": 5', '"orders": 6'))
    visitor.button("Save record").click()
    expect(page.locator(".toast.bad").filter(has_text="version")).to_be_visible()  # the first one may still be shown
    visitor.allow("400 (Bad Request)")
    assert sample.served.get(f"{TABLE}/records/{key}")["values"]["name"] == "Ada L."
    page.keyboard.press("Escape")
    visitor.button("Delete…").click()
    visitor.button("Delete record").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("deleted")
    visitor.button("Undelete").click()
    visitor.notified("restored")
    expect(page.get_by_role("heading", level=1)).not_to_contain_text("deleted")
    visitor.button("Delete…").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("can be restored")
    expect(visitor.button("Delete record")).to_be_enabled()
    expect(dialog.get_by_label(f"Type {key} to confirm")).to_be_hidden()
    page.get_by_label("Delete permanently").check()
    expect(dialog).to_contain_text("cannot be restored")
    expect(visitor.button("Delete record")).to_be_disabled()
    visitor.fill(f"Type {key} to confirm", str(key))
    visitor.button("Delete record").click()
    expect(page.locator("main")).to_have_attribute("data-at", "tables/Customer")  # the page of the table
    assert sample.served.ask("GET", f"{TABLE}/records/{key}?include_deleted=true", token=sample.token).status == 404


def test_a_migration_is_paused_resumed_and_cancelled(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("migrations")
    row = visitor.row("Parcel")
    expect(row).to_contain_text("running")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    assert [one.state for one in sample.served.store.migrations() if one.table == "Parcel"] == ["paused"]
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("running")
    row.get_by_role("button", name="Cancel…").click()
    visitor.button("Cancel migration").click()
    visitor.notified("cancelled")
    expect(row).to_contain_text("cancelled")
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)


def test_a_run_shows_its_results_and_its_lag(visitor: Visitor) -> None:
    page = visitor.open("pipelines")
    row = page.get_by_role("region", name="Runs").locator("tbody tr").filter(has_text="250 records counted")
    expect(row).to_contain_text("done")
    expect(row.locator("td[data-label=Lag]")).to_have_text("70")
    row.get_by_role("button", name="stream").click()
    dialog = page.locator("dialog[open]")
    expect(dialog.get_by_role("cell", name="u0")).to_be_visible()
    offsets = dialog.locator("section").filter(has_text="Offsets").locator("tbody tr")
    expect(offsets).to_have_text(re.compile("events.*4.*250.*320.*70"))


def test_a_pipeline_is_started_with_options_and_its_error_is_shown(sample: SampleServer, visits: Visits) -> None:
    visitor = visits(sample.log_in("operator"))
    page = visitor.open("pipelines")
    page.get_by_role("button", name="Run replay").click()
    dialog = page.locator("dialog[open]")
    expect(dialog.get_by_role("heading")).to_have_text("Run replay", timeout=90_000)
    expect(dialog.get_by_label("execute")).not_to_be_checked()
    visitor.fill("log", "events")
    visitor.fill("since", "nonsense")  # rejected before Spark is started, which takes long
    visitor.button("Start run").click()
    visitor.notified("replay started")
    row = page.get_by_role("region", name="Runs").locator("tbody tr").filter(has_text="replay")
    expect(row).to_contain_text("failed", timeout=90_000)
    expect(row).to_contain_text("'nonsense' is not a time")
    row.get_by_role("button", name="replay").click()
    expect(dialog.locator(".notice.bad")).to_contain_text("nonsense")


def test_the_doctor_shows_its_checks(visitor: Visitor) -> None:
    page = visitor.open("about")
    checks = page.get_by_role("region", name="Checks").locator("tbody tr")
    expect(checks.first).to_be_visible()
    expect(page.get_by_role("status").filter(has_text=re.compile("check|warning"))).to_be_visible()
    expect(checks.first.locator(".badge")).to_have_text(re.compile("ok|warn|bad"))


def test_a_backup_is_made(sample: SampleServer, visits: Visits, tmp_path_factory: pytest.TempPathFactory) -> None:
    visitor = visits(sample.log_in("operator"))
    visitor.open("about")
    to = tmp_path_factory.mktemp("kept") / "backup"
    visitor.button("Back up…").click()
    visitor.fill("Folder (absolute path)", str(to))
    visitor.button("Back up").click()
    visitor.notified("Backup written to")
    assert any(to.iterdir())
