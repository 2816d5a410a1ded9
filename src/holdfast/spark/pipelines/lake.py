"""Layout of a lake: for each log and each queue's lifecycle a shelf, with its source and its end offsets.

    <lake>/logs/log=<name>/date=YYYY-MM-DD/*.parquet          records, by the day in UTC on which they were written
    <lake>/lifecycle/queue=<name>/date=YYYY-MM-DD/*.parquet   events of messages, by the day in UTC of the event
    <lake>/_holdfast/                                         state of `archive` and `history`; other readers ignore it

With Delta, `logs` and `lifecycle` are one table each; with Iceberg both are in the SQL catalog `lake`, in `catalog.db`.
Names in paths are escaped as Spark does it: special characters as `%XX`.
"""

import importlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.base.errors import Corrupt, InvalidArgument, NewerFormat, NotFound
from holdfast.base.files import Lock, UmaskFiles, read_file, replace_file, translate_os_errors
from holdfast.base.names import abbreviate, escape_name
from holdfast.spark.options import ReadOptions
from holdfast.spark.pipelines.output_folder import local_folder, make_private
from holdfast.spark.schemas import LIFECYCLE, LOG
from holdfast.spark.sources import View

__all__ = [
    "KINDS",
    "TABLES",
    "Added",
    "Batch",
    "Card",
    "Contents",
    "Gap",
    "Lake",
    "Shelf",
    "Table",
    "day_of",
    "needs",
    "opened",
    "read_json",
    "write_json",
]

KINDS = {"logs": LOG, "lifecycle": LIFECYCLE}
"""The kinds of shelves, and their columns."""
TABLES = ("parquet", "delta", "iceberg")
OWN = "_holdfast"
_FORMAT = 1
_DAY_US = 86_400 * 1_000_000
_SPECIAL = re.compile(r'[\x00-\x1f"#%\'*/:=?\\{\[\]^\x7f]')
"""The characters that Spark escapes in the value of a partition."""
_PATTERN = re.compile(r"[\[\]{}*?#%\\^|<>\"`\x00-\x1f]")
_VALUE_MAX = 200


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that the store dropped before they were archived."""

    track: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Card:
    """The origin of a shelf: its logs, and where the archive begins in each.

    A track is `log`; for a lifecycle `put` (the queue's log) and `journal`.
    """

    name: str
    ids: dict[str, str]
    """For each track the id of its log, which a recreated log does not share."""
    starts: dict[str, int]
    """Where the archive begins."""
    gaps: list[Gap] = field(default_factory=list)

    def reach(self, ends: dict[str, int]) -> dict[str, int]:
        """Return the offsets up to which the shelf is complete, given the ends of its batches.

        Known gaps count as archived.
        """
        found = {**self.starts, **ends}
        for gap in self.gaps:
            found[gap.track] = max(found[gap.track], gap.stop)
        return found


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to be archived together."""

    frame: DataFrame
    """Its rows."""
    options: dict[str, str]
    """Options of the source that read the same rows."""
    ends: dict[str, int]
    """The end offsets of the shelf with this batch."""
    compression: str


@dataclass(frozen=True, slots=True)
class Added:
    """What a batch added."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a shelf at one moment."""

    ends: dict[str, int]
    """The end offset of each archived track; empty without a batch."""
    files: list[str]
    """Parquet files with the rows of all batches up to there."""


class Table(Protocol):
    """Interface of a table format: adds a batch to a shelf together with the offsets at which it ends.

    `add` does not check whether the batch is there already: its caller compares `ends` first.
    """

    def ends(self) -> dict[str, int]:
        """Return how far each track is archived; empty if there is no batch yet."""

    def add(self, batch: Batch) -> Added:
        """Add a batch. Durable when this returns."""

    def contents(self, since: date | None, until: date | None) -> Contents:
        """Return the offsets that are archived, and the files with rows of these days, both ends included."""

    def settle(self) -> None:
        """Finish, or remove, what a killed run had begun."""


class Lake:
    """A folder with archives, which the driver and all workers can access."""

    def __init__(self, path: str) -> None:
        self.root = local_folder(path)
        self._files = UmaskFiles()
        self.own = self.root / OWN
        self.id = ""
        self.name = self.root.name
        """The name of its folder when it was created."""
        self.table = ""
        """One of `TABLES`."""
        if (content := read_json(self.own / "lake.json")) is not None:
            self.id, self.name, self.table = (str(content[what]) for what in ("id", "name", "table"))

    @property
    def is_there(self) -> bool:
        """Whether the lake was created, by this or an earlier run."""
        return bool(self.id)

    @property
    def reader(self) -> str:
        """The name under which its streams hold retention back; it does not change if the lake is moved."""
        return f"archive:{abbreviate(self.name, 60)}-{self.id[:8]}"

    def begin(self, table: str) -> None:
        """Create it, if it does not exist. Raises `InvalidArgument` if it has another format."""
        if self.is_there:
            if table != self.table:
                raise InvalidArgument(
                    f"the lake {str(self.root)!r} has the format {self.table}, not {table}: choose another lake"
                )
            return
        if table != "parquet" and _PATTERN.search(str(self.root)):
            raise InvalidArgument(f"{str(self.root)!r} has characters that {table} does not allow in a path: rename it")
        with translate_os_errors("making a lake in", self.root):
            make_private(self.root)
            self._files.make_dirs(self.own)
            self.id, self.table = self._files.random_bytes(16).hex(), table
            write_json(self.own / "lake.json", {"id": self.id, "name": self.name, "table": table})

    def shelf(self, kind: str, name: str) -> "Shelf":
        """Return the shelf of a log (`logs`) or of the lifecycle of a queue (`lifecycle`)."""
        return Shelf(self, kind, name)

    def names(self, kind: str) -> list[str]:
        """Return the names of the shelves of a kind."""
        cards = (read_json(self.own / kind / folder / "card.json") for folder in self._files.list(self.own / kind))
        return sorted(str(card["name"]) for card in cards if card is not None)


class Shelf:
    """The archive of one log, or of one queue's lifecycle."""

    def __init__(self, lake: Lake, kind: str, name: str) -> None:
        self.lake = lake
        self.kind = kind
        self.name = name
        self.folder = lake.own / kind / escape_name(name)

    @property
    def options(self) -> dict[str, str]:
        """The source's options to read it."""
        if self.kind == "logs":
            return {"log": self.name, "includeHeaders": "true"}
        return {"queue": self.name, "view": "lifecycle"}

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return KINDS[self.kind]

    @property
    def reader(self) -> str:
        """The name under which it holds retention back, in the log and, for a lifecycle, in the journal."""
        if self.kind == "logs":
            return self.lake.reader
        return abbreviate(f"{self.lake.reader}:{self.name}", 200)

    @property
    def partition(self) -> str:
        """The column, in addition to `date`, by which the lake is partitioned."""
        return "log" if self.kind == "logs" else "queue"

    @property
    def path(self) -> Path:
        """The folder of its days, in a lake of plain Parquet."""
        # Spark unescapes a character at a time, so non-ASCII characters are not escaped.
        value = _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", self.name)
        return self.lake.root / self.kind / f"{self.partition}={abbreviate(value, _VALUE_MAX)}"

    def lock(self) -> Lock:
        """Acquire the lock of an archiving run; raises `Locked` if another run has it. The caller releases it."""
        files = UmaskFiles()
        with translate_os_errors("archiving into", self.folder):
            files.make_dirs(self.folder)
            return files.lock(self.folder / "LOCK")

    def card(self) -> Card | None:
        """Return its card; None if no run has begun to archive it."""
        content = read_json(self.folder / "card.json")
        if content is None:
            return None
        gaps = [Gap(**gap) for gap in content["gaps"]]
        return Card(content["name"], content["ids"], content["starts"], gaps)

    def put_card(self, card: Card) -> None:
        """Store its card, at the beginning or with a new gap."""
        with translate_os_errors("archiving into", self.folder):
            write_json(self.folder / "card.json", asdict(card))

    def open_table(self) -> Table:
        """Return the reader and writer of its rows."""
        if self.lake.table == "parquet":
            from holdfast.spark.pipelines.lake_parquet import ParquetTable  # noqa: PLC0415 - it imports this module

            return ParquetTable(self)
        from holdfast.spark.pipelines.lake_tables import DeltaTable, IcebergTable  # noqa: PLC0415 - likewise

        return DeltaTable(self) if self.lake.table == "delta" else IcebergTable(self)


def day_of(kind: str) -> Column:
    """Return the date of a row in UTC, whatever the session's time zone is."""
    micros = F.unix_micros("timestamp" if kind == "logs" else "time")
    return F.date_from_unix_date(F.floor(micros / F.lit(_DAY_US)).cast("int"))


@contextmanager
def opened(data: str, shelf: Shelf) -> Iterator[View]:
    """Open the logs of a store that a shelf archives."""
    view = View(ReadOptions.of({"path": data, **shelf.options}))
    try:
        yield view
    finally:
        view.close()


def needs(module: str, install: str) -> Any:
    """Import and return a library that only some lakes need; raises `NotFound` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise NotFound(f"this lake needs the library {install!r}: run pip install '{install}'") from None


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a small JSON file of the lake; None if there is none. Raises `Corrupt` or `NewerFormat`."""
    try:
        content: dict[str, Any] = json.loads(read_file(UmaskFiles(), path))
        if content["format"] > _FORMAT:
            raise NewerFormat(f"{str(path)!r} was written by a newer version: upgrade Holdfast")
        return content
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{str(path)!r} cannot be read: restore it from a backup of the lake", str(path)) from error


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a small file of the lake atomically; durable when this returns."""
    replace_file(UmaskFiles(), path, json.dumps({"format": _FORMAT, **content}, ensure_ascii=False).encode() + b"\n")
