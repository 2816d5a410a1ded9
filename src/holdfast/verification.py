"""Verification of a whole store: every checksum, every small file, missing segments, and the state against journals."""

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.base.checked_json import decode_checked, has_checksum
from holdfast.base.errors import Corrupt, HoldfastError, NewerFormat, NotFound
from holdfast.base.files import Files, SystemFiles, read_file
from holdfast.base.names import escape_name, name_of
from holdfast.base.paths import local_path
from holdfast.log.batch_inbox import INCOMING, Manifest, read_blocks
from holdfast.log.block import open_block
from holdfast.log.consumer_offsets import FOLDER as TAILERS
from holdfast.log.consumer_offsets import lost_positions, place_of
from holdfast.log.log_file import META, Identity, read_identity
from holdfast.log.read_only_segments import ReadOnlySegments
from holdfast.log.record import Damage
from holdfast.log.remote_segments import read_remote
from holdfast.log.segment import Segment
from holdfast.log.segment_files import list_segments
from holdfast.log.verification import verify_segments
from holdfast.log.watermark import WATERMARK, Watermark, read_watermark
from holdfast.queue.journal import Journal
from holdfast.queue_deletion import STAGING
from holdfast.remote_parts import reading_parts
from holdfast.state import FAMILIES, TABLE_FAMILIES
from holdfast.state.empty import EmptyState
from holdfast.state.rocks import RocksState
from holdfast.store import Store
from holdfast.store_layout import DELETING, JOURNALS, KNOWN, LOCK, LOG_SUFFIX, LOGS, QUEUE_META, STATE
from holdfast.table_registry import META as TABLE_META
from holdfast.table_registry import STATE as TABLE_STATE
from holdfast.table_registry import TABLES
from holdfast.transactions import TRANSACTIONS

__all__ = ["Problem", "StoreVerification", "verify_store"]

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""
DEFINITIONS = "holdfast.definitions"
_SKIPPED = (STATE, TABLE_STATE, STAGING, "transient")
_TRIES, _PAUSE_S = 5, 0.2
_PASSES = 3
"""How often a problem is checked again while another process has the store open."""
_QUEUES_AT_ONCE = 200
_TABLE_ID_BYTES = 4
"""Keys of a table in the state begin with its id, of this many bytes."""
_BACKUP = "Restore it from a backup."
_REPAIRED = "Open the store for writing: that repairs it."
_NOTHING_LOST = "Nothing is lost with it; check the disk."
_RECORDS = "Restore the records from a backup if you need them."


@dataclass(frozen=True, slots=True)
class Problem:
    """Damage or loss that was found in a store."""

    what: str
    """The object: `log 'clicks'`, `queue 'orders'`, `state`."""
    path: str
    text: str
    advice: str = ""


@dataclass(slots=True)
class StoreVerification:
    """What the verification of a store found."""

    path: Path
    logs: int = 0
    queues: int = 0
    tables: int = 0
    records: int = 0
    bytes: int = 0
    small_files: int = 0
    unchecked_files: int = 0
    """Small files without a checksum, of earlier versions: they can be read, but damage would not be noticed."""
    quick: bool = False
    """Whether only the last segment of each log was read."""
    problems: list[Problem] = field(default_factory=list)
    """Damage and loss."""
    notes: list[Problem] = field(default_factory=list)
    """Remains of a crash, which cost only time when the store is opened."""

    @property
    def ok(self) -> bool:
        """Return whether nothing is damaged or missing."""
        return not self.problems


def verify_store(
    path: str | os.PathLike[str], *, quick: bool = False, progress: Progress | None = None, files: Files | None = None
) -> StoreVerification:
    """Check everything in a store. Changes nothing, and works while another process has it open.

    With `quick`, only the last segment of each log is read.
    """
    files, folder = files or SystemFiles(), local_path(path)
    if not files.exists(folder):
        raise NotFound(f"there is no store at {str(folder)!r}: check the path")
    verifier = _Verifier(files, folder, StoreVerification(folder, quick=quick), progress)
    verifier.run()
    for _ in range(_PASSES):  # the owner may have created or deleted something meanwhile
        if verifier.is_sure() or not files.is_locked(folder / LOCK):
            break
        time.sleep(_PAUSE_S)
        again = _Verifier(files, folder, StoreVerification(folder, quick=True), None)
        again.run()
        verifier.keep_confirmed(again.result)
    return verifier.result


class _Verifier:
    """One verification of one store. Used by one thread."""

    def __init__(self, files: Files, path: Path, result: StoreVerification, progress: Progress | None) -> None:
        self.result = result
        self._files = files
        self._path = path
        self._lock = path / LOCK
        self._progress = progress
        self._ids: dict[Path, bytes] = {}
        """By folder: the ids of logs."""
        self._damaged: set[Path] = set()
        """Folders of logs in which something is damaged or missing."""
        self._log_folders: dict[Path, Path] = {}
        """The folder of a queue's log, by that of its journal."""
        self._queues_in_state: set[str] = set()
        self._tables_in_state: set[int] = set()
        """Ids of tables that have records in the state."""
        self._sure: set[Problem] = set()
        """Damage in segments, which no concurrent change of the owner explains."""
        self._done = self._total = 0

    def is_sure(self) -> bool:
        """Return whether no problem can be explained by a concurrent change of the owner."""
        return self._sure.issuperset(self.result.problems)

    def keep_confirmed(self, again: StoreVerification) -> None:
        """Drop problems that another pass over the store did not find."""
        found = {(one.what, one.path) for one in again.problems}
        self.result.problems = [
            one for one in self.result.problems if one in self._sure or (one.what, one.path) in found
        ]

    def run(self) -> None:
        """Check everything: first the logs, then what depends on them."""
        folders = [
            self._path / root / name
            for root in (LOGS, JOURNALS, TABLES)
            for name in self._files.list(self._path / root)
            if not name.startswith("~")
        ]
        if self._files.exists(self._path / TRANSACTIONS):
            folders.append(self._path / TRANSACTIONS)
        states = [self._path / name for name in (STATE, TABLE_STATE)]
        self._total = sum(self._size(folder) for folder in [*folders, *states])
        for folder in folders:
            self._verify_log(folder)
        self._verify_small_files(self._path)
        for folder in self._folders(JOURNALS):
            self._verify_queue(folder)
        for folder in self._folders(LOGS):
            self._verify_readers(folder)
        for folder in self._folders(TABLES):
            self._verify_table(folder)
        self._verify_incoming()
        self._verify_known_logs()
        whole = [self._verify_state(folder) for folder in states]
        self._verify_objects_in_states()
        if whole[0]:
            self._compare_with_journals()
        for name, count in ((LOGS, "logs"), (JOURNALS, "queues"), (TABLES, "tables")):
            setattr(self.result, count, len(self._folders(name)))

    # Logs

    def _verify_log(self, folder: Path) -> None:
        what = self._label(folder)
        known = self._verify_identity(folder, what)

        def report(damage: Damage) -> None:
            self._damaged.add(folder)
            self._problem(what, damage.path, str(damage), _NOTHING_LOST if damage.lost == 0 else _RECORDS)
            self._sure.add(self.result.problems[-1])

        seen: list[Damage] = []
        try:
            mark, segments = self._segments(folder, seen.append)
            for damage in {(one.path, one.offset, one.reason): one for one in seen}.values():
                report(damage)
            self._verify_ends(folder, what, known, segments, mark)
            part = segments[-1:] if self.result.quick else segments
            before = self._done
            found = verify_segments(part, lambda damage: None, lambda done, total: self._advance(before + done))
            for damage in found.damage:
                if not any((damage.path, damage.offset) == (one.path, one.offset) for one in seen):
                    report(damage)
            self.result.records += found.records
            self.result.bytes += found.bytes
            if folder.parent.name == LOGS and folder.name == DEFINITIONS:
                self._verify_definitions(what, segments)
        except (HoldfastError, OSError) as error:
            self._damaged.add(folder)
            self._problem(what, str(folder), f"cannot be read: {error}", _BACKUP)
        self._done += self._size(folder)
        self._advance(self._done)

    def _segments(self, folder: Path, report: Callable[[Damage], None]) -> tuple[Watermark | None, list[Segment]]:
        """Return a watermark and segments that belong together; while a process writes, one may be newer."""
        parts = reading_parts(self._files, self._path)
        for attempt in range(_TRIES):
            mark = read_watermark(self._files, folder)
            segments = list(ReadOnlySegments(self._files, folder, self._lock, report, parts).all())
            if mark is None or any(one.segment_id == mark.segment_id for one in segments) or not self._is_live():
                break
            if attempt < _TRIES - 1:
                time.sleep(_PAUSE_S)
        return mark, segments

    def _verify_identity(self, folder: Path, what: str) -> Identity | None:
        try:
            known = read_identity(self._files, folder)
        except NewerFormat as error:
            self._problem(what, str(folder / META), str(error), "Update Holdfast.")
            return None
        except Corrupt:  # reported with the other small files
            return None
        if known is not None:
            self._ids[folder] = known.id
            return known
        if list_segments(self._files, folder) or self._files.exists(folder / WATERMARK):
            self._problem(what, str(folder / META), "log.json is missing", _REPAIRED)
        return None

    def _verify_ends(
        self, folder: Path, what: str, known: Identity | None, segments: list[Segment], mark: Watermark | None
    ) -> None:
        """Check that no segment is missing at either end, and that all belong to this log."""
        foreign = [one for one in segments if any(one.log_id) and known is not None and one.log_id != known.id]
        for segment in foreign:
            self._problem(what, str(segment.path), "the segment belongs to another log", "Move it to that log.")
        start = known.start if known is not None else None
        if start is not None and segments and segments[0].base > start:
            self._lost(folder, what, start, segments[0].base, "the first segment is missing")
        end = (segments[-1].end or 0) if segments else 0
        if mark is not None:
            is_there = any(one.segment_id == mark.segment_id for one in segments)
            if not is_there and (mark.durable_end > end or not segments):
                self._lost(folder, what, end, mark.durable_end, "the last segment is missing")
        elif segments:
            state = "damaged" if self._files.exists(folder / WATERMARK) else "missing"
            self._note(what, str(folder / WATERMARK), f"the watermark is {state}: the next opening writes a new one")
        elif start is not None and start > 0:
            self._lost(folder, what, start, start, "all segments are missing")

    def _lost(self, folder: Path, what: str, first: int, end: int, text: str) -> None:
        self._damaged.add(folder)
        records = f": records {first} to {end - 1}" if end > first else ""
        self._problem(what, str(folder), text + records, _RECORDS)

    def _verify_definitions(self, what: str, segments: Sequence[Segment]) -> None:
        for segment in segments:
            for block in segment.all_blocks(lambda damage: None):
                for record in block.records(0, block.count):
                    try:
                        json.loads(record.key or b"null")
                        json.loads(record.payload or b"null")
                    except ValueError as error:
                        text = f"record {record.sequence} is not a definition: {error}"
                        self._problem(what, str(segment.path), text, _BACKUP)

    # Small files

    def _verify_small_files(self, folder: Path) -> None:
        """Check all small files in a folder and its subfolders."""
        of_logs = folder.parent == self._path and folder.name in (LOGS, JOURNALS, TABLES)
        for name in self._files.list(folder):
            path = folder / name
            if folder == self._path and name.startswith(_SKIPPED):
                continue
            is_mark = of_logs and name.startswith("~deleted-") and not name.endswith(".tmp")
            if is_mark or (not of_logs and name.endswith((".json", ".known"))):
                self._verify_small_file(path)
            elif of_logs or "." not in name:
                with contextlib.suppress(NotADirectoryError):
                    self._verify_small_files(path)

    def _verify_small_file(self, path: Path) -> None:
        try:
            raw = read_file(self._files, path)
        except (FileNotFoundError, IsADirectoryError):  # removed meanwhile, or the folder of a log of that name
            return
        except OSError as error:
            self._problem(self._label(path.parent), str(path), f"the file cannot be read: {error.strerror}", _BACKUP)
            return
        self.result.small_files += 1
        try:
            decode_checked(raw)
            self.result.unchecked_files += not has_checksum(raw)
        except ValueError as error:
            advice = _REPAIRED if path.name == META or path.suffix == ".known" else _BACKUP
            if path.parent.name == TAILERS and path.suffix == ".json":
                queue = "queue%3A" in path.name
                advice = _REPAIRED if queue else "Its tailer starts again from the beginning. " + _BACKUP
            self._problem(self._label(path.parent), str(path), f"the file is damaged: {error}", advice)

    # Queues, tables, readers

    def _verify_queue(self, folder: Path) -> None:
        what = self._label(folder)
        try:
            meta = decode_checked(read_file(self._files, folder / QUEUE_META))
            log = self._path / LOGS / escape_name(str(meta["settings"].get("log", meta["name"])))
            log_id = bytes.fromhex(meta["log"])
            self._log_folders[folder] = log
        except (FileNotFoundError, NotADirectoryError):
            if list_segments(self._files, folder):
                advice = "Open the queue with its settings again, or restore the file from a backup."
                self._problem(what, str(folder / QUEUE_META), "the settings of the queue are missing", advice)
            return
        except (ValueError, KeyError, TypeError, AttributeError, HoldfastError):
            return  # reported as a small file
        known = self._ids.get(log)
        if known is None and not self._files.exists(log):
            self._problem(what, str(log), "the log of the queue is missing", _BACKUP)
        elif known is not None and known != log_id:
            text = "the log of the queue was replaced by another log"
            self._problem(what, str(folder / QUEUE_META), text, _BACKUP)
        place = log / TAILERS / f"{escape_name(place_of(str(meta['name'])))}.json"
        if known is not None and not self._files.exists(place) and self._files.exists(folder / WATERMARK):
            self._problem(what, str(place), "the position of the queue in its log is missing", _REPAIRED)

    def _verify_readers(self, folder: Path) -> None:
        what = self._label(folder)
        for path in lost_positions(self._files, folder):
            advice = "Its tailer starts again from the beginning. " + _BACKUP
            self._problem(what, str(path), "the position of a tailer is missing", advice)
        for name in self._files.list(folder / TAILERS):
            queue = (name_of(name.removesuffix(".json")) or "").removeprefix("queue:")
            if name.startswith("queue%3A") and name.endswith(".json") and queue and "~" not in queue:
                journal = self._path / JOURNALS / escape_name(queue)
                deleting = self._path / DELETING / f"{escape_name(queue)}.json"
                if not self._files.exists(journal) and not self._files.exists(deleting):
                    advice = "Open the queue for writing with its settings: it continues from its last checkpoint."
                    self._problem(f"queue {queue!r}", str(journal), "the journal is missing", advice)

    def _verify_table(self, folder: Path) -> None:
        if list_segments(self._files, folder) and not self._files.exists(folder / TABLE_META):
            text = "the definition and the settings of the table are missing"
            self._problem(self._label(folder), str(folder / TABLE_META), text, _BACKUP)

    def _verify_known_logs(self) -> None:
        """Check that the logs which programs created exist."""
        for name in self._files.list(self._path / KNOWN):
            folder = self._path / LOGS / name.removesuffix(LOG_SUFFIX)
            if name.endswith(LOG_SUFFIX) and not (self._files.exists(folder / META) or self._has_segments(folder)):
                advice = f"{_BACKUP} If it was deleted on purpose, delete {str(self._path / KNOWN / name)!r}, too."
                self._problem(f"log {name_of(folder.name) or folder.name!r}", str(folder), "the log is missing", advice)

    def _verify_objects_in_states(self) -> None:
        """Check that the queues and tables in the states exist."""
        for queue in sorted(self._queues_in_state):
            folder = self._path / JOURNALS / escape_name(queue)
            is_there = self._files.exists(folder / QUEUE_META) or self._has_segments(folder)
            is_deleted = self._files.exists(self._path / DELETING / f"{escape_name(queue)}.json")
            is_reported = any(one.path == str(folder) for one in self.result.problems)
            if not (is_there or is_deleted or is_reported):
                text = "the queue is missing, although the state has its position"
                self._problem(f"queue {queue!r}", str(folder), text, _BACKUP)
        ids = {self._table_id(folder) for folder in self._folders(TABLES)}
        is_deleting = any(name.startswith("~") for name in self._files.list(self._path / TABLES))
        if None in ids or is_deleting:  # reported elsewhere, or about to be deleted
            return
        for id in sorted(self._tables_in_state - ids):
            text = "the table is missing, although the state has its records"
            self._problem(f"table with the id {id}", str(self._path / TABLES), text, _BACKUP)

    def _table_id(self, folder: Path) -> int | None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return int(decode_checked(read_file(self._files, folder / TABLE_META))["id"])
        return None

    def _has_segments(self, folder: Path) -> bool:
        return bool(list_segments(self._files, folder))

    def _verify_incoming(self) -> None:
        folder = self._path / INCOMING
        for name in self._files.list(folder):
            if name.endswith(".bad"):
                advice = "See the log of the process that has the store open."
                self._note("incoming", str(folder / name), "a batch could not be adopted", advice)
            if not name.endswith(".json") or name == "adopting.json":
                continue
            with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
                content = decode_checked(read_file(self._files, folder / name))
                content.pop("format", None)
                for part in Manifest.of(content).parts:
                    self._verify_part(folder / "parts" / part.file, part.bytes)

    def _verify_part(self, path: Path, size: int) -> None:
        try:
            raw = memoryview(read_file(self._files, path))
            if len(raw) != size:
                raise Corrupt(f"it has {len(raw)} bytes instead of {size}")
            for header in read_blocks(self._files, path):
                if open_block(raw, header).bad:
                    raise Corrupt(f"the block at byte {header.offset} is damaged")
        except FileNotFoundError:
            if not self._is_live():
                self._problem("incoming", str(path), "a part of a batch is missing", "Write the batch again.")
        except HoldfastError as error:
            self._problem("incoming", str(path), f"a part of a batch is damaged: {error}", "Write the batch again.")

    # States

    def _verify_state(self, folder: Path) -> bool:
        """Read a whole state, so that RocksDB checks each block; return whether it could be read."""
        advice = "Open the store for writing: the state is rebuilt from the logs."
        families = FAMILIES if folder.name == STATE else TABLE_FAMILIES
        if not self._files.list(folder) or not isinstance(self._files, SystemFiles):
            return False
        try:
            state = RocksState(folder, read_only=True, families=families)
            try:
                for family in families:
                    for key, value in state.scan(family):
                        if family == "positions":
                            self._queues_in_state.update(_queue_in(value))
                        elif family == "table":
                            self._tables_in_state.add(int.from_bytes(key[:_TABLE_ID_BYTES], "big"))
            finally:
                state.close()
        except (HoldfastError, OSError) as error:
            self._problem("state", str(folder), f"the state is damaged: {error}", advice)
            return False
        finally:
            self._done += self._size(folder)
            self._advance(self._done)
        return True

    def _compare_with_journals(self) -> None:
        """Check that the state of each queue is what a replay of its journal gives."""
        names = [
            name
            for folder in self._folders(JOURNALS)
            if folder not in self._damaged
            # Without its state, a queue leaves out the damaged records of its log.
            and self._log_folders.get(folder) not in self._damaged
            and self._files.exists(folder / QUEUE_META)
            and (name := self._name(folder)) is not None
        ]
        while names:
            some, names = names[:_QUEUES_AT_ONCE], names[_QUEUES_AT_ONCE:]
            found = self._quiet_differences(some)
            for _ in range(_TRIES if self._is_live() else 0):  # a queue in use changes between two readings
                if any(found.values()):
                    time.sleep(_PAUSE_S)
                    again = self._quiet_differences([name for name, spans in found.items() if spans])
                    found = {name: found[name] & spans for name, spans in again.items()}
            for name, spans in found.items():
                if spans:
                    first, end = min(spans)
                    text = f"the state contradicts the journal, for example about messages {first} to {end - 1}"
                    advice = "Close the store and move the folder away: the state is rebuilt from the journals."
                    self._problem(f"state of queue {name!r}", str(self._path / STATE), text, advice)

    def _quiet_differences(self, queues: list[str]) -> dict[str, set[tuple[int, int]]]:
        """Return `_differences` without the log lines of queues that are opened without their state."""
        loggers = [logging.getLogger(f"holdfast.{name}") for name in ("log", "queue", "state", "store")]
        mine = threading.get_ident()

        def is_others(record: logging.LogRecord) -> bool:
            return record.thread != mine

        for logger in loggers:
            logger.addFilter(is_others)
        try:
            return self._differences(queues)
        finally:
            for logger in loggers:
                logger.removeFilter(is_others)

    def _differences(self, queues: list[str]) -> dict[str, set[tuple[int, int]]]:
        """Return, for each queue, the messages about which its state and its journal disagree."""
        found: dict[str, set[tuple[int, int]]] = {}
        with self._reading(None) as kept, self._reading(EmptyState(self._path / STATE)) as alone:
            for queue in queues:
                try:
                    journal = kept.journal(queue)
                    if journal.start == 0 or Journal(journal).last_snapshot() is not None:
                        sides = [set(store.queue(queue).inspect.outstanding()) for store in (kept, alone)]
                        found[queue] = sides[0] ^ sides[1]
                except HoldfastError as error:
                    folder = self._path / JOURNALS / escape_name(queue)
                    if not any(queue in one.what for one in self.result.problems):
                        self._problem(f"queue {queue!r}", str(folder), f"the queue cannot be opened: {error}", _BACKUP)
        return found

    def _reading(self, state: EmptyState | None) -> Store:
        return Store(self._path, read_only=True, files=self._files, clock=None, background=False, state=state)

    # Helpers

    def _problem(self, what: str, path: str, text: str, advice: str) -> None:
        self.result.problems.append(Problem(what, path, text, advice))

    def _note(self, what: str, path: str, text: str, advice: str = "") -> None:
        self.result.notes.append(Problem(what, path, text, advice))

    def _is_live(self) -> bool:
        return self._files.is_locked(self._lock)

    def _folders(self, root: str) -> list[Path]:
        return [
            self._path / root / name
            for name in self._files.list(self._path / root)
            if not name.startswith("~") and self._is_folder(self._path / root / name)
        ]

    def _is_folder(self, path: Path) -> bool:
        return path.is_dir() if isinstance(self._files, SystemFiles) else bool(self._files.list(path))

    def _name(self, folder: Path) -> str | None:
        with contextlib.suppress(HoldfastError):
            known = read_identity(self._files, folder)
            if known is not None:
                return known.name
        return name_of(folder.name)

    def _label(self, folder: Path) -> str:
        if folder.name == TAILERS:
            folder = folder.parent
        kinds = {LOGS: "log", JOURNALS: "queue", TABLES: "table"}
        if folder.parent.name in kinds and folder.parent.parent == self._path:
            return f"{kinds[folder.parent.name]} {self._name(folder) or folder.name!r}"
        return folder.name if folder != self._path else "store"

    def _size(self, folder: Path) -> int:
        if folder.name in (STATE, TABLE_STATE):
            paths = (folder / name for name in self._files.list(folder))
            return sum(self._file_size(path) for path in paths)
        there = list_segments(self._files, folder)
        with contextlib.suppress(HoldfastError, OSError):
            remote = sum(one.size for one in read_remote(self._files, folder).entries if one.name not in set(there))
            return remote + sum(self._file_size(name.data_path(folder)) for name in there)
        return 0

    def _file_size(self, path: Path) -> int:
        try:
            with contextlib.closing(self._files.open(path, "r")) as file:
                return file.size()
        except OSError:
            return 0

    def _advance(self, done: int) -> None:
        if self._progress is not None:
            self._progress(min(done, self._total), self._total)


def _queue_in(position: bytes) -> list[str]:
    """Return the name of the queue of a stored position, if it has one; earlier versions did not store it."""
    try:
        return [str(json.loads(position)["queue"])]
    except (ValueError, KeyError, TypeError):
        return []
