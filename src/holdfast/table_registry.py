"""The tables of a store: each is a folder with the log of its changes and its settings in `table.json`."""

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.base.checked_json import read_checked, replace_checked
from holdfast.base.clock import Clock, Duration
from holdfast.base.errors import Corrupt, HoldfastError, InvalidArgument, NewerFormat, NotFound, raised_by_handler
from holdfast.base.files import Files, translate_os_errors
from holdfast.base.hlc import HybridLogicalClock
from holdfast.base.metrics import Registry
from holdfast.base.names import escape_name, name_of
from holdfast.log.log import Log, close_discarding
from holdfast.log.policy import Flush
from holdfast.log.record import Message
from holdfast.log.settings import LogSettings
from holdfast.queue_deletion import remove_folder
from holdfast.state import TABLE_FAMILIES, OverlayState, State, open_state
from holdfast.store_layout import few

if TYPE_CHECKING:  # modules of tables are loaded only by programs that use tables
    from holdfast.table.migration import Migration, Migrations
    from holdfast.table.migration.phases import VersionChange
    from holdfast.table.model.model import Model
    from holdfast.table.storage.commit_pipeline import CommitPipeline
    from holdfast.table.storage.keyring import Keyring
    from holdfast.table.storage.staging import Staging
    from holdfast.table.table import Table

    M = TypeVar("M", bound=Model)

__all__ = ["HOW", "TABLES", "TABLE_FORMAT", "TableRegistry"]

logger = logging.getLogger("holdfast.store")

TABLES = "tables"
STATE = "table-state"
META = "table.json"
TABLE_FORMAT = 1
_DELETED = "~deleted-"
"""Name prefix of the file next to a folder that marks the table as deleted."""
_HALF_MADE = re.compile(r"\.\d+\.tmp$")
"""Matches the name of a file that is not complete yet."""
HOW = ("keyring", "migration", "migration_budget", "on_version_change")
"""Options for opening a table that are not saved with it."""
_RECORD_MAX = 256 << 20


class TableRegistry:
    """The tables of a store. Opening, deleting and closing tables needs the store's guard; other methods do not.

    Files: `tables/*/`, each a log and `table.json`; `table-state/`.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        path: Path,
        open_log: Callable[[str, Path, LogSettings], Log],
        *,
        read_only: bool,
        metrics: Registry | None = None,
        background: bool = False,
        free_space: Callable[[], bool] = lambda: False,
    ) -> None:
        self._free_space = free_space
        self._metrics = metrics or Registry()
        self._background = background
        self._migrations: Migrations | None = None
        self.files = files
        self.clock = clock
        self._path = path
        self._open_log = open_log
        self.read_only = read_only
        self._state: State | None = None
        self._recovering = threading.Lock()
        """Held while the state is opened again; taken before the `apply_lock` of any table."""
        self.versions = HybridLogicalClock(clock)
        self.open_tables: dict[str, Table[Any]] = {}
        self.opened: Callable[[CommitPipeline], None] = lambda commits: None
        """Called with the commit pipeline of each table that is opened."""
        self.before_removing: Callable[[], None] = lambda: None
        """Called before files are deleted; returns when they may be deleted."""

    def names(self) -> list[str]:
        """Return the names of all tables, sorted."""
        root = self._path / TABLES
        with translate_os_errors("listing the tables in", root):
            found = [self._name_in(root / folder) for folder in self.files.list(root)]
        return sorted(name for name in found if isinstance(name, str))

    def delete(self, name: str) -> None:
        """Delete a table with its records, their history and its log. Raises `NotFound`.

        A marker file decides. After a crash the rest is deleted when a table is next opened or deleted.
        """
        meta = self.meta(name)
        table = self.open_tables.get(name)
        if table is not None:
            engine = table.engine
            with engine.commits.writing():
                engine.access.closed = True
            del self.open_tables[name]
            close_discarding(engine.log)
        folder = self.folder(name)
        with translate_os_errors("deleting the table in", folder):
            replace_checked(self.files, _mark(folder), {"id": meta["id"]})
        self.finish_deleting()

    def finish_deleting(self) -> None:
        """Delete the remains of deleted tables."""
        from holdfast.table.storage.applied_state import clear_table  # noqa: PLC0415
        from holdfast.table.storage.table_state import prefix_of  # noqa: PLC0415

        root = self._path / TABLES
        with translate_os_errors("deleting tables in", root):
            for name in self.files.list(root):
                if name.startswith(_DELETED):
                    mark = root / name
                    if _HALF_MADE.search(name):  # a crash came before the mark was complete
                        self.files.remove(mark)
                        continue
                    self.before_removing()
                    clear_table(self.state(), prefix_of(_id_in(self.files, mark)))
                    remove_folder(self.files, root / name.removeprefix(_DELETED))
                    self.files.remove(mark)
                    self.files.sync_dir(root)

    def meta(self, name: str) -> dict[str, Any]:
        """Return a table's definition and settings as saved on disk. Raises `NotFound` or `Corrupt`."""
        meta = self.stored(name)
        if not meta:
            raise NotFound(f"there is no table {name!r} in {str(self._path)!r}; there are: {few(self.names())}")
        return meta

    def stored(self, name: str) -> dict[str, Any]:
        """As `meta`, and empty if there is no such table."""
        return self._meta(self.folder(name))

    def keep_meta(self, name: str, meta: dict[str, Any]) -> None:
        """Save a table's definition and settings; durable when this returns."""
        folder = self.folder(name)
        with translate_os_errors("opening the table in", folder):
            self.files.make_dirs(folder)
            self.files.sync_dir(folder.parent)
            self.files.sync_dir(self._path)
            replace_checked(self.files, folder / META, meta)

    @property
    def migrations(self) -> "Migrations":
        """Return the migrations of all tables."""
        if self._migrations is None:
            from holdfast.table.migration import Migrations  # noqa: PLC0415

            self._migrations = Migrations(
                self.files,
                self.clock,
                self._metrics,
                folder=self.folder,
                names=self.names,
                background=self._background,
            )
        return self._migrations

    def migrating(self) -> "list[Migrations]":
        """Return the migrations as a list for the ticker; empty if nothing has used them yet."""
        return [] if self._migrations is None else [self._migrations]

    def stop_migrating(self) -> None:
        """Stop migrations after the running step. Called without the store's guard, which that step may need."""
        if self._migrations is not None:
            self._migrations.close()

    def table(
        self,
        model: "type[M] | str",
        chosen: dict[str, Any],
        log_settings: dict[str, Any],
        keyring: "Keyring | None" = None,
        migration: "Migration | None" = None,
        migration_budget: Duration | None = None,
        on_version_change: "VersionChange | None" = None,
    ) -> "Table[M]":
        """Open a table by its model, and create it if there is none; or open an existing one by its name.

        Raises `NotFound` if it would have to be created by name or in a read-only store, `InvalidArgument` if it is
        open with another model or other settings, and the errors of `Migrations.decide` and `begin`.
        """
        from holdfast.table_opener import OpenOptions, TableOpener  # noqa: PLC0415 - loaded only if tables are used

        options = OpenOptions(chosen, log_settings, keyring, migration, migration_budget, on_version_change)
        return TableOpener(self).open(model, options)

    def include(self, table: "Table[Any]") -> None:
        """Add a table that was opened."""
        commits = table.engine.commits
        commits.recover_state = self._recover_state
        self.open_tables[table.name] = table
        self.opened(commits)

    def open_log(self, name: str, settings: LogSettings) -> Log:
        """Open the log of a table's changes."""
        return self._open_log(name, self._path / TABLES, settings)

    def carry_out(self, stagings: "dict[CommitPipeline, Staging]") -> None:
        """Append a transaction's changes to the logs of its tables, then apply them to the state in one batch.

        They are as durable as the flush mode of each log promises. After an error the caller sets `doubt`.
        """
        if not stagings:
            return
        pending_commits = {commits: commits.submit(staging) for commits, staging in stagings.items()}
        batch = self.state().transaction()
        for commits, pending_commit in pending_commits.items():
            commits.add_to_batch(batch, [pending_commit])
        batch.commit(sync=False)
        for commits, pending_commit in pending_commits.items():
            commits.mark_applied([pending_commit])

    def finish(self, name: str, log_id: bytes, start: int, version: int, records: list[tuple[bytes, bytes]]) -> None:
        """Append the changes of a decided, interrupted transaction to a table's log, if it lacks them from `start` on.

        Durable when this returns. Does nothing if the table was deleted or has another log. An open table then recovers
        before its next request.
        """
        from holdfast.table.storage.row_codec import decode_event  # noqa: PLC0415

        if not self.stored(name):
            logger.warning(
                "recovered transaction skips a table that was deleted: table=%s", name, extra={"table": name}
            )
            return
        table = self.open_tables.get(name)
        settings = LogSettings(flush=Flush.sync(), max_message=_RECORD_MAX)  # it was accepted under any limit
        log = self.open_log(name, settings) if table is None else table.engine.log
        try:
            if table is not None:
                commits = table.engine.commits
                commits.doubt = commits.doubt or "a transaction was not completed"  # its state lacks this
                log.appender.recover()
                log.sync()  # pending records are in it now
            if log.id == log_id and not any(
                decode_event(record.payload).version == version for record in log.read(start)
            ):
                log.append_many([Message(payload, key=key) for key, payload in records])
                log.sync()
        finally:
            if table is None:
                log.close()

    def close(self) -> HoldfastError | None:
        """Close all open tables; return the first problem, if there was one. A table that failed stays open."""
        problem: HoldfastError | None = None
        for table in list(self.open_tables.values()):
            try:
                table.engine.close()
                table.engine.log.close()
                del self.open_tables[table.name]
            except HoldfastError as error:
                problem = problem or error
                logger.error("close failed: table=%s error=%s", table.name, error, extra={"table": table.name})
        if self._state is not None and not self.open_tables:
            self._state.close()
            self._state = None
        return problem

    def detach_after_fork(self) -> None:
        """Mark the tables as closed. Called in a forked child, where they are the parent's."""
        if self._migrations is not None:
            self._migrations.detach_after_fork()
        for table in self.open_tables.values():
            table.engine.log.appender.detach_after_fork()
            table.engine.access.closed = True
        self.open_tables.clear()

    def logs(self) -> list[Log]:
        """Return the logs of the open tables."""
        return [table.engine.log for table in list(self.open_tables.values())]  # other threads may open some meanwhile

    def state(self) -> State:
        """Return the state of all tables."""
        if self._state is None:
            state = open_state(
                self.files,
                self._path / STATE,
                read_only=self.read_only,
                families=TABLE_FAMILIES,
                free_space=self._free_space,
            )
            self._state = OverlayState(state) if self.read_only else state
        return self._state

    def check_id(self, name: str, model_id: int) -> None:
        """Raise `InvalidArgument` if another table has this id."""
        for other in self.names():
            if other != name and self._id_of(other) == model_id:
                raise InvalidArgument(f"the id {model_id} belongs to the table {other!r}: give {name} another id")

    def _name_in(self, folder: Path) -> str | None:
        """Return the name of the table in a folder, also if its `table.json` is damaged."""
        try:
            return self._meta(folder).get("name")
        except Corrupt as error:  # raised when that table is opened; the others are still listed
            logger.error("%s", error, extra={"path": str(folder)})
            return name_of(folder.name)

    def _id_of(self, name: str) -> int | None:
        try:
            return self.stored(name).get("id")
        except Corrupt:
            return None

    def folder(self, name: str) -> Path:
        """Return the folder of a table."""
        return self._path / TABLES / escape_name(name, "table name")

    def _meta(self, folder: Path) -> dict[str, Any]:
        with translate_os_errors("opening the table in", folder):
            if self.files.exists(_mark(folder)):
                return {}  # it is deleted, and its files are not removed yet
            try:
                meta = read_checked(self.files, folder / META)
                if meta["format"] > TABLE_FORMAT:
                    raise NewerFormat(f"{str(folder / META)!r} was written by a newer Holdfast: update this one")
                return meta
            except (FileNotFoundError, NotADirectoryError):
                return {}
            except (ValueError, TypeError, KeyError) as error:
                if raised_by_handler(error):
                    raise
                raise Corrupt(
                    f"{str(folder / META)!r} is damaged ({error}): restore it from a backup. The records of the table "
                    "are in the log in the same folder, and are not affected",
                    str(folder / META),
                ) from error

    def _recover_state(self) -> None:
        """Open the state again after a failed write, holding the `apply_lock` of every table.

        Commits of any table that were not synced may be lost: so `doubt` is set for all, and each recovers from its
        log. Called with no lock held.
        """
        if self._state is not None and self._state.stopped:
            with self._recovering:
                self._recover_alone(list(self.open_tables.values()))

    def _recover_alone(self, tables: "list[Table[Any]]") -> None:
        assert self._state is not None
        if tables:
            with tables[0].engine.commits.apply_lock:
                self._recover_alone(tables[1:])
        elif self._state.stopped:
            for commits in [table.engine.commits for table in list(self.open_tables.values())]:
                commits.doubt = commits.doubt or "the state was opened again after a failed write"
            self._state.recover()


def _id_in(files: Files, mark: Path) -> int:
    try:
        return int(read_checked(files, mark)["id"])
    except (ValueError, KeyError, TypeError) as error:
        if raised_by_handler(error):
            raise
        raise Corrupt(
            f"{str(mark)!r}, which marks a table as deleted, is damaged ({error}): close the store, delete the file, "
            "and delete the table again",
            str(mark),
        ) from error


def _mark(folder: Path) -> Path:
    return folder.with_name(_DELETED + folder.name)
