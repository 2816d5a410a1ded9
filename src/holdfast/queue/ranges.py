"""Ordered set of sequences, stored as ranges in chunked arrays: 16 bytes for each range of any length."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import le, lt

from holdfast.queue.byte_accounting import PayloadSizes

__all__ = ["Ranges", "SizedRanges", "spans_of", "unpack"]

RESTORED_CHUNKS = 64
"""Chunks that are kept in memory when a set is restored."""
CHUNK_RANGES = 1024
"""The most ranges of a chunk before it is divided."""
Span = tuple[int, int]
"""A first sequence and the one after the last."""


class _Chunk:
    """The ranges from `low` up to the next chunk's `low`. Its arrays are absent while it is only in the state."""

    __slots__ = ("changed", "head", "low", "saved", "starts", "stops")

    def __init__(self, low: int, starts: "array[int] | None", stops: "array[int] | None") -> None:
        self.low = low
        self.starts = starts
        self.stops = stops
        self.head = 0
        """The index of the first range; those before it were removed, and are cut off when there are many."""
        self.changed = True
        self.saved = False
        """Whether the state has a value under `low`, which must be deleted with the chunk."""

    def __len__(self) -> int:
        assert self.starts is not None
        return len(self.starts) - self.head


class Ranges:
    """An ordered set of sequences, kept as ranges; cheap at both ends, logarithmic between.

    Invariant: ranges ascend, do not touch within a chunk, and each is within its chunk's bounds; `count` is their sum.
    Chunks that were saved may leave memory (`kept`) and are read with `load` when they are needed again.
    """

    __slots__ = ("_chunks", "_gone", "_load", "_lows", "count")

    def __init__(self, load: Callable[[int], bytes] | None = None) -> None:
        self.count = 0
        """How many sequences are in the set."""
        self._chunks: list[_Chunk] = []
        self._lows: list[int] = []
        self._gone: list[int] = []
        self._load = load

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[Span]:
        """Yield the ranges in order."""
        for chunk in list(self._chunks):
            starts, stops = self._arrays(chunk)
            yield from zip(starts[chunk.head :], stops[chunk.head :], strict=True)

    def __contains__(self, sequence: int) -> bool:
        chunk = self._chunk_of(sequence)
        if chunk is None:
            return False
        starts, stops = self._arrays(chunk)
        at = bisect_right(starts, sequence, chunk.head) - 1
        return at >= chunk.head and sequence < stops[at]

    @property
    def first(self) -> int:
        """The lowest sequence; the set must not be empty."""
        chunk = self._chunks[0]
        return self._arrays(chunk)[0][chunk.head]

    @property
    def last(self) -> int:
        """The highest sequence; the set must not be empty."""
        return self._arrays(self._chunks[-1])[1][-1] - 1

    def front(self, limit: int) -> list[Span]:
        """Return the lowest `limit` sequences as ranges, without removing them."""
        found: list[Span] = []
        for chunk in self._chunks:
            starts, stops = self._arrays(chunk)
            for at in range(chunk.head, len(starts)):
                start, stop = starts[at], stops[at]
                if stop - start >= limit:
                    found.append((start, start + limit))
                    return found
                found.append((start, stop))
                limit -= stop - start
        return found

    def within(self, start: int, stop: int) -> list[Span]:
        """Return which of these sequences are in the set, as ranges."""
        found: list[Span] = []
        index = max(0, bisect_right(self._lows, start) - 1)
        for chunk in self._chunks[index:]:
            if chunk.low >= stop:
                break
            starts, stops = self._arrays(chunk)
            at = bisect_right(stops, start, chunk.head)
            while at < len(starts) and starts[at] < stop:
                found.append((max(start, starts[at]), min(stop, stops[at])))
                at += 1
        return found

    def following(self, start: int, limit: int) -> list[Span]:
        """Return the lowest `limit` sequences from `start` on, as ranges, without removing them."""
        found: list[Span] = []
        for chunk in self._chunks[max(0, bisect_right(self._lows, start) - 1) :]:
            starts, stops = self._arrays(chunk)
            for at in range(bisect_right(stops, start, chunk.head), len(starts)):
                first = max(start, starts[at])
                found.append((first, min(stops[at], first + limit)))
                limit -= found[-1][1] - first
                if limit == 0:
                    return found
        return found

    def count_before(self, sequence: int) -> int:
        """Return how many of the set are below this one. Chunks in the state are read without being kept in memory."""
        if not self.count or sequence <= self._lows[0]:
            return 0
        found = 0
        for chunk in self._chunks[: bisect_left(self._lows, sequence)]:
            away = chunk.starts is None
            starts, stops = self._arrays(chunk)
            end = bisect_left(starts, sequence, chunk.head)  # the first range that begins there or behind
            found += sum(stops[chunk.head : end]) - sum(starts[chunk.head : end])
            if end > chunk.head:
                found -= max(0, stops[end - 1] - sequence)
            if away:
                chunk.starts = chunk.stops = None
        return found

    def add(self, start: int, stop: int) -> None:
        """Add these sequences; some may be in the set already."""
        if start >= stop:
            return
        chunks = self._chunks
        if chunks:
            chunk = chunks[-1]
            stops = chunk.stops
            if stops is not None and start >= stops[-1]:  # behind all others, as after a put
                if start == stops[-1]:
                    stops[-1] = stop
                else:
                    assert chunk.starts is not None
                    if len(stops) - chunk.head >= CHUNK_RANGES:
                        self._insert_chunk(len(chunks), start, [start], [stop])
                    else:
                        chunk.starts.append(start)
                        stops.append(stop)
                chunk.changed = True
                self.count += stop - start
                return
        self.remove(start, stop)  # mostly nothing; then there is no overlap
        self._insert(start, stop)

    def extend(self, starts: list[int], stops: list[int]) -> None:
        """Add ranges that ascend, do not touch and are behind all others: many at once, at a fifth of the cost."""
        if self.count and starts[0] <= self.last + 1:
            for start, stop in zip(starts, stops, strict=True):
                self.add(start, stop)
            return
        self.count += sum(stops) - sum(starts)
        at = 0
        if self._chunks and (space := CHUNK_RANGES - len(self._chunks[-1])) > 0:
            chunk = self._chunks[-1]
            assert chunk.starts is not None
            assert chunk.stops is not None
            chunk.starts.extend(starts[:space])
            chunk.stops.extend(stops[:space])
            chunk.changed = True
            at = space
        while at < len(starts):
            self._insert_chunk(
                len(self._chunks), starts[at], starts[at : at + CHUNK_RANGES], stops[at : at + CHUNK_RANGES]
            )
            at += CHUNK_RANGES

    def remove(self, start: int, stop: int) -> int:
        """Remove these sequences; return how many of them were in the set."""
        removed = 0
        chunks = self._chunks
        index = max(0, bisect_right(self._lows, start) - 1)
        while index < len(chunks) and chunks[index].low < stop:
            chunk = chunks[index]
            removed += self._remove_from(chunk, start, stop)
            if chunk.starts is not None and len(chunk) == 0:
                self._drop_chunk(index)
            else:
                index += 1
        self.count -= removed
        return removed

    def take_front(self, start: int, stop: int) -> None:
        """Remove the first range that `front` returned: the common case of `remove`, in a third of its time."""
        chunk = self._chunks[0]
        starts, stops = chunk.starts, chunk.stops
        assert starts is not None
        assert stops is not None
        head = chunk.head
        assert starts[head] == start
        if stop > stops[head]:  # it was merged from several ranges, perhaps of several chunks
            self.remove(start, stop)
            return
        self.count -= stop - start
        chunk.changed = True
        if stop < stops[head]:
            starts[head] = stop
            return
        chunk.head = head = head + 1
        if head == len(starts):
            self._drop_chunk(0)
        elif head > 64:
            del starts[:head], stops[:head]
            chunk.head = 0

    def clear(self) -> None:
        """Remove everything."""
        self._gone += [chunk.low for chunk in self._chunks if chunk.saved]
        self._chunks, self._lows, self.count = [], [], 0

    # The methods below save the set in a state, with values under `low`.

    def changes(self) -> tuple[list[int], list[tuple[int, bytes]]]:
        """Return the lows of values to delete, and the values to put, since the last call. Then call `kept`."""
        fresh = [
            (chunk.low, bytes(starts[chunk.head :]) + bytes(stops[chunk.head :]))
            for chunk in self._chunks
            if chunk.changed
            for starts, stops in [self._arrays(chunk)]
        ]
        return self._gone, fresh

    def kept(self, resident: int) -> None:
        """Mark the changes as saved; keep `resident` of the saved chunks in memory, at both ends."""
        self._gone = []
        for chunk in self._chunks:
            if chunk.changed:
                chunk.changed, chunk.saved = False, True
        if self._load is not None and len(self._chunks) > resident:
            for chunk in self._chunks[resident - 1 : -1]:
                chunk.starts = chunk.stops = None
                chunk.head = 0

    def restore(self, low: int, value: bytes) -> None:
        """Add a value from the state; in ascending order of lows."""
        starts, stops = unpack(value)
        if self._load is not None and len(self._chunks) >= RESTORED_CHUNKS and not self._chunks[-1].changed:
            # At once, not at the end: memory that is allocated and freed in between would stay with the process.
            self._chunks[-1].starts = self._chunks[-1].stops = None
        chunk = _Chunk(low, starts, stops)
        chunk.changed, chunk.saved = False, True
        assert not self._lows or low > self._lows[-1]
        self._chunks.append(chunk)
        self._lows.append(low)
        self.count += sum(stops) - sum(starts)

    def fits(self, low: int, value: bytes) -> bool:
        """Return whether a value may be restored: it ascends, and is behind those before."""
        if not value or len(value) % 16:
            return False
        starts, stops = unpack(value)
        before = self.last + 1 if self._chunks else 0
        return before <= low <= starts[0] and all(map(lt, starts, stops)) and all(map(le, stops, starts[1:]))

    def add_all(self, value: bytes) -> None:
        """Add the ranges of a value that does not fit where it was."""
        for start, stop in zip(*unpack(value[: len(value) // 16 * 16]), strict=True):
            self.add(start, stop)

    @property
    def changed(self) -> int:
        """How many chunks differ from the state."""
        return len(self._gone) + sum(chunk.changed for chunk in self._chunks)

    def _arrays(self, chunk: _Chunk) -> "tuple[array[int], array[int]]":
        if chunk.starts is None or chunk.stops is None:
            assert self._load is not None
            chunk.starts, chunk.stops = unpack(self._load(chunk.low))
            chunk.head = 0
        return chunk.starts, chunk.stops

    def _chunk_of(self, sequence: int) -> _Chunk | None:
        index = bisect_right(self._lows, sequence) - 1
        return self._chunks[index] if index >= 0 else None

    def _insert(self, start: int, stop: int) -> None:
        """Insert a range that overlaps no other; one that spans chunks is divided at their bounds."""
        self.count += stop - start
        while start < stop:
            index = bisect_right(self._lows, start) - 1
            if index < 0:
                if not self._lows:
                    self._insert_chunk(0, start, [start], [stop])
                    return
                # Extend the first chunk downwards. A new chunk for each would make as many chunks as ranges, if
                # sequences are returned in descending order.
                chunk, index = self._chunks[0], 0
                self._arrays(chunk)
                if chunk.saved:
                    self._gone.append(chunk.low)
                    chunk.saved = False
                chunk.low = self._lows[0] = start
            chunk = self._chunks[index]
            bound = min(stop, self._lows[index + 1]) if index + 1 < len(self._lows) else stop
            starts, stops = self._arrays(chunk)
            at = bisect_left(starts, start, chunk.head)
            joins_before = at > chunk.head and stops[at - 1] == start
            joins_behind = at < len(starts) and starts[at] == bound
            if joins_before and joins_behind:
                stops[at - 1] = stops[at]
                del starts[at], stops[at]
            elif joins_before:
                stops[at - 1] = bound
            elif joins_behind:
                starts[at] = start
            else:
                starts.insert(at, start)
                stops.insert(at, bound)
            chunk.changed = True
            if len(chunk) > CHUNK_RANGES:
                self._divide(index)
            start = bound

    def _remove_from(self, chunk: _Chunk, start: int, stop: int) -> int:
        starts, stops = self._arrays(chunk)
        at = bisect_right(stops, start, chunk.head)  # the first range that ends behind `start`
        end = bisect_left(starts, stop, at)  # the first that begins at `stop` or behind
        if at == end:
            return 0
        chunk.changed = True
        removed = sum(stops[at:end]) - sum(starts[at:end])
        left = (starts[at], start) if starts[at] < start else None
        right = (stop, stops[end - 1]) if stops[end - 1] > stop else None
        rest = [part for part in (left, right) if part]
        starts[at:end] = array("Q", [part[0] for part in rest])
        stops[at:end] = array("Q", [part[1] for part in rest])
        return removed - sum(part[1] - part[0] for part in rest)

    def _insert_chunk(self, index: int, low: int, starts: list[int], stops: list[int]) -> None:
        self._chunks.insert(index, _Chunk(low, array("Q", starts), array("Q", stops)))
        self._lows.insert(index, low)

    def _divide(self, index: int) -> None:
        chunk = self._chunks[index]
        starts, stops = self._arrays(chunk)
        middle = chunk.head + len(chunk) // 2
        upper = _Chunk(starts[middle], starts[middle:], stops[middle:])
        del starts[middle:], stops[middle:]
        chunk.changed = True
        self._chunks.insert(index + 1, upper)
        self._lows.insert(index + 1, upper.low)

    def _drop_chunk(self, index: int) -> None:
        chunk = self._chunks.pop(index)
        del self._lows[index]
        if chunk.saved:
            self._gone.append(chunk.low)


class SizedRanges(Ranges):
    """An ordered set of sequences that counts their payload bytes."""

    __slots__ = ("bytes", "weights")

    def __init__(self, load: Callable[[int], bytes] | None, weights: PayloadSizes) -> None:
        super().__init__(load)
        self.weights = weights
        self.bytes = 0

    def add(self, start: int, stop: int) -> None:
        """As `Ranges.add`, which first calls `remove` for sequences that are in the set already."""
        if start < stop:
            self.bytes += self.weights.between(start, stop)
            super().add(start, stop)

    def extend(self, starts: list[int], stops: list[int]) -> None:
        """As `Ranges.extend`."""
        if not self.count or starts[0] > self.last + 1:  # otherwise `add` is called for each
            self.bytes += sum(map(self.weights.between, starts, stops))
        super().extend(starts, stops)

    def remove(self, start: int, stop: int) -> int:
        """As `Ranges.remove`."""
        self.bytes -= sum(self.weights.between(*span) for span in self.within(start, stop))
        return super().remove(start, stop)

    def take_front(self, start: int, stop: int) -> None:
        """As `Ranges.take_front`."""
        self.remove(start, stop)

    def clear(self) -> None:
        """As `Ranges.clear`."""
        self.bytes = 0
        super().clear()

    def weigh(self) -> None:
        """Count the bytes again: the set was restored before the sizes were known."""
        self.bytes = sum(self.weights.between(*span) for span in self)


def unpack(value: bytes) -> "tuple[array[int], array[int]]":
    """Return the first sequences of the ranges of a chunk, and their ends."""
    numbers = array("Q")
    numbers.frombytes(value)
    half = len(numbers) // 2
    return numbers[:half], numbers[half:]


def spans_of(sequences: list[int]) -> list[Span]:
    """Return ascending sequences as ranges."""
    if not sequences:
        return []
    first, last = sequences[0], sequences[-1]
    if last - first + 1 == len(sequences):
        return [(first, last + 1)]
    spans: list[Span] = []
    start = previous = first
    for sequence in sequences[1:]:
        if sequence != previous + 1:
            spans.append((start, previous + 1))
            start = sequence
        previous = sequence
    spans.append((start, previous + 1))
    return spans
