"""Remote logs: append, read and maintenance with the interface of `holdfast.Log`, and tailers."""

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from holdfast.base.clock import Clock, Duration, Instant, SystemClock, duration_ns
from holdfast.base.errors import InvalidArgument, InvalidName, NotFound
from holdfast.log import (
    Damage,
    Freed,
    Headers,
    Inspection,
    LogStats,
    Message,
    Record,
    Retention,
    SegmentStats,
    TailerStats,
    Verification,
)
from holdfast.log.consumer_offsets import QUEUE, Position
from holdfast.log.settings import LogSettings
from holdfast.remote.codec import damage_from, log_settings_from, made, message_json, record_from, seconds, time_text
from holdfast.remote.errors import Refused
from holdfast.remote.http_client import HttpClient, path_of
from holdfast.remote.log_schema import RemoteLogSchema

__all__ = ["RemoteLog", "RemotePositions", "RemoteTailer"]

_PAGE = 500
"""Most records of one request."""
_WAIT_S = 25.0
"""The longest that one request waits for a record; a longer wait is several requests."""


class RemoteLog:
    """A log that a server keeps; made by `RemoteStore.log`. All methods may be called from any thread."""

    def __init__(self, wire: HttpClient, name: str) -> None:
        self.name = name
        self.damage: list[Damage] = []
        """Damage that was found while reading, each once."""
        self.clock: Clock = SystemClock()
        self.positions = RemotePositions(wire, name)
        self._wire = wire
        self._path = path_of("logs", name)
        self.schema = RemoteLogSchema(wire, self._path)
        """The schema of the payloads."""

    def describe(self) -> dict[str, Any]:
        """Return everything that the server reports about it, as JSON."""
        return dict(self._wire.get(self._path))

    @property
    def settings(self) -> LogSettings:
        """The settings with which the server has opened the log; the defaults if it has not, or this user may not ask.

        Each use is a request.
        """
        try:
            return log_settings_from(self.describe().get("settings") or {})
        except (NotFound, Refused):  # a user of the queue may lack the permission for its log
            return LogSettings()

    @property
    def start(self) -> int:
        """The first retained sequence."""
        return self.readable()[0]

    @property
    def end(self) -> int:
        """The next sequence to be written."""
        return self.readable()[1]

    def readable(self) -> tuple[int, int]:
        """Return the first readable sequence, and the end."""
        figures = self.describe()["stats"]
        return figures["start"], figures["end"]

    # Writing.

    def append(self, payload: bytes, key: bytes | None = None, headers: Headers | None = None) -> int:
        """Add a record and return its sequence; on disk when this returns."""
        return self.append_many([Message(payload, key, headers)]).start

    def append_many(self, messages: Iterable[bytes | Message]) -> range:
        """Add records in one write and return their sequences; on disk when this returns.

        The server adds all of them or none. After `OutcomeUnknown` it is not known which.
        """
        written = [message_json(one, for_queue=False) for one in messages]
        if not written:
            end = self.end
            return range(end, end)
        answer = self._wire.request("POST", f"{self._path}/records", {"records": written, "sync": True})
        return range(answer["first"], answer["first"] + answer["count"])

    def sync(self) -> None:
        """Return at once: all that was appended through this object is on disk already."""

    # Reading.

    def read(self, start: int | None = None, stop: int | None = None, *, reverse: bool = False) -> Iterator[Record]:
        """Yield the records from `start` up to, not including, `stop`; or backwards. Pages are fetched on demand."""
        first, end = self.readable()
        start = first if start is None else max(start, first)
        stop = end if stop is None else min(stop, end)
        while start < stop:
            records, there = self._page(start, stop, _PAGE, reverse=reverse)
            yield from records
            start, stop = (start, there) if reverse else (there, stop)

    def _page(
        self, start: int, stop: int | None, count: int, *, reverse: bool = False, wait: float = 0
    ) -> tuple[list[Record], int]:
        """Return up to `count` records, and where to continue: the next start or, backwards, the next stop."""
        query = {"start": start, "stop": stop, "count": count, "reverse": reverse or None, "wait": wait or None}
        answer = self._wire.request("GET", f"{self._path}/records", query=query, again=True, wait=wait)
        damage = [damage_from(one) for one in answer.get("damage") or ()]
        self.damage += [one for one in damage if one not in self.damage]
        records = [record_from(one) for one in answer["records"]]
        if reverse:
            return records, records[-1].sequence if records else start
        if records:  # perhaps fewer than exist: a server may shorten a long response
            return records, records[-1].sequence + 1
        if stop is not None:
            return [], stop
        # A follower continues right after the unreadable records: the next one may still be written.
        behind = [one.first_lost + one.lost for one in damage if one.first_lost is not None and one.lost is not None]
        return [], max([start, *behind])

    def tailer(self, name: str | None = None) -> "RemoteTailer":
        """Return an independent reader from the start or, with a name, from its last committed position."""
        return RemoteTailer(self, name)

    def wait_for(self, sequence: int, timeout: float | None) -> bool:
        """Wait until `sequence` or a later record can be read; False if the timeout passes. None waits forever."""
        deadline = None if timeout is None else self.clock.monotonic() + timeout
        while True:
            left = _WAIT_S if deadline is None else min(_WAIT_S, deadline - self.clock.monotonic())
            records, _ = self._page(sequence, None, 1, wait=max(0.0, round(left, 3)))
            if records:
                return True
            if deadline is not None and self.clock.monotonic() >= deadline:
                return False

    def sequence_at(self, when: Instant, *, past_damage: bool = True) -> int:
        """Return the first sequence whose record is not before `when`; the end if there is none.

        If the block with that record is damaged: the first sequence behind it or, if not `past_damage`, its first.
        """
        query = {"time": time_text(when), "past_damage": None if past_damage else False}
        return int(self._wire.get(f"{self._path}/sequence_at", **query)["sequence"])

    # Maintenance.

    def stats(self) -> LogStats:
        """Return sizes, ends, times and named tailers."""
        content = self.describe()
        tailers = content.get("tailers") or content["stats"].get("tailers") or ()
        return made(LogStats, content["stats"], name=self.name, tailers=[made(TailerStats, one) for one in tailers])

    def segments(self) -> list[SegmentStats]:
        """Return each segment, oldest first."""
        return [made(SegmentStats, one) for one in self.describe()["segments"]]

    def verify(self, progress: Callable[[int, int], None] | None = None) -> Verification:
        """Check every checksum of every kept record; `progress(done, total)` is called once, at the end."""
        answer = self._wire.request("POST", f"{self._path}/verify", again=True, wait=3600)
        damage = [damage_from(one) for one in answer["damage"]]
        result = made(Verification, answer, damage=damage)
        if progress is not None:
            progress(result.bytes, result.bytes)
        return result

    def inspect(self, offset: int, segment: str | None = None) -> Inspection:
        """Return the block or record at this byte of a segment (the last one, or the one of that file name)."""
        return self._inspected(offset=offset, segment=segment)

    def locate(self, sequence: int) -> Inspection:
        """Return the location of a record."""
        return self._inspected(sequence=sequence)

    def _inspected(self, **query: Any) -> Inspection:
        answer = self._wire.get(f"{self._path}/inspect", **query)
        record = answer.get("record")
        return made(Inspection, answer, record=None if record is None else record_from(record))

    def compact(self, *, retention: Retention | None = None, force: bool = False, dry_run: bool = False) -> Freed:
        """Apply retention; return how many segments were (or would be) dropped, and their `bytes`.

        Never past a named tailer, unless forced.
        """
        body: dict[str, Any] = {"force": force, "dry_run": dry_run}
        if retention is not None:
            body |= {
                "max_age": None if retention.max_age is None else seconds(retention.max_age, "max_age"),
                "max_bytes": retention.max_bytes,
                "max_segments": retention.max_segments,
                "min_segments": retention.min_segments,
            }
        answer = self._wire.request("POST", f"{self._path}/compact", body)
        removed = answer["removed"]
        return Freed(len(removed) if isinstance(removed, list) else int(removed), int(answer.get("bytes", 0)))

    def clear(self, *, force: bool = False) -> int:
        """Drop every record that named tailers have read (or, forced, every record); return how many.

        The sequences of later records continue.
        """
        answer = self._wire.request("POST", f"{self._path}/clear", {"force": force}) or {}
        return int(answer.get("removed", answer.get("dropped", 0)))

    def __repr__(self) -> str:
        return f"RemoteLog({self.name!r} at {self._wire.address})"


class RemotePositions:
    """The committed positions of a log's named tailers."""

    def __init__(self, wire: HttpClient, log: str) -> None:
        self._wire = wire
        self._path = path_of("logs", log)

    def all(self) -> list[Position]:
        """Return the positions of all named tailers."""
        content = self._wire.get(self._path)
        return [
            Position(one["name"], one["position"], one["committed_at"], owner=one.get("owner"))
            for one in content["tailers"]
        ]

    def get(self, name: str) -> Position | None:
        """Return the committed position of a tailer; None if there is none."""
        return next((one for one in self.all() if one.name == name), None)

    def set(self, position: Position) -> None:
        """Commit a position, durably; the server sets the time."""
        self._wire.request(
            "PUT",
            path_of("tailers", position.name, root=self._path),
            {"position": position.position},
            again=True,
        )

    def remove(self, name: str) -> bool:
        """Delete a position; False if there was none."""
        try:
            self._wire.request("DELETE", path_of("tailers", name, root=self._path))
        except NotFound:
            return False
        return True


class RemoteTailer:
    """An independent reader of a log, for one thread. With a name, `commit` stores its position."""

    def __init__(self, log: RemoteLog, name: str | None = None) -> None:
        if name is not None and name.startswith(QUEUE):
            raise InvalidName(f"a tailer's name must not begin with {QUEUE!r}: that is how queues keep their place")
        self.log = log
        self.name = name
        start, end = log.readable()
        kept = log.positions.get(name) if name is not None else None
        self.position = start if kept is None else max(start, min(kept.position, end))
        """The next sequence this tailer will read."""

    @property
    def lag(self) -> int:
        """How many records are ahead."""
        return max(0, self.log.end - self.position)

    def read(self) -> Record | None:
        """Return the next record, or None at the present end. One request each: `read_many` is faster."""
        records = self.read_many(1)
        return records[0] if records else None

    def read_many(self, count: int) -> list[Record]:
        """Return up to `count` records; fewer only at the present end."""
        if count < 1:
            raise InvalidArgument(f"read_many needs a count from 1 up, not {count!r}")
        found: list[Record] = []
        while (missing := count - len(found)) > 0:
            records = self._next(missing)
            if not records:
                break
            found += records
        return found

    def _next(self, count: int, wait: float = 0) -> list[Record]:
        records, self.position = self.log._page(self.position, None, min(count, _PAGE), wait=wait)
        return records

    def __iter__(self) -> Iterator[Record]:
        """Yield records up to the present end."""
        while records := self._next(_PAGE):
            yield from records

    def follow(self, wait: Duration | None = None) -> Iterator[Record]:
        """Yield records as they arrive; stop after `wait` seconds without one. None never stops."""
        patience = None if wait is None else duration_ns(wait, "wait") / 1e9
        clock = self.log.clock
        since = clock.monotonic()
        while True:
            left = _WAIT_S if patience is None else min(_WAIT_S, since + patience - clock.monotonic())
            if records := self._next(_PAGE, max(0.0, round(left, 3))):
                yield from records
                since = clock.monotonic()
            elif patience is not None and clock.monotonic() - since >= patience:
                return

    def seek(self, sequence: int) -> None:
        """Move to a sequence; to the first retained one if that is later."""
        start, end = self.log.readable()
        if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= end:
            raise InvalidArgument(f"cannot seek to {sequence!r}: the log {self.log.name!r} ends at {end}")
        self.position = max(sequence, start)

    def seek_time(self, when: Instant) -> None:
        """Move to the first record that is not before `when`; to the end if there is none."""
        self.seek(self.log.sequence_at(when))

    def to_start(self) -> None:
        """Move to the first retained record."""
        self.seek(self.log.start)

    def to_end(self) -> None:
        """Move behind the last record."""
        self.seek(self.log.end)

    def commit(self) -> None:
        """Store the position: the next tailer of this name does not read earlier records again. Durable."""
        if self.name is None:
            raise InvalidArgument("only a named tailer can commit: use log.tailer('some-name')")
        self.log.positions.set(Position(self.name, self.position, self.log.clock.time_ns()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: no resources are held."""
