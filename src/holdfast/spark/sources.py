"""The logs and journals behind a view, the offsets at which a query starts and ends in each, and its columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

import holdfast
from holdfast.base.clock import Clock, SystemClock
from holdfast.base.errors import InvalidArgument
from holdfast.log.log import Log
from holdfast.replica.manifest_files import ManifestFiles
from holdfast.spark.journal_parts import are_many, parts_needed
from holdfast.spark.log_rows import LogRows, Rows
from holdfast.spark.options import EARLIEST, LATEST, Places, ReadOptions, chosen_names
from holdfast.spark.partitions import DataLoss, Picture, Stretch, look, parts_of, plan, shares
from holdfast.spark.payloads import kept_schema, payload_rows, with_payload
from holdfast.spark.queue_events import JournalRows, PutRows
from holdfast.spark.queue_messages import MESSAGES_MAX, MessageRange, MessageRows
from holdfast.spark.queue_moment import QueueMoment, moment_of
from holdfast.spark.remote import RemoteFiles
from holdfast.spark.schemas import LIFECYCLE, LOG, MESSAGES, arrow_schema

if TYPE_CHECKING:  # only tables need it
    from holdfast.spark.table_changes import Layout

__all__ = ["Track", "View", "Work", "layout_of", "view_schema", "with_kept_schema"]

Work = tuple[Rows, list[Stretch]]
"""Stretches of one track, and the converter that makes rows of them."""


@dataclass
class Track:
    """One log or journal of a view."""

    label: str
    kind: str
    """`log`, `put`, `journal`, `messages` or `table`: which rows are made of it."""
    log: Log
    queue: str = ""

    def look(self, *, durable: bool) -> Picture:
        """Return the log as it is now: for a stream only its durable part."""
        return look(self.log, durable=durable)


def view_schema(options: ReadOptions) -> pa.Schema:
    """Return all columns of the view that was asked for."""
    if options.table is not None and options.view != "log":
        store = options.access.open()
        try:
            return layout_of(options, store).schema
        finally:
            store.close()
    if options.view == "lifecycle":
        return LIFECYCLE
    if options.view == "messages":
        found = MESSAGES
    else:
        unwanted = () if options.headers else ("headers", "textHeaders")
        found = arrow_schema(LOG, [name for name in LOG.names if name not in unwanted])
    payload = with_kept_schema(options).payload
    return found if payload is None else with_payload(found, payload)


def with_kept_schema(options: ReadOptions) -> ReadOptions:
    """Return the options with the schema of payloads that is kept with the logs, if one is to be used.

    A query looks it up when it begins, and keeps to its columns when the log gets a newer version.
    """
    if options.payload is None or options.payload.schema is not None:
        return options
    store = options.access.open()
    try:
        if options.view == "messages":
            logs = [store.log_of(queue) for queue in chosen_names(options, store.queues())]
        else:
            logs = chosen_names(options, store.logs())
        return replace(options, payload=kept_schema(store, logs, options.payload))
    finally:
        store.close()


def layout_of(options: ReadOptions, store: holdfast.Store) -> "Layout":
    """Return the layout of a table's rows, from its stored definition."""
    from holdfast.spark.table_changes import Layout  # noqa: PLC0415 - as above

    (name,) = chosen_names(options, store.tables())
    definition = msgspec.json.encode(store.table_definition(name)).decode()
    return Layout(options.view or "now", definition, options.keyring, options.text_decimals)


class View:
    """The tracks of a view over an open store. Used for planning only, not in tasks."""

    def __init__(self, options: ReadOptions, clock: Clock | None = None) -> None:
        self.options = options
        self._clock = clock or SystemClock()
        self._files = options.access.open_files()
        self.store = holdfast.open(options.path, read_only=True, files=self._files)
        self._tracks: dict[str, Track] = {}
        self._moments: dict[str, QueueMoment] = {}
        """Of the view `messages`, by queue."""
        self._divided: dict[tuple[str, int], QueueMoment] = {}
        """The same for each task, by queue and first message, with the parts of the journal that it needs."""
        self._first_messages: dict[str, int] = {}
        """Of the same, the first message that is read of each queue."""
        self._layout: Layout | None = None

    def close(self) -> None:
        """Close the logs and the store."""
        for track in self._tracks.values():
            track.log.close()
        self.store.close()

    @property
    def grows(self) -> bool:
        """Whether records may be added to it; a copy at a URL does not grow."""
        return not isinstance(self._files, RemoteFiles)

    @property
    def keeps_positions(self) -> bool:
        """Whether positions of streams can be kept in it, so that retention waits for them."""
        return not self.options.url

    @property
    def is_behind(self) -> bool:
        """Whether there may be more that could not be asked for: the server of the option `live` does not answer."""
        return isinstance(self._files, ManifestFiles) and self._files.is_behind

    def refresh(self) -> None:
        """Look for a newer moment of a replica. Logs of a folder are refreshed one by one, in `Track.look`."""
        if isinstance(self._files, ManifestFiles):
            self._files.refresh()

    def tracks(self) -> list[Track]:
        """Return every log that belongs to the view now: a pattern may match more over time."""
        if self.options.table is not None:
            if not self._tracks:
                name = self.options.table
                kind = "log" if self.options.view == "log" else "table"
                if kind == "table":
                    self._layout = layout_of(self.options, self.store)
                chosen_names(self.options, self.store.tables())
                self._add(name, kind, self.store.table_log(name))
                self._check_places()
            return list(self._tracks.values())
        if self.options.view is None:
            for name in chosen_names(self.options, self.store.logs()):
                if name not in self._tracks:
                    self._add(name, "log", self.store.log(name))
            self._check_places()
            return list(self._tracks.values())
        for queue in chosen_names(self.options, self.store.queues()):
            label = f"{queue}/log"
            if label in self._tracks:
                continue
            if self.options.view == "messages":
                self._add_messages(queue, label)
            else:
                self._add(f"{queue}/journal", "journal", self.store.journal(queue), queue)
                self._add(label, "put", self.store.log(self.store.log_of(queue)), queue)
        return list(self._tracks.values())

    def _add(self, label: str, kind: str, log: Log, queue: str = "") -> None:
        self._tracks[label] = Track(label, kind, log, queue)

    def _add_messages(self, queue: str, label: str) -> None:
        journal, log = self.store.journal(queue), self.store.log(self.store.log_of(queue))
        try:
            strict = self.options.fail_on_data_loss
            self._moments[queue] = moment_of(queue, log, journal, self._clock, fail_on_data_loss=strict)
        finally:
            journal.close()
        self._add(label, "messages", log, queue)

    def _check_places(self) -> None:
        options = self.options
        for given in (options.starting, options.ending, options.starting_time, options.ending_time):
            for name in given if isinstance(given, Mapping) else ():
                if name not in self._tracks:
                    raise InvalidArgument(f"an offset is given for the log {name!r}, which is not being read")

    def shares(
        self, stretches: Sequence[Stretch], columns: list[str], keys: frozenset[bytes] | None
    ) -> list[list[Work]]:
        """Return the work of each task: a share of the bytes or, if all events of a record must meet, of the keys."""
        options = self.options
        if self._layout is None or options.view == "changes":
            records = options.partition_records
            if self._moments:
                records = min(records or MESSAGES_MAX, MESSAGES_MAX)
            parts = shares(stretches, options.min_partitions, records)
            self._divide_journals(parts)
            return [self.share(part, columns, keys) for part in parts]
        from holdfast.spark.table_snapshot import Part, RecordRows, Selection  # noqa: PLC0415 - as above

        selection = Selection(options.as_of, options.include_deleted)
        count, whole = parts_of(stretches, options.min_partitions), [stretch.narrowed() for stretch in stretches]
        return [
            [(RecordRows(self._layout, columns, selection, Part(number, count), keys), whole)]
            for number in range(count if stretches else 0)
        ]

    def _divide_journals(self, parts: Sequence[Sequence[Stretch]]) -> None:
        """If many tasks read a queue's journal, let each read only the parts that concern its messages."""
        for queue, moment in self._moments.items():
            label = f"{queue}/log"
            own = [[stretch for stretch in part if stretch.track == label] for part in parts]
            ranges = [(run[0].start, run[-1].stop) for run in own if run]
            if are_many(len(ranges)):
                for (start, _), journal in zip(ranges, parts_needed(moment.journal, ranges), strict=True):
                    self._divided[queue, start] = replace(moment, journal=journal)

    def share(self, stretches: Sequence[Stretch], columns: list[str], keys: frozenset[bytes] | None) -> list[Work]:
        """Return a task's work on its stretches, one track after the other."""
        return [
            (self._rows(self._tracks[label], columns, keys, run[0].start, run[-1].stop), run)
            for label, group in groupby(stretches, key=lambda stretch: stretch.track)
            for run in [list(group)]
        ]

    def _rows(self, track: Track, columns: list[str], keys: frozenset[bytes] | None, start: int, stop: int) -> Rows:
        match track.kind:
            case "put":
                return PutRows(track.queue, columns)
            case "journal":
                return JournalRows(track.queue, columns)
            case "messages":
                moment = self._divided.get((track.queue, start)) or self._moments[track.queue]
                is_first = start == self._first_messages.setdefault(track.queue, start)
                messages = MessageRange(track.queue, start, stop, moment, is_first)
                return self._typed(track, columns, "message", lambda names: MessageRows(names, messages, keys))
            case "table" if self._layout is not None:
                from holdfast.spark.table_changes import ChangeRows  # noqa: PLC0415 - as above

                return ChangeRows(self._layout, columns, keys)
            case _:
                return self._typed(track, columns, "offset", lambda names: LogRows(track.label, names, keys))

    def _typed(self, track: Track, columns: list[str], position: str, make: Callable[[list[str]], Rows]) -> Rows:
        """Return rows with decoded payloads, if that was asked for."""
        payload = self.options.payload
        return make(columns) if payload is None else payload_rows(make, track.log, columns, payload, position)

    def start(self, track: Track, picture: Picture, default: int) -> int:
        """Return the offset at which the options let reading begin, or else `default`; may raise `DataLoss`."""
        options = self.options
        if (when := _for(options.starting_time, track, "startingOffsetsByTimestamp")) is not None:
            return max(picture.start, min(track.log.sequence_at(when, past_damage=False), picture.end))
        place = _for(options.starting, track, "startingOffsets")
        return self._place(track, picture, default if place is None else place)

    def end(self, track: Track, picture: Picture) -> int:
        """Return the offset at which the options end a batch."""
        options = self.options
        end = min(picture.end, self._moments[track.queue].end) if track.kind == "messages" else picture.end
        if (when := _for(options.ending_time, track, "endingOffsetsByTimestamp")) is not None:
            return min(end, track.log.sequence_at(when))
        if (place := _for(options.ending, track, "endingOffsets")) is not None:
            if place == EARLIEST:
                raise InvalidArgument("the option 'endingOffsets' cannot be earliest: nothing would be read")
            return min(end, self._place(track, picture, place))
        return end

    def stretches(self, track: Track, picture: Picture, start: int, stop: int) -> list[Stretch]:
        """Return the stretches of these records; if some were dropped, raise an error or, if allowed, skip them."""
        found = plan(picture, start, stop, track.label)
        if found and found[0].start > start:
            self.check_kept(track, picture._replace(start=found[0].start), start)
        return found

    def check_kept(self, track: Track, picture: Picture, start: int) -> int:
        """Return the position if the log retains it; else raise an error or, if allowed, return the first retained."""
        if start >= picture.start:
            return start
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"the records {start} to {picture.start - 1} of {track.log.name!r} were dropped by retention before "
                "they were read: to read without them, use the option failOnDataLoss=false; a stream with the option "
                "'name' holds retention back"
            )
        return picture.start

    def _place(self, track: Track, picture: Picture, place: int) -> int:
        if place == EARLIEST:
            return picture.start
        if place == LATEST:
            return picture.end
        if place > picture.end:
            if self.options.fail_on_data_loss:
                raise DataLoss(
                    f"the log {track.log.name!r} ends at {picture.end}, before the offset {place} that was asked for: "
                    "it may have been recreated. Choose another offset, or use the option failOnDataLoss=false"
                )
            return picture.end
        return self.check_kept(track, picture, place)


def _for(given: Places | None, track: Track, option: str) -> int | None:
    if isinstance(given, Mapping):
        if track.label not in given:
            raise InvalidArgument(f"the option {option!r} has no offset for {track.label!r}: give one for each log")
        return given[track.label]
    return given
