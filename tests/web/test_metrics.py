"""Prometheus metrics: right values, no names without a login, no duplicates, and fast with very many queues."""

import contextlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from holdfast.amqp import methods as m
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.vhost import VirtualHostRuntime
from holdfast.replica import open_bucket
from holdfast.web.overview_stats import Figures, names_of
from tests.amqp.serving import Client
from tests.tiers import rounds
from tests.web.serving import Served, q

ROOT = Path(__file__).parents[2]
EACH = "/metrics/per-object"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
Labels = tuple[tuple[str, str], ...]
Values = dict[tuple[str, Labels], float]


def values_of(text: str) -> Values:
    """Each sample by its name and labels; one that comes twice is an error, as it is to Prometheus."""
    found: Values = {}
    for family in parse_text(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, f"{key} comes twice"
            found[key] = float(sample.value)
    return found


def openmetrics_names(body: bytes) -> list[str]:
    """The families of a page, which must be OpenMetrics to the letter."""
    return [family.name for family in parse_openmetrics(body.decode())]  # type: ignore[no-untyped-call]


def scraped(served: Served, path: str = "/metrics") -> Values:
    """What is there now, and not what was there a second ago."""
    served.site.figures.look(fresh=True)
    answer = served.ask("GET", path)
    assert answer.status == 200, answer.body
    return values_of(answer.body.decode())


def total(served: Served, name: str) -> float:
    return scraped(served)[name, ()]


def on(queue: str, vhost: str = "/") -> Labels:
    return (("queue", queue), ("vhost", vhost))


def declared(served: Served, name: str, *, vhost: str = "/", durable: bool = True, **arguments: Any) -> BrokerQueue:
    def declare() -> BrokerQueue:
        host: VirtualHostRuntime = served.server.broker.hosts[vhost]
        return host.declare_queue(
            name,
            durable=durable,
            exclusive=False,
            auto_delete=False,
            arguments={key.replace("_", "-"): value for key, value in arguments.items()},
            passive=False,
            owner=None,
        )

    return served.site.on_broker(declare)


def worked(served: Served, name: str = "orders") -> None:
    """A queue of which all counters have something to say."""
    queue = served.store.queue(name)
    queue.put_many([b"1", b"2", b"3", b"4"])
    queue.put(b"5", delay=3600)
    first, second, _ = queue.lease(3)
    queue.ack([first])
    second.nack("no", delay=3600)


# ------------------------------------------------------------ totals


def test_totals_are_right(served: Served) -> None:
    worked(served)
    values = scraped(served)
    assert values["holdfast_ready_messages", ()] == 1
    assert values["holdfast_delayed_messages", ()] == 2
    assert values["holdfast_leased_messages", ()] == 1
    assert values["holdfast_messages_put_total", ()] == 5
    assert values["holdfast_messages_leased_total", ()] == 3
    assert values["holdfast_messages_acked_total", ()] == 1
    assert values["holdfast_messages_nacked_total", ()] == 1
    assert values["holdfast_queues", ()] == 1
    assert values["holdfast_vhosts", ()] == 1
    assert values["holdfast_exchanges", ()] == 7
    assert values["holdfast_lag_records", ()] == 5  # a delayed message is near the first: see QueueStats.lag
    assert values["holdfast_memory_resident_bytes", ()] > 1 << 20
    assert values["holdfast_disk_free_limit_bytes", ()] == served.settings.disk_free_limit
    assert values["holdfast_logs_bytes", ()] > 0


def test_anyone_gets_the_totals_and_no_name_of_anything(served: Served) -> None:
    worked(served, "secret.orders")
    declared(served, "secret.queue")
    answer = served.ask("GET", "/metrics", user=None)
    assert answer.status == 200
    assert b"secret" not in answer.body


def test_counters_only_grow_also_when_a_queue_is_deleted(served: Served) -> None:
    worked(served)
    before = scraped(served)
    served.store.delete_queue("orders")
    after = scraped(served)
    for name in ("put", "leased", "acked", "nacked"):
        key = f"holdfast_messages_{name}_total", ()
        assert after[key] == before[key] > 0
    for name in ("wait", "hold"):
        key = f"holdfast_messages_{name}_seconds_count", ()
        assert after[key] == before[key] > 0
    assert after["holdfast_ready_messages", ()] == 0
    worked(served)
    assert total(served, "holdfast_messages_put_total") == 2 * before["holdfast_messages_put_total", ()]


def test_counters_begin_with_the_server_and_those_of_a_queue_with_the_queue(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as served:
        worked(served)
    with Served(tmp_path / "data") as served:
        served.store.queue("orders").put(b"6")
        assert total(served, "holdfast_messages_put_total") == 1
        assert total(served, "holdfast_messages_acked_total") == 0
        each = scraped(served, EACH)
        assert each["holdfast_queue_put_total", on("orders")] == 6
        assert each["holdfast_queue_acked_total", on("orders")] == 1


def test_the_histograms_of_all_queues_are_added_bucket_by_bucket(served: Served) -> None:
    for name in ("a", "b", "c"):
        queue = declared(served, name, durable=name == "a").queue
        queue.put(b"x")
        queue.ack(queue.lease(1))
    values = scraped(served)
    assert values["holdfast_messages_hold_seconds_count", ()] == 3
    assert values["holdfast_messages_hold_seconds_bucket", (("le", "+Inf"),)] == 3
    each = scraped(served, EACH + "?family=holdfast_queue_hold_seconds")
    for bound in {labels for name, labels in values if name == "holdfast_messages_hold_seconds_bucket"}:
        of_each = [
            value
            for (name, labels), value in each.items()
            if name == "holdfast_queue_hold_seconds_bucket" and bound[0] in labels
        ]
        assert len(of_each) == 3
        assert sum(of_each) == values["holdfast_messages_hold_seconds_bucket", bound]


def test_the_oldest_message_gets_older_until_it_is_taken(served: Served) -> None:
    queue = served.store.queue("orders")
    assert total(served, "holdfast_oldest_message_age_seconds") == 0
    queue.put(b"x")
    young = total(served, "holdfast_oldest_message_age_seconds")
    old = total(served, "holdfast_oldest_message_age_seconds")
    assert 0 < young < old
    assert scraped(served, EACH)["holdfast_queue_oldest_message_age_seconds", on("orders")] > old
    between = time.time_ns()
    queue.put(b"y")
    queue.ack(queue.lease(1))
    age = total(served, "holdfast_oldest_message_age_seconds")
    assert age <= (time.time_ns() - between) / 1e9  # of the second message, and no more of the first
    queue.ack(queue.lease(1))
    assert total(served, "holdfast_oldest_message_age_seconds") == 0


def test_of_more_queues_than_are_asked_at_a_time_the_oldest_is_found_all_the_same(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.overview_stats.ASKED_MAX", 2)
    queues = [served.store.queue(f"q{number}") for number in range(7)]
    for queue in queues:
        queue.put(b"x")
    oldest = time.time_ns() - min(waiting.enqueued_at for queue in queues for waiting in queue.peek(1))
    figures = Figures(served.site)
    for _ in range(4):
        totals = figures.look(fresh=True)
    assert totals.oldest_age >= oldest / 1e9
    assert len(figures.ages()) == 7


def test_dead_letters_are_counted_where_they_wait(served: Served) -> None:
    orders = served.store.queue("orders", dead_letter="orders.dead", max_attempts=1)
    orders.put(b"x")
    orders.lease(1)[0].nack("no")
    assert total(served, "holdfast_dead_letters") == 1
    assert total(served, "holdfast_messages_dead_total") == 1


def test_dead_letters_that_an_exchange_routes_are_counted_too(served: Served) -> None:
    declared(served, "graves")
    declared(served, "others")
    orders = declared(served, "orders", x_dead_letter_exchange="amq.fanout", x_message_ttl=1)
    served.site.on_broker(lambda: served.server.broker.hosts["/"].bind("amq.fanout", "queue", "graves", "", {}, None))
    orders.queue.put(b"x")
    declared(served, "others").queue.put(b"y")
    wait_until(lambda: total(served, "holdfast_dead_letters") == 1)
    assert total(served, "holdfast_bindings") == 1


def test_an_alarm_is_1_while_it_is_on(tmp_path: Path) -> None:
    with Served(tmp_path / "data", disk_free_limit=1 << 60) as served:
        wait_until(lambda: scraped(served)["holdfast_alarm", (("reason", "disk"),)] == 1)
        assert scraped(served)["holdfast_alarm", (("reason", "memory"),)] == 0


def test_a_client_that_has_closed_its_connection_is_counted_nowhere_before_it_hangs_up(served: Served) -> None:
    stranger, client = Client(served.amqp), Client(served.amqp)
    with contextlib.closing(stranger), contextlib.closing(client):
        client.log_in()
        wait_until(lambda: served.get("/api/holdfast/overview")["counts"]["connections"] == 1)
        assert len(served.get("/api/connections")) == 1
        client.send(m.method_frame(0, m.ConnectionClose(200, "bye", 0, 0)))
        client.expect(m.ConnectionCloseOk)
        wait_until(lambda: served.get("/api/connections") == [])
        wait_until(lambda: served.get("/api/holdfast/overview")["counts"]["connections"] == 0)
        assert total(served, "holdfast_connections_closed_total") == 0


def test_connections_are_counted_as_they_come_and_go(served: Served) -> None:
    client = Client(served.amqp)
    client.log_in(channels=2)
    client.declare("orders", durable=False)
    client.publish("orders", [b"x"])
    next(client.consume("orders", 1, no_ack=False))
    values = scraped(served)
    assert values["holdfast_connections", ()] == 1
    assert values["holdfast_channels", ()] == 2
    assert values["holdfast_consumers", ()] == 1
    assert values["holdfast_unacked_messages", ()] == 1
    client.close()
    wait_until(lambda: total(served, "holdfast_connections") == 0)
    assert total(served, "holdfast_connections_opened_total") == 1
    assert total(served, "holdfast_connections_closed_total") == 1


def test_who_holds_the_topology_does_not_keep_the_totals_back(served: Served) -> None:
    declared(served, "orders").queue.put(b"x")
    with served.server.broker.guard:
        assert total(served, "holdfast_ready_messages") == 1


def test_who_asks_first_for_rates_learns_what_went_before(served: Served) -> None:
    figures = Figures(served.site, fresh_s=0)
    figures.look()  # as the history does every few seconds
    served.store.queue("orders").put_many([b"x"] * 100)
    assert figures.rates().put > 0


def test_rates_are_of_the_last_moments(served: Served) -> None:
    figures = Figures(served.site, fresh_s=0)
    assert figures.rates() == (0, 0, 0)
    worked(served)
    put, deliver, ack = figures.rates()
    assert put > deliver > ack > 0


def wait_until(ask: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not ask():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


# ------------------------------------------------------------ formats


def test_who_likes_openmetrics_gets_openmetrics(served: Served) -> None:
    worked(served)
    answer = served.ask("GET", "/metrics", user=None, headers={"Accept": OPENMETRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    names = openmetrics_names(answer.body)
    assert "holdfast_messages_put" in names
    assert len(names) == len(set(names)), "one name is of two kinds"
    each = served.ask("GET", EACH, headers={"Accept": OPENMETRICS})
    names = openmetrics_names(each.body)
    assert "holdfast_queue_leased_messages" in names
    assert len(names) == len(set(names)), "one name is of two kinds"


def test_who_says_nothing_gets_prometheus_own_format(served: Served) -> None:
    answer = served.ask("GET", "/metrics", user=None)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_the_process_is_there_and_the_global_registry_is_left_alone(served: Served) -> None:
    values = scraped(served)
    assert values["process_open_fds", ()] > 0
    assert values["holdfast_build_info", _build_labels(values)] == 1
    held = prometheus_client.generate_latest(prometheus_client.REGISTRY)
    assert b"holdfast" not in held


def _build_labels(values: Values) -> Labels:
    labels = next(labels for name, labels in values if name == "holdfast_build_info")
    assert {name for name, _ in labels} == {"python", "version"}
    return labels


# ------------------------------------------------------------ each queue


def test_each_queue_has_its_numbers_under_the_names_that_users_know(served: Served) -> None:
    worked(served)
    served.site.on_broker(lambda: served.server.broker.add_vhost("shop"))
    declared(served, "orders", vhost="shop").queue.put(b"x")
    values = scraped(served, EACH)
    assert values["holdfast_queue_ready_messages", on("orders")] == 1
    assert values["holdfast_queue_put_total", on("orders")] == 5
    assert values["holdfast_queue_put_total", on("orders", "shop")] == 1
    assert values["holdfast_queue_consumers", on("orders", "shop")] == 0
    assert ("holdfast_queue_consumers", on("orders")) not in values, "that one is not the broker's"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {("/", "a"), ("/", "b"), ("shop", "a")}),
        ("?vhost=shop", {("shop", "a")}),
        ("?queue=a", {("/", "a"), ("shop", "a")}),
        (f"?vhost={q('/')}&queue=b", {("/", "b")}),
        ("?queue=nobody", set()),
        ("?vhost=", set()),
    ],
)
def test_what_is_asked_of_each_can_be_narrowed(served: Served, query: str, expected: set[tuple[str, str]]) -> None:
    served.site.on_broker(lambda: served.server.broker.add_vhost("shop"))
    declared(served, "a", vhost="shop")
    declared(served, "a", durable=False)
    declared(served, "b")
    found = {(dict(labels)["vhost"], dict(labels)["queue"]) for _, labels in scraped(served, EACH + query)}
    assert found == expected


def test_only_the_families_that_are_asked_for_come_and_histograms_not_otherwise(served: Served) -> None:
    worked(served)
    asked = scraped(served, f"{EACH}?family=holdfast_queue_put_total&family=holdfast_queue_ready_messages")
    assert {name for name, _ in asked} == {"holdfast_queue_put_total", "holdfast_queue_ready_messages"}
    assert not any("seconds_bucket" in name for name, _ in scraped(served, EACH))
    assert any("seconds_bucket" in name for name, _ in scraped(served, f"{EACH}?family=holdfast_queue_wait_seconds"))
    assert served.ask("GET", f"{EACH}?family=up").status == 400


def test_only_who_may_see_all_gets_the_names(served: Served) -> None:
    users = served.server.broker.users
    served.site.on_broker(lambda: users.add("clerk", "clerk", tags=["management"]))
    served.site.on_broker(lambda: users.add("watcher", "watcher", tags=["monitoring"]))
    assert served.ask("GET", EACH, user=None).status == 401
    assert served.ask("GET", EACH, user="clerk").status == 403
    assert served.ask("GET", EACH, user="watcher").status == 200


@pytest.mark.parametrize("name", ['say "hi"', "a\\b", "zwei\nZeilen", "naïve→"])
def test_a_name_may_hold_anything(served: Served, name: str) -> None:
    served.store.queue(name).put(b"x")
    assert scraped(served, EACH)["holdfast_queue_ready_messages", on(name)] == 1
    answer = served.ask("GET", EACH, headers={"Accept": OPENMETRICS})
    assert answer.status == 200
    assert openmetrics_names(answer.body)


def test_a_transient_queue_with_the_name_of_a_stored_one_does_not_come_twice(served: Served) -> None:
    worked(served)
    declared(served, "later", durable=False).queue.put(b"x")
    served.store.queue("later").put_many([b"y", b"z"])  # a program, which knows nothing of the one before
    values = scraped(served, EACH)
    assert values["holdfast_queue_put_total", on("later")] == 1
    assert total(served, "holdfast_messages_put_total") == 8


def test_the_name_in_the_store_tells_the_virtual_host() -> None:
    assert names_of("orders") == ("/", "orders")
    assert names_of("shop\x1forders") == ("shop", "orders")


# ------------------------------------------------------------ what is written about them


def families(text: str) -> dict[str, str]:
    """The kind of each metric, by its full name."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            found[name] = kind
    return found


def documented() -> dict[str, str]:
    rows = re.findall(r"^\| `(holdfast_\w+)` \| (\w+) \|", (ROOT / "docs/monitoring.md").read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a metric is explained twice"
    return dict(rows)


def everything(served: Served) -> dict[str, str]:
    """All metrics that a server with something of everything has."""
    from holdfast.table.migration.status import Counters

    worked(served)
    Counters(served.store.metrics, "people")
    if not served.store.is_replicated:
        served.store.ship_to(open_bucket((served.store.path.parent / "replica").as_uri()))
    served.site.figures.look(fresh=True)
    shown = families(served.ask("GET", "/metrics").body.decode()) | families(served.ask("GET", EACH).body.decode())
    for name in ("wait", "hold"):
        shown |= families(served.ask("GET", f"{EACH}?family=holdfast_queue_{name}_seconds").body.decode())
    return shown


def test_every_metric_is_explained_and_nothing_else_is(served: Served) -> None:
    shown = {name: kind for name, kind in everything(served).items() if name.startswith("holdfast_")}
    assert documented() == shown


def test_metrics_have_names_as_prometheus_wants_them(served: Served) -> None:
    for name, kind in everything(served).items():
        assert re.fullmatch(r"(holdfast|process)_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter"), name
        if kind == "histogram":
            assert name.endswith("_seconds")


def test_no_name_is_one_of_the_whole_and_of_each(served: Served) -> None:
    worked(served)
    whole = families(served.ask("GET", "/metrics").body.decode())
    assert whole.keys().isdisjoint(families(served.ask("GET", EACH).body.decode()))


def expressions() -> list[str]:
    """All queries of the dashboard."""
    dashboard = json.loads((ROOT / "grafana/holdfast.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_every_metric_of_the_dashboard_is_there(served: Served) -> None:
    there = everything(served)
    used = {name for text in expressions() for name in re.findall(r"\b(?:holdfast|process)_\w+", text)}
    assert len(used) > 30
    for name in used:
        assert name.removesuffix("_bucket") in there, name


def test_the_dashboard_asks_the_datasource_that_is_chosen_and_its_panels_do_not_overlap() -> None:
    dashboard = json.loads((ROOT / "grafana/holdfast.json").read_text())
    assert dashboard["templating"]["list"][0]["type"] == "datasource"
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


# ------------------------------------------------------------ many queues


MANY = (
    "/metrics",
    "/api/holdfast/queues?page=1",
    "/api/holdfast/queues?page=1&sort=oldest_age&sort_reverse=true",
    "/api/holdfast/queues?page=1&sort=lag&sort_reverse=true",
    "/api/holdfast/logs",
    "/api/holdfast/logs?name=log9&page=2&page_size=10",
    "/",
)


@pytest.mark.slow
def test_metrics_and_lists_cost_about_the_same_for_each_queue_with_four_times_as_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processor time, measured in turns on two servers, so that a busy machine slows both; `make test-all`: 10,000.

    benchmarks/web.py measures what a client waits.
    """
    count = rounds(2_500, 100)
    monkeypatch.setattr("holdfast.web.api.queue_summary.FRESH_S", 0.0)  # nothing is served from a cache
    data = tmp_path / "few", tmp_path / "many"
    with Served(data[0], history_interval=0) as few, Served(data[1], history_interval=0) as more:
        for served, number in ((few, count), (more, 4 * count)):
            served.site.figures = Figures(served.site, fresh_s=0)
            many(served, number)
        for path in MANY:
            costs: dict[Served, list[float]] = {few: [], more: []}
            for served in (few, more) * 8:
                began = time.process_time()
                answer = served.ask("GET", path, check=False)
                costs[served].append(time.process_time() - began)
                assert answer.status == 200
            ratio = min(costs[more]) / min(costs[few])
            assert ratio < 1.5 * 4, f"{path} takes {ratio:.1f} times as long with four times as many queues"
        assert total(more, "holdfast_queues") == 4 * count
        assert total(more, "holdfast_ready_messages") == 2 * count


def many(served: Served, count: int) -> None:
    """Add so many transient queues, every second one with a message, and as many logs."""
    for number in range(count):  # as durable queues would leave; declaring those takes minutes
        log = served.store.path / "logs" / f"log{number}"
        log.mkdir()
        log.joinpath("log.json").write_text(f'{{"format": 1, "id": "{number:032x}", "name": "log{number}"}}')

    def declare(first: int, last: int) -> None:
        host = served.server.broker.hosts["/"]
        for number in range(first, last):
            box = host.declare_queue(
                f"q{number}",
                durable=False,
                exclusive=False,
                auto_delete=False,
                arguments={},
                passive=False,
                owner=None,
            )
            if number % 2:
                box.queue.put(b"x")

    for first in range(0, count, 100):
        served.site.on_broker(lambda first=first: declare(first, first + 100))  # type: ignore[misc]
