"""Metrics history: samples of the totals in a log, and the series that the page's charts show.

The log `holdfast.history` is an ordinary log: Spark and `holdfast tail` read it. A record is a JSON object; its keys
are those of `Sample`, and docs/monitoring.md explains them.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Annotated, TypedDict

import msgspec

from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.log.log import Log
from holdfast.log.policy import Flush, Retention, Roll
from holdfast.store import Store
from holdfast.web.overview_stats import Figures
from holdfast.web.routes import Call, Needs, Routes

__all__ = ["LEVELS", "LOG", "RATES", "History", "Recent", "Sample", "history_routes"]

logger = logging.getLogger("holdfast.web")

LOG = "holdfast.history"
DAY_S = 86_400
_KEPT = Retention(max_age=8 * DAY_S, max_bytes=256 << 20)
_ROLL = Roll.any(Roll.size(16 << 20), Roll.time(DAY_S))
# A block a minute, and not one for each sample: a week is read back twelve times as fast.
_FLUSH = Flush.batch(interval=60)
_COMPRESSION = "zstd"  # 52 bytes a sample, 6 MB a week, instead of 250
_READ_BACK_S = 7 * DAY_S
_THIN = 12
_GAP_S = 150.0
"""A pause between two samples that is longer than this, and than three intervals, is a gap."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The totals at one moment, as stored in the log. Other versions may add keys."""

    t: int
    """Milliseconds since 1970."""
    run: int
    """When the server was started, in milliseconds since 1970: counters start again with it."""
    up: int
    """Milliseconds since then, by the monotonic clock."""
    put: int
    deliver: int
    ack: int
    """Counters since the start, as the two before."""
    ready: int
    delayed: int
    leased: int
    unacked: int
    dead: int
    resident: int
    bodies: int
    connections: int
    queues: int
    disk_free: int
    replica_lag: int = 0
    """Seconds that the replica is behind; 0 without one, and in samples of earlier versions."""


RATES = ("put", "deliver", "ack")
LEVELS = (
    "ready",
    "delayed",
    "leased",
    "unacked",
    "dead",
    "resident",
    "bodies",
    "connections",
    "queues",
    "disk_free",
    "replica_lag",
)
RANGES = {"1h": (3600, 5), "24h": (DAY_S, 120), "7d": (7 * DAY_S, 900)}
"""The length of each range and its step, in seconds."""
_decode = msgspec.json.Decoder(Sample).decode


class HistoryRange(TypedDict):
    """Series of means over steps; null where nothing was measured."""

    range: str
    step: Annotated[float, msgspec.Meta(description="Seconds.")]
    times: Annotated[list[int], msgspec.Meta(description="The start of each step, in milliseconds since 1970.")]
    series: dict[str, list[float | None]]


class _Step:
    """The measurements within one step of a range."""

    __slots__ = ("count", "gains", "levels", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.levels = [0] * len(LEVELS)
        """Sums over the samples; the mean is shown."""
        self.gains = [0] * len(RATES)
        self.seconds = 0.0
        """The time over which `gains` were counted."""


class Recent:
    """The samples of one range, as means over steps of equal length. Protected by the lock of `History`."""

    def __init__(self, length_s: float, step_s: float) -> None:
        self.step_ms = max(1, round(step_s * 1000))
        self.count = max(1, round(length_s / step_s))
        self._steps: dict[int, _Step] = {}

    def add(self, sample: Sample, levels: tuple[int, ...], gains: tuple[int, ...] | None, seconds: float) -> None:
        """Add a sample, with the differences to the one before it, if known."""
        place = sample.t // self.step_ms
        step = self._steps.get(place)
        if step is None:
            step = self._steps[place] = _Step()
            if len(self._steps) > 2 * self.count:
                self.forget(place * self.step_ms)
        step.count += 1
        step.levels = [a + b for a, b in zip(step.levels, levels, strict=True)]
        if gains is not None:
            step.gains = [a + b for a, b in zip(step.gains, gains, strict=True)]
            step.seconds += seconds

    def forget(self, now_ms: int) -> None:
        """Drop steps that are too old, and those in the future that a wrong clock left."""
        now = now_ms // self.step_ms
        self._steps = {place: step for place, step in self._steps.items() if now - self.count < place <= now}

    def reaches(self, sample: Sample, now_ms: int) -> bool:
        """Whether a sample falls into this range."""
        return now_ms // self.step_ms - self.count < sample.t // self.step_ms

    def series(self, now_ms: int) -> tuple[list[int], dict[str, list[float | None]]]:
        """Return the start of each step, in ms since 1970, and the mean of each series in it; None: not measured."""
        last = now_ms // self.step_ms
        steps = [self._steps.get(place) for place in range(last - self.count + 1, last + 1)]
        times = [place * self.step_ms for place in range(last - self.count + 1, last + 1)]
        found: dict[str, list[float | None]] = {}
        for at, name in enumerate(RATES):
            found[name] = [
                None if step is None or step.seconds <= 0 else round(step.gains[at] / step.seconds, 3) for step in steps
            ]
        for at, name in enumerate(LEVELS):
            found[name] = [None if step is None else round(step.levels[at] / step.count, 1) for step in steps]
        return times, found


class History:
    """Takes samples on a thread of its own, stores them, and returns them as series. Threads: any."""

    def __init__(
        self,
        store: Store,
        figures: Figures,
        *,
        interval: float = 5.0,
        time_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not interval > 0:
            raise InvalidArgument(f"history_interval must be above 0, not {interval!r}")
        self.interval = interval
        self._store = store
        self._figures = figures
        self._time_ms = time_ms
        self._monotonic = monotonic
        self._began = monotonic()
        self._run = time_ms()
        self._guard = threading.Lock()
        self._recent = {name: Recent(length, max(step, interval)) for name, (length, step) in RANGES.items()}
        self._last: Sample | None = None
        self._log: Log | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Load the samples of the last week, then start the thread that samples until `stop`."""
        self.open()
        self._thread = threading.Thread(target=self._sample_on, name="holdfast-history", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling. The store closes the log."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def open(self) -> int:
        """Open the log and load the samples of the last week; return how many were read."""
        now = self._time_ms()
        count = 0
        try:
            log = self._log = self._store.log(LOG, flush=_FLUSH, retention=_KEPT, roll=_ROLL, compression=_COMPRESSION)
            start = log.sequence_at(max(0, now - _READ_BACK_S * 1000) * 1_000_000)
            with self._guard:
                for sample in _kept(log, start, now - DAY_S * 1000):
                    self._add(sample, now)
                    count += 1
                for one in self._recent.values():
                    one.forget(now)
        except HoldfastError as error:  # the server must start even if the charts are empty
            logger.warning("history not loaded: log=%s error=%s", LOG, error)
        return count

    def sample(self) -> Sample:
        """Take a sample now, and append it to the log, which is written once a minute."""
        totals = self._figures.look(fresh=True)
        sample = Sample(
            t=self._time_ms(),
            run=self._run,
            up=round((self._monotonic() - self._began) * 1000),
            put=totals.put,
            deliver=totals.delivered,
            ack=totals.acked,
            ready=totals.ready,
            delayed=totals.delayed,
            leased=totals.leased,
            unacked=totals.unacked,
            dead=totals.dead,
            resident=totals.resident,
            bodies=totals.bodies,
            connections=totals.connections,
            queues=totals.queues,
            disk_free=totals.disk_free,
            replica_lag=totals.replica_lag,
        )
        with self._guard:
            self._add(sample, sample.t)
        if self._log is not None:
            self._log.appender.append(msgspec.json.encode(sample))
        return sample

    def range(self, name: str) -> HistoryRange:
        """Return the series of the last hour (`1h`), day (`24h`) or week (`7d`); `InvalidArgument` for others."""
        recent = self._recent.get(name)
        if recent is None:
            raise InvalidArgument(f"there is no range {name!r}: use one of {', '.join(RANGES)}")
        with self._guard:
            times, series = recent.series(self._time_ms())
        return {"range": name, "step": recent.step_ms / 1000, "times": times, "series": series}

    def _add(self, sample: Sample, now_ms: int) -> None:
        last, self._last = self._last, sample
        if last is not None and sample.t < last.t:  # the clock was set back: these times occur a second time
            for recent in self._recent.values():
                recent.forget(sample.t)
        gains, seconds = None, 0.0
        if last is not None and last.run == sample.run:
            seconds = (sample.up - last.up) / 1000
            if 0 < seconds <= max(_GAP_S, 3.5 * self.interval):
                gains = (sample.put - last.put, sample.deliver - last.deliver, sample.ack - last.ack)
                if min(gains) < 0:
                    gains = None
        levels = (
            sample.ready,
            sample.delayed,
            sample.leased,
            sample.unacked,
            sample.dead,
            sample.resident,
            sample.bodies,
            sample.connections,
            sample.queues,
            sample.disk_free,
            sample.replica_lag,
        )
        for recent in self._recent.values():
            if recent.reaches(sample, now_ms):
                recent.add(sample, levels, gains, seconds)

    def _sample_on(self) -> None:
        while not self._stopping.wait(self._pause()):
            try:
                self.sample()
            except HoldfastError as error:
                logger.warning("history sample not stored: log=%s error=%s", LOG, error)
            except Exception:  # of any kind: the next sample may succeed
                logger.exception("history sample failed: log=%s", LOG)

    def _pause(self) -> float:
        """Return the time to the middle of the next interval: near its ends, a late thread would leave gaps."""
        at = self._time_ms() / 1000 / self.interval
        wait = (0.5 - at) % 1.0
        return (wait if wait > 0.05 else wait + 1.0) * self.interval


def _kept(log: Log, start: int, recent_ms: int) -> Iterator[Sample]:
    """Yield the samples from a sequence on. Of older ones one of twelve: enough for the longest range."""
    for block in log.blocks(start):
        payloads = block.payloads(max(0, start - block.sequence))
        last = next(_decoded(payloads[-1:]), None)
        thin = last is not None and last.t < recent_ms
        yield from _decoded(payloads[(len(payloads) - 1) % _THIN :: _THIN] if thin else payloads)


def _decoded(payloads: list[bytes]) -> Iterator[Sample]:
    for payload in payloads:
        with contextlib.suppress(msgspec.DecodeError):  # damaged, or written by a later version
            yield _decode(payload)


history_routes = routes = Routes("monitoring")


@routes.get(
    "/api/holdfast/history",
    needs=Needs.LOGIN,
    says="Show the history of rates, messages and memory: the last hour, day or week.",
    query={"range": "1h, 24h or 7d."},
)
def history(call: Call) -> HistoryRange:
    """Return the series of a range; null where nothing was measured."""
    if call.site.history is None:
        raise InvalidArgument("this server keeps no history: set history_interval above 0")
    return call.site.history.range(call.query.get("range", "1h"))
