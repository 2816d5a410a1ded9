"""The writing half of a table: a request becomes one append to the log, a shared sync and one batch of the state."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.base.critical_section import Condition
from holdfast.base.errors import HoldfastError, InvalidArgument, StorageError, WriterStopped
from holdfast.base.fair_lock import FairLock, Ticket
from holdfast.base.hlc import Fenced, HybridLogicalClock
from holdfast.log.batch import ColumnValue
from holdfast.log.log import Log
from holdfast.log.pending_block import PendingBlock
from holdfast.state import Transaction
from holdfast.table.operations import Done, Operation, Outcome
from holdfast.table.storage.applied_state import AppliedState
from holdfast.table.storage.staging import Busy, Staging, Step
from holdfast.table.storage.state_replayer import StateReplayer
from holdfast.table.storage.table_access import TableAccess
from holdfast.table.storage.table_schema import TableSchema

__all__ = ["CommitPipeline", "PendingCommit", "records_of"]

logger = logging.getLogger("holdfast.table")

Attempt = Callable[[], tuple[Staging, list[Outcome]]]
"""Stages a request once more, from the beginning. Called with the lock held."""
_APPLY_WAIT_S = 0.1
"""Longest wait in seconds of `CommitPipeline.wait_applied`."""


class _Doubtful(WriterStopped):
    """The state may differ from the log: release all locks, call `recover` and begin again."""


@dataclass(slots=True, eq=False)
class PendingCommit:
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


class CommitPipeline:
    """The writing half of a table: stages a request, submits it to the log, makes it durable, applies it to the state.

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
        schema: TableSchema[Any],
        state: AppliedState,
        access: TableAccess,
        log: Log,
        replayer: StateReplayer,
        versions: HybridLogicalClock,
    ) -> None:
        self.name = schema.name
        self.log = log
        """The log of the changes, which only the table may write."""
        self.access = access
        self._schema = schema
        self._state = state
        self._replayer = replayer
        self._versions = versions
        self._lock = threading.RLock()
        self._applied = Condition(self._lock)
        self._turnstile = FairLock(self._applied)
        self.apply_lock = threading.Lock()
        self._pending_commits: deque[PendingCommit] = deque()
        self._pending: set[bytes] = set()
        """Keys of records and of unique values that pending requests touch."""
        self._durable = log.settings.flush.mode == "sync"
        self.running_transaction: Callable[[], object | None] = lambda: None
        """Returns the transaction of the calling context, of any store; None if there is none. Asked first, because it
        is cheaper than `join`: a method of C code."""
        self.join: Callable[[Sequence[Operation]], list[Outcome] | None] = lambda operations: None
        """Adds a request to the transaction of the calling context; returns None if it is not part of one."""
        self.doubt = ""
        """Why the state may differ from the log; empty if not. Set by plain assignments; `recover` clears it."""
        self._doubtful: list[PendingCommit] = []
        """Requests of which it is not known whether they are in the log."""
        self.before_recovery: Callable[[], None] = lambda: None
        """Finishes a transaction whose decision is in its log and whose changes are not all applied."""
        self.recover_state: Callable[[], None] = state.store.recover
        """Opens the state again after a failed write. Called with no lock held."""
        self._reserved: Ticket | None = None
        """The ticket of the transaction that has reserved the table, or of the last one that had."""

    # Requests

    def write(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Carry out a request: its changes get one version, and the valid operations are applied together.

        The outcome of an invalid operation is its error, which is returned and not raised; it changes nothing. Returns
        when the changes are as durable as the log's flush mode promises, and can be read. In a transaction the
        operations are only staged. Raises `StorageError` if the disk fails; the request may take effect nevertheless.
        """
        self.check_writable()
        if self.running_transaction() is not None and (outcomes := self.join(operations)) is not None:
            return outcomes
        return self.commit(partial(self._stage, operations))

    def write_one(self, operation: Operation) -> Done:
        """As `write`, for one operation: raises its error."""
        (outcome,) = self.write([operation])
        if isinstance(outcome, HoldfastError):
            raise outcome
        return outcome

    def commit(self, attempt: Attempt) -> list[Outcome]:
        """Stage a request with `attempt`, which may be called several times, and commit it; return the outcomes."""
        confirms = self._durable and self.log.gate.is_on
        if confirms:
            self.log.gate.check()
        outcomes = self._commit(attempt)
        if confirms and not all(isinstance(one, HoldfastError) for one in outcomes):
            self.log.gate.confirm()  # also if nothing was written: the state may be ahead of the replica
        return outcomes

    def _commit(self, attempt: Attempt) -> list[Outcome]:
        try:
            while True:
                try:
                    with self._lock:
                        staging, outcomes = self._attempt(attempt)
                        if not staging.steps:
                            return outcomes
                        pending_commit = self._submit(staging)
                    break
                except Fenced:
                    self.wait_for_transaction()
                except _Doubtful:
                    self.recover()
            self._finish(pending_commit)
            return outcomes
        except HoldfastError:
            raise
        except BaseException:  # an interrupt: the next request completes what is pending
            self.doubt = self.doubt or "a request was interrupted"
            raise

    def _attempt(self, attempt: Attempt) -> tuple[Staging, list[Outcome]]:
        while True:
            if self._turnstile.line or self.doubt:
                self._wait_for_exclusive()
            try:
                return attempt()
            except Busy:
                # A pending request of another thread may fail: nothing is ever based on it.
                self._applied.wait(1)
                self._check_now()

    def _stage(self, operations: Sequence[Operation]) -> tuple[Staging, list[Outcome]]:
        staging = self.staging()
        return staging, staging.run_all(operations)

    def staging(self, version: int | None = None, *, drops_undone: bool = True) -> Staging:
        """Return a staging for a request; without a `version`, with a new one."""
        schema = self._schema
        return Staging(
            schema.model,
            self._state.view,
            schema.layout,
            Transaction(self._state.store),
            self._versions.next() if version is None else version,
            self._pending,
            self.log.settings.max_message,
            drops_undone,
        )

    # Exclusive access

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the table exclusively, with `_lock` held: no request is pending, and other threads wait to begin one.

        Raises `InvalidArgument` if a transaction of this thread has reserved the table.
        """
        self._check_free()
        self.check_writable()
        ticket = Ticket()
        try:
            self._claim(ticket)
            with self._lock:
                self._check_now()
                self._wait_for_pending_commits(self._check_now)
                yield
        finally:
            ticket.over = True
            self._turnstile.tidy()

    def _claim(self, ticket: Ticket) -> None:
        """Claim exclusive access. The caller has a `finally` that ends the ticket.

        It recovers before the claim and not with it: finishing a transaction takes the guard of the store, and a thread
        that has this guard may wait for the claim, to delete the table.
        """
        while True:
            if self.doubt:
                self.recover()
            ticket.over = False
            self._turnstile.claim(ticket)
            if not self.doubt or self.access.closed:
                return
            ticket.over = True
            self._turnstile.tidy()

    def rewrite(self, stage: Callable[[Staging], None]) -> int:
        """Write what `stage` stages, with exclusive access until it is applied; return how many records changed."""
        while True:
            try:
                with self.writing():
                    staging = self.staging()
                    stage(staging)
                    staging.settle()
                    if staging.steps:
                        self._commit_alone(staging)
                    return len(staging.steps)
            except Fenced:
                self.wait_for_transaction()

    def _commit_alone(self, staging: Staging) -> None:
        try:
            pending_commit = self.submit(staging)
            batch = self._state.store.transaction()
            self.add_to_batch(batch, [pending_commit])
            batch.commit(sync=False)
        except BaseException as error:  # otherwise the pending request would never end
            with self._lock:
                self.doubt = self.doubt or f"a write may be in the log and not in the state ({error!r})"
                self._doubt_pending_commits()
            raise
        self.mark_applied([pending_commit])

    def write_again(self, steps_of: Callable[[], list[Step]]) -> int:
        """Write events that keep the versions of their records; return how many. `steps_of` has exclusive access."""
        with self.writing():
            steps = steps_of()
            if not steps:
                return 0
            batch = self._state.store.transaction()
            for step in steps:
                self._state.view.apply(batch, step.key, step.event, step.old, step.before, step.record)
            names = {step.key for step in steps}
            pending_commit = self._append(steps, names, self._state.last_version, batch)
        self._finish(pending_commit)
        return len(steps)

    def rebuild(self, *, force: bool = False) -> int:
        """Delete the state and build it from the log; return how many events were applied.

        Waits for exclusive access. Concurrent readers see what is built so far. With a damaged log the state would be
        incomplete: that raises `Corrupt`, before anything is deleted, unless `force`.
        """
        ticket = Ticket()
        try:
            self._claim(ticket)
            with self._lock:
                self._wait_for_pending_commits()
            # `apply_lock` comes before `_lock`. Between the two the claim keeps new requests out.
            with self.apply_lock, self._lock:
                assert not self._pending_commits
                return self._replayer.rebuild(force=force)
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

    # Transactions

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
        if version <= self._state.last_version:
            raise InvalidArgument(
                f"the table {self.name!r} was opened and changed after the transaction began: open it first"
            )
        return self.staging(version)

    def check_size(self, staging: Staging) -> None:
        """Raise the error that the log would raise if the staged events are too large for it."""
        self.log.appender.check_size(*records_of(list(staging.steps.values())))

    def submit(self, staging: Staging) -> PendingCommit:
        """Append staged events to the log; return when they are as durable as its flush mode promises.

        For callers with exclusive access, as a transaction. They apply the result with `add_to_batch` and
        `mark_applied`. If this fails, the request may be in the log: set `doubt`.
        """
        with self._lock:
            pending_commit = self._submit(staging)
        self._wait_durable(pending_commit)
        return pending_commit

    # Recovery

    def recover(self) -> None:
        """Write the gathered events and apply the log to the state, after an interrupt or a disk failure.

        Called with no lock held. Raises `WriterStopped` as long as the disk fails. Can be called again if it is
        interrupted. Does not recover a table that is closed.
        """
        try:
            self.before_recovery()
            self.recover_state()
            with self.apply_lock, self._lock:
                if self.doubt and not self.access.closed:
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
            self.log.appender.recover()
            self.log.appender.write_out()  # all gathered events are in the log now, or have failed
            self._state.cache.reset()
            self._replayer.resume()
            for one in self._doubtful:
                one.applied = one.pending_block.error is None
            self._doubtful.clear()
            self._applied.notify_all()
        except BaseException:
            self.doubt = why
            raise
        logger.warning("table recovered: table=%s reason=%s", self.name, why, extra={"table": self.name})

    def _doubt_pending_commits(self) -> None:
        self._doubtful += self._pending_commits
        self._pending_commits.clear()
        self._pending.clear()
        self._applied.notify_all()

    def recover_to_read(self) -> None:
        """Try to recover before a read; if the disk fails or a transaction holds the table, read the state as it is."""
        if not self.access.read_only and (self._reserved is None or self._reserved.ended):
            with contextlib.suppress(StorageError):
                self.recover()

    # From staging to the state

    def _submit(self, staging: Staging) -> PendingCommit:
        if staging.unsettled:
            staging.settle()
        return self._append(list(staging.steps.values()), staging.names, staging.version, staging.batch)

    def _append(self, steps: list[Step], names: set[bytes], version: int, batch: Transaction) -> PendingCommit:
        records = records_of(steps)
        try:
            pending_block, first, _ = self.log.gather(*records)
            pending_commit = PendingCommit(steps, names, batch, pending_block, first - pending_block.first, version)
            self._pending |= pending_commit.names
            self._pending_commits.append(pending_commit)
            return pending_commit
        except HoldfastError:  # the log accepted nothing of it
            raise
        except BaseException:  # before the lock is released: no request may be based on a state that lacks this
            self.doubt = self.doubt or "a request was interrupted while it was added to the log"
            raise

    def _wait_durable(self, pending_commit: PendingCommit) -> None:
        self.log.commit(pending_commit.pending_block)
        if not self._durable:
            self.log.appender.write_out()  # if not synced: the state must not be ahead of what survives a kill
        if pending_commit.pending_block.error is not None:
            raise pending_commit.pending_block.error

    def _finish(self, pending_commit: PendingCommit) -> None:
        """Make a request as durable as the flush mode promises and apply it to the state.

        After an error it is applied, or nothing of it was written, or `doubt` is set.
        """
        try:
            self._wait_durable(pending_commit)
            if not self._apply(pending_commit):
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

    def _apply(self, pending_commit: PendingCommit) -> bool:
        """Apply a pending request to the state, with those before it and those of its block, except failed ones.

        Returns False, and applies nothing, if `doubt` is set.
        """
        with self.apply_lock:
            if pending_commit.applied:
                return True
            if self.doubt:
                return False
            with self._lock:
                due: list[PendingCommit] = []
                for one in self._pending_commits:
                    if one.pending_block is not pending_commit.pending_block and pending_commit in due:
                        break
                    due.append(one)
                arrived = [one for one in due if one.pending_block.error is None]
            batch = arrived[0].batch
            for one in arrived[1:]:
                batch.absorb(one.batch)
            self._state.commit(batch, *self._after(arrived))
            self._mark_applied(arrived)
            return True

    def add_to_batch(self, batch: Transaction, pending_commits: Sequence[PendingCommit]) -> None:
        """Add the changes of these requests, and the log position after them, to a batch; then call `mark_applied`."""
        for one in pending_commits:
            batch.absorb(one.batch)
        self._state.begin(batch, *self._after(pending_commits))

    def mark_applied(self, pending_commits: Sequence[PendingCommit]) -> None:
        """Mark these requests as applied and remove them from the pending ones. Called after the batch is committed."""
        position, version, _ = self._after(pending_commits)
        self._state.end(position, version)
        self._mark_applied(pending_commits)

    def _mark_applied(self, pending_commits: Sequence[PendingCommit]) -> None:
        for one in pending_commits:
            one.applied = True
        self._forget(pending_commits)

    def _after(self, pending_commits: Sequence[PendingCommit]) -> tuple[int, int, list[bytes]]:
        """Return the position and `last_version` after these requests, and the keys of the records that they change.

        `last_version` never goes back.
        """
        version = max(self._state.last_version, *[one.version for one in pending_commits])
        keys = [step.key for one in pending_commits for step in one.steps]
        return pending_commits[-1].position, version, keys

    def _forget(self, pending_commits: Sequence[PendingCommit]) -> None:
        """Remove these from the pending requests. Idempotent, should an interrupt divide it."""
        with self._lock:
            for one in [*filter(self._pending_commits.__contains__, pending_commits)]:
                self._pending_commits.remove(one)
            self._pending.clear()
            for one in self._pending_commits:
                self._pending |= one.names
            self._applied.notify_all()

    # Readers

    def catch_up(self) -> None:
        """Raise, unless the table may be read, and make the state current before a read."""
        self.access.check_open()
        if self.doubt:
            self.recover_to_read()
        if self.access.before_read is not None:
            self.access.before_read()

    def refresh(self) -> None:
        """Apply the events that the process which owns the store wrote to the log."""
        with self._lock:
            self.log.refresh()
            if self.log.reader.visible_end > self._state.position:
                self._replayer.follow()

    def wait_applied(self, sequence: int) -> bool:
        """Return whether the state includes the event at a log position; waits up to 0.1 seconds for it."""
        state, access = self._state, self.access
        if access.read_only:
            self.catch_up()
            return state.position > sequence
        with self._lock:
            if state.position <= sequence and not access.closed:
                self._applied.wait(_APPLY_WAIT_S)
            if state.position > sequence:
                return True
        if self.doubt and not access.closed:
            self.recover_to_read()
        return False

    def applied_position(self) -> int:
        """Return the log position of the state at a moment when no later event is being applied to it."""
        with self.apply_lock:
            return self._state.position

    # End and checks

    def close(self) -> None:
        """Refuse further requests and wait for the pending ones, until none finishes within 5 seconds. Idempotent.

        If `doubt` is set, it tries to recover first. What cannot be recovered is recovered at the next opening.
        """
        if self.doubt and not (self.access.closed or self.access.read_only):
            with contextlib.suppress(HoldfastError):  # otherwise it is recovered at the next opening
                self.recover()
        with self._lock:
            self.access.closed = True
            self._wait_for_last()

    def _wait_for_last(self) -> None:
        while self._pending_commits:
            if self.doubt:
                self._doubt_pending_commits()
            elif not self._applied.wait(5):
                break

    def check_writable(self) -> None:
        """Raise, unless the table may be written; recover if `doubt` is set. Called with no lock held."""
        access = self.access
        if access.closed or access.gate is not None or access.read_only:
            access.check_writable()
        if self.doubt:
            self.recover()

    def _check_now(self) -> None:
        """As `check_writable`, with `_lock` held: nothing can be recovered then, and `doubt` raises `_Doubtful`."""
        self.access.check_writable()
        if self.doubt:
            raise _Doubtful(f"the table {self.name!r} is not available: {self.doubt}. Try again")

    def _check_free(self) -> None:
        if self._reserved is not None and self._reserved.mine:
            raise InvalidArgument(
                f"a transaction of this thread has reserved the table {self.name!r}: end it first, or write inside it"
            )


def records_of(steps: Sequence[Step]) -> tuple[list[bytes], list[ColumnValue], int]:
    """Return the arguments of `Log.gather` for events: payloads, keys, and the size of the largest with its key."""
    payloads: list[bytes] = []
    extras: list[ColumnValue] = []
    largest = 0
    for position, step in enumerate(steps):
        key, payload = step.key, step.payload
        payloads.append(payload)
        extras.append(ColumnValue(position, "key", key, len(key)))
        largest = max(largest, len(payload) + len(key))
    return payloads, extras, largest
