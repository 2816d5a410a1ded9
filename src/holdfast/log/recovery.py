"""What survived? Finds the true end of a log after any stop, and cuts what a crash left half-written.

Only what may be torn is read: the last segment, from the last point that is known to be on disk. Telling a torn tail
from damage needs no guess: every block says up to where its segment was durable when it was written, so a bad place
with a later block that vouches for it was hit afterwards and is kept; one that nothing vouches for was never confirmed
and is cut.
"""

import contextlib
import logging
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from holdfast.base.errors import Corrupt
from holdfast.base.files import Files, replace_file, write_all
from holdfast.log.block import open_block
from holdfast.log.catalog import INDEX, list_segments
from holdfast.log.index import Checkpoint
from holdfast.log.layout import HEADER_SIZE, BlockHeader
from holdfast.log.record import Damage
from holdfast.log.segment import Report, Segment, open_segment, walk
from holdfast.log.watermark import Watermark, read_watermark

__all__ = ["Survey", "load_segments", "recover", "survey"]

logger = logging.getLogger("holdfast.log")
_COPY = 1 << 20


@dataclass(slots=True)
class Survey:
    """Where a segment truly ends."""

    end: Checkpoint
    """After the last record that is kept."""
    durable: int
    """Up to here the bytes were on disk before the stop."""
    size: int
    damage: list[Damage] = field(default_factory=list)
    """Bad places before the end: hit, not torn."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """The end of each block that was read."""

    @property
    def whole(self) -> bool:
        """Whether the segment may be written on."""
        return not self.damage and self.end.offset <= self.size


def load_segments(files: Files, log: Path, report: Report) -> list[Segment]:
    """Every segment that can be identified, oldest first, each with its end where the next one tells it."""
    segments: list[Segment] = []
    for name in list_segments(files, log):
        with contextlib.suppress(FileNotFoundError):  # retention in another process
            segment = open_segment(files, log, name, report)
            if segment is not None:
                segments.append(segment)
            elif files.exists(name.data_path(log)):
                report(Damage(str(name.data_path(log)), 0, 0, "nothing in this file can be identified"))
    for segment, following in pairwise(segments):
        segment.extent = (segment.limit, following.base)
    return segments


def survey(segment: Segment, mark: Watermark | None) -> Survey:
    """Find the end of the last segment without changing anything."""
    size = segment.limit
    # No record before this segment is later than its creation, so that is what time goes on from.
    start = known = segment.index.last() or Checkpoint(segment.base, HEADER_SIZE, segment.created)
    if mark and mark.segment_id == segment.segment_id and mark.durable_offset > known.offset:
        known = Checkpoint(mark.durable_end, mark.durable_offset, mark.last_timestamp)
        if segment.index.header is not None:  # else it is made anew, for which the blocks must be seen
            start = known
    found = Survey(known, known.offset, size)
    if known.offset > size:
        lost = "the segment is shorter than what was confirmed"
        found.damage.append(Damage(str(segment.path), size, known.offset - size, lost))
        return found

    good: list[tuple[BlockHeader, int]] = []
    bad: list[Damage] = []
    memory = segment.memory(size)
    for item in walk(memory, str(segment.path), start, size, segment.segment_id, None):
        if isinstance(item, Damage):
            bad.append(item)
            continue
        try:
            block = open_block(memory, item)
            if block.bad:
                raise Corrupt(f"the checksums of {len(block.bad)} payloads do not match")
            good.append((item, block.timestamps()[-1]))
        except Corrupt as error:
            bad.append(Damage(str(segment.path), item.offset, item.length, str(error), item.sequence, item.records))

    proven = max(known.offset, *(header.durable for header, _ in good), 0)
    cut = min((damage.offset for damage in bad if damage.offset >= proven), default=size)
    for header, last_timestamp in good:
        if header.offset < cut:
            found.end = Checkpoint(header.end, header.next_offset, last_timestamp)
            found.checkpoints.append(found.end)
    if found.end.sequence < known.sequence:  # the last confirmed blocks were hit: their sequences are not given again
        found.end = known
    found.damage = [damage for damage in bad if damage.offset < cut]
    return found


def recover(files: Files, log: Path, report: Report) -> tuple[list[Segment], Survey | None]:
    """Bring the log to a state that can be written on; running it again changes nothing.

    Returns the segments and the survey of the last one.
    """
    _set_aside_unborn(files, log)
    segments = load_segments(files, log, report)
    if not segments:
        return segments, None
    last = segments[-1]
    found = survey(last, read_watermark(files, log))
    for damage in found.damage:
        report(damage)
    cut = found.end.offset
    if found.durable < found.size:
        _keep_torn(files, last, cut, found.size)
        _settle(files, last, found.durable, min(cut, found.size), found.size)
    last.let_go()  # the mapping reaches into what was cut
    last.extent = (min(cut, found.size), found.end.sequence)
    return segments, found


def _keep_torn(files: Files, segment: Segment, cut: int, size: int) -> None:
    # Nothing that was ever written is deleted by recovery, not even what no one was promised.
    torn = bytes(segment.memory(size)[cut:size])
    if not torn:
        return
    logger.warning(
        "cut a torn tail of %d bytes at byte %d of %s",
        len(torn),
        cut,
        segment.path,
        extra={"segment": str(segment.path), "offset": cut, "bytes": len(torn)},
    )
    if any(torn):
        replace_file(files, segment.path.with_suffix(f".torn-{cut}"), torn)


def _settle(files: Files, segment: Segment, durable: int, cut: int, size: int) -> None:
    # What is kept is written once more before it is synced: after a failed sync in an earlier run the kernel may
    # hold pages that it believes are clean and the disk has never seen.
    with contextlib.closing(files.open(segment.path, "w")) as file:
        if cut < size:
            file.truncate(cut)
        for start in range(durable, cut, _COPY):
            write_all(file, file.read(min(_COPY, cut - start), start), start)
        file.sync()
    files.sync_dir(segment.path.parent)


def _set_aside_unborn(files: Files, log: Path) -> None:
    # A crash while a segment was being made leaves a file that holds no block and has no index yet.
    names = list_segments(files, log)
    if not names:
        return
    path = names[-1].data_path(log)
    if open_segment(files, log, names[-1], lambda damage: None) is None:
        with contextlib.closing(files.open(path, "r")) as file:
            content = any(file.read(file.size(), 0))
        logger.warning("set aside %s, which a crash left half-made", path, extra={"segment": str(path)})
        if content:
            files.replace(path, path.with_suffix(".torn-0"))
        else:
            files.remove(path)
        if files.exists(path.with_suffix(INDEX)):
            files.remove(path.with_suffix(INDEX))
        files.sync_dir(path.parent)
