"""Protocols of stores, queues, logs and tables: what an embedded store and a remote one can both do.

`holdfast.open` and `holdfast.connect` return objects of different classes. A function that is annotated with these
protocols takes either. A method has the same parameters in both; `tests/remote/test_interfaces.py` compares them.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack

from holdfast.base.clock import Duration, Instant
from holdfast.log import (
    Damage,
    Freed,
    Headers,
    Inspection,
    LogStats,
    Message,
    Record,
    Retention,
    SegmentStats,
    Verification,
)
from holdfast.log.settings import LogSettings
from holdfast.queue import (
    Counts,
    DeadLetter,
    Delayed,
    Delivery,
    LeaseInfo,
    PeekedMessage,
    Preview,
    QueueSettings,
    QueueStats,
)
from holdfast.schemas.payload_schema import PayloadSchema, SchemaVersion
from holdfast.typed_options import LogOptions, QueueOptions, TableOptions

if TYPE_CHECKING:  # a program without tables and backups does not load their modules
    from holdfast.backup.backup import BackupReport
    from holdfast.backup.copier import Progress
    from holdfast.table import Done, Model, TableSettings
    from holdfast.table import Record as TableRecord
    from holdfast.table.migration.progress import AuditEntry
    from holdfast.table.migration.status import MigrationStatus
    from holdfast.table.operations import Operation, Outcome
    from holdfast.table.query.change_history import RecordChanges
    from holdfast.table.query.planner import Order
    from holdfast.table.query.record_reader import Point

    M = TypeVar("M", bound=Model)
else:
    M = TypeVar("M")

__all__ = ["AnyLog", "AnyLogSchema", "AnyMigrations", "AnyQueue", "AnyScan", "AnyStore", "AnyTable", "AnyTailer"]

Stop = threading.Event | Callable[[], bool]


class AnyTailer(Protocol):
    """A `Tailer`, or a tailer of a remote log: an independent reader for one thread."""

    @property
    def name(self) -> str | None:
        """The name under which `commit` stores the position; None if it has none."""

    @property
    def position(self) -> int:
        """The next sequence that it will read."""

    @property
    def lag(self) -> int:
        """How many records are ahead."""

    def read(self) -> Record | None:
        """Return the next record, or None at the present end."""

    def read_many(self, count: int) -> list[Record]:
        """Return up to `count` records; fewer only at the present end."""

    def __iter__(self) -> Iterator[Record]:
        """Yield records up to the present end."""

    def follow(self, wait: Duration | None = None) -> Iterator[Record]:
        """Yield records as they arrive; stop after `wait` seconds without one. None never stops."""

    def seek(self, sequence: int) -> None:
        """Move to a sequence; to the first retained one if that is later."""

    def seek_time(self, when: Instant) -> None:
        """Move to the first record that is not before `when`; to the end if there is none."""

    def to_start(self) -> None:
        """Move to the first retained record."""

    def to_end(self) -> None:
        """Move behind the last record."""

    def commit(self) -> None:
        """Store the position, durably: the next tailer of this name continues there."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class AnyLogSchema(Protocol):
    """The schema of a `Log`, or of a log that a server keeps."""

    def versions(self) -> list[SchemaVersion]:
        """Return all versions, oldest first; an empty list if the log has no schema."""

    def newest(self) -> SchemaVersion | None:
        """Return the newest version; None if the log has no schema."""

    def check(self, schema: PayloadSchema) -> None:
        """Raise `InvalidArgument` if `set` would refuse the schema: it is invalid, or not compatible."""

    def set(self, schema: PayloadSchema) -> SchemaVersion:
        """Add the schema as a new version, durably, and return it; one that the log has already adds none."""


class AnyLog(Protocol):
    """A `Log`, or a log that a server keeps."""

    @property
    def name(self) -> str:
        """The name of the log."""

    @property
    def settings(self) -> LogSettings:
        """The settings with which it is open."""

    @property
    def schema(self) -> AnyLogSchema:
        """The schema of the payloads."""

    @property
    def damage(self) -> Sequence[Damage]:
        """Damage that was found while reading, each once."""

    @property
    def start(self) -> int:
        """The first retained sequence."""

    @property
    def end(self) -> int:
        """The next sequence to be written."""

    def readable(self) -> tuple[int, int]:
        """Return the first sequence that can be read now, and the one after the last."""

    def append(self, payload: bytes, key: bytes | None = None, headers: Headers | None = None) -> int:
        """Add a record and return its sequence."""

    def append_many(self, messages: Iterable[bytes | Message]) -> range:
        """Add records in one write, all or none; return their sequences."""

    def sync(self) -> None:
        """Return when all that was appended before is on disk."""

    def read(self, start: int | None = None, stop: int | None = None, *, reverse: bool = False) -> Iterator[Record]:
        """Yield the records from `start` up to, not including, `stop`; or backwards."""

    def tailer(self, name: str | None = None) -> AnyTailer:
        """Return an independent reader from the start or, with a name, from its last committed position."""

    def wait_for(self, sequence: int, timeout: float | None) -> bool:
        """Wait until `sequence` or a later record can be read; False if the timeout passes. None waits forever."""

    def sequence_at(self, when: Instant, *, past_damage: bool = True) -> int:
        """Return the first sequence whose record is not before `when`; the end if there is none."""

    def stats(self) -> LogStats:
        """Return sizes, ends, times and named tailers."""

    def segments(self) -> list[SegmentStats]:
        """Return each segment, oldest first."""

    def verify(self, progress: Callable[[int, int], None] | None = None) -> Verification:
        """Check every checksum of every kept record."""

    def inspect(self, offset: int, segment: str | None = None) -> Inspection:
        """Return the block or record at this byte of a segment (the last one, or the one of that file name)."""

    def compact(self, *, retention: Retention | None = None, force: bool = False, dry_run: bool = False) -> Freed:
        """Apply retention; return how many segments were (or would be) dropped, and their `bytes`."""

    def clear(self, *, force: bool = False) -> int:
        """Drop every record that named tailers have read (or, forced, every record); return how many."""


class AnyQueue(Protocol):
    """A `Queue`, or a queue that a server keeps."""

    @property
    def name(self) -> str:
        """The name of the queue."""

    @property
    def settings(self) -> QueueSettings:
        """The settings of the queue."""

    @property
    def log(self) -> AnyLog:
        """The log that holds its messages."""

    @property
    def paused(self) -> bool:
        """Whether deliveries are paused."""

    def put(
        self,
        payload: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
        delay: Duration | None = None,
        priority: int = 0,
        ttl: Duration | None = None,
        dedup: str | bytes | None = None,
    ) -> int:
        """Add a message and return its id."""

    def put_many(self, messages: Iterable[bytes | Message]) -> Sequence[int]:
        """Add messages in one write, all or none; return their ids."""

    def put_counted(self, messages: Iterable[bytes | Message]) -> tuple[Sequence[int], int]:
        """Add messages as `put_many` does; return their ids, and how many were duplicates."""

    def lease(
        self,
        count: int = 1,
        *,
        lease: Duration | None = None,
        wait: Duration | None = 0,
        most_bytes: int | None = None,
    ) -> list[Delivery]:
        """Lease up to `count` messages for `lease` seconds; if there are none, wait up to `wait` seconds for one."""

    def get(self, wait: Duration | None = 0, lease: Duration | None = None) -> Delivery | None:
        """Lease one message; None if there is none within `wait` seconds."""

    def consume(
        self, batch: int = 100, stop: Stop | None = None, *, lease: Duration | None = None
    ) -> Iterator[Delivery]:
        """Yield messages as they arrive, leased `batch` at a time, until `stop` is set (or returns true). Ack each."""

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge deliveries: they are never delivered again. Raises `LeaseLost`."""

    def nack(self, deliveries: Iterable[Delivery], reason: str = "", delay: Duration | None = None) -> None:
        """Report failed deliveries: retry them after `delay`, or dead-letter them. Raises `LeaseLost`."""

    def extend(self, deliveries: Iterable[Delivery], duration: Duration | None = None) -> None:
        """Let the leases of these deliveries end `duration` from now. Raises `LeaseLost`."""

    def release(self, deliveries: Iterable[Delivery]) -> None:
        """Release deliveries untried: they are ready at once. Raises `LeaseLost`."""

    def peek(self, count: int = 10) -> list[PeekedMessage]:
        """Return the next messages in order of delivery, without leasing them."""

    def message(self, id: int) -> PeekedMessage | None:
        """Return a message by its id in any state; None if the log no longer has it."""

    def stats(self) -> QueueStats:
        """Return counts, ages and rates."""

    def counts(self) -> Counts:
        """Return how many messages are in each state."""

    def waiting(self) -> int:
        """Return how many messages are ready or delayed."""

    def leases(self, count: int | None = None) -> list[LeaseInfo]:
        """Return the present leases, oldest first."""

    def void_lease(self, lease_id: int, reason: str = "the lease was void") -> int:
        """Revoke a lease: its messages return to the queue; return how many."""

    def delayed(self, count: int = 200) -> list[Delayed]:
        """Return the delayed messages, the next to become ready first."""

    def delayed_histogram(self, buckets: int = 60) -> list[tuple[int, int, int]]:
        """Return buckets of when delayed messages become ready: start, end (not included) and count."""

    def dead_letters(self, count: int | None = None) -> list[DeadLetter]:
        """Return the dead letters of this queue, oldest first, without moving them."""

    def redrive(self, ids: Iterable[int] | None = None) -> int:
        """Move dead letters (all, or those with these ids) back into this queue, and return how many."""

    def delete_dead_letters(self, ids: Iterable[int] | None = None) -> int:
        """Drop dead letters of this queue (all, or those with these ids) permanently, and return how many."""

    def pause(self) -> None:
        """Stop deliveries until `resume`; the queue still accepts messages."""

    def resume(self) -> None:
        """Resume deliveries."""

    def purge(self) -> int:
        """Drop every message that is not leased, also delayed ones; return how many."""

    def preview(self, position: int | None = None, *, when: Instant | None = None) -> Preview:
        """Return what `seek(position)`, or `seek_time(when)`, would do, without doing it."""

    def seek(self, sequence: int) -> None:
        """Move the position: earlier messages count as acknowledged, later ones are delivered, again if necessary."""

    def seek_time(self, when: Instant) -> None:
        """Move the position to the first message that was not put before `when`."""


class AnyScan(Protocol[M]):
    """The result of a scan. It may be iterated more than once; each time it is read again."""

    @property
    def cursor(self) -> str | None:
        """After a complete iteration with a limit: the cursor of the next page; None if there is none."""

    def __iter__(self) -> "Iterator[TableRecord[M]]":
        """Read the records."""

    def first(self) -> "TableRecord[M] | None":
        """Return the first record, None if there is none."""

    def explain(self) -> str:
        """Return the plan as a sentence."""


class AnyTable(Protocol[M]):
    """A `Table`, or a table that a server keeps. `where` is an expression, such as `Account.age >= 18`."""

    @property
    def name(self) -> str:
        """The name of the table."""

    @property
    def model(self) -> type[M]:
        """The class of its records."""

    @property
    def settings(self) -> "TableSettings":
        """The saved settings of the table."""

    @property
    def last_version(self) -> int:
        """The version of the last change; 0 if there was none."""

    def get(
        self,
        key: bytes,
        *,
        as_of: "Point | None" = None,
        include_deleted: bool = False,
        select: Sequence[Any] | None = None,
    ) -> "TableRecord[M] | None":
        """Return the record with this key; None if there is none, or it is deleted."""

    def get_many(
        self,
        keys: Iterable[bytes],
        *,
        as_of: "Point | None" = None,
        include_deleted: bool = False,
        select: Sequence[Any] | None = None,
    ) -> "list[TableRecord[M]]":
        """Return the existing records of these keys, in the order of the keys."""

    def scan(
        self,
        where: Any = None,
        *,
        order: "Order | None" = None,
        limit: int | None = None,
        start: bytes | None = None,
        include_start: bool = True,
        cursor: str | None = None,
        as_of: "Point | None" = None,
        include_deleted: bool = False,
        select: Sequence[Any] | None = None,
        allow_table_scan: bool = False,
    ) -> AnyScan[M]:
        """Return the records that match `where`, in an order. They are read while the result is iterated."""

    def count(self, where: Any = None, **options: Any) -> int:
        """Return how many records match `where`; the options are those of `scan`."""

    def changes(
        self,
        keys: Iterable[bytes] | None = None,
        *,
        where: Any = None,
        from_version: "Point | None" = None,
        to_version: "Point | None" = None,
        max_versions: int = 1,
        select: Sequence[Any] | None = None,
        order: "Order | None" = None,
        limit: int | None = None,
        start: bytes | None = None,
        include_start: bool = True,
        include_deleted: bool = False,
        allow_table_scan: bool = False,
    ) -> "list[RecordChanges]":
        """Return the changes of records: of those with these keys, or those that a scan finds, in its order."""

    def add(self, record: M | Mapping[str, Any], *, key: bytes | None = None) -> "Done":
        """Add a record; raises `ValidationFailed`, or `AlreadyExists`."""

    def add_many(self, records: Iterable[M | Mapping[str, Any]]) -> "list[Outcome]":
        """Add records in one request; the outcome of each is its result or its error."""

    def change(
        self,
        key: bytes,
        changes: Mapping[Any, Any],
        *,
        check: Mapping[Any, Any] | None = None,
        if_version: int | None = None,
    ) -> "Done":
        """Change fields of a record: by path the new value, None to remove one, or an edit."""

    def delete(self, key: bytes, *, hard: bool = False, if_version: int | None = None) -> "Done":
        """Soft-delete a record and free its unique values; with `hard`, delete it and its history."""

    def undelete(self, key: bytes) -> "Done":
        """Restore a soft-deleted record."""

    def write(self, operations: "Sequence[Operation]") -> "list[Outcome]":
        """Carry out operations, in their order. A remote table does not apply them as one transaction."""


class AnyMigrations(Protocol):
    """The migrations of the tables; iterate for the status of each."""

    def __iter__(self) -> "Iterator[MigrationStatus]":
        """Return the migration status of each table."""

    def status(self, table: str) -> "MigrationStatus":
        """Return the status of one table's migration."""

    def audit(self, table: str) -> "list[AuditEntry]":
        """Return the kept audit entries of a table's migrations, the oldest first."""

    def wait(self, table: str | None = None, timeout: Duration | None = None) -> bool:
        """Wait until the migration of a table, or of all tables, is complete; return False after `timeout`."""

    def pause(self, table: str) -> bool:
        """Pause a migration until `resume`; return False if it is not running."""

    def resume(self, table: str) -> bool:
        """Resume a migration that was paused or has failed; return False if it was neither."""

    def cancel(self, table: str) -> bool:
        """Cancel a migration; return False if there is none."""


class AnyStore(Protocol):
    """A `Store`, or a `RemoteStore`: what `holdfast.open` and `holdfast.connect` return; also a context manager."""

    @property
    def read_only(self) -> bool:
        """Whether a missing queue or log is an error, and is not created."""

    def queue(self, name: str, **settings: Unpack[QueueOptions]) -> AnyQueue:
        """Return the queue of that name, created if there is none.

        A remote store refuses settings of the queue's log. Without settings it declares the queue as AMQP does.
        """

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted; of a remote store, those of the virtual host."""

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages."""

    def log(self, name: str, *, schema: PayloadSchema | None = None, **settings: Unpack[LogOptions]) -> AnyLog:
        """Return the log of that name, created if there is none. A remote store refuses settings.

        `schema` is kept with the log.
        """

    def logs(self) -> list[str]:
        """Return the names of all logs, sorted."""

    def table(self, model: type[M] | str, **settings: Unpack[TableOptions]) -> AnyTable[M]:
        """Return the table of a model, or of a name. A remote store refuses settings, and creates no table."""

    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""

    def migrations(self) -> AnyMigrations:
        """Return the migrations of the tables."""

    def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        base: str | os.PathLike[str] | None = None,
        incremental: bool = True,
        copy: bool = False,
        progress: "Progress | None" = None,
    ) -> "BackupReport":
        """Back the store up into a new folder in `dest`; of a remote store, on the server's machine."""

    def close(self) -> None:
        """Close the store; idempotent."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
