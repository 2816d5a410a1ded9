"""Comparison of a store's folder with a moment of its replica: the records that only the folder has."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checksum import crc32c
from holdfast.base.files import Files
from holdfast.base.units import iso_time, plural
from holdfast.log.layout import HEADER_SIZE, BlockHeader, parse_block_header
from holdfast.log.recovery import load_segments, survey
from holdfast.log.segment import Segment
from holdfast.log.watermark import read_watermark
from holdfast.replica.manifest import LogEntry, Manifest, SegmentEntry
from holdfast.store_layout import JOURNALS, LOGS
from holdfast.table_registry import TABLES
from holdfast.transactions import TRANSACTIONS

__all__ = ["UnshippedRecords", "described", "find_unshipped", "log_folders"]

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class UnshippedRecords:
    """Records at the end of a log that a moment does not have."""

    folder: str
    """The log: `logs/<folder>`, `journals/<folder>`, `tables/<folder>` or `transactions`."""
    records: int
    first: int
    """Their first sequence."""
    first_time: int
    last_time: int
    """When the first and the last were written, in nanoseconds since 1970 by the clock of the store's machine."""
    is_known: bool
    """Whether the moment has this log, with fewer or other records; otherwise it was deleted there or never shipped."""

    def __str__(self) -> str:
        deleted = "" if self.is_known else ", in a log that is not there"
        times = f"{iso_time(self.first_time)} to {iso_time(self.last_time)}"
        return f"{plural(self.records, 'record')} of {self.folder} from {times}{deleted}"


@dataclass(frozen=True, slots=True)
class _End:
    offset: int
    sequence: int
    timestamp: int


def described(found: Sequence[UnshippedRecords]) -> str:
    """Return a sentence about what a folder has that the replica lacks, without a full stop."""
    if not found:
        return "It has nothing that the replica lacks"
    more = f"; and {plural(len(found) - _SHOWN, 'more log')}" if len(found) > _SHOWN else ""
    return f"It has what the replica lacks, and keeps it: {'; '.join(map(str, found[:_SHOWN]))}{more}"


def log_folders(files: Files, path: Path) -> Iterator[str]:
    """Yield the folders of all logs of a store."""
    for root in (LOGS, JOURNALS, TABLES):
        for name in files.list(path / root):
            if not name.startswith("~") and not name.endswith(".tmp"):
                yield f"{root}/{name}"
    if files.exists(path / TRANSACTIONS):
        yield TRANSACTIONS


def find_unshipped(files: Files, path: Path, bucket: Bucket, moment: Manifest) -> list[UnshippedRecords]:
    """Return the records of a store that this moment lacks. Reads the whole store: no byte is taken as the same unread.

    The store may be open in this process, and in no other. Raises `ReplicaUnavailable`.
    """
    entries = {log.folder: log for log in moment.logs}
    found = (_compare(files, path, folder, bucket, entries.get(folder)) for folder in log_folders(files, path))
    return [one for one in found if one is not None]


def _compare(files: Files, path: Path, folder: str, bucket: Bucket, entry: LogEntry | None) -> UnshippedRecords | None:
    segments = load_segments(files, path / folder, lambda damage: None)
    if not segments:
        return None
    last = segments[-1]
    surveyed = survey(last, read_watermark(files, path / folder), last.memory).end
    end = _End(surveyed.offset, surveyed.sequence, surveyed.timestamp)
    if entry is None or entry.id != last.log_id.hex():
        return _from(folder, segments[0], HEADER_SIZE, end, is_known=False)
    there = {one.id: one for one in entry.segments}
    for segment in segments:
        is_last = segment is last
        limit = end.offset if is_last else segment.limit
        known = there.get(f"{segment.segment_id:016x}")
        if known is None:
            if segment.base < entry.start or (segment.base < entry.end and entry.segments[0].base > segment.base):
                continue  # dropped there by retention
            offset = HEADER_SIZE
        else:
            offset = _same_up_to(files, segment, limit, bucket, entry, known)
        if offset < limit and (one := _from(folder, segment, offset, end, is_known=True)) is not None:
            return one
    return None


def _same_up_to(
    files: Files, segment: Segment, limit: int, bucket: Bucket, entry: LogEntry, known: SegmentEntry
) -> int:
    """Return up to which offset a segment has the same bytes as the replica, if that is before `limit`."""
    with contextlib.closing(files.open(segment.path, "r")) as file:
        for part in known.parts:
            if part.start >= limit:
                return limit
            ours = file.read(min(part.stop, limit) - part.start, part.start)
            if len(ours) == part.size and crc32c(ours) == part.checksum:
                continue
            try:
                theirs = bucket.get(entry.key(known, part)).content
            except ObjectMissing:  # it is taken as different
                return part.start
            if len(ours) < part.size and theirs.startswith(ours):
                return limit
            return part.start + next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
    return known.size


def _from(folder: str, segment: Segment, offset: int, end: _End, *, is_known: bool) -> UnshippedRecords | None:
    """Return the records from the block at or around this offset to the end of the log."""
    header = next((one for one in _blocks(segment) if one.next_offset > offset), None)
    if header is None or header.sequence >= end.sequence:
        return None
    return UnshippedRecords(
        folder, end.sequence - header.sequence, header.sequence, header.timestamp, end.timestamp, is_known
    )


def _blocks(segment: Segment) -> Iterator[BlockHeader]:
    memory, offset = segment.memory(segment.limit), HEADER_SIZE
    while offset < len(memory):
        header = parse_block_header(memory, offset, offset, len(memory))
        if header is None:
            return
        yield header
        offset = header.next_offset
