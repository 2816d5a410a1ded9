"""How are two things compared fairly on a noisy machine? In turns, many times, by the ratio of each turn."""

import gc
import itertools
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Line", "Sample", "Sense", "Workshop", "measure_pairs", "payloads_of", "quiet", "timed"]

_PAYLOAD = 100

Sense = Literal["at most", "at least"]
"""A cost should be at most so much, a gain at least."""
Sample = Callable[[], float]
"""Does the work once and says how many seconds a record took."""


@dataclass(slots=True)
class Line:
    """One line of a benchmark: a value a round, and the target for their median."""

    id: str
    title: str
    sense: Sense
    target: float | None = None
    unit: str = "x"
    rounds: list[dict[str, float]] = field(default_factory=list)
    """What was measured in each round: seconds a record, unless the name says otherwise."""
    values: list[float] = field(default_factory=list)
    """What each round says about the target: a ratio, or MiB."""
    of_minima: float | None = None
    """The ratio of the best of all rounds on either side: nearer to what a quiet machine would show."""

    @property
    def median(self) -> float:
        """The value that is judged."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.target is None:
            return None
        return self.median <= self.target if self.sense == "at most" else self.median >= self.target

    def best(self, name: str) -> float:
        """The least that any round measured for this."""
        return min(measured[name] for measured in self.rounds)

    def add(self, measured: dict[str, float]) -> None:
        """Take a round with a `floor` and a `subject` into account."""
        self.rounds.append(measured)
        self.values.append(self._ratio(measured["floor"], measured["subject"]))
        self.of_minima = self._ratio(self.best("floor"), self.best("subject"))

    def as_json(self) -> dict[str, Any]:
        """All of it, raw rounds included."""
        return asdict(self) | {"median": self.median, "met": self.met}

    def _ratio(self, floor: float, subject: float) -> float:
        return subject / floor if self.sense == "at most" else floor / subject


def measure_pairs(line: Line, floor: Sample, subject: Sample, rounds: int) -> Line:
    """Measure in turns; a round's value is how many times the floor's time the subject took ("at most") or how many
    times faster it was ("at least").

    The order changes with each round: a machine that slows down under one of them must not always slow the other.
    """
    floor(), subject()  # the first time pays for imports, page cache and clock speed
    for number in range(rounds):
        if number % 2:
            took = quiet(subject)
            line.add({"floor": quiet(floor), "subject": took})
        else:
            line.add({"floor": quiet(floor), "subject": quiet(subject)})
    return line


def quiet(sample: Sample) -> float:
    """Take a sample that begins with nothing left over from the one before; the collector stays on, as for users.

    Nor does it pay for what another has left to the operating system to write.
    """
    gc.collect()
    os.sync()
    return sample()


def timed(work: Callable[[], object]) -> float:
    """The seconds that the work took."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def payloads_of(count: int) -> list[bytes]:
    """Random payloads of 100 B, the same each time."""
    # Drawn from a pool that fits a processor's cache, as a payload does that was made just before it is appended.
    source = random.Random(1)
    pool = [source.randbytes(_PAYLOAD) for _ in range(4096)]
    return list(itertools.islice(itertools.cycle(pool), count))


class Workshop:
    """A folder in which each sample gets a place of its own, gone when the sample ends.

    Gone at once, because a virtual machine may have to ask its host for memory that the page cache has not used before:
    the same 26 MB took 85 ms there and 8 ms in memory given back, so whatever kept its files seemed to slow down.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def place(self) -> Path:
        """A path that nobody has used; it stays."""
        self._count += 1
        return self.folder / str(self._count)

    @contextmanager
    def borrowed(self) -> Iterator[Path]:
        """A path that nobody has used; removed afterwards, file or folder."""
        path = self.place()
        try:
            yield path
        finally:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
