"""The writing half of a table: a request becomes one append to the log, a shared sync and one batch of the state."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from holdfast.base.clock import Clock
from holdfast.base.critical_section import Condition
from holdfast.base.errors import (
    Closed,
    Corrupt,
    HoldfastError,
    InvalidArgument,
    ReadOnly,
    StorageError,
    WriterStopped,
)
from holdfast.base.fair_lock import FairLock, Ticket
from holdfast.base.hlc import Fenced, HybridLogicalClock
from holdfast.log.batch import ColumnValue
from holdfast.log.log import Log
from holdfast.log.pending_block import PendingBlock
from holdfast.log.read_only_log import ReadOnlyLog
from holdfast.state import State, Transaction
from holdfast.table.model.keys import KeyLayout
from holdfast.table.model.model import Model
from holdfast.table.operations import Operation, Outcome
from holdfast.table.settings import TableSettings
from holdfast.table.storage.applied_position import AppliedPosition, clear_table, keep_place, place_in
from holdfast.table.storage.deferred_unique import LateUnique
from holdfast.table.storage.row_cache import RowCache
from holdfast.table.storage.row_codec import EventKind, Row, decode_event, encode_event
from holdfast.table.storage.schema_history import NEVER, NO_SCHEMA_HISTORY, SchemaHistory
from holdfast.table.storage.staging import Busy, Staging, Step
from holdfast.table.storage.table_state import Images, TableState, plain_images

__all__ = ["Core", "Doubtful"]

logger = logging.getLogger("holdfast.table")

M = TypeVar("M", bound=Model)
S = TypeVar("S", bound=Staging)


class Gate(Protocol):
    """Access check that `holdfast.table.migration` puts before a table."""

    def check(self) -> None:
        """Raise, unless the caller may pass."""
        ...


class Doubtful(WriterStopped):
    """The state may differ from the log: release all locks, call `Core.recover` and begin again."""


_REPLAY = 1000
"""Records whose events are replayed in one batch."""


@dataclass(slots=True, eq=False)
class _PendingCommit:
    """A pending request: accepted by the log, perhaps not durable yet, and not yet applied to the state."""

    steps: list[Step]
    names: set[bytes]
    batch: Transaction
    pending_block: PendingBlock
    offset: int
    """Index of its first event in the pending block."""
    version: int
    applied: bool = field(default=False)

    @property
    def position(self) -> int:
        """Return the log position after its last event."""
        return self.pending_block.first + self.offset + len(self.steps)


class Core(Generic[M]):
    """The writing half of a table.

    Threads: any. A request holds `_lock` while it is staged and added to the log, and not while it waits for the disk.
    `apply_lock` is held while requests are applied to the state, in the order of the log. Exclusive access is claimed
    at `_turnstile`, where requests wait; a transaction does not hold `_lock` between its calls. `apply_lock` is taken
    before `_lock`, except by `rebuild`, which takes it when no request is pending.

    After a disk failure or an interrupt it may be unknown whether a request is in the log or in the state. Then `doubt`
    is set, and the next request recovers first: it writes what the log has gathered, and applies the log to the state.
    No request is staged while `doubt` is set. Reads try to recover too, and otherwise see the state as it is.
    """

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
        tables: "Callable[[str], Any]" = lambda name: None,
        read_only: bool = False,
        past: SchemaHistory = NO_SCHEMA_HISTORY,
    ) -> None:
        """`tables` finds other tables by name, for references; `past` is the schema history of the log."""
        self.name = model.__spec__.name
        self.past = past
        self.settings = settings
        self.changelog = log
        """The log of its changes, which only the table may write. Users get `log`."""
        self.log = ReadOnlyLog(
            log,
            f"the table {self.name!r} is built from it. Change records with add, change and delete; remove one for "
            "good with delete(hard=True), and all of them with Store.delete_table",
        )
        """The log of its changes, to be read and followed."""
        self.read_only = read_only
        self.tables = tables
        self._state = state
        self._clock = clock
        self.bind(model, images or plain_images(model))
        self._versions = versions
        self._lock = threading.RLock()
        self._applied = Condition(self._lock)
        self._turnstile = FairLock(self._applied)
        self.apply_lock = threading.Lock()
        self._pending_commits: deque[_PendingCommit] = deque()
        self._pending: set[bytes] = set()
        """Keys of records and of unique values that pending requests touch."""
        self.cache = RowCache()
        self._durable = log.settings.flush.mode == "sync"
        self.closed = False
        # In the instance and not in its class, where each read would find it only after a miss.
        self.before_read: Callable[[], None] | None = None
        """Called before a read. While a transaction of the store is running, it reserves the table if that transaction
        reads it; in a store that was opened read-only, it applies the changes of the owner."""
        self.doubt = ""
        """Why the state may differ from the log; empty if not. Set by plain assignments; `recover` clears it."""
        self._doubtful: list[_PendingCommit] = []
        """Requests of which it is not known whether they are in the log."""
        self.before_recovery: Callable[[], None] = lambda: None
        """Finishes a transaction whose decision is in its log and whose changes are not all applied."""
        self.recover_state: Callable[[], None] = state.recover
        """Opens the state again after a failed write. Called with no lock held."""
        self._reserved: Ticket | None = None
        """The ticket of the transaction that has reserved the table, or of the last one that had."""
        self.gate: Gate | None = None
        """The access check while the table is migrated."""
        self.rebuilt = False
        """Whether the state was rebuilt from the log, at opening or since then."""
        self.position = 0
        """The log position up to which the state is applied."""
        self.last_version = 0
        """A version that no change in the state is above. After `apply` it may be higher than that of any change."""
        self._open()
        if read_only:
            self.before_read = self._refresh

    def bind(self, model: type[M], images: Images) -> None:
        """Use this class for the records; it may replace one with an equal definition."""
        self.model = model
        self.spec = model.__spec__
        self.plannable = self.spec
        """The model, as far as scans may rely on it: without indexes and unique fields that are being filled."""
        self.layout = KeyLayout(self.spec, self._clock)
        self.view = TableState(
            self._state,
            self.spec,
            images,
            history=self.settings.keep_all_versions,
            updates=self.settings.update_history,
        )
        self._decode = images.decode
        self._keeps_past = self.settings.keep_all_versions
        self._kept_past = self.settings.keep_all_versions + 2 * self.settings.update_history

    join: Callable[[Sequence[Operation]], list[Outcome] | None] | None = None
    """Offers a request to a transaction first; None where there is none."""

    # Requests

    def write(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Carry out a request: its changes get one version, and the valid operations are applied together.

        The outcome of an invalid operation is its error, which is returned and not raised; it changes nothing. Returns
        when the changes are as durable as the log's flush mode promises, and can be read. In a transaction the
        operations are only staged. Raises `StorageError` if the disk fails; the request may take effect nevertheless.
        """
        self._check_writable()
        if self.join is not None and (outcomes := self.join(operations)) is not None:
            return outcomes
        try:
            while True:
                try:
                    with self._lock:
                        staging, outcomes = self._stage(operations)
                        if not staging.steps:
                            return outcomes
                        pending_commit = self._submit(staging)
                    break
                except Fenced:
                    self.wait_for_transaction()
                except Doubtful:
                    self.recover()
            self._wait_durable(pending_commit)
            return outcomes
        except HoldfastError:
            raise
        except BaseException:  # an interrupt: the next request completes what is pending
            self.doubt = self.doubt or "a request was interrupted"
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the table exclusively, with `_lock` held: no request is pending, and other threads wait to begin one.

        Raises `InvalidArgument` if a transaction of this thread has reserved the table.
        """
        self._check_free()
        ticket = Ticket()
        try:
            self._turnstile.claim(ticket)
            self._check_writable()
            with self._lock:
                self._check_now()
                self._wait_for_pending_commits(self._check_now)
                yield
        finally:
            ticket.over = True
            self._turnstile.tidy()

    def _wait_for_exclusive(self) -> None:
        """Wait at the turnstile for exclusive claims, then check again that the table may be written.

        Called with `_lock` held, which is released while it waits.
        """
        self._check_free()
        self._turnstile.enter()
        self._check_now()

    def _wait_for_pending_commits(self, check: Callable[[], None] | None = None) -> None:
        while self._pending_commits:
            self._applied.wait(1)
            if check is not None:
                check()

    def reserve(self, ticket: Ticket) -> None:
        """Give a transaction exclusive write access until its ticket is over; return when no request is pending.

        `_lock` is not held afterwards: other threads wait at the turnstile, in turn. A write of the same thread that is
        not part of the transaction, as of another task, raises `InvalidArgument`.
        """
        self._check_free()
        self._turnstile.claim(ticket)
        while True:
            if self.doubt:
                self.recover()
            with self._lock:
                self._wait_for_pending_commits()
                if not self.doubt:
                    self._reserved = ticket
                    return

    def tidy(self) -> None:
        """Wake callers that wait for a ticket that is over; without this they notice a little later."""
        self._turnstile.tidy()

    def wait_for_transaction(self) -> None:
        """Return when the transaction that is running in the store has ended. Call it after `Fenced`, holding no lock.

        Raises `InvalidArgument` if that transaction is of this thread.
        """
        self._versions.wait_for_end()

    def begin_staging(self, version: int) -> Staging:
        """Return a staging for a transaction that has reserved the table.

        Raises `InvalidArgument` if the state is at the transaction's version or above it.
        """
        if version <= self.last_version:
            raise InvalidArgument(
                f"the table {self.name!r} was opened and changed after the transaction began: open it first"
            )
        return self.staging(Staging, version)

    def staging(self, kind: type[S], version: int) -> S:
        """Return a staging of this kind for a request."""
        size_max = self.changelog.settings.max_message
        return kind(self.model, self.view, self.layout, version, self._pending, size_max)

    def check_size(self, staging: Staging) -> None:
        """Raise the error that the log would raise if the staged events are too large for it."""
        self.changelog.check_size(*records_of(staging.steps))

    def submit(self, staging: Staging) -> "_PendingCommit":
        """Append staged events to the log; return when they are as durable as its flush mode promises.

        For callers with exclusive access: a transaction or a migration. They apply the result with `add_to_batch` and
        `mark_applied`. If this fails, the request may be in the log: call `stop`, or set `doubt`.
        """
        with self._lock:
            pending_commit = self._submit(staging)
        self._make_safe(pending_commit)
        return pending_commit

    def stop(self, why: str) -> None:
        """Set `doubt`: it is unknown which pending requests are in the log or the state. The next request recovers."""
        with self._lock:
            self.doubt = self.doubt or why
            self._doubt_pending_commits()

    def _doubt_pending_commits(self) -> None:
        self._doubtful += self._pending_commits
        self._pending_commits.clear()
        self._pending.clear()
        self._applied.notify_all()

    def recover(self) -> None:
        """Write the gathered events and apply the log to the state, after an interrupt or a disk failure.

        Called with no lock held. Raises `WriterStopped` as long as the disk fails. Can be called again if it is
        interrupted. Does not recover a table that is closed.
        """
        try:
            self.before_recovery()
            self.recover_state()
            with self.apply_lock, self._lock:
                if self.doubt and not self.closed:
                    self._recover()
        except StorageError as error:
            raise WriterStopped(
                f"the table {self.name!r} is not available: {self.doubt or 'its state has failed'}. It recovers when "
                f"the disk works again, without opening the store again: {error}"
            ) from error

    def _recover(self) -> None:
        why, self.doubt = self.doubt, ""  # an interrupt in another thread from here on sets it again
        try:
            self._doubt_pending_commits()
            self.changelog.recover()
            self.changelog.write_out()  # all gathered events are in the log now, or have failed
            place = place_in(self._state, self.view.prefix, self.changelog)
            self.cache.reset()
            if place is None:
                self._rebuild(force=True)
            else:
                self.position, self.last_version = place.position, place.version
                self.follow()
            for one in self._doubtful:
                one.applied = one.pending_block.error is None
            self._doubtful.clear()
            self._applied.notify_all()
        except BaseException:
            self.doubt = why
            raise
        logger.warning("table recovered: table=%s reason=%s", self.name, why, extra={"table": self.name})

    def _recover_to_read(self) -> None:
        """Try to recover before a read; if the disk fails or a transaction holds the table, read the state as it is."""
        if not self.read_only and (self._reserved is None or self._reserved.ended):
            with contextlib.suppress(StorageError):
                self.recover()

    def _stage(self, operations: Sequence[Operation]) -> tuple[Staging, list[Outcome]]:
        while True:
            if self._turnstile.line or self.doubt:
                self._wait_for_exclusive()
            staging = self.staging(Staging, self._versions.next())
            try:
                outcomes = [staging.run(operation) for operation in operations]
                return staging, staging.outcomes(outcomes) if staging.undone else outcomes
            except Busy:
                # A pending request of another thread may fail: nothing is ever based on it.
                self._applied.wait(1)
                self._check_now()

    def _submit(self, staging: Staging) -> _PendingCommit:
        return self._stage_to_log(staging.steps, staging.names, staging.version, staging.batch)

    def _stage_to_log(
        self, steps: list[Step], names: set[bytes], version: int, batch: Transaction | None = None
    ) -> _PendingCommit:
        if batch is None:
            batch = self._state.transaction()
            for step in steps:
                self.view.apply(batch, *step)
        records = records_of(steps)
        try:
            pending_block, first, _ = self.changelog.gather(*records)
            pending_commit = _PendingCommit(steps, names, batch, pending_block, first - pending_block.first, version)
            self._pending |= pending_commit.names
            self._pending_commits.append(pending_commit)
            return pending_commit
        except HoldfastError:  # the log accepted nothing of it
            raise
        except BaseException:  # before the lock is released: no request may be based on a state that lacks this
            self.doubt = self.doubt or "a request was interrupted while it was added to the log"
            raise

    def _make_safe(self, pending_commit: _PendingCommit) -> None:
        self.changelog.commit(pending_commit.pending_block)
        if not self._durable:
            self.changelog.write_out()  # if not synced: the state must not be ahead of what survives a kill
        if pending_commit.pending_block.error is not None:
            raise pending_commit.pending_block.error

    def _wait_durable(self, pending_commit: _PendingCommit) -> None:
        """Make a request as durable as the flush mode promises and apply it to the state.

        After an error it is applied, or nothing of it was written, or `doubt` is set.
        """
        try:
            self._make_safe(pending_commit)
            if not self._follow(pending_commit):
                self.recover()
                if not pending_commit.applied:
                    raise WriterStopped(
                        f"the table {self.name!r} was closed before this request was applied: {self.doubt}"
                    )
        except BaseException as error:
            if pending_commit.pending_block.error is None:
                self.doubt = self.doubt or f"a request may be in the log and not in the state ({error!r})"
            else:  # nothing of it was written
                self._forget([pending_commit])
            raise

    def _follow(self, pending_commit: _PendingCommit) -> bool:
        """Apply a pending request to the state, with those before it and those of its block, except failed ones.

        Returns False, and applies nothing, if `doubt` is set.
        """
        with self.apply_lock:
            if pending_commit.applied:
                return True
            if self.doubt:
                return False
            with self._lock:
                due: list[_PendingCommit] = []
                for one in self._pending_commits:
                    if one.pending_block is not pending_commit.pending_block and pending_commit in due:
                        break
                    due.append(one)
                arrived = [one for one in due if one.pending_block.error is None]
            if len(arrived) == 1:
                batch = arrived[0].batch
                self._put_place(batch, arrived)
            else:
                batch = self._state.transaction()
                self.add_to_batch(batch, arrived)
            batch.commit(sync=False)
            self.mark_applied(arrived)
            return True

    def add_to_batch(self, batch: Transaction, pending_commits: "Sequence[_PendingCommit]") -> None:
        """Add the changes of these requests, and the log position after them, to a batch; then call `mark_applied`."""
        for one in pending_commits:
            batch.absorb(one.batch)
        self._put_place(batch, pending_commits)

    def _put_place(self, batch: Transaction, pending_commits: "Sequence[_PendingCommit]") -> None:
        self._keep_place(batch, pending_commits[-1].position, self._latest(pending_commits))
        self.cache.hold(step.key for one in pending_commits for step in one.steps)

    def mark_applied(self, pending_commits: "Sequence[_PendingCommit]") -> None:
        """Mark these requests as applied and remove them from the pending ones. Called after the batch is committed."""
        self.cache.release()
        # Only now: a read as of this version must not return older records.
        self.position, self.last_version = pending_commits[-1].position, self._latest(pending_commits)
        for one in pending_commits:
            one.applied = True
        self._forget(pending_commits)

    def _latest(self, pending_commits: "Sequence[_PendingCommit]") -> int:
        """Return `last_version` after these requests; it never goes back."""
        return max(self.last_version, *[one.version for one in pending_commits])

    def _forget(self, pending_commits: "Sequence[_PendingCommit]") -> None:
        """Remove these from the pending requests. Idempotent, should an interrupt divide it."""
        with self._lock:
            for one in [*filter(self._pending_commits.__contains__, pending_commits)]:
                self._pending_commits.remove(one)
            self._pending.clear()
            for one in self._pending_commits:
                self._pending |= one.names
            self._applied.notify_all()

    def _keep_place(self, batch: Transaction, position: int, version: int) -> None:
        keep_place(batch, self.view.prefix, AppliedPosition(self.changelog.id, position, version, self._kept_past))

    def _commit(self, batch: Transaction, position: int, version: int) -> None:
        """Commit a batch together with its log position, without a sync, and clear the row cache."""
        self._keep_place(batch, position, version)
        batch.commit(sync=False)
        self.cache.clear()
        # Only now: a thread that sees the version must find its changes in the state.
        self.position, self.last_version = position, version

    # Following the log

    def _open(self) -> None:
        place = place_in(self._state, self.view.prefix, self.changelog)
        if place is None:
            self.rebuild(force=True)
        elif place.kept != self._kept_past:
            self.rebuild()  # the log has the history that the state lacks
        else:
            self.position, self.last_version = place.position, place.version
            self._versions.see(place.version)
            self.follow()

    def rebuild(self, *, force: bool = False) -> int:
        """Delete the state and build it from the log; return how many events were applied.

        Waits for exclusive access. Concurrent readers see what is built so far. With a damaged log the state would be
        incomplete: that raises `Corrupt`, before anything is deleted, unless `force`.
        """
        ticket = Ticket()
        try:
            self._turnstile.claim(ticket)
            if self.doubt:
                self.recover()
            with self._lock:
                self._wait_for_pending_commits()
            # `apply_lock` comes before `_lock`. Between the two the claim keeps new requests out.
            with self.apply_lock, self._lock:
                assert not self._pending_commits
                return self._rebuild(force=force)
        finally:
            ticket.over = True
            self._turnstile.tidy()

    def _rebuild(self, *, force: bool) -> int:
        if not force:
            self._check_log()
        clear_table(self._state, self.view.prefix)
        self.position = self.changelog.start
        self.rebuilt = True
        return self.follow(cleared=True)

    def _check_log(self) -> None:
        """Raise if the log does not have all records: `Corrupt` for damage, or `KeyMissing` for a key that was dropped.

        The state may have what the log has lost, so this comes before the state is deleted.
        """
        if damage := self.changelog.verify().damage:
            raise Corrupt(
                f"the log of the table {self.name!r} is damaged ({damage[0]}): the state was not changed; "
                "rebuild(force=True) builds it from the readable records"
            )
        for record in self.changelog.read(self.changelog.start, self.changelog.readable()[1]):
            event = decode_event(record.payload)
            if event.image:
                self.view.images.decode(record.key or b"", event.image)

    def follow(self, *, cleared: bool = False) -> int:
        """Apply the log from `position` to its readable end; return how many events.

        With `cleared`, the state is empty: fields that became unique later start again without that constraint.
        """
        count = 0
        late = LateUnique(self.view, self.past.unique_since, 0 if cleared else self.last_version)
        current: dict[bytes, tuple[Row | None, Any]] = {}
        batch = self._state.transaction()
        end = self.changelog.readable()[1]
        version = self.last_version
        for record in self.changelog.read(self.position, end):
            event = decode_event(record.payload)
            key = record.key or b""
            if len(current) >= _REPLAY or (event.kind is EventKind.HARD_DELETE and key in current):
                self._commit(batch, record.sequence, late.kept(version))
                batch, current = self._state.transaction(), {}
            while (since := late.due(event.version - 1)) is not None:
                self._commit(batch, record.sequence, late.kept(version))
                late.start(since)
                batch, current = self._state.transaction(), {}
            if key not in current:
                row = self.view.row(key)
                current[key] = (row, None if row is None else self.view.images.decode(key, row.image))
            old, before = current[key]
            after_it = self.view.images.decode(key, event.image) if event.image else None
            current[key] = (self.view.apply(batch, key, event, old, before, after_it), after_it)
            version = max(version, event.version)
            count += 1
        while (since := late.due(NEVER - 1)) is not None:
            self._commit(batch, end, late.kept(version))
            late.start(since)
            batch, version = self._state.transaction(), max(version, since)
        if self.position != end or self.last_version != version:
            self._commit(batch, end, version)
        self._versions.see(self.last_version)
        return count

    # Ends

    def close(self) -> None:
        """Refuse further requests and wait for the pending ones, until none finishes within 5 seconds. Idempotent.

        If `doubt` is set, it tries to recover first. What cannot be recovered is recovered at the next opening.
        """
        if self.doubt and not (self.closed or self.read_only):
            with contextlib.suppress(HoldfastError):  # otherwise it is recovered at the next opening
                self.recover()
        with self._lock:
            self.closed = True
            self._wait_for_last()

    def _wait_for_last(self) -> None:
        while self._pending_commits:
            if self.doubt:
                self._doubt_pending_commits()
            elif not self._applied.wait(5):
                break

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the table {self.name!r} is closed: open the store again")
        if self.gate is not None:
            self.gate.check()

    def _check_writable(self) -> None:
        """Raise, unless the table may be written; recover if `doubt` is set. Called with no lock held."""
        if self.closed or self.gate is not None or self.read_only:
            self._check_may_write()
        if self.doubt:
            self.recover()

    def _check_now(self) -> None:
        """As `_check_writable`, with `_lock` held: nothing can be recovered then, and `doubt` raises `Doubtful`."""
        self._check_may_write()
        if self.doubt:
            raise Doubtful(f"the table {self.name!r} is not available: {self.doubt}. Try again")

    def _check_may_write(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnly("the store was opened read-only: open it without read_only=True to change a table")

    def _check_free(self) -> None:
        if self._reserved is not None and self._reserved.mine:
            raise InvalidArgument(
                f"a transaction of this thread has reserved the table {self.name!r}: end it first, or write inside it"
            )

    def _catch_up(self) -> None:
        self._check_open()
        if self.doubt:
            self._recover_to_read()
        if self.before_read is not None:
            self.before_read()

    def _refresh(self) -> None:
        """Apply the events that the process which owns the store wrote to the log."""
        with self._lock:
            self.changelog.refresh()
            if self.changelog.visible_end > self.position:
                self.follow()


def records_of(steps: Sequence[Step]) -> tuple[list[bytes], list[ColumnValue], int]:
    """Return the arguments of `Log.gather` for events: payloads, keys, and the size of the largest with its key."""
    payloads: list[bytes] = []
    extras: list[ColumnValue] = []
    largest = 0
    for position, step in enumerate(steps):
        key = step.key
        payload = encode_event(step.event)
        payloads.append(payload)
        extras.append(ColumnValue(position, "key", key, len(key)))
        largest = max(largest, len(payload) + len(key))
    return payloads, extras, largest
