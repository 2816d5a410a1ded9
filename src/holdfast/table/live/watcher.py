"""Live watches: a watcher follows a table's log, and keeps the window of records that its listener sees."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from holdfast.base.clock import Duration, duration_ns
from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.log.record import Record as LogRecord
from holdfast.table.live.sync_updates import Addition, Alteration, ChangeFeed, InitialValues, Reason, Removal, Update
from holdfast.table.live.watch_scope import WatchScope, scope_of
from holdfast.table.live.watch_window import Rank, Reserve, WatchWindow
from holdfast.table.model.differences import differences, selection
from holdfast.table.model.model import Model
from holdfast.table.query.change_history import first_version, limited
from holdfast.table.query.planner import Order
from holdfast.table.query.record_reader import Point
from holdfast.table.query.scanner import Scanner
from holdfast.table.record import Record
from holdfast.table.storage.commit_pipeline import CommitPipeline
from holdfast.table.storage.row_codec import Event, EventKind, decode_event

__all__ = ["READ_AHEAD", "ListenerBehind", "Watcher", "Watchers"]

M = TypeVar("M", bound=Model)

_BATCH = 256
"""Events that are read from the log at once."""
READ_AHEAD = 64
"""Records after the window that are fetched at once: if no index has the order, each fetch sorts the table."""
_SLICE = 0.1
"""Longest wait in seconds before a waiting watcher checks whether it was closed."""


class ListenerBehind(HoldfastError):
    """A listener was too slow: the changes it needs next cannot be read any more, or it exceeds its `max_lag`."""


class Watchers(Generic[M]):
    """Starts watchers of one table. Threads: any."""

    def __init__(self, scanner: Scanner[M], feed: ChangeFeed[M], commits: CommitPipeline) -> None:
        self._scanner = scanner
        self._feed = feed
        self._commits = commits

    def watch(
        self,
        where: Any = None,
        *,
        order: Order | None = None,
        limit: int | None = None,
        start: bytes | None = None,
        include_start: bool = True,
        keys: Sequence[bytes] | None = None,
        select: Sequence[Any] | None = None,
        from_version: Point | None = None,
        ordered_keys: Sequence[bytes] | None = None,
        wait: Duration | None = None,
        include_initial: bool = True,
        max_lag: int | None = None,
        allow_table_scan: bool = False,
    ) -> "Watcher[M]":
        """Watch the records of `keys`, or those that a scan with these options finds.

        Returns an iterator: `InitialValues` first, unless `include_initial` is False, then an `Addition`, `Alteration`
        or `Removal` for each change, with its index in the order. With `limit`, the watcher sees only the first records
        of the order: when one leaves, the next one is added; when one enters, the last one is removed. With
        `from_version`, the result of `updates` replaces the initial values. The iteration ends after `wait` seconds
        without an update, or after `close`, which any thread may call.

        Writers do not wait for a listener. A slow one gets `ListenerBehind` when the changes it needs next cannot be
        read any more, or when it is more than `max_lag` changes behind. The watched records are kept in memory. A
        filter that follows a reference is tested only when the record itself changes.
        """
        self._commits.access.check_open()
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InvalidArgument(f"limit must be an int from 1 up, not {limit!r}")
        if max_lag is not None and (isinstance(max_lag, bool) or not isinstance(max_lag, int) or max_lag < 1):
            raise InvalidArgument(f"max_lag must be an int from 1 up, not {max_lag!r}")
        if ordered_keys is not None and from_version is None:
            raise InvalidArgument(
                "ordered_keys needs from_version: the version up to which the client has seen changes"
            )
        patience = None if wait is None else duration_ns(wait, "wait") / 1e9
        scope = scope_of(self._scanner, keys, where, order, start, include_start, None, allow_table_scan)
        watcher = Watcher(self._scanner, self._commits, scope, limit, select, patience, max_lag)
        records = list(watcher.window)
        if from_version is not None:
            first = first_version(from_version)
            known = ordered_keys if ordered_keys is not None else keys
            watcher.announce(self._feed.updates_of(records, first, ordered_keys, known, select))
        elif include_initial:
            watcher.announce([InitialValues(records, max((record.version for record in records), default=0))])
        return watcher


class Watcher(Generic[M]):
    """The result of `watch`: an iterator of updates, and a context manager that closes it.

    Only one thread may use it; `close` may be called from any. It is closed after an error.
    """

    def __init__(
        self,
        scanner: Scanner[M],
        commits: CommitPipeline,
        scope: WatchScope[M],
        limit: int | None,
        select: Sequence[Any] | None,
        patience: float | None,
        max_lag: int | None,
    ) -> None:
        self.closed = False
        self.window: WatchWindow[M] = WatchWindow(limit)
        """The records as they are for the listener after it has read all queued updates."""
        self._reserve: Reserve[M] = Reserve(READ_AHEAD)
        self._schema = scanner.schema
        self._state = scanner.state
        self._commits = commits
        self._log = commits.log
        self._scope = scope
        self._selected = selection(self._schema.spec, select)
        self._patience = patience
        self._max_lag = max_lag
        self._ready: deque[Update[M]] = deque()
        self._records: deque[LogRecord] = deque()
        self._begin()

    @property
    def lag(self) -> int:
        """Return how many changes of the table's log this watcher has not processed yet."""
        return max(0, self._log.readable()[1] - self._position)

    def poll(self, wait: Duration = 0) -> Update[M] | None:
        """Return the next update; None if there is none within `wait` seconds, or the watcher or the log is closed."""
        return self._next(duration_ns(wait, "wait") / 1e9)

    def announce(self, updates: Iterable[Update[M]]) -> None:
        """Queue updates, which are returned before those of later changes."""
        self._ready.extend(updates)

    def close(self) -> None:
        """End the watch: no more updates are returned, not even pending ones. Idempotent; any thread may call it."""
        self.closed = True

    def __iter__(self) -> Iterator[Update[M]]:
        return self

    def __next__(self) -> Update[M]:
        update = self._next(self._patience)
        if update is None:
            raise StopIteration
        return update

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The log

    def _begin(self) -> None:
        """Fill the window from the state, and apply the events that may have come while it was read."""
        self._commits.catch_up()
        self._position = self._state.position
        window = self.window
        for record in limited(self._scope.records(), window.limit):
            rank = self._scope.rank(record)
            if rank is not None and record.key not in window:
                window.put(rank, record)
        window.whole = not window.full
        # Events during the read may or may not be in these records: applying them again makes sure.
        end = self._commits.applied_position()
        while self._position < end:
            if self._records or self._read(end):
                self._take(self._records.popleft())
        self._ready.clear()

    def _next(self, patience: float | None) -> Update[M] | None:
        clock = self._log.clock
        deadline = None if patience is None else clock.monotonic() + patience
        while not self.closed:
            if self._ready:
                return self._ready.popleft()
            try:
                if self._records or self._read(None):
                    self._take(self._records.popleft())
                    continue
            except BaseException:
                self.closed = True
                raise
            left = _SLICE if deadline is None else min(_SLICE, deadline - clock.monotonic())
            if left <= 0 or (not self._log.wait_for(self._position, left) and self._log.closed):
                return None
        return None

    def _read(self, stop: int | None) -> bool:
        """Read events from the log; return False if there are none now. Raises `ListenerBehind`."""
        start, end = self._log.readable()
        if self._position < start:
            raise ListenerBehind(
                f"the table {self._schema.name!r} no longer keeps the changes from {self._position} to {start - 1} in "
                "its log, and this listener had not read them: start a new watch"
            )
        if stop is None and self._max_lag is not None and end - self._position > self._max_lag:
            raise ListenerBehind(
                f"this listener of the table {self._schema.name!r} is {end - self._position} changes behind, more than "
                f"its max_lag of {self._max_lag}: start a new watch"
            )
        end = end if stop is None else min(end, stop)
        if self._position >= end:
            return False
        self._records.extend(islice(self._log.read(self._position, end), _BATCH))
        if not self._records:
            raise self._gap(end)
        return True

    def _gap(self, stop: int) -> ListenerBehind:
        return ListenerBehind(
            f"the changes from {self._position} to {stop - 1} of the table {self._schema.name!r} can no longer be "
            "read: start a new watch"
        )

    def _take(self, record: LogRecord) -> None:
        """Apply an event to the window and queue its updates; then wait until the state includes the event."""
        if record.sequence != self._position:
            raise self._gap(record.sequence)
        self._at = record.sequence
        event = decode_event(record.payload)
        key = record.key or b""
        known = self.window.get(key)
        if known is None or event.version > known.version:  # a refilled record may be newer than this event
            now: Record[M] | None = None
            rank: Rank | None = None
            self._reserve.drop(key)
            if not event.deleted and event.kind is not EventKind.HARD_DELETE:
                value = self._state.view.images.decode(key, event.image)
                now = Record(key, value, event.version, event.created)
                rank = self._scope.rank(now)
            self._meant(key, event, known, now, rank)
        self._position = record.sequence + 1
        if self._ready:
            self._settle()  # listeners can read a change when they are notified of it

    def _settle(self) -> bool:
        """Wait until the state includes the event read last; return False if the watcher or the table is closed."""
        while not self.closed:
            if self._commits.wait_applied(self._at):
                return True
            if self._commits.access.closed:
                return False
        return False

    # The window

    def _meant(
        self, key: bytes, event: Event, known: Record[M] | None, now: Record[M] | None, rank: Rank | None
    ) -> None:
        if rank is None or now is None:
            if known is not None:
                reason: Reason = "not-in-range"
                if now is None:
                    reason = "hard-delete" if event.kind is EventKind.HARD_DELETE else "soft-delete"
                self._leave(key, reason, event.version)
                self._refill()
        elif known is None:
            self._enter(rank, now, moved=event.kind is EventKind.CHANGE and self._scope.moved_by(event.fields))
        else:
            self._stay(rank, known, now)

    def _enter(self, rank: Rank, record: Record[M], *, moved: bool) -> None:
        window = self.window
        last = window.last
        if not window.full or last is None:
            self._ready.append(Addition(record, window.put(rank, record)))
            return
        window.whole = False
        if rank > last:
            self._reserve.put(rank, record)
            return
        pushed = window.get(last[1])
        assert pushed is not None, "the last one is in the window"
        self._reserve.put(last, pushed)
        end = window.take(last[1])
        added = Addition(record, window.put(rank, record))
        # For a moved record the removal comes first; for a new one the addition, which pushes the last one out.
        if moved:
            self._ready.extend((Removal(last[1], "not-in-range", record.version, end), added))
        else:
            self._ready.extend((added, Removal(last[1], "not-in-range", record.version, end + 1)))

    def _leave(self, key: bytes, reason: Reason, version: int) -> None:
        self._ready.append(Removal(key, reason, version, self.window.take(key)))

    def _stay(self, rank: Rank, known: Record[M], now: Record[M]) -> None:
        window = self.window
        former = window.rank(now.key)
        came_from = window.take(now.key)
        last = window.last
        if not window.whole and rank > former and (last is None or rank > last):
            # It moves towards the end of the window: a record behind the window may come before it now.
            following = self._behind(but=now.key)
            if following is not None and following[0] < rank:
                self._ready.append(Removal(now.key, "not-in-range", now.version, came_from))
                self._follow_up(*following)
                self._reserve.put(rank, now)
                return
        index = window.put(rank, now)
        changes = self._selected(differences(self._schema.spec, known.value, now.value))
        if changes or index != came_from:
            self._ready.append(Alteration(now, changes, index, came_from))

    def _refill(self) -> None:
        window = self.window
        while not window.full and not window.whole:
            following = self._behind()
            if following is None:
                window.whole = True
            else:
                self._follow_up(*following)

    def _follow_up(self, rank: Rank, record: Record[M]) -> None:
        """Move the first record behind the window into it."""
        self._reserve.drop(record.key)
        self._ready.append(Addition(record, self.window.put(rank, record)))

    def _behind(self, but: bytes | None = None) -> tuple[Rank, Record[M]] | None:
        """Return the first record after the window, with its rank; None if there is none.

        It comes from the reserve, which is filled from the state and then updated by each event that is read. The state
        may be ahead of the events read so far. No record is skipped: one without a later event has the same rank in the
        state as here.
        """
        if not self._settle():
            return None
        if self._reserve.first is None:
            self._reserve.fill(self._following(but))
        return self._reserve.first

    def _following(self, but: bytes | None) -> Iterator[tuple[Rank, Record[M]]]:
        for record in self._scope.records(self.window.last):
            rank = self._scope.rank(record)
            if rank is not None and record.key not in self.window and record.key != but:
                yield rank, record
