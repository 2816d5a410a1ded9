"""The logs and journals behind a view, the offsets at which a query starts and ends in each, and its columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

import holdfast
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.base.files import translate_os_errors
from holdfast.log.log import Log
from holdfast.spark.log_rows import LogRows, Rows
from holdfast.spark.options import EARLIEST, LATEST, Places, ReadOptions, chosen_names
from holdfast.spark.partitions import DataLoss, Picture, Stretch, look, parts_of, plan, shares
from holdfast.spark.payloads import kept_schema, payload_rows, with_payload
from holdfast.spark.queue_events import JournalRows, PutRows
from holdfast.spark.queue_messages import MessageRows, Overlay, overlay
from holdfast.spark.remote import files_at
from holdfast.spark.schemas import LIFECYCLE, LOG, MESSAGES, arrow_schema
from holdfast.table_registry import TABLES

if TYPE_CHECKING:  # only tables need it
    from holdfast.spark.table_changes import Layout

__all__ = ["Track", "View", "Work", "layout_of", "open_store", "view_schema", "with_kept_schema"]

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
        store = open_store(options.path, options.url)
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
    store = open_store(options.path, options.url)
    try:
        if options.view == "messages":
            logs = [store.log_of(queue) for queue in chosen_names(options, store.queues())]
        else:
            logs = chosen_names(options, store.logs())
        return replace(options, payload=kept_schema(store, logs, options.payload))
    finally:
        store.close()


def open_store(path: Path, url: str = "") -> holdfast.Store:
    """Open the store read-only, which is possible while its owner writes."""
    files = files_at(url)
    with translate_os_errors("looking for a store in", path):
        if not url and path.is_file():
            raise NotFound(f"{str(path)!r} is a file, not the folder of a store: check the option 'path'")
        if not any(files.exists(path / part) for part in ("logs", "journals", TABLES, "LOCK")):
            raise NotFound(f"there is no store in {url or str(path)!r}: check the option 'path'")
    return holdfast.open(path, read_only=True, files=files)


def layout_of(options: ReadOptions, store: holdfast.Store) -> "Layout":
    """Return the layout of a table's rows, from its stored definition."""
    from holdfast.spark.table_changes import Layout  # noqa: PLC0415 - as above

    (name,) = chosen_names(options, store.tables())
    definition = msgspec.json.encode(store.table_definition(name)).decode()
    return Layout(options.view or "now", definition, options.keyring, options.text_decimals)


class View:
    """The tracks of a view over an open store. Used for planning only, not in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.store = open_store(options.path, options.url)
        self._tracks: dict[str, Track] = {}
        self._overlays: dict[str, Overlay] = {}
        self._layout: Layout | None = None

    def close(self) -> None:
        """Close the logs and the store."""
        for track in self._tracks.values():
            track.log.close()
        self.store.close()

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
                self._overlays[queue] = overlay(self.store.queue(queue))
                self._add(label, "messages", self.store.log(self.store.log_of(queue)), queue)
            else:
                self._add(f"{queue}/journal", "journal", self.store.journal(queue), queue)
                self._add(label, "put", self.store.log(self.store.log_of(queue)), queue)
        return list(self._tracks.values())

    def _add(self, label: str, kind: str, log: Log, queue: str = "") -> None:
        self._tracks[label] = Track(label, kind, log, queue)

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
            parts = shares(stretches, options.min_partitions, options.partition_records)
            return [self.share(part, columns, keys) for part in parts]
        from holdfast.spark.table_snapshot import Part, RecordRows, Selection  # noqa: PLC0415 - as above

        selection = Selection(options.as_of, options.include_deleted)
        count = parts_of(stretches, options.min_partitions)
        return [
            [(RecordRows(self._layout, columns, selection, Part(number, count), keys), list(stretches))]
            for number in range(count if stretches else 0)
        ]

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
                states = self._overlays[track.queue].slice(start, stop)
                return self._typed(
                    track, columns, "message", lambda names: MessageRows(track.queue, names, states, keys)
                )
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
        end = min(picture.end, self._overlays[track.queue].end) if track.kind == "messages" else picture.end
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
