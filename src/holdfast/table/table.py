"""The public `Table`: typed, versioned records of one model in a store."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.log.read_only_log import ReadOnlyLog
from holdfast.table.engine import TableEngine
from holdfast.table.live.replicator import Replicator
from holdfast.table.live.sync_updates import ChangeFeed
from holdfast.table.live.watcher import Watchers
from holdfast.table.model.keys import KeyLayout
from holdfast.table.model.model import Model
from holdfast.table.operations import Add, Change, Delete, Done, Outcome, Undelete
from holdfast.table.query.change_history import ChangeHistory
from holdfast.table.query.record_reader import RecordReader
from holdfast.table.query.scanner import Scanner
from holdfast.table.storage.commit_pipeline import CommitPipeline

__all__ = ["Table"]

M = TypeVar("M", bound=Model)


class Table(Generic[M]):
    """The records of one model; made by `Store.table`.

    Files: the log of its changes in `tables/<name>/`, its view in `table-state/`. Threads: all methods may be called
    from any.
    """

    if not TYPE_CHECKING:  # signatures and docstrings for `help`; each table has the methods of its own parts
        write = CommitPipeline.write
        rebuild = CommitPipeline.rebuild
        get = RecordReader.get
        get_many = RecordReader.get_many
        counts = RecordReader.counts
        scan = Scanner.scan
        count = Scanner.count
        aggregate = Scanner.aggregate
        changes = ChangeHistory.changes
        updates = ChangeFeed.updates
        update_history = ChangeFeed.update_history
        watch = Watchers.watch
        apply = Replicator.apply
        compact_tombstones = Replicator.compact_tombstones

    def __init__(self, engine: TableEngine[M]) -> None:
        self.engine = engine
        """Its parts, for other modules of Holdfast."""
        self.name = engine.schema.name
        self.settings = engine.schema.settings
        self.log = ReadOnlyLog(
            engine.log,
            f"the table {self.name!r} is built from it. Change records with add, change and delete; remove one for "
            "good with delete(hard=True), and all of them with Store.delete_table",
        )
        """The log of its changes, to be read and followed."""
        # Bound once: a method that calls them would cost a read of a record a tenth.
        self.write = engine.commits.write
        self.rebuild = engine.commits.rebuild
        self.get = engine.reader.get
        self.get_many = engine.reader.get_many
        self.counts = engine.reader.counts
        self.scan = engine.scanner.scan
        self.count = engine.scanner.count
        self.aggregate = engine.scanner.aggregate
        self.changes = engine.history.changes
        self.updates = engine.feed.updates
        self.update_history = engine.feed.update_history
        self.watch = engine.watchers.watch
        self.apply = engine.replicator.apply
        self.compact_tombstones = engine.replicator.compact_tombstones

    @property
    def model(self) -> type[M]:
        """The class of its records."""
        return self.engine.schema.model

    @property
    def layout(self) -> KeyLayout:
        """Makes the keys of its records from their values, and takes them apart."""
        return self.engine.schema.layout

    @property
    def last_version(self) -> int:
        """The version of the last change that can be read; 0 if there was none."""
        return self.engine.state.last_version

    def add(self, record: M | Mapping[str, Any], *, key: bytes | None = None) -> Done:
        """Add a record; raises `ValidationFailed` with all violations, or `AlreadyExists`, even if soft-deleted."""
        return self.engine.commits.write_one(Add(record, key))

    def add_many(self, records: Iterable[M | Mapping[str, Any]]) -> list[Outcome]:
        """Add records in one request; the outcome of each is its result or its error."""
        return self.write([Add(record) for record in records])

    def change(
        self,
        key: bytes,
        changes: Mapping[Any, Any],
        *,
        check: Mapping[Any, Any] | None = None,
        if_version: int | None = None,
    ) -> Done:
        """Change fields of a record: by path the new value, None to remove one, or a `ListEdit`, `SetEdit`, `DictEdit`.

        Raises `ValidationFailed` if a value that `check` gives by path is not there, if the record does not have
        `if_version`, or if a new value breaks a rule; `NoRecord` if there is no record. If the record has all the
        values already, nothing is written, and `.changed` is False. A soft-deleted record can be changed too.
        """
        return self.engine.commits.write_one(Change(key, changes, check or {}, if_version))

    def delete(self, key: bytes, *, hard: bool = False, if_version: int | None = None) -> Done:
        """Soft-delete a record and free its unique values; with `hard`, delete it and its history from the state.

        Its earlier events stay in the log. Raises `NoRecord`, and `ValidationFailed` if it does not have `if_version`.
        """
        return self.engine.commits.write_one(Delete(key, hard, if_version))

    def undelete(self, key: bytes) -> Done:
        """Restore a soft-deleted record; raises `ValidationFailed` if another has its unique values, or `NoRecord`."""
        return self.engine.commits.write_one(Undelete(key))
