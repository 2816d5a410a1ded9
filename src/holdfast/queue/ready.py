"""Ready messages by priority: the oldest of the highest priority is next, unless another one is starving."""

from collections.abc import Callable

from holdfast.queue.byte_accounting import PayloadSizes
from holdfast.queue.ranges import Ranges, SizedRanges

__all__ = ["PRIORITIES", "Pick", "Ready"]

PRIORITIES = 256
_COMMON = 10
"""Priorities whose sets always exist; others are created with their first message."""
Pick = tuple[int, int, int]
"""Priority, first sequence, the one after the last."""


class Ready:
    """The messages that may be delivered now, by priority. With one priority in use, only its set is read."""

    def __init__(self, load: Callable[[int, int], bytes] | None = None, weights: PayloadSizes | None = None) -> None:
        def loader(priority: int) -> Callable[[int], bytes] | None:
            return None if load is None else lambda low: load(priority, low)

        def level(priority: int) -> Ranges:
            return Ranges(loader(priority)) if weights is None else SizedRanges(loader(priority), weights)

        self._make = level
        self.levels = [level(priority) for priority in range(_COMMON)]
        self.plain = self.levels[0]
        self.has_priorities = False
        """Whether priorities above 0 may have messages: if False, the common case need not check each of them."""

    @property
    def count(self) -> int:
        """The number of ready messages."""
        return sum(level.count for level in self.levels)

    def __bool__(self) -> bool:
        return any(level.count for level in self.levels)

    def level(self, priority: int) -> Ranges:
        """Return the messages of one priority."""
        while priority >= len(self.levels):
            self.levels.append(self._make(len(self.levels)))
        return self.levels[priority]

    def add(self, priority: int, start: int, stop: int) -> None:
        """Mark messages as ready."""
        if priority:
            self.has_priorities = True
        self.level(priority).add(start, stop)

    def add_runs(self, first: int, priorities: list[int]) -> None:
        """Mark messages from `first` on as ready, each with its priority: many at once."""
        runs: dict[int, tuple[list[int], list[int]]] = {}
        last = -1
        stops: list[int] = []
        for sequence, priority in enumerate(priorities, first):
            if priority == last:
                stops[-1] = sequence + 1
                continue
            last = priority
            starts, stops = runs.setdefault(priority, ([], []))
            starts.append(sequence)
            stops.append(sequence + 1)
        for level, (starts, ends) in runs.items():
            self.has_priorities = self.has_priorities or level > 0
            self.level(level).extend(starts, ends)

    def remove(self, priority: int, start: int, stop: int) -> int:
        """Remove messages; return how many were ready."""
        return self.level(priority).remove(start, stop)

    def remove_anywhere(self, start: int, stop: int) -> int:
        """As `remove`, for messages of unknown priority."""
        return sum(level.remove(start, stop) for level in self.levels)

    def following(self, start: int, stop: int, limit: int) -> list[tuple[int, int]]:
        """Return the next `limit` messages from `start` up to `stop`, by sequence, each with its priority."""
        found = [
            (sequence, priority)
            for priority, level in enumerate(self.levels)
            if level
            for first, end in level.following(start, limit)
            for sequence in range(first, min(end, stop))
        ]
        return sorted(found)[:limit]

    def pick(self, limit: int, starved: Callable[[int], bool] | None) -> list[Pick]:
        """Return the next `limit` messages in order of delivery, without removing them.

        `starved` returns whether the message of a sequence has waited too long: such messages come first, oldest first,
        whatever their priority. None disables this.
        """
        used = [0]
        if self.has_priorities:
            used = [priority for priority in range(len(self.levels) - 1, -1, -1) if self.levels[priority].count]
            self.has_priorities = used not in ([], [0])
        if len(used) <= 1 or starved is None or not any(starved(self.levels[priority].first) for priority in used):
            picks: list[Pick] = []
            for priority in used:
                if limit <= 0:
                    break
                for start, stop in self.levels[priority].front(limit):
                    picks.append((priority, start, stop))
                    limit -= stop - start
            return picks
        return self._pick_fairly(used, limit, starved)

    def _pick_fairly(self, used: list[int], limit: int, starved: Callable[[int], bool]) -> list[Pick]:
        fronts = {
            priority: [sequence for span in self.levels[priority].front(limit) for sequence in range(*span)][::-1]
            for priority in used
        }
        order: list[tuple[int, int]] = []
        while limit and fronts:
            # The oldest of the starving messages; without any, the oldest of the highest priority.
            starving = [level for level in fronts if starved(fronts[level][-1])]
            priority = min(starving, key=lambda level: fronts[level][-1]) if starving else max(fronts)
            order.append((priority, fronts[priority].pop()))
            limit -= 1
            if not fronts[priority]:
                del fronts[priority]
        picks: list[Pick] = []
        for priority, sequence in order:
            if picks and picks[-1][0] == priority and picks[-1][2] == sequence:
                picks[-1] = (priority, picks[-1][1], sequence + 1)
            else:
                picks.append((priority, sequence, sequence + 1))
        return picks
