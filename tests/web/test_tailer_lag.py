"""Is the lag of named tailers in the metrics: of each with a login, and without names for all?"""

import time
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families as parse_text

from holdfast.log.consumer_offsets import Position
from holdfast.web.tailer_lag import TailerLags
from tests.web.serving import Served

LAG = "holdfast_log_tailer_lag_records"
AT = "holdfast_log_tailer_committed_timestamp_seconds"
EACH = "/metrics/per-object"
Labels = frozenset[tuple[str, str]]


def lagging(served: Served) -> None:
    """Two logs with tailers, and a queue, whose position is not that of a tailer."""
    for name, count, position in (("clicks", 100, 40), ("orders", 10, 10)):
        log = served.store.log(name)
        log.append_many([b"x"] * count)
        log.positions.set(Position("spark:scoring", position, 1_770_000_000 * 10**9))
    queue = served.store.queue("jobs")
    queue.put_many([b"x"] * 500)
    queue.ack(queue.lease(1))


def scraped(served: Served, path: str, **how: str | None) -> dict[tuple[str, Labels], float]:
    answer = served.ask("GET", path, **how)  # type: ignore[arg-type]
    assert answer.status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_text(answer.body.decode())
        for sample in family.samples
    }


def of(log: str) -> Labels:
    return frozenset({("vhost", "/"), ("log", log), ("tailer", "spark:scoring")})


def test_each_tailer_has_its_lag(served: Served) -> None:
    lagging(served)
    found = scraped(served, EACH)
    assert {key: value for key, value in found.items() if key[0] == LAG} == {
        (LAG, of("clicks")): 60,
        (LAG, of("orders")): 0,
    }
    assert found[AT, of("clicks")] == 1_770_000_000


def test_the_total_is_the_largest_and_names_nothing(served: Served) -> None:
    assert scraped(served, "/metrics", user=None)["holdfast_tailer_lag_records", frozenset()] == 0
    lagging(served)
    served.site.tailers = TailerLags(served.site, fresh_s=0)
    assert scraped(served, "/metrics", user=None)["holdfast_tailer_lag_records", frozenset()] == 60
    assert "scoring" not in served.ask("GET", "/metrics", user=None).body.decode()


def test_tailers_are_selected_by_virtual_host_and_family(served: Served) -> None:
    lagging(served)
    assert {name for name, _ in scraped(served, f"{EACH}?family={LAG}")} == {LAG}
    assert (LAG, of("clicks")) in scraped(served, f"{EACH}?vhost=%2F")
    for path in (f"{EACH}?vhost=other", f"{EACH}?queue=jobs"):
        assert not [key for key in scraped(served, path) if key[0] in (LAG, AT)]


def test_tailers_are_read_once_for_several_scrapes(served: Served) -> None:
    lagging(served)
    lags = TailerLags(served.site, fresh_s=600)
    first = lags.look()
    served.store.log("clicks").append_many([b"x"] * 5)
    assert lags.look() is first
    fresh = TailerLags(served.site, fresh_s=0)
    assert [one.lag for one in fresh.look()] == [65, 0]


def test_positions_of_queues_are_left_out_without_opening_them(served: Served) -> None:
    lagging(served)
    log = served.store.queue("jobs").log
    wait_until(lambda: bool(log.positions.all()))
    assert [one.name for one in log.positions.all()] == ["queue:jobs"]
    assert log.positions.all(queues=False) == []


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
