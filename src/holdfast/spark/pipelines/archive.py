"""Archives logs and lifecycles to a lake of Parquet, Delta or Iceberg, each record once.

    holdfast pipeline archive --data data --lake lake
    holdfast pipeline archive --data data --lake lake --logs 'orders*' --no-lifecycle --compression snappy

Each run adds the durable records since the last one; a run that finds none adds nothing. A run that is killed, at any
moment, neither loses nor duplicates records. Retention waits for the archive, which is a named reader of each log,
`spark:archive:...`, and may drop what is archived. `holdfast.spark.history` then reads archive and log as one.

Each log is a stream of its own (`trigger(availableNow=True)`), whose batches are committed together with the offsets
at which they end: see `lake_parquet` for plain Parquet, which any reader may read at any time, and `lake_tables` for
Delta and Iceberg. Only those commits define how far the archive reaches, and a run begins there. Spark's checkpoint is
deleted at the end of each run: its files are not synced, so that after a power cut it might be behind the lake.
"""

import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pyspark.sql import DataFrame, SparkSession

from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.log.consumer_offsets import Position
from holdfast.spark.options import matching_names
from holdfast.spark.partitions import DataLoss, plan
from holdfast.spark.pipelines import Result
from holdfast.spark.pipelines.lake import Added, Batch, Card, Gap, Lake, Shelf, Table, opened, read_json, write_json
from holdfast.spark.shuffles import cores_of
from holdfast.spark.sources import Track
from holdfast.spark.store_access import StoreAccess
from holdfast.spark.stream import PLACE

__all__ = ["FILE_BYTES", "Archived", "Batches", "archive", "run", "tasks_for"]

FILE_BYTES = 128 << 20
"""Approximate limit of the bytes of a log in one file."""
BATCH_MB = 1024
TABLE_BATCH_MB = 128
"""Delta and Iceberg: a batch passes through the driver's memory."""


def run(
    spark: SparkSession,
    data: str,
    *,
    lake: Annotated[str, "The folder of the lake; created if there is none."],
    logs: Annotated[list[str] | None, "A log to archive, or a pattern; default: all."] = None,
    queues: Annotated[list[str] | None, "A queue whose lifecycle is archived, or a pattern; default: all."] = None,
    records: Annotated[bool, "Archive the records of logs."] = True,
    lifecycle: Annotated[bool, "Archive the lifecycles of the messages of queues."] = True,
    format: Annotated[Literal["parquet", "delta", "iceberg"], "The table format of the lake."] = "parquet",
    compression: Annotated[Literal["zstd", "snappy", "gzip"], "The compression of the files."] = "zstd",
    batch_mb: Annotated[int | None, "Approximate MiB of a log that are committed together."] = None,
    on_damage: Annotated[Literal["fail", "skip"], "Stop at damaged records, or skip them."] = "fail",
    allow_gaps: Annotated[bool, "Continue if the store has dropped records that were not archived yet."] = False,
) -> Result:
    """Archive the records of a store that are new since the last run to a lake, each once."""
    if batch_mb is not None and batch_mb < 1:
        raise InvalidArgument(f"the option 'batch_mb' must be at least 1, not {batch_mb}")
    with StoreAccess.of(data).open() as store:
        wanted = [("logs", name) for name in _chosen("log", store.logs(), logs)] if records else []
        wanted += [("lifecycle", name) for name in _chosen("queue", store.queues(), queues)] if lifecycle else []
    place = Lake(lake)
    place.begin(format)
    rows = []
    for kind, name in wanted:
        done = archive(
            spark,
            data,
            place.shelf(kind, name),
            compression=compression,
            batch_mb=batch_mb,
            on_damage=on_damage,
            allow_gaps=allow_gaps,
        )
        rows.append((kind, name, done.rows, done.batches, done.bytes, done.ends.get("journal", done.ends.get("log"))))
    added = sum(row[2] for row in rows)
    return Result(
        title=f"the lake is up to date with {data!r}" if added else "nothing new: the lake is up to date",
        columns=["what", "name", "rows added", "batches", "bytes", "archived to"],
        rows=rows,
        facts={"lake": str(place.root), "format": place.table, "rows added": added},
    )


@dataclass
class Archived:
    """The result of a run for one shelf."""

    ends: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0
    batches: int = 0


def archive(
    spark: SparkSession,
    data: str,
    shelf: Shelf,
    *,
    compression: str = "zstd",
    batch_mb: int | None = None,
    on_damage: str = "fail",
    allow_gaps: bool = False,
) -> Archived:
    """Bring one shelf of a lake up to date, up to the present durable end of its logs; return what was added.

    Raises `Locked` if another run archives it, and `DataLoss` if the store has dropped records that were not archived,
    unless `allow_gaps`.
    """
    lock = shelf.lock()
    try:
        table = shelf.open_table()
        table.settle()
        with opened(data, shelf) as view:
            tracks = view.tracks()
            card = _card(shelf, tracks, table, allow_gaps=allow_gaps)
            starts = card.reach(table.ends())
            done = Archived(dict(starts))
            size = _size(tracks, starts)
            if size is not None:
                limit = (batch_mb or (BATCH_MB if shelf.lake.table == "parquet" else TABLE_BATCH_MB)) << 20
                cores = cores_of(spark)
                if batch_mb is None and shelf.lake.table == "parquet":
                    limit = max(limit, cores * FILE_BYTES)
                batch = -(-size // -(-size // limit)) if size else limit  # all of the same size
                options = {
                    "path": data,
                    **shelf.options,
                    "onDamage": on_damage,
                    "minPartitions": str(tasks_for(min(batch, size), cores)),
                }
                kinds = {track.label: track.kind for track in tracks}
                _stream(spark, shelf, table, Batches(shelf, table, card, kinds, options, compression, done), batch)
                done.ends = card.reach(table.ends())
            for track in tracks if view.keeps_positions else ():
                _keep_place(track, shelf.reader, done.ends[track.kind])
        return done
    finally:
        lock.release()


def tasks_for(size: int, cores: int) -> int:
    """Return how many tasks write `size` bytes: files are full if possible, and no core waits for the last task."""
    tasks = max(1, -(-size // FILE_BYTES))
    even = -(-tasks // cores) * cores
    return even if size // even >= FILE_BYTES // 2 else tasks


class Batches:
    """Adds each batch of one shelf's stream to the lake, once.

    Spark calls it in the driver or, with Spark Connect, on a copy in a process of the server.
    """

    def __init__(
        self,
        shelf: Shelf,
        table: Table,
        card: Card,
        kinds: dict[str, str],
        options: dict[str, str],
        compression: str,
        done: Archived,
    ) -> None:
        self.shelf = shelf
        self.table = table
        self.card = card
        self.kinds = kinds
        """The track of each label of the source."""
        self.options = options
        self.compression = compression
        self.done = done
        self.error: HoldfastError | None = None

    @property
    def checkpoint(self) -> Path:
        """The folder of Spark's checkpoint."""
        return self.shelf.folder / "checkpoint"

    @property
    def tally(self) -> Path:
        """The file with the numbers of rows, bytes and batches that this run has added."""
        return self.shelf.folder / "added.json"

    def count(self) -> None:
        """Load the numbers that the batches of this run have added from `tally`."""
        if (found := read_json(self.tally)) is not None:
            self.done.rows, self.done.bytes, self.done.batches = (found[name] for name in ("rows", "bytes", "batches"))

    def places(self, ends: dict[str, int]) -> str:
        """Return offsets in the form that the source takes."""
        return json.dumps({label: {"0": ends[track]} for label, track in self.kinds.items()})

    def __call__(self, frame: DataFrame, number: int) -> None:
        try:
            self.add(frame, self.ends_of(number))
        except HoldfastError as error:
            self.error = error  # Spark's own report of it is a page long
            raise
        except Exception:
            raise
        except BaseException as error:  # a panic of deltalake's Rust, at which the thread would end and Spark wait
            self.error = HoldfastError(f"archiving {self.shelf.name!r} failed: {error}")
            raise self.error from error

    def ends_of(self, number: int) -> dict[str, int]:
        """Return the offsets at which a batch ends, from Spark's checkpoint, which has them before the batch begins."""
        last = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]
        return {self.kinds[label]: int(place["0"]) for label, place in json.loads(last).items()}

    def add(self, frame: DataFrame, ends: dict[str, int]) -> Added | None:
        """Add a batch; return None if it is in the lake already.

        Raises `DataLoss` if another run has added to the shelf meanwhile.
        """
        there = self.card.reach(self.table.ends())
        if there == ends:
            return None
        if there != self.done.ends:
            raise DataLoss(
                f"{self.shelf.name!r} was archived to {self.done.ends}, and now to {there}: another run writes to "
                f"{str(self.shelf.lake.root)!r}. Nothing is damaged; run this again when the other one has ended"
            )
        options = {**self.options, "startingOffsets": self.places(there), "endingOffsets": self.places(ends)}
        added = self.table.add(Batch(frame, options, ends, self.compression))
        self.done.ends = ends
        self.done.rows += added.rows
        self.done.bytes += added.bytes
        self.done.batches += 1
        # Through a file, because with Spark Connect this runs in a process of the server, on a copy of this object.
        write_json(self.tally, {"rows": self.done.rows, "bytes": self.done.bytes, "batches": self.done.batches})
        return added


def _stream(spark: SparkSession, shelf: Shelf, table: Table, batches: Batches, size: int) -> None:
    shutil.rmtree(batches.checkpoint, ignore_errors=True)
    batches.tally.unlink(missing_ok=True)
    frame = (
        spark.readStream.format("holdfast")
        .options(**batches.options)
        .options(**({} if StoreAccess.of(batches.options["path"]).url else {"name": shelf.reader}))
        .option("startingOffsets", batches.places(batches.done.ends))
        .option("maxBytesPerTrigger", size)
        .load()
    )
    query = (
        frame.writeStream.foreachBatch(batches)
        .option("checkpointLocation", f"file://{batches.checkpoint}")
        .queryName(f"archive {shelf.name}")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception:
        if batches.error is not None:
            raise batches.error from None
        raise
    finally:
        query.stop()
        batches.count()
        batches.tally.unlink(missing_ok=True)
        shutil.rmtree(batches.checkpoint, ignore_errors=True)


def _card(shelf: Shelf, tracks: list[Track], table: Table, *, allow_gaps: bool) -> Card:
    """Return the shelf's card, checked against the store; store a new one if there is none.

    Raises `DataLoss` if the log was deleted and recreated or, without `allow_gaps`, if unarchived records are gone.
    """
    pictures = {track.kind: track.look(durable=True) for track in tracks}
    ids = {track.kind: track.log.id.hex() for track in tracks}
    card = shelf.card()
    if card is None:
        card = Card(shelf.name, ids, {track: picture.start for track, picture in pictures.items()})
        shelf.put_card(card)
        return card
    if card.ids != ids:
        raise DataLoss(
            f"{shelf.name!r} was deleted and recreated since it was archived into {str(shelf.lake.root)!r}: "
            "archive it into another lake, so that the two are not mixed"
        )
    gaps = [
        Gap(track, end, pictures[track].start)
        for track, end in card.reach(table.ends()).items()
        if end < pictures[track].start
    ]
    if gaps:
        gap = gaps[0]
        if not allow_gaps:
            raise DataLoss(
                f"the records {gap.start} to {gap.stop - 1} of {shelf.name!r} were dropped before they were archived: "
                "continue after them with the option allow_gaps, or begin another lake"
            )
        card = Card(card.name, card.ids, card.starts, [*card.gaps, *gaps])
        shelf.put_card(card)
    return card


def _size(tracks: list[Track], starts: dict[str, int]) -> int | None:
    """Return about how many bytes there are to archive; None if there are no new records."""
    size, new = 0, False
    for track in tracks:
        picture = track.look(durable=True)
        new |= picture.end > starts[track.kind]
        size += sum(stretch.bytes for stretch in plan(picture, starts[track.kind], picture.end))
    return size if new else None


def _keep_place(track: Track, reader: str, end: int) -> None:
    """Commit the end of the archive as the reader's position, so that retention may drop what is archived.

    Spark notifies the source of a finished batch only when the next one begins.
    """
    positions = track.log.positions
    kept = positions.get(PLACE + reader)
    if kept is None or kept.position != end:
        positions.set(Position(PLACE + reader, end, time.time_ns()))


def _chosen(what: str, known: list[str], given: list[str] | None) -> list[str]:
    return known if given is None else matching_names(what, known, given)
