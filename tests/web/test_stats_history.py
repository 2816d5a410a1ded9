"""Metrics history: samples survive a restart, gaps are empty, and wrong clocks are tolerated."""

import json
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Store
from holdfast.base.errors import InvalidArgument
from holdfast.testing import SimClock, SimFiles
from holdfast.web.overview_stats import Totals
from holdfast.web.stats_history import LEVELS, LOG, RATES, History
from tests.web.serving import Served

HOUR_S, DAY_S = 3600, 86_400
NOTHING = dict.fromkeys(Totals.__dataclass_fields__, 0)


class Scripted:
    """Figures that a test sets by hand."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}

    def look(self, *, fresh: bool = False) -> Totals:
        return Totals(**{**NOTHING, **self.now})


class Recorder:
    """A history over a simulated store, sampled when the test says so."""

    def __init__(self, reopen: Callable[..., Store], clock: SimClock) -> None:
        self._reopen = reopen
        self._clock = clock
        self.figures = Scripted()
        self.start()

    def start(self) -> None:
        """As a new process does: with counters that start again."""
        self.figures.now = {}
        self.store = self._reopen()
        self.history = History(
            self.store,
            self.figures,  # type: ignore[arg-type]
            time_ms=lambda: self._clock.time_ns() // 1_000_000,
            monotonic=self._clock.monotonic,
        )
        self.looked_at = self.history.open()

    def restart(self) -> None:
        self.store.close()
        self.start()

    def sample(self, count: int = 1, *, every: float = 5, put: int = 0, **levels: int) -> None:
        """Samples at equal intervals, with so many puts in each."""
        for _ in range(count):
            self._clock.advance(every)
            self.figures.now = {**self.figures.now, **levels, "put": self.figures.now.get("put", 0) + put}
            self.history.sample()

    def values(self, name: str, range: str = "1h") -> list[Any]:
        return list(self.history.range(range)["series"][name])


@pytest.fixture
def recorder(reopen: Callable[..., Store], clock: SimClock) -> Recorder:
    return Recorder(reopen, clock)


def measured(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def test_rates_are_what_was_counted_between_two_samples(recorder: Recorder) -> None:
    recorder.sample(1, put=1000)
    recorder.sample(10, put=50, ready=7)
    assert measured(recorder.values("put")) == [pytest.approx(10)] * 10
    assert measured(recorder.values("ready"))[-10:] == [7] * 10


@pytest.mark.parametrize(("name", "step", "count"), [("1h", 5, 720), ("24h", 120, 720), ("7d", 900, 672)])
def test_a_range_has_its_times_in_equal_steps_and_a_value_or_null_for_each(
    recorder: Recorder, clock: SimClock, name: str, step: float, count: int
) -> None:
    recorder.sample(3, put=5)
    found = recorder.history.range(name)
    assert found["range"] == name
    assert found["step"] == step
    times = found["times"]
    assert {later - sooner for sooner, later in pairwise(times)} == {step * 1000}
    assert len(times) == count
    assert times[-1] <= clock.time_ns() // 1_000_000 < times[-1] + step * 1000
    assert set(found["series"]) == {*RATES, *LEVELS}
    assert all(len(values) == count for values in found["series"].values())
    json.dumps(found)


def test_another_range_is_refused_with_those_that_there_are(recorder: Recorder) -> None:
    with pytest.raises(InvalidArgument, match="1h, 24h, 7d"):
        recorder.history.range("2h")


def test_the_past_is_there_after_a_restart_and_the_time_between_is_empty(recorder: Recorder, clock: SimClock) -> None:
    recorder.sample(60, put=50, ready=3)
    before = measured(recorder.values("put"))
    clock.advance(600)
    recorder.restart()
    recorder.sample(12, put=100, ready=4)
    values = recorder.values("put")
    assert measured(values)[: len(before)] == before
    assert measured(values)[len(before) :] == [pytest.approx(20)] * 11
    gap = values.index(before[-1], len(values) - 200)
    assert None in values[gap:]
    assert recorder.looked_at == 60
    silent = [at for at, value in enumerate(values) if value is None]
    first = next(at for at, value in enumerate(values) if value is not None)
    assert len([at for at in silent if at > first]) >= 600 / 5 - 1


def test_counters_that_start_again_make_no_negative_rate(recorder: Recorder) -> None:
    recorder.sample(5, put=1000)
    recorder.restart()  # within one interval: nothing but the counters tells
    recorder.sample(5, put=10)
    assert min(measured(recorder.values("put"))) >= 0
    assert max(measured(recorder.values("put"))) == pytest.approx(200)


def test_a_restart_between_two_samples_is_no_jump_even_if_the_new_counters_are_higher(recorder: Recorder) -> None:
    recorder.sample(3, put=10)
    recorder.restart()
    recorder.sample(1, put=1_000_000)
    recorder.sample(3, put=10)
    assert max(measured(recorder.values("put"))) == pytest.approx(2)


def test_a_clock_that_is_set_back_is_survived(recorder: Recorder, clock: SimClock) -> None:
    recorder.sample(100, put=50, ready=1)
    clock.set_back(300)
    recorder.sample(20, put=50, ready=2)
    values = recorder.history.range("1h")
    assert values["times"] == sorted(values["times"])
    assert all(value == pytest.approx(10) for value in measured(values["series"]["put"]))
    assert measured(values["series"]["ready"])[-19:] == [2] * 19
    recorder.restart()
    recorder.sample(2, put=50)
    assert all(value == pytest.approx(10) for value in measured(recorder.values("put")))


def test_samples_of_a_clock_that_ran_ahead_are_dropped(recorder: Recorder, clock: SimClock) -> None:
    recorder.sample(10, ready=1)
    clock.advance(600)
    recorder.sample(10, ready=1000)
    clock.set_back(650)
    recorder.sample(1, ready=1)
    clock.advance(600)
    assert 1000 not in measured(recorder.values("ready"))


def test_a_day_is_shown_in_means_of_two_minutes_and_a_week_in_means_of_a_quarter_of_an_hour(recorder: Recorder) -> None:
    recorder.sample(24, put=0, ready=0)
    recorder.sample(2000, put=50, ready=100)
    assert measured(recorder.values("ready", "24h"))[-60:] == [100] * 60
    assert measured(recorder.values("put", "7d"))[-5:] == [pytest.approx(10)] * 5


def test_a_week_is_read_back_and_what_is_older_is_not(recorder: Recorder, clock: SimClock) -> None:
    recorder.sample(100, put=500, ready=9)
    clock.advance(2 * DAY_S)
    recorder.sample(100, put=50, ready=5)
    clock.advance(6 * DAY_S)
    recorder.restart()
    recorder.sample(2, put=10, ready=1)
    values = recorder.values("ready", "7d")
    assert 9 not in values
    assert 5 in values
    assert measured(recorder.values("put", "7d"))[0] == pytest.approx(10)
    assert measured(recorder.values("ready", "1h")) == [1, 1]


def test_a_record_that_is_no_sample_does_not_keep_the_server_from_starting(recorder: Recorder, clock: SimClock) -> None:
    recorder.sample(3, ready=2)
    recorder.store.log(LOG).append(b"not a sample")
    recorder.sample(3, ready=2)
    recorder.restart()
    assert recorder.looked_at == 6


def test_an_interval_of_nothing_is_refused(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="above 0"):
        History(store, Scripted(), interval=0)  # type: ignore[arg-type]


def test_the_log_holds_a_json_object_for_each_sample_with_the_keys_that_are_documented(recorder: Recorder) -> None:
    recorder.sample(2, put=3, ready=8)
    records = [json.loads(record.payload) for record in recorder.store.log(LOG).read()]
    assert [record["put"] for record in records] == [3, 6]
    documented = (Path(__file__).parents[2] / "docs/monitoring.md").read_text()
    for key in records[0]:
        assert f"| `{key}` |" in documented, f"docs/monitoring.md does not explain {key!r}"


def test_a_week_of_samples_takes_little_space(recorder: Recorder) -> None:
    recorder.sample(2000, put=50, ready=100, resident=150_000_000, disk_free=60_000_000_000)
    recorder.store.close()
    recorder.store = recorder._reopen(read_only=True)
    size = sum(segment.bytes for segment in recorder.store.log(LOG).segments())
    assert size / 2000 < 120, "a week would take more than 15 MB"


def test_a_served_store_answers_with_its_history_also_after_a_restart(tmp_path: Path) -> None:
    with Served(tmp_path / "data", history_interval=600.0) as served:
        queue = served.store.queue("orders")
        queue.put_many([b"one", b"two"])
        assert served.site.history is not None
        served.site.history.sample()
        assert 2 in served.get("/api/holdfast/history?range=1h")["series"]["ready"]
        assert served.ask("GET", "/api/holdfast/history?range=2h").status == 400
        assert served.ask("GET", "/api/holdfast/history", user=None).status == 401
    with Served(tmp_path / "data", history_interval=600.0) as served:
        assert 2 in served.get("/api/holdfast/history?range=1h")["series"]["ready"]
    with holdfast.open(tmp_path / "data", read_only=True) as store:
        assert json.loads(next(iter(store.log(LOG).read())).payload)["queues"] >= 1


def test_without_an_interval_no_history_is_kept(tmp_path: Path) -> None:
    with Served(tmp_path / "data", history_interval=0.0) as served:
        assert served.ask("GET", "/api/holdfast/history").status == 400
        assert LOG not in served.store.logs()


def test_the_thread_goes_on_after_a_sample_that_failed(files: SimFiles, clock: SimClock, store: Store) -> None:
    class Failing(Scripted):
        tried = 0

        def look(self, *, fresh: bool = False) -> Totals:
            self.tried += 1
            if self.tried == 1:
                raise OSError("the disk is gone")
            if self.tried == 3:
                third.set()
            return super().look()

    third = threading.Event()
    figures = Failing()
    history = History(store, figures, interval=0.01)  # type: ignore[arg-type]
    history.start()
    assert third.wait(30)
    history.stop()
    assert figures.tried >= 3
