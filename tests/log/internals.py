"""What tests use of a log behind its public interface: in one place, so that it can be renamed in one place."""

import threading

import pytest

from holdfast import Log, WriterStopped
from holdfast.base.files import UnsyncedFile as PlainFile
from holdfast.log.segment import Segment
from holdfast.log.writer import PendingSync, SegmentWriter
from holdfast.testing import SimFiles

__all__ = ["PlainFile", "begin_sync", "file_lock", "finish_sync", "forget_locks", "mapped_segments", "writer_of"]


def writer_of(log: Log) -> SegmentWriter:
    """Return the writer of the active segment."""
    writer = log.appender._writer
    assert writer is not None
    return writer


def file_lock(log: Log) -> threading.Lock:
    """Return the lock of the thread that uses the files of the log."""
    return log.appender._io


def mapped_segments(log: Log) -> list[Segment]:
    """Return the segments that are mapped into memory."""
    return [segment for segment in log.reader.segments() if segment._memory is not None]


def begin_sync(log: Log) -> PendingSync:
    """Do what `sync_without_notifying` does before it waits for the disk."""
    with file_lock(log):
        log.appender._write_out(sync=False, tell=False)
        begun = writer_of(log).begin_sync()
    assert begun is not None
    return begun


def finish_sync(log: Log, begun: PendingSync) -> bool:
    """Do what it does then; return whether the writer still works."""
    writer = writer_of(log)
    if writer.await_disk(begun):
        return True
    with file_lock(log), pytest.raises(WriterStopped):
        log.appender._stopping(writer.check)
    return False


def forget_locks(files: SimFiles) -> None:
    """Release the locks of a simulated disk, as the end of the process would."""
    files._locks.clear()
