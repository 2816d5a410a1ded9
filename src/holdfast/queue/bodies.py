"""Where is a message's body? In a draft that was just gathered, else in a block; pages of them are kept at hand."""

from holdfast.log.log import Log
from holdfast.log.piece import Piece
from holdfast.log.record import NO_HEADERS, Headers

__all__ = ["Bodies", "Page"]

PAGE_RECORDS = 256
PAGES = 8


class Page:
    """Some records side by side, column by column."""

    __slots__ = ("dues", "end", "expiries", "first", "headers", "keys", "lost", "payloads", "times")

    def __init__(self, piece: Piece) -> None:
        self.first = piece.first
        self.payloads = piece.payloads()
        self.end = piece.first + len(self.payloads)
        self.times = piece.times()
        self.keys = piece.strings("key")
        self.headers = piece.headers() if piece.has("headers") else None
        self.expiries = piece.numbers("expiry")
        self.dues = piece.numbers("due")
        self.lost = set(piece.lost())


class Bodies:
    """Reads records by sequence. Used with the queue's lock held: a page is shared by the calls that follow."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._pages: list[Page] = []

    def page(self, sequence: int, most: int = PAGE_RECORDS) -> Page | None:
        """A page that begins at or before this record and holds it; None where the record cannot be read."""
        for page in self._pages:
            if page.first <= sequence < page.end:
                return None if sequence in page.lost else page
        log = self._log
        end = min(sequence + max(most, PAGE_RECORDS), log.visible_end)
        piece = next(log.pieces(sequence, end), None) if sequence < end else None
        if piece is None or piece.first != sequence:
            return None
        page = Page(piece)
        self._pages = [page, *self._pages[: PAGES - 1]]
        return None if sequence in page.lost else page

    def forget(self) -> None:
        """Let the pages go."""
        self._pages = []

    def headers(self, sequence: int) -> Headers:
        """The headers of one record."""
        page = self.page(sequence)
        return page.headers[sequence - page.first] if page is not None and page.headers else NO_HEADERS
