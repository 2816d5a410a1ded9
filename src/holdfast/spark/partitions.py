"""Plans which bytes each task reads, as stretches of segments at block boundaries, and reads them, verified."""

import json
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from holdfast.base.errors import Corrupt, HoldfastError
from holdfast.base.files import SystemFiles
from holdfast.log.block import Block
from holdfast.log.layout import HEADER_SIZE, SegmentHeader
from holdfast.log.log import Log
from holdfast.log.record import Damage
from holdfast.log.remote_segments import RemoteEntry, RemoteSource
from holdfast.log.segment import Report, Segment
from holdfast.log.segment_files import SegmentName
from holdfast.remote_parts import process_parts
from holdfast.replica.manifest_files import ManifestFiles
from holdfast.replica.part_reader import PartsDropped
from holdfast.spark.log_rows import RecordSpan, times
from holdfast.spark.remote import files_at
from holdfast.spark.store_access import StoreAccess

__all__ = [
    "DataLoss",
    "Picture",
    "Stretch",
    "Wanted",
    "byte_at",
    "look",
    "parts_of",
    "plan",
    "read_between",
    "read_stretches",
    "sequence_near",
    "shares",
]

logger = logging.getLogger("holdfast.spark")
PARTITION_BYTES = 512 << 20
SMALL_BYTES = 1 << 20
"""Bytes below which a separate task is not worthwhile."""


class DataLoss(HoldfastError):
    """Records that a query should read are gone: dropped by retention, or their log was deleted or restored."""


@dataclass(frozen=True)
class Stretch:
    """The records from `start` up to `stop` of one segment: all that a task needs to find and read them."""

    log: str
    """The folder of the log."""
    name: SegmentName
    header: SegmentHeader
    limit: int
    """Bytes of the segment that may be read."""
    end: int | None
    """The sequence after the last record in them."""
    start: int
    stop: int
    bytes: int
    """About how many bytes these records take."""
    track: str = ""
    """The label of its track."""
    url: str = ""
    """The URL of the store; empty for a local folder."""
    parts: "RemoteParts | None" = None
    """Where its bytes are in a replica."""

    def segment(self) -> Segment:
        """Return the segment, bounded as it was when the stretch was planned."""
        if self.parts is not None:
            return self.parts.segment(self)
        segment = Segment(files_at(self.url), Path(self.log), self.name, self.header, self.limit)
        segment.extent = (self.limit, self.end)
        segment.parts = process_parts()
        return segment

    def narrowed(self) -> "Stretch":
        """Return the same for a task: with only those parts of a replica that it reads."""
        return self if self.parts is None else self.parts.narrowed(self)


@dataclass(frozen=True)
class RemoteParts:
    """The parts of a segment in a replica, as a plan knows them: a task needs no manifest."""

    access: StoreAccess
    entry: RemoteEntry
    prefix: str
    """The log in the replica: its folder and its id."""
    inline: Mapping[str, bytes]
    """By key: the contents of the parts that are in the manifest itself."""

    def segment(self, stretch: Stretch) -> Segment:
        """Return the segment of a stretch."""
        reader, cache = self.access.parts
        reader.add(self.inline)
        segment = Segment(SystemFiles(), Path(stretch.log), stretch.name, stretch.header, stretch.limit)
        segment.extent = (stretch.limit, stretch.end)
        segment.remote = RemoteSource(self.entry, reader.url, self.prefix, cache)
        segment.index = segment.remote.index()
        return segment

    def narrowed(self, stretch: Stretch) -> Stretch:
        """Return the stretch with the parts that hold its records."""
        parts, index = self.entry.parts, stretch.segment().index
        first = index.at_or_before(stretch.start) if stretch.start > self.entry.base else None
        last = index.at_or_before(stretch.stop - 1) if stretch.stop < self.entry.end else None
        begin = 0 if first is None else next(at for at, part in enumerate(parts) if part.start == first.offset)
        if first is not None:
            known = parts[begin]._replace(sequence=first.sequence, timestamp=first.timestamp)
            parts = (*parts[:begin], known, *parts[begin + 1 :])
        stop = len(parts)
        if stretch.stop < self.entry.end:
            offset = 0 if last is None else last.offset
            stop = next(at for at, part in enumerate(parts) if part.start == offset) + 1
        kept = parts[begin:stop]
        source = RemoteSource(self.entry, "", self.prefix, None)
        keys = {source.key(part) for part in kept}
        return replace(
            stretch,
            limit=kept[-1].stop,
            end=stretch.end if stop == len(parts) else None,
            parts=replace(
                self,
                entry=replace(self.entry, parts=kept),
                inline={key: content for key, content in self.inline.items() if key in keys},
            ),
        )


@dataclass
class Wanted:
    """What a task needs besides its stretches: filters and damage handling."""

    skip_damage: bool = False
    damage_report: str | None = None
    fail_on_data_loss: bool = True
    keys: frozenset[bytes] | None = None
    """Blocks without one of these keys need not be opened."""
    touches: Callable[[Block], bool] | None = None
    """Returns, for a block of which only the columns were read, whether its payloads are needed."""
    since: int | None = None
    """Nanoseconds: only records that are not earlier."""
    until: int | None = None
    """Only records that are earlier."""
    advice: str = "to read without them, use the option failOnDataLoss=false"
    """What to do if records were dropped by retention."""
    damage: list[Damage] = field(default_factory=list)
    bytes_read: int = 0
    """Of blocks whose payloads were read."""

    def of_journal(self, *, report: bool) -> "Wanted":
        """Return the same handling of damage for a journal, all of which is needed; `report` writes the report."""
        return Wanted(
            skip_damage=self.skip_damage,
            damage_report=self.damage_report if report else None,
            advice="the states of messages need all of the journal: read the queue again",
        )

    def report_in(self, stretch: Stretch) -> Report:
        """Return the damage callback for a stretch. It counts only losses in the stretch, so tasks count none twice.

        It raises `Corrupt` unless damage is skipped.
        """

        def report(damage: Damage) -> None:
            first = stretch.start if damage.first_lost is None else max(damage.first_lost, stretch.start)
            end = stretch.stop if damage.first_lost is None or damage.lost is None else damage.first_lost + damage.lost
            lost = min(end, stretch.stop) - first
            if lost <= 0 or damage.lost == 0:
                return
            if not self.skip_damage:
                raise Corrupt(
                    f"{damage}: restore the file from a backup, or skip the damage with the option onDamage=skip",
                    damage.path,
                    damage.offset,
                )
            self.damage.append(replace(damage, first_lost=first, lost=lost))
            logger.warning("damage skipped: %s", damage, extra={"segment": damage.path, "offset": damage.offset})

        return report

    def narrowed(self, block: Block, start: int, stop: int) -> RecordSpan:
        """Return the records at these positions within the wanted time. Those of a log are ordered by time."""
        if self.since is not None or self.until is not None:
            found = times(block, start, stop)
            if self.until is not None:
                stop = start + int(np.searchsorted(found, self.until))
            if self.since is not None:
                start += int(np.searchsorted(found, self.since))
        return block, min(start, stop), stop

    def finish(self) -> None:
        """Log the skipped damage, and write it into the folder `damage_report`, if there is one."""
        if not self.damage:
            return
        records = sum(damage.lost or 0 for damage in self.damage)
        logger.warning("damage skipped: places=%d records=%d", len(self.damage), records)
        if self.damage_report is not None:
            folder = Path(self.damage_report)
            folder.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({name: getattr(one, name) for name in one.__slots__}) for one in self.damage]
            temporary = folder / f".{uuid.uuid4().hex}.tmp"
            temporary.write_text("\n".join(lines) + "\n")
            temporary.replace(folder / f"damage-{uuid.uuid4().hex}.json")


class Picture(NamedTuple):
    """A log at one moment. Its segments are opened as a plan needs them."""

    log: Log
    durable: bool
    start: int
    end: int

    def segments(self, start: int, stop: int) -> tuple[Segment, ...]:
        """Return the segments that hold these records."""
        return self.log.reader.segments_between(start, stop, durable=self.durable) if start < stop else ()


def look(log: Log, *, durable: bool) -> Picture:
    """Return the log as it is now; with `durable`, only its durable part."""
    log.refresh()
    last = log.reader.last_segment
    if last is None:
        return Picture(log, durable, 0, 0)
    if any(last.log_id) and last.log_id != log.id:
        raise DataLoss(
            f"the log {log.name!r} was deleted and recreated while it was being read: start the query again, with a "
            "new checkpoint if it is a stream"
        )
    if not last.files.exists(log.folder):
        raise DataLoss(f"the log {log.name!r} in {str(log.folder.parent)!r} was deleted while it was being read")
    last = log.reader.segments_between(last.base, last.base + 1, durable=durable)[-1]
    return Picture(log, durable, log.start, last.base if last.end is None else last.end)


def plan(picture: Picture, start: int, stop: int, track: str = "") -> list[Stretch]:
    """Return the stretches, one a segment, that hold the records from `start` up to `stop`.

    The first one begins behind `start` if retention has dropped earlier records since the picture was taken.
    """
    segments = picture.segments(start, stop)
    found = []
    for position, segment in enumerate(segments):
        limit, end = segment.extent
        url = getattr(segment.files, "url", "")
        following = segments[position + 1].base if position + 1 < len(segments) else stop
        first, last = max(start, segment.base), min(stop, following, following if end is None else end)
        if first < last:
            header = SegmentHeader(segment.segment_id, segment.log_id, segment.base, segment.created)
            # For a whole segment the index is not needed.
            begin = HEADER_SIZE if first == segment.base else byte_at(segment, first, HEADER_SIZE)
            size = (limit if last == end else byte_at(segment, last, limit)) - begin
            parts = _parts_of(segment)
            found.append(
                Stretch(str(segment.log), segment.name, header, limit, end, first, last, size, track, url, parts)
            )
    return found


def _parts_of(segment: Segment) -> RemoteParts | None:
    """Return where the bytes of a segment are, if the store is a replica."""
    files, remote = segment.files, segment.remote
    if not isinstance(files, ManifestFiles) or remote is None:
        return None
    keys = map(remote.key, remote.entry.parts[-1:])
    assert isinstance(files.origin, StoreAccess)
    inline = {key: files.inline[key] for key in keys if key in files.inline}
    return RemoteParts(files.origin, remote.entry, remote.prefix, inline)


def parts_of(stretches: Sequence[Stretch], least: int | None) -> int:
    """Return the number of tasks for the work."""
    size = sum(stretch.bytes for stretch in stretches)
    return max(least or min(os.cpu_count() or 1, 1 + size // SMALL_BYTES), -(-size // PARTITION_BYTES))


def shares(stretches: Sequence[Stretch], least: int | None, records: int | None = None) -> list[list[Stretch]]:
    """Divide the work by bytes, at block boundaries: up to one share for each core, more if there is much to read.

    Each share is a run of the log, or of several, so that their order is kept inside a task.
    """
    left = sum(stretch.bytes for stretch in stretches)
    wanted = parts_of(stretches, least)
    most = records or 1 << 63
    found: list[list[Stretch]] = []
    current: list[Stretch] = []
    held = count = 0
    for stretch in stretches:
        rest: Stretch | None = stretch
        segment = None
        while rest is not None:
            # The rest is divided again each time, so that a small share does not leave a tiny one at the end.
            size = max(1, -(-left // max(1, wanted - len(found))))
            bytes_left, records_left = size - held, most - count
            if rest.bytes <= bytes_left * 1.02 and rest.stop - rest.start <= records_left:
                piece, rest = rest, None
            else:
                segment = segment or stretch.segment()
                piece, rest = _split(rest, segment, bytes_left, records_left)
            current.append(piece)
            held, count = held + piece.bytes, count + piece.stop - piece.start
            if rest is not None or held >= size or count >= most:
                found.append(current)
                current, left, held, count = [], left - held, 0, 0
    if current:
        found.append(current)
    return [[stretch.narrowed() for stretch in share] for share in found]


def _split(stretch: Stretch, segment: Segment, bytes_left: int, records: int) -> tuple[Stretch, Stretch | None]:
    """Return the beginning that fits, and the rest; split at a position that the index knows, so between blocks."""
    index = segment.index
    begin = byte_at(segment, stretch.start, HEADER_SIZE)
    entries = [index.at_or_before_offset(begin + max(0, bytes_left)), index.at_or_before(stretch.start + records)]
    entry = min((one for one in entries if one is not None), default=None)
    if entry is None or entry.sequence <= stretch.start:
        entry = index.after(stretch.start)
    if entry is None or entry.sequence >= stretch.stop:
        return stretch, None
    size = min(max(1, entry.offset - begin), stretch.bytes)
    return (
        replace(stretch, stop=entry.sequence, bytes=size),
        replace(stretch, start=entry.sequence, bytes=max(1, stretch.bytes - size)),
    )


def read_stretches(stretches: Sequence[Stretch], wanted: Wanted) -> Iterator[RecordSpan]:
    """Yield the wanted records of these stretches, as pieces of verified blocks.

    A segment that was dropped meanwhile raises `DataLoss` or, if allowed, is skipped.
    """
    for stretch in stretches:
        segment = stretch.segment()
        if not segment.exists():
            _note_dropped(stretch, wanted)
            continue
        try:
            for block in _blocks(segment, stretch, wanted):
                start, stop = max(0, stretch.start - block.sequence), min(block.count, stretch.stop - block.sequence)
                if (piece := wanted.narrowed(block, start, stop))[1] < piece[2]:
                    yield piece
        except PartsDropped:
            _note_dropped(stretch, wanted)
        segment.unmap()


def read_between(stretches: Sequence[Stretch], wanted: Wanted) -> Callable[[int, int], Iterator[RecordSpan]]:
    """Return a function that reads the records of these stretches from one sequence up to another."""

    def read(start: int, stop: int) -> Iterator[RecordSpan]:
        within = [
            replace(stretch, start=max(start, stretch.start), stop=min(stop, stretch.stop))
            for stretch in stretches
            if stretch.start < stop and start < stretch.stop
        ]
        return read_stretches(within, wanted)

    return read


def _note_dropped(stretch: Stretch, wanted: Wanted) -> None:
    """Raise `DataLoss` for a segment that retention has dropped or, if allowed, log it."""
    lost = (
        f"{stretch.name.stem} of {stretch.log!r} with the records {stretch.start} to {stretch.stop - 1} was "
        "dropped by retention while it was being read"
    )
    if wanted.fail_on_data_loss:
        raise DataLoss(f"{lost}; {wanted.advice}") from None
    logger.warning("%s", lost)


def _blocks(segment: Segment, stretch: Stretch, wanted: Wanted) -> Iterator[Block]:
    # The task ends where its share does: damage after it is reported by another task.
    report = wanted.report_in(stretch)
    for memory, header in segment.headers(segment.start_at(stretch.start), report):
        if header.sequence >= stretch.stop:
            return
        if header.end <= stretch.start:
            continue
        if wanted.keys is not None or wanted.touches is not None:
            try:
                columns = segment.columns(memory, header)
            except Corrupt:
                pass  # reported when the whole block is opened
            else:
                if wanted.keys is not None and (
                    not columns.has("key") or wanted.keys.isdisjoint(columns.byte_strings("key"))
                ):
                    continue
                if wanted.touches is not None and not wanted.touches(columns):
                    continue
        wanted.bytes_read += header.length
        if block := segment.open(memory, header, report):
            yield block


def sequence_near(picture: Picture, start: int, stop: int, size: int) -> int:
    """Return where about `size` bytes from `start` end, at an indexed position; at least one such position later."""
    for stretch in plan(picture, start, stop):
        if stretch.bytes < size:
            size -= stretch.bytes
            continue
        index = stretch.segment().index
        entry = index.at_or_before_offset(byte_at(stretch.segment(), stretch.start, HEADER_SIZE) + size)
        if entry is None or entry.sequence <= stretch.start:
            entry = index.after(stretch.start)
        return min(stretch.stop, entry.sequence if entry is not None else stretch.stop)
    return stop


def byte_at(segment: Segment, sequence: int, default: int) -> int:
    """Return about where in the segment a record is."""
    entry = segment.index.at_or_before(sequence)
    return entry.offset if entry is not None and entry.offset <= segment.limit else default
