"""Which parts of a queue's journal the tasks of the view `messages` need, if there are many tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from holdfast.spark.message_states import DECODED_BYTES, DECODED_RECORDS, EXTENDED, LEASE, OF_ALL, by_kind
from holdfast.spark.partitions import Stretch, Wanted, read_between
from holdfast.spark.queue_events import NONE, Spans, portions, read_spans

__all__ = ["are_many", "parts_needed"]

FEW_TASKS = 4
"""So many tasks read the whole journal each: that is less work than a pass of it by the process that plans."""
PARTS = 256
PART_BYTES = 1 << 20
"""A journal is divided into at most about `PARTS` parts, of at least so many bytes."""

Numbers = np.ndarray[Any, Any]
Range = tuple[int, int]
"""The first message of a task, and the one after its last."""


def are_many(tasks: int) -> bool:
    """Return whether it is worthwhile to divide the journal: that reads it once more, before the tasks start."""
    return tasks > FEW_TASKS


@dataclass(slots=True)
class _Part:
    """Consecutive records of the journal."""

    start: int
    stop: int
    tasks: Numbers
    """Which tasks need them."""
    leases: Range | None = None
    """The lowest and the highest lease whose expiry was changed."""


class _Survey:
    """What was found out about the journal so far: its parts, and the leases of each task's messages."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.starts, self.stops = np.array(ranges, np.int64).T
        self.parts: list[_Part] = []
        self.has_snapshot = False
        self._lowest = np.full(len(ranges), np.iinfo(np.int64).max)
        self._highest = np.full(len(ranges), NONE)

    def begin(self, start: int) -> _Part:
        """Begin a part."""
        self.parts.append(_Part(start, start, np.zeros(len(self.starts), bool)))
        return self.parts[-1]

    def note(self, part: _Part, spans: Spans) -> None:
        """Add the events of a portion to its part."""
        if np.isin(spans.event, OF_ALL).any():
            part.tasks[:] = True
        own = spans.start != NONE
        first = np.searchsorted(self.stops, spans.start[own], "right")
        last = np.searchsorted(self.starts, spans.start[own] + spans.count[own], "left")
        counts = np.maximum(last - first, 0)
        tasks = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        part.tasks[tasks] = True
        leased = np.repeat(spans.event[own] == LEASE, counts)
        leases = np.repeat(spans.lease[own], counts)[leased]
        np.minimum.at(self._lowest, tasks[leased], leases)
        np.maximum.at(self._highest, tasks[leased], leases)
        if (extended := spans.lease[spans.event == EXTENDED]).size:
            known = part.leases or (int(extended[0]), int(extended[0]))
            part.leases = min(known[0], int(extended.min())), max(known[1], int(extended.max()))

    def of_task(self, task: int) -> list[Range]:
        """Return the records that a task needs, as ranges."""
        found: list[Range] = []
        for part in self.parts:
            extends = part.leases is not None and (
                self.has_snapshot  # which may have leases that are not known here
                or (part.leases[0] <= self._highest[task] and self._lowest[task] <= part.leases[1])
            )
            if not (part.tasks[task] or extends):
                continue
            if found and found[-1][1] == part.start:
                found[-1] = (found[-1][0], part.stop)
            else:
                found.append((part.start, part.stop))
        return found


def parts_needed(journal: Sequence[Stretch], ranges: Sequence[Range]) -> list[tuple[Stretch, ...]]:
    """Return what each task needs of the journal, given the ascending ranges of their messages.

    Reads the whole journal once. Takes memory for each part of the journal and task, not for each message.
    """
    if not journal:
        return [()] * len(ranges)
    survey = _survey(journal, ranges)
    return [
        tuple(
            replace(stretch, start=max(start, stretch.start), stop=min(stop, stretch.stop))
            for start, stop in survey.of_task(task)
            for stretch in journal
            if stretch.start < stop and start < stretch.stop
        )
        for task in range(len(ranges))
    ]


def _survey(journal: Sequence[Stretch], ranges: Sequence[Range]) -> _Survey:
    survey = _Survey(ranges)
    part_bytes = max(PART_BYTES, sum(stretch.bytes for stretch in journal) // PARTS)
    wanted = Wanted(skip_damage=True)
    read = read_between(journal, wanted)
    part = survey.begin(journal[0].start)
    size = 0
    pieces = (found for piece in read(journal[0].start, journal[-1].stop) for found in by_kind(piece))
    for is_snapshot, run in groupby(pieces, lambda found: found[0]):
        for portion in portions((piece for _, piece in run), DECODED_RECORDS, DECODED_BYTES):
            if is_snapshot:
                survey.has_snapshot = True
                part.tasks[:] = True
            else:
                survey.note(part, read_spans(portion))
            if wanted.damage:  # for the tasks to report, or to fail
                part.tasks[:] = True
                wanted.damage.clear()
            block, _, stop = portion[-1]
            part.stop = block.sequence + stop
            size += sum(block.offsets[stop] - block.offsets[start] for block, start, stop in portion)
            if size >= part_bytes:
                part, size = survey.begin(part.stop), 0
    part.stop = journal[-1].stop
    return survey
