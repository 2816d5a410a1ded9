"""Counts, gauges, rates and quantiles: right within what they promise, and collected in one stable order."""

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.metrics import Counter, Distribution, Gauge, Histogram, Rate, Registry, Sample
from holdfast.errors import Closed, InvalidArgument
from holdfast.testing import SimClock

ERROR_MAX = 1 / 9 + 1e-9
durations = st.floats(2.0**-24, 2.0**16, exclude_max=True)


class Seconds:
    """A clock for rates that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def observed(*values: float) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    return histogram


# ------------------------------------------------------------ counters and gauges


def test_a_counter_adds_one_or_as_many_as_it_is_told() -> None:
    counter = Counter()
    counter.add()
    counter.add(5)
    assert counter.value == 6


def test_a_gauge_holds_what_was_set_last() -> None:
    gauge = Gauge()
    assert gauge.value == 0
    gauge.set(2.5)
    gauge.set(-1)
    assert gauge.value == -1


def test_a_computed_gauge_is_computed_at_every_reading_and_cannot_be_set() -> None:
    depth = [1, 2]
    gauge = Gauge(lambda: len(depth))
    depth.append(3)
    assert gauge.value == 3
    with pytest.raises(InvalidArgument, match="cannot be set"):
        gauge.set(1)


# ------------------------------------------------------------ histograms


@given(st.lists(durations, min_size=1, max_size=200), st.floats(0, 1))
def test_a_quantile_is_at_most_a_ninth_off(values: list[float], q: float) -> None:
    exact = sorted(values)[max(math.ceil(q * len(values)), 1) - 1]
    assert observed(*values).quantile(q) == pytest.approx(exact, rel=ERROR_MAX)


@given(st.lists(durations, max_size=200))
def test_count_and_total_are_exact(values: list[float]) -> None:
    histogram = observed(*values)
    assert histogram.count == len(values)
    assert histogram.total == pytest.approx(math.fsum(values))


@pytest.mark.parametrize("exponent", range(-24, 16))
@pytest.mark.parametrize("mantissa", [1, 1.25, 1.5, 1.75])
def test_both_edges_of_a_bucket_are_told_apart(exponent: int, mantissa: float) -> None:
    edge = mantissa * 2.0**exponent
    below, above = math.nextafter(edge, 0), edge
    assert observed(above).quantile(0.5) == pytest.approx(above, rel=ERROR_MAX)
    if below >= 2.0**-24:
        assert observed(below).quantile(0.5) == pytest.approx(below, rel=ERROR_MAX)
        assert observed(below).quantile(0.5) < observed(above).quantile(0.5)  # type: ignore[operator]


@pytest.mark.parametrize("value", [0.0, 1e-12, 5e-8, -1e-9])
def test_what_is_shorter_than_60_ns_counts_as_60_ns(value: float) -> None:
    assert observed(value).quantile(0.5) == 2.0**-24


@pytest.mark.parametrize("value", [2.0**16, 1e9])
def test_what_is_longer_than_18_hours_counts_as_18_hours(value: float) -> None:
    assert observed(value).quantile(0.5) == 2.0**16


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_duration_is_refused_and_leaves_no_trace(value: float) -> None:
    histogram = observed(1.0)
    with pytest.raises((ValueError, OverflowError), match="cannot convert"):
        histogram.observe(value)
    assert (histogram.count, histogram.total) == (1, 1.0)


def test_an_empty_histogram_has_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_quantile_outside_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(InvalidArgument, match="from 0 to 1"):
        Histogram().quantile(q)


@given(st.lists(st.floats(0, 1e6), max_size=200))
def test_a_distribution_counts_what_is_below_each_bound(values: list[float]) -> None:
    distribution = observed(*values).distribution()
    for bound, below in distribution.buckets:
        assert below == sum(value < bound for value in values)
    assert distribution.count == len(values)


def test_the_bounds_of_a_distribution_never_change() -> None:
    bounds = [bound for bound, _ in Histogram().distribution().buckets]
    assert bounds == [2.0**exponent for exponent in range(-20, 13)] + [math.inf]


# ------------------------------------------------------------ rates


@pytest.mark.parametrize("pause", [0.1, 0.99, 1, 7, 25, 59, 61, 500])
def test_a_steady_rate_is_seen_however_often_it_is_read(pause: float) -> None:
    counter, clock = Counter(), Seconds()
    rate = Rate(counter, clock)
    for reading in range(1, 200):
        clock.now = 1000 + reading * pause
        counter.value = round(reading * pause * 1000)
        if reading * pause >= 1:
            assert rate.per_second() == pytest.approx(1000, rel=0.01)


def test_a_burst_is_forgotten_after_the_window() -> None:
    counter, clock = Counter(), Seconds()
    rate = Rate(counter, clock)
    counter.add(600)
    for _ in range(59):
        clock.now += 1
        assert rate.per_second() > 0
    clock.now += 3
    assert rate.per_second() == pytest.approx(0)


def test_a_rate_that_falls_follows_within_the_window() -> None:
    counter, clock = Counter(), Seconds()
    rate = Rate(counter, clock)
    for second in range(180):
        clock.now += 1
        counter.add(100 if second < 90 else 10)
        seen = rate.per_second()
    assert seen == pytest.approx(10)


def test_a_rate_read_seldom_is_the_mean_since_then() -> None:
    counter, clock = Counter(), Seconds()
    rate = Rate(counter, clock)
    clock.now += 600
    counter.add(600)
    assert rate.per_second() == pytest.approx(1)


def test_the_first_moments_do_not_look_like_a_storm() -> None:
    counter, clock = Counter(), Seconds()
    rate = Rate(counter, clock)
    assert rate.per_second() == 0
    counter.add(3)
    clock.now += 0.001
    assert rate.per_second() == 3


def test_a_rate_counts_from_when_it_was_made() -> None:
    counter, clock = Counter(), Seconds()
    counter.add(1_000_000)
    rate = Rate(counter, clock)
    clock.now += 10
    assert rate.per_second() == 0


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1000)), min_size=1, max_size=300))
def test_a_rate_is_never_below_zero_nor_above_what_was_counted(steps: list[tuple[float, int]]) -> None:
    counter, clock = Counter(), Seconds()
    rate = Rate(counter, clock)
    for seconds, amount in steps:
        clock.now += seconds
        counter.add(amount)
        assert -1e-9 <= rate.per_second() <= counter.value


def test_a_rate_takes_its_time_from_a_clock(clock: SimClock) -> None:
    counter = Counter()
    rate = Rate(counter, clock.monotonic)
    clock.advance(30)
    counter.add(60)
    assert rate.per_second() == pytest.approx(2, rel=0.001)


@pytest.mark.parametrize(("window", "slots"), [(0, 60), (-1, 60), (math.nan, 60), (60, 0)])
def test_a_rate_over_nothing_is_refused(window: float, slots: int) -> None:
    with pytest.raises(InvalidArgument, match="above 0"):
        Rate(Counter(), Seconds(), window, slots)


# ------------------------------------------------------------ the registry


def test_an_instrument_is_made_once_for_a_name_and_its_labels() -> None:
    registry = Registry()
    first = registry.counter("put_total", "Messages put.", {"queue": "a", "kind": "x"})
    assert registry.counter("put_total", "Messages put.", {"kind": "x", "queue": "a"}) is first
    assert registry.counter("put_total", "Messages put.", {"queue": "b"}) is not first
    assert registry.histogram("put_seconds", "Time to put.") is registry.histogram("put_seconds", "Time to put.")


def test_samples_come_by_name_then_labels_in_whatever_order_they_were_made() -> None:
    registry = Registry()
    registry.counter("put_total", "Put.", {"queue": "b"}).add(2)
    registry.gauge("depth", "Depth.").set(1.5)
    registry.counter("put_total", "Put.", {"queue": "a"}).add(1)
    assert list(registry.collect()) == [
        Sample("depth", "gauge", "Depth.", (), 1.5),
        Sample("put_total", "counter", "Put.", (("queue", "a"),), 1),
        Sample("put_total", "counter", "Put.", (("queue", "b"),), 2),
    ]


def test_a_closed_queue_takes_its_instruments_with_it() -> None:
    registry = Registry()
    registry.counter("put_total", "Put.", {"queue": "a"})
    registry.gauge("depth", "Depth.", {"queue": "a", "priority": "high"})
    registry.counter("put_total", "Put.", {"queue": "b"}).add()
    assert registry.remove({"queue": "a"}) == 2
    assert registry.remove({"queue": "a"}) == 0
    assert [sample.labels for sample in registry.collect()] == [(("queue", "b"),)]
    assert registry.counter("put_total", "Put.", {"queue": "a"}).value == 0


def test_removal_wants_all_labels_to_fit_and_at_least_one() -> None:
    registry = Registry()
    registry.counter("put_total", "Put.", {"queue": "a", "kind": "x"})
    assert registry.remove({"queue": "a", "kind": "y"}) == 0
    assert registry.remove({"kind": "x", "queue": "a"}) == 1
    with pytest.raises(InvalidArgument, match="at least one label"):
        registry.remove({})


def test_a_reopened_queue_takes_over_its_computed_gauge() -> None:
    registry = Registry()
    registry.gauge("depth", "Depth.", {"queue": "a"}, read=lambda: 1)
    registry.gauge("depth", "Depth.", {"queue": "a"}, read=lambda: 2)
    assert [sample.value for sample in registry.collect()] == [2]


def test_a_gauge_whose_queue_was_closed_meanwhile_is_left_out() -> None:
    def closed() -> float:
        raise Closed("the queue was closed")

    registry = Registry()
    registry.gauge("depth", "Depth.", {"queue": "a"}, read=closed)
    registry.gauge("depth", "Depth.", {"queue": "b"}, read=lambda: 7)
    assert [sample.value for sample in registry.collect()] == [7]


def test_a_gauge_may_use_the_registry_while_it_is_collected() -> None:
    registry = Registry()
    registry.gauge("depth", "Depth.", read=lambda: registry.remove({"queue": "gone"}))
    assert [sample.value for sample in registry.collect()] == [0]


def test_a_sum_is_over_all_queues_and_keeps_what_those_counted_that_are_gone() -> None:
    registry = Registry()
    registry.counter("put_total", "Put.", {"queue": "a"}).add(2)
    registry.counter("put_total", "Put.", {"queue": "b"}).add(3)
    registry.gauge("depth", "Depth.", {"queue": "a"}).set(9)
    assert registry.sums({"queue"}) == [Sample("put_total", "counter", "Put.", (), 5)]
    registry.remove({"queue": "a"})
    assert registry.sums({"queue"}) == [Sample("put_total", "counter", "Put.", (), 5)]
    registry.counter("put_total", "Put.", {"queue": "a"}).add(1)
    assert registry.sums({"queue"}) == [Sample("put_total", "counter", "Put.", (), 6)]


def test_a_sum_leaves_out_what_had_happened_before_the_queue_was_opened() -> None:
    registry = Registry()
    acked = [100]
    registry.reading("acked_total", "Acked.", {"queue": "a"}, lambda: acked[0])
    assert [sample.value for sample in registry.collect()] == [100]
    assert [sample.value for sample in registry.sums({"queue"})] == [0]
    acked[0] += 7
    registry.remove({"queue": "a"})
    registry.reading("acked_total", "Acked.", {"queue": "a"}, lambda: acked[0])
    assert [sample.value for sample in registry.sums({"queue"})] == [7]
    acked[0] += 1
    assert [sample.value for sample in registry.sums({"queue"})] == [8]


def test_a_reading_that_another_takes_over_goes_on_counting() -> None:
    registry = Registry()
    old, new = [5], [1000]
    registry.reading("acked_total", "Acked.", {"queue": "a"}, lambda: old[0])
    old[0] += 2
    registry.reading("acked_total", "Acked.", {"queue": "a"}, lambda: new[0])
    new[0] += 1
    assert [sample.value for sample in registry.sums({"queue"})] == [3]


def test_a_sum_keeps_the_labels_that_it_is_not_over() -> None:
    registry = Registry()
    for queue, kind, count in (("a", "x", 1), ("b", "x", 2), ("a", "y", 4)):
        registry.counter("put_total", "Put.", {"queue": queue, "kind": kind}).add(count)
    registry.remove({"queue": "b"})
    assert [(sample.labels, sample.value) for sample in registry.sums({"queue"})] == [
        ((("kind", "x"),), 3),
        ((("kind", "y"),), 4),
    ]


@given(st.lists(st.lists(st.floats(0, 100), max_size=5), max_size=5), st.integers(0, 4))
def test_the_sum_of_histograms_is_the_histogram_of_all_observations(parts: list[list[float]], gone: int) -> None:
    registry = Registry()
    for number, values in enumerate(parts):
        for value in values:
            registry.histogram("wait_seconds", "Wait.", {"queue": str(number)}).observe(value)
    registry.remove({"queue": str(gone)})
    whole = observed(*(value for values in parts for value in values)).distribution()
    for sample in registry.sums({"queue"}, "histogram"):
        assert isinstance(sample.value, Distribution)
        assert sample.value.buckets == whole.buckets
        assert sample.value.total == pytest.approx(whole.total)
    assert bool(registry.sums({"queue"}, "histogram")) == any(parts)


def test_a_reading_whose_queue_was_closed_meanwhile_is_no_loss_to_the_others() -> None:
    state = ["open"]

    def read() -> int:
        if state[0] == "closed":
            raise Closed("the queue was closed")
        return 4

    registry = Registry()
    registry.reading("acked_total", "Acked.", {"queue": "a"}, read)
    state[0] = "closed"
    assert [sample.value for sample in registry.sums({"queue"})] == [0]


def test_what_is_collected_can_be_narrowed_to_names_and_labels() -> None:
    registry = Registry()
    for queue in ("a", "b"):
        registry.counter("put_total", "Put.", {"queue": queue})
        registry.counter("acked_total", "Acked.", {"queue": queue})
    found = registry.collect(names={"put_total"}, labels={"queue": "b"})
    assert [(sample.name, sample.labels) for sample in found] == [("put_total", (("queue", "b"),))]
    assert len(list(registry.collect(labels={"queue": "a"}))) == 2
    assert len(list(registry.collect(names=["acked_total"]))) == 2
    assert list(registry.collect(labels={"queue": "c"})) == []
    assert registry.families() == {"acked_total": ("counter", "Acked."), "put_total": ("counter", "Put.")}


@pytest.mark.parametrize("name", ["put", "Put_total", "put1_total", "put-total", "", "put_total\n"])
def test_a_counter_of_another_name_than_prometheus_wants_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="end in _total"):
        Registry().counter(name, "Put.")


def test_a_histogram_says_its_unit_and_a_gauge_is_free() -> None:
    with pytest.raises(InvalidArgument, match="end in _seconds"):
        Registry().histogram("put_ms", "Time to put.")
    with pytest.raises(InvalidArgument, match="a gauge must consist of a-z"):
        Registry().gauge("Depth", "Depth.")
    assert Registry().gauge("depth", "Depth.").value == 0


@pytest.mark.parametrize("labels", [{"Queue": "a"}, {"": "a"}, {"le": "a"}, {"queue": 5}])
def test_labels_that_prometheus_would_not_take_are_refused(labels: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="label"):
        Registry().counter("put_total", "Put.", labels)


def test_one_name_is_of_one_kind() -> None:
    registry = Registry()
    registry.gauge("put_total", "Put.", {"queue": "a"})
    with pytest.raises(InvalidArgument, match="is a gauge already"):
        registry.counter("put_total", "Put.", {"queue": "a"})
    with pytest.raises(InvalidArgument, match="is a gauge already"):
        registry.counter("put_total", "Put.", {"queue": "b"})


def test_threads_that_ask_at_once_get_the_same_instrument() -> None:
    registry = Registry()
    start = threading.Barrier(8)
    found: list[Counter] = []

    def ask() -> None:
        start.wait(30)
        found.extend(registry.counter("put_total", "Put.", {"queue": str(n)}) for n in range(200))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8 * 200
    assert len(set(found)) == 200


def prometheus(registry: Registry) -> str:
    """What an endpoint would say; here to show that the samples hold all it needs."""
    lines, last = [], ""
    for sample in registry.collect():
        if sample.name != last:
            last = sample.name
            lines += [f"# HELP {last} {sample.help}", f"# TYPE {last} {sample.kind}"]
        labels = [f'{name}="{value}"' for name, value in sample.labels]
        if isinstance(sample.value, Distribution):
            for bound, below in sample.value.buckets:
                le = "+Inf" if math.isinf(bound) else bound
                with_bound = ",".join([*labels, f'le="{le}"'])
                lines.append(f"{last}_bucket{{{with_bound}}} {below}")
            lines.append(f"{last}_sum{{{','.join(labels)}}} {sample.value.total}")
            lines.append(f"{last}_count{{{','.join(labels)}}} {sample.value.count}")
        else:
            lines.append(f"{last}{{{','.join(labels)}}} {sample.value}")
    return "\n".join(lines)


def test_a_prometheus_endpoint_is_a_short_function() -> None:
    registry = Registry()
    registry.counter("put_total", "Messages put.", {"queue": "a"}).add(3)
    registry.histogram("put_seconds", "Time to put.", {"queue": "a"}).observe(0.75)
    lines = prometheus(registry).splitlines()
    assert lines[:2] == ["# HELP put_seconds Time to put.", "# TYPE put_seconds histogram"]
    assert 'put_seconds_bucket{queue="a",le="0.5"} 0' in lines
    assert 'put_seconds_bucket{queue="a",le="1.0"} 1' in lines
    assert lines[-6:] == [
        'put_seconds_bucket{queue="a",le="+Inf"} 1',
        'put_seconds_sum{queue="a"} 0.75',
        'put_seconds_count{queue="a"} 1',
        "# HELP put_total Messages put.",
        "# TYPE put_total counter",
        'put_total{queue="a"} 3',
    ]
