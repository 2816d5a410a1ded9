"""The parts of an open table, put together: log, state, commit pipeline, readers, watchers and replicator."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from holdfast.base.clock import Clock
from holdfast.base.hlc import HybridLogicalClock
from holdfast.log.log import Log
from holdfast.state import State
from holdfast.table.live.replicator import Replicator
from holdfast.table.live.sync_updates import ChangeFeed
from holdfast.table.live.watcher import Watchers
from holdfast.table.model.model import Model
from holdfast.table.query.change_history import ChangeHistory
from holdfast.table.query.record_reader import RecordReader
from holdfast.table.query.scanner import Scanner
from holdfast.table.settings import TableSettings
from holdfast.table.storage.applied_state import AppliedState
from holdfast.table.storage.commit_pipeline import CommitPipeline
from holdfast.table.storage.row_codec import Images, plain_images
from holdfast.table.storage.schema_history import NO_SCHEMA_HISTORY, SchemaHistory
from holdfast.table.storage.state_replayer import StateReplayer
from holdfast.table.storage.table_access import TableAccess
from holdfast.table.storage.table_schema import TableSchema

__all__ = ["TableEngine"]

M = TypeVar("M", bound=Model)


class TableEngine(Generic[M]):
    """An open table, as modules of Holdfast see it: each part owns its state and its locks. Users have a `Table`."""

    def __init__(
        self,
        model: type[M],
        settings: TableSettings,
        log: Log,
        state: State,
        versions: HybridLogicalClock,
        *,
        clock: Clock,
        images: Images | None = None,
        tables: Callable[[str], Any] = lambda name: None,
        read_only: bool = False,
        past: SchemaHistory = NO_SCHEMA_HISTORY,
    ) -> None:
        """`tables` finds other tables by name, for references; `past` is the schema history of the log."""
        self.log = log
        """The log of the changes, which only the table may write. Users get `Table.log`."""
        self.schema = TableSchema(model, settings, past, clock)
        self.state = AppliedState(state, log, model.__spec__, images or plain_images(model), settings)
        self.access = TableAccess(self.schema.name, read_only=read_only)
        replayer = StateReplayer(self.schema, self.state, log, versions)
        self.commits = CommitPipeline(self.schema, self.state, self.access, log, replayer, versions)
        self.reader = RecordReader(self.schema, self.state, self.access, self.commits.catch_up)
        self.scanner = Scanner(self.schema, self.state, self.reader, self.access.check_open, tables)
        self.history = ChangeHistory(self.scanner)
        self.feed = ChangeFeed(self.scanner)
        self.watchers = Watchers(self.scanner, self.feed, self.commits)
        self.replicator = Replicator(self.schema, self.state, self.commits, versions, clock)
        replayer.open()
        if read_only:
            self.access.before_read = self.commits.refresh

    @property
    def name(self) -> str:
        """Return the table's name."""
        return self.schema.name

    def bind(self, model: type[M], images: Images) -> None:
        """Use this class for the records; it may replace one with an equal definition."""
        self.schema.bind(model)
        self.state.bind(self.schema.spec, images)
        self.reader.bind()

    def close(self) -> None:
        """Refuse further requests and wait for the pending ones. See `CommitPipeline.close`."""
        self.commits.close()
