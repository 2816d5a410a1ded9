"""Recovery after any stop: finds the true end of a log, and cuts off what a crash left half-written.

Only bytes that may be torn are read: those of the last segment, from the last point that is known to be on disk. Every
block records up to which offset its segment was durable when it was written. So if a later block confirms damaged
bytes, these were damaged afterwards and are kept; if nothing confirms them, they are treated as a torn write: cut off,
and copied to a file next to the segment. (The watermark confirms the last sync. If a power cut lost the watermark too,
damage in the bytes of that sync cannot be distinguished from a torn write.)
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from holdfast.base.errors import Corrupt
from holdfast.base.files import Files, read_file, replace_file, write_all
from holdfast.log.block import open_block
from holdfast.log.index import Checkpoint
from holdfast.log.layout import HEADER_SIZE, BlockHeader
from holdfast.log.record import Damage
from holdfast.log.remote_segments import PartSource, RemoteLog, read_remote
from holdfast.log.segment import Report, Segment, open_remote, open_segment, walk
from holdfast.log.segment_files import INDEX, SegmentName, list_segments
from holdfast.log.watermark import Watermark, read_watermark

__all__ = ["Survey", "load_segments", "recover", "survey"]

logger = logging.getLogger("holdfast.log")
_COPY = 1 << 20


@dataclass(slots=True)
class Survey:
    """The true end of a segment."""

    end: Checkpoint
    """The end of the last record that is kept."""
    durable: int
    """The offset up to which the bytes were on disk before the stop."""
    size: int
    damage: list[Damage] = field(default_factory=list)
    """Damage before the end, which is not a torn write."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """The end of each block that was read."""
    mark: Watermark | None = None
    """The watermark, if it can be read."""

    @property
    def whole(self) -> bool:
        """Whether the writer may continue in this segment."""
        return not self.damage and self.end.offset <= self.size


def load_segments(
    files: Files,
    log: Path,
    report: Report,
    names: list[SegmentName] | None = None,
    *,
    remote: RemoteLog | None = None,
    parts: PartSource | None = None,
) -> list[Segment]:
    """Return every segment that can be identified, oldest first, each except the last with its end.

    `names` is the result of `list_segments`, and `remote` that of `read_remote`, for callers that have them.
    """
    names = list_segments(files, log) if names is None else names
    remote = read_remote(files, log) if remote is None else remote
    there = set(names)
    segments = [
        open_remote(files, log, remote.source_of(one, log, parts)) for one in remote.entries if one.name not in there
    ]
    unknown: list[Damage] = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # retention in another process
            segment = open_segment(files, log, name, report)
            if segment is None:
                unknown.append(Damage(str(name.data_path(log)), 0, 0, "nothing in this file can be identified"))
            else:
                segments.append(segment)
                for damage in unknown:  # behind the last one there may be a segment that is just being created
                    report(damage)
                unknown.clear()
    if remote.entries:
        segments.sort(key=lambda one: one.name)
    for segment, following in pairwise(segments):
        if segment.remote is None:
            segment.extent = (segment.limit, following.base)
    return segments


def survey(segment: Segment, mark: Watermark | None, memory: Callable[[int], memoryview]) -> Survey:
    """Find the end of the last segment without changing anything; `memory(size)` returns its bytes if needed."""
    size = segment.limit
    # No record before this segment is later than its creation, so timestamps continue from there.
    start = known = segment.index.last() or Checkpoint(segment.base, HEADER_SIZE, segment.created)
    marked = Checkpoint(mark.durable_end, mark.durable_offset, mark.last_timestamp) if mark else known
    if mark and mark.segment_id == segment.segment_id and marked[:2] > known[:2]:
        known = marked
        if segment.index.header is not None:  # otherwise the index is rebuilt, for which the blocks must be read
            start = known
    found = Survey(known, known.offset, size)
    if known.offset > size:
        lost = "the segment is shorter than its confirmed records"
        found.damage.append(Damage(str(segment.path), size, known.offset - size, lost))
    if start.offset >= size:
        return found

    proven = known.offset
    blocks: list[tuple[BlockHeader, int]] = []
    bad: list[Damage] = []
    bytes_ = memory(size)
    for item in walk(bytes_, str(segment.path), start, size, segment.segment_id, None):
        if isinstance(item, Damage):
            bad.append(item)
            continue
        proven = max(proven, item.durable)  # the header has its own checksum, also if the rest is damaged
        last_timestamp = item.timestamp
        try:
            block = open_block(bytes_, item)
            if block.bad:
                raise Corrupt(f"the checksums of {len(block.bad)} payloads do not match")
            last_timestamp = block.timestamps()[-1]
        except Corrupt as error:
            bad.append(Damage(str(segment.path), item.offset, item.length, str(error), item.sequence, item.records))
        blocks.append((item, last_timestamp))

    cut = min((damage.offset for damage in bad if damage.offset >= proven), default=size)
    for header, last_timestamp in blocks:
        if header.offset < cut:  # also a damaged one: its sequences were assigned
            found.end = Checkpoint(header.end, header.next_offset, last_timestamp)
            found.checkpoints.append(found.end)
    if found.end.sequence < known.sequence:  # the last confirmed blocks are damaged: their sequences are not reused
        found.end = known
    found.damage += [damage for damage in bad if damage.offset < cut]
    return found


def recover(
    files: Files, log: Path, report: Report, *, remote: RemoteLog | None = None, parts: PartSource | None = None
) -> tuple[list[Segment], Survey | None]:
    """Bring the log to a state from which it can be written; running it again changes nothing. Raises OSError.

    Returns the segments and the survey of the last one; without a segment, the survey only says where to continue.
    Segments of `remote` that are not on the disk are read with `parts`.
    """
    names = list_segments(files, log)
    segments = load_segments(files, log, report, names, remote=remote, parts=parts)
    for name in reversed([name for name in names if not segments or name > segments[-1].name]):
        _set_aside_unborn(files, name.data_path(log))
    mark = read_watermark(files, log)
    if not segments:
        return segments, _after_loss(log, mark, Checkpoint(0, 0, 0), report)
    last = segments[-1]
    if last.remote is not None:  # the last one is always on the disk: it is lost, and its sequences are not used again
        time = max((part.timestamp for part in last.remote.entry.parts), default=last.created)
        end = Checkpoint(last.remote.entry.end, last.limit, max(time, last.created))
        return segments, _after_loss(log, mark, end, report) or Survey(end, last.limit, last.limit)
    found = survey(last, mark, last.memory)
    for damage in found.damage:
        report(damage)
    cut = found.end.offset
    if found.durable < found.size:
        kept = min(cut, found.size)
        if _keep_torn(files, last, cut, found.size):
            _settle(files, last, found.durable, kept, found.size)
        else:
            _settle(files, last, found.durable, kept, kept)  # still made durable, and nothing is cut
            found.damage.append(Damage(str(last.path), cut, found.size - cut, "a torn tail, left in place", None, 0))
    last.unmap()  # the mapping includes bytes that were cut
    last.extent = (min(cut, found.size), found.end.sequence)
    if mark is not None and all(segment.segment_id != mark.segment_id for segment in segments):
        found = _after_loss(log, mark, found.end, report) or found
    found.mark = mark
    return segments, found


def _after_loss(log: Path, mark: Watermark | None, end: Checkpoint, report: Report) -> Survey | None:
    """Return where to continue if the last segment is lost: sequences that the watermark confirmed are not reused."""
    if mark is None or mark.durable_end <= end.sequence:
        return None
    lost = Damage(str(log), 0, 0, "the last segment is missing", end.sequence, mark.durable_end - end.sequence)
    report(lost)
    return Survey(Checkpoint(mark.durable_end, end.offset, mark.last_timestamp), end.offset, end.offset, [lost])


def _keep_torn(files: Files, segment: Segment, cut: int, size: int) -> bool:
    """Copy the tail that will be cut to a file next to the segment: recovery deletes nothing that was ever written."""
    torn = bytes(segment.memory(size)[cut:size])
    if not any(torn):  # zeros that the writer has preallocated, or nothing
        return True
    logger.warning(
        "torn tail cut off: segment=%s offset=%d bytes=%d",
        segment.path,
        cut,
        len(torn),
        extra={"segment": str(segment.path), "offset": cut, "bytes": len(torn)},
    )
    try:
        aside = _free_name(files, segment.path.with_suffix(f".torn-{cut}"), torn)
        replace_file(files, aside, torn)
    except OSError as error:  # a full disk must not prevent opening the log
        logger.warning(
            "torn tail not copied, left in place: segment=%s error=%s",
            segment.path,
            error,
            extra={"segment": str(segment.path)},
        )
        return False
    return True


def _free_name(files: Files, path: Path, content: bytes) -> Path:
    number = 1
    candidate = path
    while files.exists(candidate) and read_file(files, candidate) != content:
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def _settle(files: Files, segment: Segment, durable: int, cut: int, size: int) -> None:
    # The kept bytes are written again before the sync: after a failed sync in an earlier run the kernel may hold pages
    # that are marked clean and never reached the disk.
    with contextlib.closing(files.open(segment.path, "w")) as file:
        if cut < size:
            file.truncate(cut)
        for start in range(durable, cut, _COPY):
            write_all(file, file.read(min(_COPY, cut - start), start), start)
        file.sync()
    files.sync_dir(segment.path.parent)


def _set_aside_unborn(files: Files, path: Path) -> None:
    # A crash while a segment was being created leaves a file that holds no block and has no index yet.
    content = read_file(files, path)
    logger.warning("incomplete segment of a crash set aside: segment=%s", path, extra={"segment": str(path)})
    if any(content):
        files.replace(path, _free_name(files, path.with_suffix(".torn-0"), content))
    else:
        files.remove(path)
    if files.exists(path.with_suffix(INDEX)):
        files.remove(path.with_suffix(INDEX))
    files.sync_dir(path.parent)
