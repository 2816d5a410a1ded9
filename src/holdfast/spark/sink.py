"""The sink: tasks write finished parts, then the driver commits the batch by one manifest.

The parts and the manifest are files of the store's folder, objects of its bucket, or sent to its server.

A batch that has a key, by `txnAppId` or because it is of a stream, is added once even if Spark repeats it.
"""

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.log.batch_inbox import Manifest
from holdfast.log.compression import codec_by_name
from holdfast.spark.arrow_to_blocks import blocks
from holdfast.spark.errors import in_one_line
from holdfast.spark.gc_tuning import settle
from holdfast.spark.options import WriteOptions
from holdfast.spark.outbox import Outbox, outbox_of
from holdfast.spark.outbox import Parts as Written

__all__ = ["BatchWriter", "Parts", "StreamWriter"]

logger = logging.getLogger("holdfast.spark")

_NUMBER = (ByteType, ShortType, IntegerType, LongType)
_SECONDS = (*_NUMBER, FloatType, DoubleType, DecimalType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "value": (BinaryType, StringType),
    "key": (BinaryType, StringType),
    "headers": (ArrayType,),
    "textHeaders": (ArrayType,),
    "priority": _NUMBER,
    "delay": _SECONDS,
    "ttl": _SECONDS,
    "expiry": (TimestampType,),
}
_READ_ONLY = {"topic", "partition", "offset", "timestamp", "timestampType", "producer"}
"""Columns of the source that a copy may contain; the log assigns its own values."""


@dataclass
class Parts(WriterCommitMessage):
    """The parts that a task wrote."""

    task: int
    query: str | None
    written: Written


class _Sink:
    """Common base of batch and stream writers. Pickled for the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self.options = WriteOptions.of(options)
        if overwrite:
            raise InvalidArgument("a log can only be appended to: write with mode('append')")
        self._outbox().check()
        _check_columns(schema)

    def target(self, query: str, batch: int, *, once: bool) -> Manifest:
        """Return the manifest of a batch, without parts yet. With `once`, its key is remembered when it is adopted."""
        log, queue = self.options.log, self.options.queue
        if log is None:
            assert queue is not None
            log = self._outbox().log_of(queue)
        return Manifest(log, queue, query, batch, time.time_ns(), once=once)

    def is_known(self, manifest: Manifest) -> bool:
        """Return whether a batch, or a later one of its query, was committed before."""
        return self._outbox().is_known(manifest)

    def write_parts(self, batches: Iterator[pa.RecordBatch], manifest: Manifest, query: str | None) -> Parts:
        """Write the rows of one task, in the task; if that fails, delete what it wrote."""
        settle()
        context = TaskContext.get()
        codec = codec_by_name(self.options.compression)
        writer = self._outbox().writer(manifest, codec)
        try:
            for block in blocks(batches, self.options.block_bytes, codec):
                writer.put(block)
            written = Written(writer.finish(), dict(getattr(writer, "checksums", {})))
            return Parts(context.partitionId() if context else 0, query, written)
        except BaseException:
            writer.close_discarding()
            raise

    def hand_over(self, manifest: Manifest, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the batch, in the driver, and wait until it is adopted into the log.

        If no process owns the store of a folder, it is adopted here. After the timeout this logs a warning and returns:
        the batch is committed, and its owner adopts it later. A batch that was committed before is not added again, and
        one without parts is not committed. Raises `Corrupt` if the owner finds its parts damaged.
        """
        ordered = sorted((m for m in messages if isinstance(m, Parts)), key=lambda message: message.task)
        written = Written.of([message.written for message in ordered])
        if written.parts:
            self._outbox().hand_over(manifest, written, self.options.wait)

    def take_back(self, manifest: Manifest, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the parts of a failed batch, unless it was committed before it failed. Errors are only logged."""
        written = Written.of([message.written for message in messages if isinstance(message, Parts)])
        try:
            self._outbox().take_back(manifest, written, self.options.wait)
        except HoldfastError as error:  # the error of the batch must be raised, not this one; the parts are swept later
            logger.warning("deleting the parts of a failed batch failed: error=%s", error)

    def _outbox(self) -> Outbox:
        return outbox_of(self.options.access)


class BatchWriter(_Sink, DataSourceArrowWriter):
    """Writes a DataFrame to a log or a queue, all or nothing. Only with `txnAppId` a repeated write adds nothing."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        once = self.options.app is not None
        self.manifest = self.target(self.options.app or uuid.uuid4().hex, self.options.version or 0, once=once)

    @in_one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Parts:
        """Write the rows of one task."""
        return self.write_parts(iterator, self.manifest, None)

    @in_one_line
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the batch after all tasks have finished."""
        self.hand_over(self.manifest, messages)

    @in_one_line
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the batch after a task has failed for good."""
        self.take_back(self.manifest, messages)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Writes a stream to a log or a queue: each batch once, however often Spark repeats it.

    A batch is known by its number and the query's id, which is in the checkpoint: a new checkpoint writes again.
    """

    @in_one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Parts:
        """Write the rows of one task of one batch."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if query is None or batch is None:
            raise InvalidArgument("this writer needs a streaming query")
        return self.write_parts(iterator, self.target(query, int(batch), once=True), query)

    @in_one_line
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a batch after all its tasks have finished, unless it was committed before."""
        if (query := _query_of(messages)) is not None:
            self.hand_over(self.target(query, batchId, once=True), messages)

    @in_one_line
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Discard a batch after a task has failed for good; the query repeats it when it is restarted."""
        if (query := _query_of(messages)) is not None:
            self.take_back(self.target(query, batchId, once=True), messages)


def _query_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((message.query for message in messages if isinstance(message, Parts)), None)


def _check_columns(schema: StructType) -> None:
    if twice := [name for name in _COLUMNS if schema.names.count(name) > 1]:
        raise InvalidArgument(f"there are two columns {twice[0]!r}: drop or rename one")
    if "ttl" in schema.names and "expiry" in schema.names:
        raise InvalidArgument("the columns 'ttl' and 'expiry' both set the expiry of a message: drop one")
    if "value" not in schema.names:
        raise InvalidArgument(f"the column 'value' is missing; there are: {', '.join(schema.names) or 'none'}")
    for field in schema.fields:
        if field.name in _READ_ONLY:
            continue
        if field.name not in _COLUMNS:
            raise InvalidArgument(
                f"a message has no column {field.name!r}: drop it, or put it into 'value' or 'headers'. "
                f"There are: {', '.join(_COLUMNS)}"
            )
        if not isinstance(field.dataType, _COLUMNS[field.name]):
            kinds = " or ".join(kind.typeName() for kind in _COLUMNS[field.name])
            raise InvalidArgument(f"the column {field.name!r} takes {kinds}, not {field.dataType.simpleString()}")
        if field.name == "textHeaders":
            if not (isinstance(field.dataType, ArrayType) and isinstance(field.dataType.elementType, StringType)):
                raise InvalidArgument(
                    f"the column 'textHeaders' takes array<string>, not {field.dataType.simpleString()}"
                )
        elif isinstance(field.dataType, ArrayType) and not _are_headers(field.dataType.elementType):
            raise InvalidArgument(
                "the column 'headers' takes array<struct<key: string, value: binary or string>>, "
                f"not {field.dataType.simpleString()}"
            )


def _are_headers(kind: DataType) -> bool:
    return (
        isinstance(kind, StructType)
        and sorted(kind.names) == ["key", "value"]
        and isinstance(kind["key"].dataType, StringType)
        and isinstance(kind["value"].dataType, BinaryType | StringType)
    )
