"""Reading of one segment file: its blocks in order, by sequence or by time, past any damage."""

import contextlib
import logging
import mmap
import os
import threading
import weakref
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.base.errors import Corrupt, storage_error
from holdfast.base.files import Files, forget
from holdfast.log.block import Block, open_block, open_columns
from holdfast.log.index import Checkpoint, SparseIndex
from holdfast.log.layout import (
    HEADER_SIZE,
    BlockHeader,
    SegmentHeader,
    aligned,
    find_block,
    parse_block_header,
    parse_segment_header,
)
from holdfast.log.record import Damage
from holdfast.log.remote_segments import PartSource, RemotePart, RemoteSource, read_remote
from holdfast.log.segment_files import SegmentName

__all__ = ["Report", "Segment", "mapped_files", "open_remote", "open_segment", "walk"]

logger = logging.getLogger("holdfast.log")

_FORGET_EVERY = 8 << 20
_COPY_AT_ONCE = 1 << 20
"""How many bytes of blocks are copied from a remote part at a time: a part that is evicted meanwhile is fetched again.
"""
_MAPPED_MAX = 64
"""How many segments stay mapped in this process: each costs a file descriptor."""
_mapped: OrderedDict["Segment", None] = OrderedDict()
_mapped_guard = threading.Lock()
_alive: weakref.WeakSet[object] = weakref.WeakSet()
"""Mappings that are in use, also of segments that are no longer in `_mapped`."""


def mapped_files() -> int:
    """Return how many mappings this process has; each costs a file descriptor."""
    return len(_alive)


def _forget_mappings_in_child() -> None:
    # Another thread of the parent may have held the guard, and will never release the child's copy.
    global _mapped_guard  # noqa: PLW0603
    _mapped_guard = threading.Lock()
    _mapped.clear()


os.register_at_fork(after_in_child=_forget_mappings_in_child)
Report = Callable[[Damage], None]
"""Called with each damage that is found; reading continues behind it."""


class Segment:
    """One segment as readers see it.

    On disk: `YYYY/MM/DD/YYYYMMDD-NNNN.data` and its `.index`; or only in the bucket of the store's replica, if `remote`
    is set. Threads: any may read; only the log's writer (or a reader's refresh) moves the extent.
    """

    def __init__(self, files: Files, log: Path, name: SegmentName, header: SegmentHeader, limit: int) -> None:
        self.files = files
        self.log = log
        self.name = name
        self.path = name.data_path(log)
        self.segment_id = header.segment_id
        self.log_id = header.log_id
        self.base = header.base
        self.created = header.created
        self.extent: tuple[int, int | None] = (limit, None)
        """Bytes that may be read, and the sequence after the last readable record if it is known: one attribute, so
        that no thread ever sees one without the other."""
        self.header_damaged = False
        self.remote: RemoteSource | None = None
        """Where it is read if it is not on the disk. Set before the file is deleted."""
        self.parts: PartSource | None = None
        """In a process that does not write the log: where to read it if the writer has moved it to the bucket."""
        self._index: SparseIndex | None = None
        self._memory: memoryview | None = None
        self._passed = Checkpoint(self.base, HEADER_SIZE, 0)
        """The end of the last block that was read: a reader of many small blocks in sequence need not walk there from
        the index entry each time (with blocks of one record: 500 headers for each)."""

    @property
    def limit(self) -> int:
        """Bytes that may be read."""
        return self.extent[0]

    @property
    def end(self) -> int | None:
        """The sequence after the last readable record, if it is known."""
        return self.extent[1]

    @property
    def index(self) -> SparseIndex:
        """The sparse index, loaded on first use."""
        if self._index is None:
            index = SparseIndex.load(self.files, self.name.index_path(self.log))
            if index.header and index.header.segment_id == self.segment_id:
                self._index = index
            elif self.parts is not None and not self.files.exists(self.path) and (remote := self.find_remote()):
                self._index = remote.index()
            else:
                self._index = SparseIndex()
        return self._index

    @index.setter
    def index(self, index: SparseIndex) -> None:
        self._index = index

    def memory(self, limit: int) -> memoryview:
        """Return the first `limit` bytes, mapped; fewer if the file is shorter. All readers share one mapping."""
        memory = self._memory
        if memory is None or len(memory) < limit:
            try:
                with contextlib.closing(self.files.open(self.path, "r")) as file:
                    memory = file.map(min(max(limit, self.limit), file.size()))
            except FileNotFoundError:
                raise  # dropped by retention: callers continue behind it
            except OSError as error:
                raise storage_error(error, "reading", self.path) from error
            self._memory = memory
            with _mapped_guard:
                if isinstance(memory.obj, mmap.mmap):
                    _alive.add(memory.obj)
                _mapped[self] = None
                if len(_mapped) > _MAPPED_MAX:
                    _mapped.popitem(last=False)[0]._memory = None
        return memory

    def bounded(self, limit: int, end: int) -> "Segment":
        """Return this segment for a reader that sees only its first bytes."""
        header = SegmentHeader(self.segment_id, self.log_id, self.base, self.created)
        found = Segment(self.files, self.log, self.name, header, limit)
        found.extent = (limit, end)
        found.remote, found.parts = self.remote, self.parts
        return found

    def unmap(self) -> None:
        """Drop the mapping; it exists as long as readers use it."""
        with _mapped_guard:
            _mapped.pop(self, None)
        self._memory = None

    def page_out(self) -> None:
        """Release the mapped pages; they are read again from the page cache or the disk."""
        if (memory := self._memory) is not None:
            forget(memory, 0, len(memory))

    def start_at(self, sequence: int) -> Checkpoint:
        """Return the nearest index entry from which `sequence` can be reached."""
        passed = self._passed
        near = passed.sequence <= sequence and passed.offset <= self.limit
        if near and passed.sequence == sequence:
            return passed
        known = self._trusted(self.index.at_or_before(sequence))
        return passed if near and known.sequence < passed.sequence else known

    def start_before_time(self, timestamp: int) -> Checkpoint:
        """Return the nearest index entry from which the first record at or after `timestamp` can be reached."""
        return self._trusted(self.index.before_time(timestamp))

    def _trusted(self, entry: Checkpoint | None) -> Checkpoint:
        return entry if entry and entry.offset <= self.limit else Checkpoint(self.base, HEADER_SIZE, 0)

    def headers(self, place: Checkpoint, report: Report) -> Iterator[tuple[memoryview, BlockHeader]]:
        """Yield the headers of whole blocks, from this index entry on."""
        limit, end = self.extent
        memory = None
        if self.remote is None:
            try:
                memory = self.memory(limit)
            except FileNotFoundError:
                if self.find_remote() is None:
                    logger.warning(
                        "segment was dropped before it was read: segment=%s",
                        self.path,
                        extra={"segment": str(self.path)},
                    )
                    return
        if memory is None:
            yield from self._remote_headers(place, report)
            return
        limit = min(limit, len(memory))
        for item in walk(memory, str(self.path), place, limit, self.segment_id, end):
            if isinstance(item, Damage):
                report(item)
            else:
                yield memory, item

    def exists(self) -> bool:
        """Return whether it can be read: from its file, which is mapped from now on, or from the bucket."""
        if self.remote is None:
            try:
                self.memory(self.limit)
            except FileNotFoundError:
                return self.find_remote() is not None
        return True

    def find_remote(self) -> RemoteSource | None:
        """Return where the segment is read if its file is gone; None if it was dropped."""
        if self.remote is None and self.parts is not None:  # moved to the bucket by the process that writes the log
            known = read_remote(self.files, self.log)
            entry = known.find(self.segment_id)
            if entry is not None:
                self.remote = known.source_of(entry, self.log, self.parts)
        return self.remote

    def move_to(self, remote: RemoteSource) -> None:
        """Read the segment from the bucket from now on; its file may be deleted afterwards."""
        self.index = remote.index()
        self.remote = remote
        self.unmap()

    def head(self) -> bytes | None:
        """Return its first 64 bytes; None if they cannot be read, which is reported when its blocks are read.

        Raises FileNotFoundError if the segment was dropped.
        """
        if self.remote is None:
            try:
                return bytes(self.memory(self.limit)[:HEADER_SIZE])
            except FileNotFoundError:
                if self.find_remote() is None:
                    raise
        assert self.remote is not None
        try:
            with self.remote.pinned(self.remote.entry.parts[0]) as memory:
                return bytes(memory[:HEADER_SIZE])
        except Corrupt:
            return None

    @contextlib.contextmanager
    def stretch(self, offset: int) -> Iterator[tuple[memoryview, int]]:
        """Return memory with the bytes around an offset, at their own offsets, and up to where it has them.

        Whole blocks, from the nearest index entry on. For a segment in the bucket the context must be short.
        """
        if self.remote is None:
            try:
                memory = self.memory(self.limit)
            except FileNotFoundError:
                if self.find_remote() is None:
                    raise
            else:
                yield memory, self.limit
                return
        assert self.remote is not None
        part = self.remote.part_at(offset)
        with self.remote.pinned(part) as memory:
            yield memory, part.stop

    def _remote_headers(self, place: Checkpoint, report: Report) -> Iterator[tuple[memoryview, BlockHeader]]:
        """As `headers`, for a segment in the bucket: each header with a copy of its block alone.

        Parts are fetched one by one. A part that is missing or damaged is reported, and reading continues behind it.
        """
        source, (limit, end) = self.remote, self.extent
        assert source is not None
        for number, part in enumerate(source.entry.parts):
            if part.stop <= place.offset:
                continue
            begin = place if place.offset >= part.start else Checkpoint(place.sequence, part.start, place.timestamp)
            found = self._walk_part(source, part, begin, end if part.stop >= limit else None)
            position = 0
            while isinstance(found, list) and position < len(found):
                item = found[position]
                if isinstance(item, Damage):
                    report(item)
                    position += 1
                    continue
                copies = self._copy_blocks(source, part, found, position)
                if isinstance(copies, Corrupt):  # it was evicted, and is gone from the bucket
                    begin, found = Checkpoint(item.sequence, item.offset, item.timestamp), copies
                    break
                for copy in copies:
                    yield copy
                    begin = Checkpoint(copy[1].end, copy[1].next_offset, copy[1].timestamp)
                position += len(copies)
            place = Checkpoint(begin.sequence, part.stop, begin.timestamp)
            if isinstance(found, Corrupt):
                following = source.first_of(source.entry.parts[number + 1]) if part.stop < limit else end
                lost = None if following is None or following < begin.sequence else following - begin.sequence
                size = part.stop - begin.offset
                report(Damage(source.where(part), begin.offset, size, str(found), begin.sequence, lost))
                if lost is not None:
                    place = Checkpoint(begin.sequence + lost, part.stop, begin.timestamp)

    def _walk_part(
        self, source: RemoteSource, part: RemotePart, begin: Checkpoint, end: int | None
    ) -> list[BlockHeader | Damage] | Corrupt:
        begin = Checkpoint(begin.sequence, max(begin.offset, HEADER_SIZE), begin.timestamp)
        try:
            with source.pinned(part) as memory:
                return list(walk(memory, str(self.path), begin, part.stop, self.segment_id, end))
        except Corrupt as error:
            return error

    def _copy_blocks(
        self, source: RemoteSource, part: RemotePart, items: list[BlockHeader | Damage], position: int
    ) -> list[tuple[memoryview, BlockHeader]] | Corrupt:
        """Return the next blocks of a part, about a mebibyte, each as a copy."""
        copies: list[tuple[memoryview, BlockHeader]] = []
        size = 0
        try:
            with source.pinned(part) as memory:
                while position < len(items) and size < _COPY_AT_ONCE:
                    header = items[position]
                    if isinstance(header, Damage):
                        break
                    copy = bytes(memory[header.offset : header.next_offset])
                    copies.append((memoryview(copy), header))
                    size += len(copy)
                    position += 1
        except Corrupt as error:
            return error
        return copies

    def blocks(self, start: int, stop: int, report: Report) -> Iterator[Block]:
        """Yield the blocks that hold records from `start` up to, not including, `stop`."""
        passed = 0
        for memory, header in self.headers(self.start_at(start), report):
            if header.sequence >= stop:
                return
            if header.offset - passed > _FORGET_EVERY:
                forget(memory, passed, header.offset)
                passed = header.offset
            if header.sequence + header.records > start and (block := self.open(memory, header, report)):
                self._passed = Checkpoint(header.end, header.next_offset, header.timestamp)
                yield block

    def all_blocks(self, report: Report) -> Iterator[Block]:
        """Yield every block from the first byte on, without the index."""
        for memory, header in self.headers(Checkpoint(self.base, HEADER_SIZE, 0), report):
            if block := self.open(memory, header, report):
                yield block

    def blocks_reversed(self, start: int, stop: int, report: Report) -> Iterator[Block]:
        """As `blocks`, last block first: from each index entry the headers are read forwards, then used backwards."""
        upper = stop
        while upper > start:
            place = self.start_at(upper - 1)
            stretch = []
            for memory, header in self.headers(place, report):
                if header.sequence >= upper:
                    break
                if header.end > start:
                    stretch.append((memory, header))
            for memory, header in reversed(stretch):
                if block := self.open(memory, header, report):
                    yield block
            upper = place.sequence

    def time_of(self, sequence: int, report: Report) -> int | None:
        """Return the time of one record, from the columns of its block alone; None if they cannot be read."""
        for memory, header in self.headers(self.start_at(sequence), report):
            if header.sequence > sequence:
                return None
            if header.end > sequence:
                with contextlib.suppress(Corrupt):  # reported when the record is read
                    times = self.columns(memory, header).numbers("timestamp")
                    found = header.timestamp if times is None else times[sequence - header.sequence]
                    forget(memory, header.offset, header.offset + HEADER_SIZE + header.columns_length)
                    return found
        return None

    def sequence_at_time(self, timestamp: int, report: Report, *, past_damage: bool = True) -> int | None:
        """Return the first sequence whose record is not before `timestamp`, None if all are.

        If the block with that record cannot be read: the first sequence behind it or, if not `past_damage`, its first.
        """
        last: tuple[memoryview, BlockHeader] | None = None
        for memory, header in self.headers(self.start_before_time(timestamp), report):
            if header.timestamp >= timestamp:
                within = self._within(last, timestamp, report, past_damage=past_damage)
                return header.sequence if within is None else within
            last = memory, header
        return self._within(last, timestamp, report, past_damage=past_damage)

    def _within(
        self, found: tuple[memoryview, BlockHeader] | None, timestamp: int, report: Report, *, past_damage: bool
    ) -> int | None:
        if found is None:
            return None
        block = self.open(*found, report)
        if block is None:
            return None if past_damage else found[1].sequence
        position = bisect_left(block.timestamps(), timestamp)
        return block.sequence + position if position < block.count else None

    def columns(self, memory: memoryview, header: BlockHeader) -> Block:
        """Return the block of this header without its payloads, which are neither read nor verified.

        Raises `Corrupt`.
        """
        if self.remote is not None and len(memory) < header.next_offset:  # a copy of the block alone
            header = header.at(0)
        return open_columns(memory, header)

    def open(self, memory: memoryview, header: BlockHeader, report: Report) -> Block | None:
        """Return the verified block of this header; report the damage and return None if it cannot be read."""
        try:
            if self.remote is None or len(memory) >= header.next_offset:
                block = open_block(memory, header)
            else:  # a copy of the block alone
                block = open_block(memory, header.at(0))
                block.header = header
        except Corrupt as error:
            report(Damage(str(self.path), header.offset, header.length, str(error), header.sequence, header.records))
            return None
        if not block.bad:
            return block
        path = str(self.path)
        payload_start = header.offset + HEADER_SIZE + header.columns_length
        for position in block.bad:
            start, stop = block.offsets[position], block.offsets[position + 1]
            sequence = header.sequence + position
            report(
                Damage(path, payload_start + start, stop - start, "the payload's checksum does not match", sequence, 1)
            )
        return block


def open_segment(files: Files, log: Path, name: SegmentName, report: Report) -> Segment | None:
    """Open a segment by its header or, if that is damaged, by its index or its first whole block.

    None if it cannot be identified: a file that a crash left half-written, or one that is damaged completely.
    """
    path = name.data_path(log)
    with contextlib.closing(files.open(path, "r")) as file:
        size = file.size()
        header = parse_segment_header(file.read(HEADER_SIZE, 0), str(path))
        if header is not None:
            return Segment(files, log, name, header, size)
        header = SparseIndex.load(files, name.index_path(log)).header
        if header is None:
            block = find_block(file.map(size), HEADER_SIZE, size, None)
            if block is None:
                return None
            header = SegmentHeader(block.segment_id, bytes(16), block.sequence, block.timestamp)
    segment = Segment(files, log, name, header, size)
    segment.header_damaged = True
    report(Damage(str(path), 0, min(size, HEADER_SIZE), "the segment's header is damaged", None, 0))
    return segment


def open_remote(files: Files, log: Path, remote: RemoteSource) -> Segment:
    """Return a segment that is only in the bucket. Nothing is fetched yet."""
    entry = remote.entry
    log_id = bytes.fromhex(remote.prefix.rpartition("/")[2])
    segment = Segment(files, log, entry.name, SegmentHeader(entry.id, log_id, entry.base, entry.created), entry.size)
    segment.extent = (entry.size, entry.end)
    segment.index = remote.index()
    segment.remote = remote
    return segment


def walk(
    memory: memoryview, path: str, place: Checkpoint, limit: int, segment_id: int, end: int | None
) -> Iterator[BlockHeader | Damage]:
    """Go from block to block by their headers; yield a `Damage` for bytes that are not a block, and continue.

    A block belongs to the segment only if it has this segment's id and its sequences follow: other bytes, even a
    payload that is a copy of a segment, are never treated as a block.
    """
    offset, expected = place.offset, place.sequence
    while offset < limit:
        header = parse_block_header(memory, offset, offset, limit)
        if header is None or not _belongs(header, segment_id, expected, end):
            found = find_block(memory, offset + 8, limit, segment_id)
            while found and not _belongs(found, segment_id, expected, end):
                found = find_block(memory, found.offset + 8, limit, segment_id)
            stop = found.offset if found else limit
            behind = found.sequence if found else end
            lost = behind - expected if behind is not None else None
            yield Damage(path, offset, stop - offset, "no whole block is here", expected, lost)
            if found is None:
                return
            header = found
        elif header.sequence != expected:
            yield Damage(path, offset, 0, "records are missing before this block", expected, header.sequence - expected)
        yield header
        tail = header.offset + header.length
        offset = aligned(tail)
        expected = header.sequence + header.records
        if tail != offset and any(memory[tail:offset]):
            yield Damage(path, tail, offset - tail, "the padding behind a block is not what was written", None, 0)
    if end is not None and expected < end:
        yield Damage(path, offset, 0, "the segment ends too early", expected, end - expected)


def _belongs(header: BlockHeader, segment_id: int, expected: int, end: int | None) -> bool:
    sequence = header.sequence
    return (
        header.segment_id == segment_id and sequence >= expected and (end is None or sequence + header.records <= end)
    )
