"""Adoption of batches from other processes: a durable plan reserves their sequences between two pending blocks."""

import logging
from collections import deque

from holdfast.base.errors import Corrupt
from holdfast.base.files import read_file
from holdfast.log.batch_inbox import BatchInbox, Manifest, Part, Plan, read_blocks
from holdfast.log.block import open_block
from holdfast.log.group_sync import GroupSync
from holdfast.log.layout import HEADER_SIZE
from holdfast.log.pending_block import EncodedBlock
from holdfast.log.writer import SegmentWriter

__all__ = ["BatchAdoption"]

logger = logging.getLogger("holdfast.log")


class BatchAdoption(GroupSync):
    """An appender that also adopts batches from other processes.

    Invariant: once the plan is written, sequences `base` up to `base + records` belong to the batch, and those in the
    log are its first records. So after a crash the log's end tells how far the adoption had come.
    """

    def adopt(self, incoming: BatchInbox, manifest: Manifest) -> range:
        """Adopt a batch whose parts were checked, and return its sequences. Durable when this returns.

        If it fails after the plan was written, the log stops, and the adoption is finished when the log is opened
        again.
        """
        with self._io, self._errors_as_ours("adopting a batch into"):
            while True:
                self._write_out(sync=True)
                writer = self._writer
                assert writer is not None
                with self._lock:
                    if self.pending_block.payloads or self._unwritten is not None:
                        continue  # others appended meanwhile
                    plan = incoming.begin(manifest, writer.end, max(self.clock.time_ns(), writer.last_timestamp))
                    self._skip_to(plan.base + manifest.records)
                    break
            self._carry_out(incoming, plan)
        self._notify()
        return range(plan.base, plan.base + manifest.records)

    def resume(self, incoming: BatchInbox, plan: Plan) -> None:
        """Finish an adoption that a crash interrupted. Call it before anything else is appended."""
        assert self._writer is not None
        end = self._writer.end
        if not plan.base <= end <= plan.base + plan.manifest.records:
            raise Corrupt(
                f"the log {self.name!r} ends at {end}, but a batch was being adopted at {plan.base}: the log was "
                "changed by another program. Move the file 'incoming/adopting.json' out of the store to open it"
            )
        logger.warning("finishing an interrupted batch adoption: log=%s", self.name, extra=self.fields)
        with self._io, self._errors_as_ours("adopting a batch into"), self._lock:
            self._skip_to(plan.base + plan.manifest.records)
            self._carry_out(incoming, plan)

    def _skip_to(self, sequence: int) -> None:
        """Continue with the sequence behind the batch. Called with both locks held, and nothing unwritten."""
        fresh = self._new_pending_block(sequence, None)
        if self._asleep:
            fresh.bytes_left = -1
        self.pending_block = fresh
        if self._views:
            self._recent, self._recent_bytes = deque([fresh]), 0

    def _carry_out(self, incoming: BatchInbox, plan: Plan) -> None:
        writer = self._writer
        assert writer is not None
        segments = len(writer.segments)
        first = plan.base
        try:
            self._before_first_write()
            for part in plan.manifest.parts:
                if writer.end == first and part.is_placed:
                    path = incoming.parts / part.file
                    writer.place(path, read_blocks(incoming.files, path), plan.time)
                elif writer.end < first + part.records:
                    self._copy(writer, incoming, part, writer.end - first, plan.time)
                first += part.records
            writer.sync()
            incoming.finish(plan)
        except (OSError, Corrupt) as error:
            # The sequences behind the batch may be assigned already: nothing can be written before it is finished.
            stopped = writer.stop(f"the adoption of a batch failed: {error}", recoverable=False)
            self._drop_unconfirmed([], stopped)
            raise stopped from error
        except BaseException as error:  # an interrupt: opening the log finds out how far it came
            reason = f"the adoption of a batch was interrupted ({error!r})"
            self._drop_unconfirmed([], writer.stop(reason, recoverable=False))
            raise
        if len(writer.segments) > segments:
            self._on_roll()

    def _copy(self, writer: SegmentWriter, incoming: BatchInbox, part: Part, done: int, now: int) -> None:
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
                )
            )
