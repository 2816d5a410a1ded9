"""Bounded cache of message bodies: pages of records by sequence, read from pending blocks or from segments."""

from bisect import bisect_right, insort
from collections import OrderedDict, deque

from holdfast.log.block import Block
from holdfast.log.log import Log
from holdfast.log.record import NO_HEADERS, Headers
from holdfast.log.record_batch import BlockSpan, RecordColumns, RecordSpan

__all__ = ["RECENT_PART", "BodyCache", "Page"]

PAGE_RECORDS = 256
PAGE_BYTES = 1 << 20
SPENT_PAGES = 8
"""How many pages are kept that a reader has passed: some messages are redelivered at once."""
CACHE_BYTES = 128 << 20
RECENT_PART = 2
"""Newly put messages may use one part in so many of the limit."""
_RELEASE_BYTES = 1 << 20
"""Bytes of a segment that are read before their memory is released."""
_RECORD_COST = 100
"""Bytes of memory of a record in a page besides its payload."""


class Page:
    """Consecutive records, column by column."""

    __slots__ = ("dues", "end", "expiries", "first", "headers", "keys", "lost", "payloads", "size", "times", "unseen")

    def __init__(self, first: int, columns: RecordColumns, lost: list[int]) -> None:
        self.first = first
        self.payloads, self.times, self.keys, self.headers, self.expiries, self.dues = columns
        self.end = first + len(self.payloads)
        self.lost = set(lost)
        self.size = sum(map(len, self.payloads)) + _RECORD_COST * len(self.payloads)
        """Roughly its memory in bytes."""
        self.unseen = 0
        """How many of its records were read from a segment and not yet delivered."""


class BodyCache:
    """Reads and caches records by sequence, in pages. Used with the queue's lock held.

    Invariant: pages do not overlap, and together with the log's recent blocks use no more than `limit`, or there is
    only one page. Of the pages that a reader has passed only the last few are kept.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.limit = CACHE_BYTES
        self.bytes = 0
        """Memory of the pages in bytes."""
        self.misses = 0
        """How many delivered records had to be read from a segment."""
        self._pages: OrderedDict[int, Page] = OrderedDict()
        """The pages by first sequence, the least recently used first."""
        self._firsts: list[int] = []
        self._spent: deque[int] = deque()
        self._last: Page | None = None
        self._block: Block | None = None
        """The last block that was opened: the next page is mostly in it, and it need not be verified again."""
        self._released = 0
        """The offset up to which the memory of its segment was released."""

    def page(self, sequence: int) -> Page | None:
        """Return a page that holds this record, which may begin before it; None if the record cannot be read."""
        page = self._last
        if page is None or not page.first <= sequence < page.end:
            page = self._find(sequence) or self._load(sequence)
            if page is None:
                return None
            self._last = page
        return None if sequence in page.lost else page

    def note(self, page: Page, count: int) -> None:
        """Count records of a page, read from a segment, that were delivered."""
        seen = min(count, page.unseen)
        page.unseen -= seen
        self.misses += seen

    def forget(self) -> None:
        """Drop all pages."""
        self._pages.clear()
        self._firsts.clear()
        self._spent.clear()
        self._last = self._block = None
        self.bytes = 0

    def release_below(self, sequence: int) -> None:
        """Release the open block if it is below: its segment was deleted. May be called without the lock."""
        block = self._block
        if block is not None and block.end <= sequence:
            self._block = None

    def set_limit(self, limit: int) -> None:
        """Use at most so many bytes from now on."""
        self.limit = limit
        self.shrink()

    def shrink(self) -> None:
        """Drop pages beyond the limit, but keep one."""
        bytes_left = self.limit - self._log.recent.bytes
        while self.bytes > bytes_left and len(self._pages) > 1:
            self._drop(next(iter(self._pages)))

    def headers(self, sequence: int) -> Headers:
        """Return the headers of one record."""
        page = self.page(sequence)
        return page.headers[sequence - page.first] if page is not None and page.headers else NO_HEADERS

    def time(self, sequence: int) -> int | None:
        """Return when a message was put, without reading its body."""
        page = self._find(sequence)
        return page.times[sequence - page.first] if page is not None else self._log.time_of(sequence)

    def _find(self, sequence: int) -> Page | None:
        at = bisect_right(self._firsts, sequence) - 1
        if at < 0:
            return None
        page = self._pages[self._firsts[at]]
        if sequence >= page.end:
            return None
        self._pages.move_to_end(page.first)
        return page

    def _load(self, sequence: int) -> Page | None:
        firsts = self._firsts
        at = bisect_right(firsts, sequence)
        end = sequence + PAGE_RECORDS
        piece = self._piece(sequence, min(end, firsts[at]) if at < len(firsts) else end)
        if piece is None:
            return None
        part = piece.fitting(PAGE_BYTES)
        page = Page(sequence, part.columns(), part.lost())
        if type(piece) is BlockSpan:  # `isinstance` of a class with a protocol takes 1 us
            page.unseen = len(page.payloads)
            self._release(piece.block)
        if at > 0 and self._pages[before := firsts[at - 1]].end == sequence:
            self._spend(before)  # the reader has passed it
        self._pages[sequence] = page
        insort(firsts, sequence)
        self.bytes += page.size
        self.shrink()
        return page

    def _piece(self, sequence: int, end: int) -> RecordSpan | None:
        reader, block = self._log.reader, self._block
        end = min(end, reader.visible_end)
        if sequence >= end:
            return None
        if block is not None and block.sequence <= sequence < block.end:
            return BlockSpan(block, sequence, min(end, block.end))
        piece = reader.piece_at(sequence, end)
        if type(piece) is BlockSpan:
            if block is None or not block.shares_memory_with(piece.block):
                if block is not None:
                    block.page_out(self._released)
                self._released = piece.block.header.offset
            self._block = piece.block
        return piece

    def _release(self, block: Block) -> None:
        """Release the pages that were read from a mapped segment: until then they count as process memory.

        A large block is released with each page that was copied from it: the next page maps only what it copies.
        """
        start, stop = min(self._released, block.header.offset), block.header.offset + block.header.length
        if stop - start >= _RELEASE_BYTES:
            block.page_out(start)
            self._released = stop

    def _spend(self, first: int) -> None:
        self._spent.append(first)
        if len(self._spent) > SPENT_PAGES and (oldest := self._spent.popleft()) in self._pages:
            self._drop(oldest)

    def _drop(self, first: int) -> None:
        self.bytes -= self._pages.pop(first).size
        del self._firsts[bisect_right(self._firsts, first) - 1]
