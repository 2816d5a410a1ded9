"""Adoption of batches from other processes: a durable plan reserves their sequences between two pending blocks."""

import logging
from operator import attrgetter

from holdfast.base.errors import Corrupt
from holdfast.base.files import read_file
from holdfast.log.appender import Appender
from holdfast.log.batch_inbox import BatchInbox, Manifest, Part, Plan, read_blocks
from holdfast.log.block import open_block
from holdfast.log.layout import HEADER_SIZE, EncodedBlock
from holdfast.log.writer import SegmentWriter

__all__ = ["BatchAdoption"]

logger = logging.getLogger("holdfast.log")


class BatchAdoption:
    """Adopts batches from other processes into one log.

    Invariant: once the plan is written, sequences `base` up to `base + records` belong to the batch, and those in the
    log are its first records. So after a crash the log's end tells how far the adoption had come.
    """

    def __init__(self, appender: Appender) -> None:
        self._appender = appender

    def adopt(self, incoming: BatchInbox, manifest: Manifest) -> range:
        """Adopt a batch whose parts were checked, and return its sequences. Durable when this returns.

        If it fails after the plan was written, the log stops, and the adoption is finished when the log is opened
        again.
        """

        def reserve(writer: SegmentWriter) -> Plan:
            now = max(self._appender.clock.time_ns(), writer.last_timestamp)
            try:
                return incoming.begin(manifest, writer.end, now)
            except BaseException as error:
                if not incoming.is_planned():
                    raise
                # The plan may survive a crash: its sequences must not be assigned to other records.
                if isinstance(error, OSError):
                    raise writer.stop(f"the adoption of a batch failed: {error}", recoverable=False) from error
                writer.stop(f"the adoption of a batch was interrupted ({error!r})", recoverable=False)
                raise

        def write(writer: SegmentWriter, plan: Plan) -> None:
            _write_parts(writer, incoming, plan)

        plan = self._appender.insert(manifest.records, reserve, write)
        return range(plan.base, plan.base + manifest.records)

    def resume(self, incoming: BatchInbox, plan: Plan) -> None:
        """Finish an adoption that a crash interrupted. Call it before anything else is appended."""
        name, stop = self._appender.name, plan.base + plan.manifest.records
        end: int = self._appender.exclusively(attrgetter("end"))
        if not plan.base <= end <= stop:
            raise Corrupt(
                f"the log {name!r} ends at {end}, but a batch was being adopted at {plan.base}: the log was changed by "
                "another program. Move the file 'incoming/adopting.json' out of the store to open it"
            )
        logger.warning("finishing an interrupted batch adoption: log=%s", name, extra=self._appender.fields)
        self._appender.resume_insert(stop, lambda writer: _write_parts(writer, incoming, plan))


def _write_parts(writer: SegmentWriter, incoming: BatchInbox, plan: Plan) -> None:
    """Write the records of the batch that are not in the log yet, and finish the plan."""
    first = plan.base
    for part in plan.manifest.parts:
        if writer.end == first and part.is_placed:
            path = incoming.parts / part.file
            writer.place(path, read_blocks(incoming.files, path), plan.time)
        elif writer.end < first + part.records:
            _copy(writer, incoming, part, writer.end - first, plan.time)
        first += part.records
    writer.sync()
    incoming.finish(plan)


def _copy(writer: SegmentWriter, incoming: BatchInbox, part: Part, done: int, now: int) -> None:
    raw = memoryview(read_file(incoming.files, incoming.parts / part.file))
    for header in read_blocks(incoming.files, incoming.parts / part.file):
        if header.sequence < done:
            continue
        block = open_block(raw, header)
        if block.bad:
            raise Corrupt(f"the part {part.file} is damaged at byte {header.offset}")
        start = header.offset + HEADER_SIZE
        middle = start + header.columns_length
        time = max(now, writer.last_timestamp)
        writer.put(
            EncodedBlock(
                writer.end,
                header.records,
                time,
                time,
                header.flags,
                bytes(raw[start:middle]),
                bytes(raw[middle : header.offset + header.length]),
                header.columns_crc,
                header.payload_crc,
                header.length,
            )
        )
