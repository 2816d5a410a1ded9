"""Counters, gauges, histograms and rates, cheap enough for every hot path, and the registry that collects them.

Threads: counters, gauges and histograms have no lock. Their owner changes them under a lock that it holds anyway, or
accepts that two threads at once may lose an increment. A value that is read may be a moment old. The function of a
computed gauge may take locks. A `Rate` has a lock. The registry has a lock, which it holds while instruments are made,
removed or listed, and not while they are read.
"""

import math
import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol, TypeVar, cast

from holdfast.base.errors import HoldfastError, InvalidArgument

__all__ = [
    "Counted",
    "Counter",
    "Distribution",
    "Gauge",
    "Histogram",
    "Kind",
    "Labels",
    "Rate",
    "Reading",
    "Registry",
    "Sample",
]

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""

_NAME = re.compile("[a-z_]+")
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Counter:
    """A count of events, which only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0
        """The count. A loop where each call matters may add to it directly."""

    def add(self, amount: int = 1) -> None:
        """Add to the count."""
        self.value += amount


class Reading:
    """A counter whose value is kept elsewhere, and read on demand."""

    __slots__ = ("_read", "before")

    def __init__(self, read: Callable[[], int] = int) -> None:
        self._read = read
        self.before = 0
        """Its value when it was registered: sums over the lifetime of a registry leave it out."""

    @property
    def value(self) -> int:
        """Return the present count."""
        return self._read()


class Gauge:
    """A value that rises and falls: set by its owner, or computed when it is read."""

    __slots__ = ("_number", "_read")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._read = read
        self._number: float = 0

    @property
    def value(self) -> float:
        """Return the present value."""
        return self._number if self._read is None else self._read()

    def set(self, value: float) -> None:
        """Replace the value. Not for a gauge that is computed."""
        if self._read is not None:
            raise InvalidArgument("this gauge is computed when it is read: it cannot be set")
        self._number = value


# Each power of two seconds is split into four steps of equal width, so that the upper bound of a bucket is at most 5/4
# of the lower one. Eight steps would halve the error for twice the memory: 1.3 kB a histogram is much at 10,000 queues.
_STEPS = 4
_EXPONENT_MIN = -24
_EXPONENT_MAX = 16
_LEAST = 2.0**_EXPONENT_MIN
_MOST = 2.0**_EXPONENT_MAX
_OVER = (_EXPONENT_MAX - _EXPONENT_MIN) * _STEPS + 1
_BOUNDS = (
    *(
        math.ldexp(1 + step / _STEPS, exponent)
        for exponent in range(_EXPONENT_MIN, _EXPONENT_MAX)
        for step in range(_STEPS)
    ),
    _MOST,
)
"""Bucket i counts durations from bound i - 1 up to, but not including, bound i; the first and the last are open."""
# A duration is first converted to whole units of 2^-32 s; every bound is a multiple of that. Its three highest bits, 4
# to 7, give the step; the number of bits below them gives the power of two. frexp does the same in 240 ns, this in 195.
_UNITS = 2.0**32
_UNITS_LEAST = int(_LEAST * _UNITS)
_UNITS_MOST = int(_MOST * _UNITS)
_STEP_BITS = 3
_BIAS = 1 - _STEPS - (_UNITS_LEAST.bit_length() - _STEP_BITS) * _STEPS
_SHOWN = range((-20 - _EXPONENT_MIN) * _STEPS, (12 - _EXPONENT_MIN) * _STEPS + 1, _STEPS)
"""The bounds that a distribution shows: the powers of two from about 1 us to 68 minutes."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram as it was at one moment."""

    buckets: tuple[tuple[float, int], ...]
    """Upper bounds in seconds, and how many observations were below each; the last bound is infinite."""
    total: float

    @property
    def count(self) -> int:
        """The number of observations."""
        return self.buckets[-1][1]


class Histogram:
    """Distribution of durations. A quantile is at most 1/9 off, from 60 ns to 18 hours."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts = [0] * (_OVER + 1)
        self.total = 0.0
        """The sum of all observations, in seconds."""

    def observe(self, seconds: float) -> None:
        """Count one duration, which must not be negative."""
        units = int(seconds * _UNITS)
        if units < _UNITS_LEAST:
            self._counts[0] += 1
        elif units >= _UNITS_MOST:
            self._counts[_OVER] += 1
        else:
            shift = units.bit_length() - _STEP_BITS
            self._counts[shift * _STEPS + (units >> shift) + _BIAS] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self._counts)

    def quantile(self, q: float) -> float | None:
        """Return the duration in seconds that a share `q` of the observations does not exceed; None without any."""
        if not 0 <= q <= 1:
            raise InvalidArgument(f"a quantile must be from 0 to 1, not {q!r}")
        counts = self._counts.copy()
        rank = max(math.ceil(q * sum(counts)), 1)
        seen = 0
        for index, count in enumerate(counts):
            seen += count
            if seen >= rank:
                return _typical(index)
        return None

    @classmethod
    def added(cls, histograms: "Iterable[Histogram]") -> "Histogram":
        """Return a histogram with the observations of all of these."""
        # A duration of 0 counts in the first bucket: a histogram with neither that nor a total is empty.
        seen = [one for one in histograms if one.total or one._counts[0]]
        sum_of = cls()
        if seen:
            sum_of._counts = list(map(sum, zip(*(one._counts for one in seen), strict=True)))
            sum_of.total = sum(one.total for one in seen)
        return sum_of

    def distribution(self) -> Distribution:
        """Return a snapshot in coarser buckets, one for each power of two."""
        counts = self._counts.copy()
        total = self.total
        buckets = []
        seen = start = 0
        for index in _SHOWN:
            seen += sum(counts[start : index + 1])
            start = index + 1
            buckets.append((_BOUNDS[index], seen))
        buckets.append((math.inf, seen + sum(counts[start:])))
        return Distribution(tuple(buckets), total)


def _typical(index: int) -> float:
    """Return the duration that differs by the same ratio from both ends of a bucket."""
    if index == 0:
        return _LEAST
    if index == _OVER:
        return _MOST
    low, high = _BOUNDS[index - 1], _BOUNDS[index]
    return 2 * low * high / (low + high)


class Counted(Protocol):
    """An object with a value that only grows: a `Counter`, or a reader of one that is kept elsewhere."""

    @property
    def value(self) -> int:
        """The present value."""
        ...


class Rate:
    """Rate of a counter per second, over about the last minute.

    Costs the counted path nothing: the counter is read only when the rate is, and a ring keeps the samples. If it is
    read seldom, it is the mean since the last read. Threads: any.
    """

    __slots__ = ("_counter", "_guard", "_monotonic", "_ring", "_step", "_window")

    def __init__(self, counter: Counted, monotonic: Callable[[], float], window: float = 60.0, slots: int = 60) -> None:
        if not window > 0 or slots < 1:
            raise InvalidArgument(f"a rate needs a window and slots above 0, not {window!r} and {slots!r}")
        self._counter = counter
        self._monotonic = monotonic
        self._window = window
        self._step = window / slots
        # Samples are at least a step apart, so that the window holds at most `slots + 1`; one more is before it.
        self._ring: deque[tuple[float, int]] = deque([(monotonic(), counter.value)], maxlen=slots + 2)
        self._guard = threading.Lock()

    def per_second(self) -> float:
        """Return the present rate; in a counter's first second as if that second were over."""
        with self._guard:
            now, value = self._monotonic(), self._counter.value
            start = now - self._window
            self._forget_before(start)
            since, base = self._at(start, now, value)
            if now - self._ring[-1][0] >= self._step:
                self._ring.append((now, value))
        return (value - base) / max(now - since, self._step)

    def _forget_before(self, start: float) -> None:
        while len(self._ring) > 1 and self._ring[1][0] <= start:
            self._ring.popleft()

    def _at(self, start: float, now: float, value: int) -> tuple[float, float]:
        """Return the counter's value when the window began, interpolated between two samples."""
        (left, low), (right, high) = self._ring[0], self._ring[1] if len(self._ring) > 1 else (now, value)
        if start <= left:
            return left, low
        return start, low + (high - low) * (start - left) / (right - left)


@dataclass(frozen=True, slots=True)
class Sample:
    """One instrument as it was when it was collected."""

    name: str
    kind: Kind
    help: str
    labels: Labels
    value: float | Distribution
    """A number; for a histogram a `Distribution`."""


_Instrument = Counter | Reading | Gauge | Histogram
_I = TypeVar("_I", Counter, Reading, Gauge, Histogram)
_KINDS: dict[type[_Instrument], Kind] = {Counter: "counter", Reading: "counter", Gauge: "gauge", Histogram: "histogram"}
_ENDINGS: dict[Kind, str] = {"counter": "_total", "gauge": "", "histogram": "_seconds"}


class _Family:
    """All instruments of one name, and the sums of those that were removed."""

    __slots__ = ("gone", "help", "instruments", "kind", "labels")

    def __init__(self, kind: Kind, help: str) -> None:
        self.kind = kind
        self.help = help
        self.instruments: dict[Labels, _Instrument] = {}
        self.labels: set[str] = set()
        """The names of all labels that instruments have or had."""
        self.gone: dict[Labels, Counter | Histogram] = {}

    def add(self, labels: Labels, instrument: _Instrument) -> _Instrument:
        """Return the instrument of these labels: the existing one, or else this one."""
        self.labels.update(name for name, _ in labels)
        return self.instruments.setdefault(labels, instrument)

    def remove(self, labels: Labels, without: Mapping[str, str]) -> None:
        """Remove an instrument, and add what it counted to `gone`, under its labels other than `without`."""
        instrument = self.instruments.pop(labels, None)
        if instrument is None:  # an interrupt cut off an earlier call here
            return
        left = _without(labels, without)
        if isinstance(instrument, Histogram):
            before = self.gone.get(left)
            both = (instrument, before) if isinstance(before, Histogram) else (instrument,)
            self.gone[left] = Histogram.added(both)
        elif not isinstance(instrument, Gauge):
            counter = self.gone.setdefault(left, Counter())
            assert isinstance(counter, Counter)
            counter.add(cast("int", _sum_of([instrument])))

    def grouped(self, over: Collection[str]) -> dict[Labels, list[_Instrument]]:
        """Group the instruments by their labels other than `over`."""
        if self.labels.issubset(over):  # nearly always
            return {(): list(self.instruments.values())} if self.instruments else {}
        groups: dict[Labels, list[_Instrument]] = {}
        for labels, instrument in self.instruments.items():
            groups.setdefault(_without(labels, over), []).append(instrument)
        return groups


class Registry:
    """All instruments of a process or store, by name and labels. Threads: any."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._families: dict[str, _Family] = {}
        # An index by label: closing 10,000 queues one by one must not search all instruments 10,000 times.
        self._labelled: dict[tuple[str, str], set[tuple[str, Labels]]] = {}

    def counter(self, name: str, help: str, labels: Mapping[str, str] = _NO_LABELS) -> Counter:
        """Return the counter of this name and these labels; create it if needed. Its name ends in `_total`."""
        return self._get(name, help, labels, Counter)

    def reading(self, name: str, help: str, labels: Mapping[str, str], read: Callable[[], int]) -> Reading:
        """Return a counter whose value is kept elsewhere, read by the newest `read`, which must take no lock."""
        reading = self._get(name, help, labels, Reading)
        reading.before += _read(read) - _read(reading._read)  # what was counted so far stays counted
        reading._read = read
        return reading

    def histogram(self, name: str, help: str, labels: Mapping[str, str] = _NO_LABELS) -> Histogram:
        """Return the histogram of this name and these labels; create it if needed. Its name ends in `_seconds`."""
        return self._get(name, help, labels, Histogram)

    def gauge(
        self, name: str, help: str, labels: Mapping[str, str] = _NO_LABELS, read: Callable[[], float] | None = None
    ) -> Gauge:
        """Return the gauge of this name and these labels; create it if needed.

        With `read` its value is computed by the newest `read`: that of a queue that was opened again replaces the old.
        """
        gauge = self._get(name, help, labels, Gauge)
        if read is not None:
            gauge._read = read
        return gauge

    def _get(self, name: str, help: str, labels: Mapping[str, str], make: type[_I]) -> _I:
        key = tuple(sorted(labels.items()))
        family = self._families.get(name)
        found = None if family is None else family.instruments.get(key)
        if isinstance(found, make):
            return found
        kind = _KINDS[make]
        _check(name, kind, labels)
        with self._guard:
            family = self._families.setdefault(name, _Family(kind, help))
            if family.kind != kind:
                raise InvalidArgument(f"{name} is a {family.kind} already: give the {kind} another name")
            instrument = family.add(key, make())
            for label in key:
                self._labelled.setdefault(label, set()).add((name, key))
        assert isinstance(instrument, make)
        return instrument

    def remove(self, labels: Mapping[str, str]) -> int:
        """Remove all instruments that have these labels, whatever others they have; return how many there were.

        An owner may still count with a removed instrument; it is no longer collected. What it had counted before stays
        in the `sums`.
        """
        if not labels:
            raise InvalidArgument("remove needs at least one label: no label would match every instrument")
        with self._guard:
            keys = self._having(labels)
            for name, key in keys:
                self._remove(name, key, labels)
        return len(keys)

    def _remove(self, name: str, key: Labels, labels: Mapping[str, str]) -> None:
        self._families[name].remove(key, labels)
        for label in key:
            labelled = self._labelled.get(label)
            if labelled is not None:
                labelled.discard((name, key))
                if not labelled:
                    del self._labelled[label]

    def _having(self, labels: Mapping[str, str]) -> set[tuple[str, Labels]]:
        return set.intersection(*(self._labelled.get(label, set()) for label in labels.items()))

    def families(self) -> dict[str, tuple[Kind, str]]:
        """Return the kind and the help text of each name."""
        with self._guard:
            return {name: (family.kind, family.help) for name, family in sorted(self._families.items())}

    def collect(
        self, *, names: Collection[str] | None = None, labels: Mapping[str, str] = _NO_LABELS
    ) -> Iterator[Sample]:
        """Yield samples of all instruments, sorted by name, then labels, as the format of Prometheus requires.

        With `names` only those of these names, with `labels` only those that have them, whatever others they have.
        """
        with self._guard:
            found: list[tuple[str, Labels, _Instrument]] = []
            if labels:
                found = [(name, key, self._families[name].instruments[key]) for name, key in self._having(labels)]
            else:
                for name, family in self._families.items():
                    found += [(name, key, instrument) for key, instrument in family.instruments.items()]
        if names is not None:
            found = [one for one in found if one[0] in names]
        found.sort(key=lambda one: one[:2])
        # Read without the lock: a computed gauge takes other locks, whose holders may wait for this one.
        for name, key, instrument in found:
            family = self._families[name]
            try:
                value = instrument.distribution() if isinstance(instrument, Histogram) else instrument.value
            except HoldfastError:
                continue  # its queue was closed meanwhile
            yield Sample(name, family.kind, family.help, key, value)

    def sums(self, over: Collection[str], kind: Kind = "counter", names: Collection[str] | None = None) -> list[Sample]:
        """Return counters or histograms, summed over the labels of these names, by name and remaining labels.

        With `names` only those. Removed instruments count; the value of a `Reading` when it was registered does not. As
        long as the registry exists, a sum only grows. Cheap enough for frequent calls: it sorts no instruments, and
        takes no lock except that of the registry.
        """
        with self._guard:
            families = [
                (name, one.help, one.grouped(over), list(one.gone.items()))
                for name, one in sorted(self._families.items())
                if one.kind == kind and (names is None or name in names)
            ]
        samples: list[Sample] = []
        for name, help, groups, gone in families:
            for labels, one in gone:
                groups.setdefault(_without(labels, over), []).append(one)
            samples += [Sample(name, kind, help, labels, _sum_of(groups[labels])) for labels in sorted(groups)]
        return samples


def _without(labels: Labels, over: Collection[str]) -> Labels:
    return tuple(label for label in labels if label[0] not in over)


def _sum_of(instruments: Sequence[_Instrument]) -> float | Distribution:
    """Return the sum of counters or histograms. They are nearly always of one type: with 10,000 each pass matters."""
    kinds = set(map(type, instruments))
    if Histogram in kinds:
        return Histogram.added(cast("Sequence[Histogram]", instruments)).distribution()
    if len(kinds) > 1:
        apart = ([one for one in instruments if type(one) is kind] for kind in kinds)
        return sum(cast("int", _sum_of(part)) for part in apart)
    if Counter in kinds:
        return sum([one.value for one in cast("Sequence[Counter]", instruments)])
    readings = cast("Sequence[Reading]", instruments)
    try:
        read = sum([one._read() for one in readings])
    except HoldfastError:  # a queue was closed meanwhile
        read = sum(_read(one._read) for one in readings)
    return max(0, read - sum([one.before for one in readings]))


def _read(read: Callable[[], int]) -> int:
    try:
        return read()
    except HoldfastError:
        return 0  # its queue was closed meanwhile


def _check(name: str, kind: Kind, labels: Mapping[str, str]) -> None:
    if not _NAME.fullmatch(name) or not name.endswith(_ENDINGS[kind]):
        ending = f" and end in {_ENDINGS[kind]}" if _ENDINGS[kind] else ""
        raise InvalidArgument(f"the name of a {kind} must consist of a-z and _{ending}, not {name!r}")
    for label, value in labels.items():
        if not _NAME.fullmatch(label) or label == "le":  # Prometheus keeps `le` for the bounds of buckets
            raise InvalidArgument(f"the name of a label must consist of a-z and _, and not be 'le', but is {label!r}")
        if not isinstance(value, str):
            raise InvalidArgument(f"the label {label} of {name} must be text, not {type(value).__name__}")
