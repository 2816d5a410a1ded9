"""Verifies every checksum of all logs and journals of a store, in parallel.

    holdfast pipeline verify --data data

Finds what `holdfast log verify` finds, and checks journals too. Changes nothing, and works while the store is in use:
each segment is checked as far as it was written when the check began.
"""

import pickle
from collections.abc import Iterator
from dataclasses import asdict
from heapq import heapify, heapreplace
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast.base.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.log.layout import SegmentHeader
from holdfast.log.log import Log
from holdfast.log.segment import Segment
from holdfast.log.verification import verify_segments
from holdfast.spark.partitions import Stretch
from holdfast.spark.pipelines import Result
from holdfast.spark.schemas import ddl
from holdfast.spark.shuffles import cores_of
from holdfast.spark.store_access import StoreAccess

__all__ = ["check", "run", "segments"]

TASKS_A_CORE = 3
"""More tasks than cores balance costs that bytes do not show, such as compression."""
_DAMAGE = pa.struct(
    [
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("reason", pa.string()),
        ("first_lost", pa.int64()),
        ("lost", pa.int64()),
    ]
)
_CHECKED = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", "name", "path")),
        *((name, pa.int64()) for name in ("segments", "blocks", "records", "bytes")),
        ("damage", pa.list_(_DAMAGE)),
    ]
)


def run(
    spark: SparkSession,
    data: str,
    *,
    log: Annotated[str | None, "Only this log; default: all logs and journals."] = None,
) -> Result:
    """Check every checksum of a store in parallel; the exit code is 1 if anything is damaged."""
    checked = check(segments(spark, data, log)).collect()  # one row for each segment
    places = [(row, damage) for row in checked for damage in row["damage"]]
    gone = [row["path"] for row in checked if not row["segments"]]
    if unseen := next((path for path in gone if Path(path).exists()), None):
        raise HoldfastError(f"the workers cannot read {unseen!r}: put the store where all of them can read it")
    logs, journals = (len({row["name"] for row in checked if row["kind"] == kind}) for kind in ("log", "journal"))
    return Result(
        title="no damage found" if not places else f"{len(places)} damaged places",
        columns=["kind", "name", "file", "offset", "length", "lost", "first lost", "reason"],
        rows=[
            (
                row["kind"],
                row["name"],
                Path(damage["path"]).name,
                *(damage[what] for what in ("offset", "length", "lost", "first_lost", "reason")),
            )
            for row, damage in places
        ],
        facts={
            "logs": logs,
            "journals": journals,
            **{what: sum(row[what] for row in checked) for what in ("segments", "blocks", "records", "bytes")},
            "damaged": len(places),
            **({"dropped meanwhile": len(gone)} if gone else {}),
        },
        ok=not places,
    )


def segments(spark: SparkSession, data: str, log: str | None = None) -> DataFrame:
    """Return the segments of a store, distributed so that each task reads about as many bytes."""
    if StoreAccess.of(data).url:
        raise InvalidArgument(
            f"{data!r} is not a folder: verify a replica with holdfast replica verify, and a served store where its "
            "folder is"
        )
    if not Path(data).is_dir():
        raise NotFound(f"there is no store at {data!r}")
    with holdfast.open(data, read_only=True) as store:
        found = [("log", store.log(name)) for name in ([log] if log is not None else store.logs())]
        if log is None:
            found += [("journal", store.journal(queue)) for queue in store.queues()]
        rows = [
            (kind, each.name, str(segment.path), segment.limit, pickle.dumps(_whole(segment)))
            for kind, each in found
            for segment in _segments(each)
        ]
    tasks = max(1, min(len(rows), cores_of(spark) * TASKS_A_CORE))
    # The largest first, each to the task that has the least so far.
    load = [(0, task) for task in range(tasks)]
    heapify(load)
    placed = []
    for row in sorted(rows, key=lambda row: -row[3]):
        held, task = load[0]
        heapreplace(load, (held + row[3], task))
        placed.append((task, *row))
    schema = "task INT, kind STRING, name STRING, path STRING, bytes LONG, segment BINARY"
    return spark.createDataFrame(placed, schema).repartitionById(tasks, F.col("task"))


def check(segments: DataFrame) -> DataFrame:
    """Return one row for each segment: how much was read, and the damage that was found."""
    return segments.mapInArrow(_check, ddl(_CHECKED))


def _check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check segments, in a task; yield a row for each."""
    for batch in batches:
        for row in batch.to_pylist():
            stretch: Stretch = pickle.loads(row["segment"])
            found = asdict(verify_segments([stretch.segment()], lambda damage: None))
            yield pa.RecordBatch.from_pylist(
                [{"kind": row["kind"], "name": row["name"], "path": row["path"], **found}], _CHECKED
            )


def _segments(log: Log) -> tuple[Segment, ...]:
    log.refresh()
    return log.reader.segments()


def _whole(segment: Segment) -> Stretch:
    """Return the readable part of a segment as a stretch: bytes that are being written after it are not damage."""
    limit, end = segment.extent
    header = SegmentHeader(segment.segment_id, segment.log_id, segment.base, segment.created)
    return Stretch(str(segment.log), segment.name, header, limit, end, segment.base, end or segment.base, limit)
