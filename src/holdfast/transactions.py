"""Transactions over tables and queues: a synced decision record commits, then the changes are applied.

A transaction that changes only one table or queue needs no decision record.
"""

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.base.critical_section import Condition
from holdfast.base.errors import (
    HoldfastError,
    InvalidArgument,
    MessageTooLarge,
    StorageError,
    WriterStopped,
    is_interrupt,
)
from holdfast.base.fair_lock import FairLock, Ticket
from holdfast.base.hlc import HybridLogicalClock
from holdfast.log.log import Log
from holdfast.log.policy import Flush, Roll
from holdfast.log.record import Message
from holdfast.log.settings import LogSettings
from holdfast.log_registry import LogRegistry
from holdfast.queue import Queue
from holdfast.queue.queue_state import TARGET_QUEUE_HEADER
from holdfast.store_context import StoreContext
from holdfast.table_registry import TableRegistry

if TYPE_CHECKING:
    from holdfast.table.operations import Operation, Outcome
    from holdfast.table.storage.commit_pipeline import CommitPipeline
    from holdfast.table.storage.staging import Staging
    from holdfast.table.storage.transaction_log import Decision

__all__ = ["DECISIONS_FULL", "DECISION_MAX", "TRANSACTIONS", "Transaction", "TransactionCoordinator"]

logger = logging.getLogger("holdfast.store")

TRANSACTIONS = "transactions"
DECISIONS_FULL = 16 << 20
"""Bytes of completed decisions after which the log is cleared: the size of a segment."""
_ROLL = Roll.size(DECISIONS_FULL)
DECISION_MAX = 256 << 20


@dataclass(slots=True, eq=False)
class Transaction:
    """A running transaction: its staged changes, which no other thread sees."""

    of: "TransactionCoordinator"
    """The coordinator of its store."""
    ticket: Ticket
    """The owner of its reservations and of its version fence, which end when the ticket is over."""
    version: int
    """The version of every change in it."""
    stagings: "dict[CommitPipeline, Staging]" = field(default_factory=dict)
    puts: dict[Queue, list[Message]] = field(default_factory=dict)
    sizes: dict[Queue, int] = field(default_factory=dict)
    """Bytes of payload that are staged for each queue."""
    tables: "set[CommitPipeline]" = field(default_factory=set)
    """The tables that it has reserved: those that it has read or written."""
    over: bool = False
    """Whether it has ended: further calls raise `InvalidArgument`."""

    @property
    def parts(self) -> int:
        """Return how many tables and queues it changes."""
        return sum(bool(staging.steps) for staging in self.stagings.values()) + len(self.puts)

    @property
    def is_durable(self) -> bool:
        """Whether its end promises that the changes are durable: with several parts always, else by the flush mode."""
        logs = [one.log for one in self.stagings] + [one.log for one in self.puts]
        return self.parts > 1 or any(log.settings.flush.mode == "sync" for log in logs)

    def reserve(self, table: "CommitPipeline") -> None:
        """Reserve a table until the end of the transaction: other writers of the table wait."""
        if table not in self.tables:
            table.reserve(self.ticket)
            self.tables.add(table)


_current: ContextVar[Transaction | None] = ContextVar("holdfast_transaction", default=None)
_known: "dict[int, weakref.ref[TransactionCoordinator]]" = {}
"""The `TransactionCoordinator` of every store of this process, by `id()`."""


class _Exit:
    """Descriptor for `__exit__` of a scope: returns a new object each time, to which only the `with` statement refers.

    A signal handler can raise at the very start of a Python function, before it has done anything, and the traceback
    then keeps the function's arguments alive. The object that `with` calls is still freed. So the transaction ends when
    that object is freed.
    """

    def __get__(self, scope: "_Scope | None", kind: "type[_Scope]") -> Callable[..., None]:
        if scope is None:  # `ExitStack` looks it up on the class, and keeps the scope alive
            return _Scope.leave
        held = partial(_Scope.leave, scope)
        scope.held = weakref.ref(held)
        return held


class _Scope:
    """Context manager of a transaction. An interrupt at any point ends it, and releases all its reservations."""

    held: "weakref.ref[Callable[..., None]] | None" = None
    """The last object that was returned as `__exit__`."""
    _transaction: Transaction | None = None

    def __init__(self, of: "TransactionCoordinator") -> None:
        self._of = of

    def __enter__(self) -> Transaction:
        held = None if self.held is None else self.held()
        ticket = Ticket(self if held is None else held)
        try:
            self._transaction = transaction = self._of.start(ticket)
            _current.set(transaction)
            return transaction
        except BaseException:
            ticket.over = True
            if self._transaction is not None:
                self._transaction.over = True
                _current.set(None)
            raise

    __exit__ = _Exit()

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Commit the transaction, unless there was an error, and release what it has reserved."""
        transaction = self._transaction
        assert transaction is not None
        try:
            transaction.over = True
            _current.set(None)
            try:
                if kind is None:
                    if transaction.is_durable:
                        self._of.gate.check()
                    self._of.carry_out(transaction)
            finally:
                self._of.leave_alone()
        finally:
            transaction.ticket.over = True  # ends the fence and releases the tables, in one step
            self._of.tidy(transaction)
        if kind is None and transaction.is_durable:
            self._of.gate.confirm()  # with nothing reserved: others may work while this one waits


def _find() -> Transaction | None:
    """Return the transaction of the calling context, which may be over; None if there is none.

    None also if an interrupt came at the very start of its end, and ended it.
    """
    transaction = _current.get()
    if transaction is not None and transaction.ticket.ended and not transaction.over:
        _current.set(None)
        return None
    return transaction


def _forget(number: int, _: object) -> None:
    _known.pop(number, None)


class TransactionCoordinator:
    """Runs the transactions of a store, one at a time. Files: the log in `transactions/`, made by the first one.

    A transaction reserves a table when it first reads or writes it, until its end. Because there is one transaction at
    a time, and every other writer needs one table only, there are no deadlocks. `_turnstile` admits one transaction;
    `_finishing` is held while a decision is written, applied or recovered.
    """

    def __init__(
        self,
        shared: StoreContext,
        tables: TableRegistry,
        logs: LogRegistry,
        open_queue: Callable[[str], Queue | None],
        open_queues: Callable[[], list[Queue]],
    ) -> None:
        self._clock = shared.clock
        self.gate = shared.gate
        """Where the end of a transaction waits for the replica."""
        self.path = shared.path
        self._tables = tables
        self._versions: HybridLogicalClock = tables.versions
        self._open_log = logs.open
        self.open_queue = open_queue
        """Opens a queue by its name; returns None if there is none. For a transaction that is finished later."""
        self._open_queues = open_queues
        self._guard = shared.guard
        """Its lock is taken before `_finishing`: a queue may have to be opened."""
        self._log: Log | None = None
        self._grown = 0
        """Bytes of decisions that were appended to the log since it was cleared."""
        self._turnstile = FairLock(Condition(threading.RLock()))
        self._unfinished = ""
        """Set before a decision is written, and cleared when it is applied. While it is set, `finish` comes first."""
        self._decided_from = 0
        """The end of the log before that decision."""
        self._finishing = threading.RLock()
        """Held while a decision is written and applied, or recovered."""
        self._visited = False
        """Whether tables report reads: while a transaction is running."""
        self._watched = False
        """Whether queues report puts, so that a put in a transaction of another store can be rejected."""
        tables.opened = self._include
        _known[id(self)] = weakref.ref(self, partial(_forget, id(self)))

    def begin(self) -> contextlib.AbstractContextManager[Transaction]:
        """Return a context manager: changes inside, in this thread, are applied together at its end, or not at all."""
        return _Scope(self)

    def start(self, ticket: Ticket) -> Transaction:
        """Begin a transaction that ends with this ticket; wait for the one before.

        Raises `InvalidArgument` if this thread has a running one, and `WriterStopped` if the one before cannot be
        finished because the disk fails.
        """
        if _find() is not None or self._turnstile.mine:
            raise InvalidArgument(
                "this thread has a running transaction: make all changes in that one, or end it first"
            )
        self._turnstile.claim(ticket)
        try:
            self.finish()
        except StorageError as error:
            raise WriterStopped(
                f"a transaction cannot begin before the last one is finished: {self._unfinished}. It is finished when "
                f"the disk works again: {error}"
            ) from error
        self._log = self._log or self._opened()
        for known in list(_known.values()):
            if (one := known()) is not None:
                one.watch_queues()
        transaction = Transaction(self, ticket, self._versions.begin_fence(ticket))
        self._visit(True)
        return transaction

    def leave_alone(self) -> None:
        """Stop tables from reporting reads. Called before the ticket is over: the next one turns it on again."""
        self._visit(False)

    def tidy(self, transaction: Transaction | None = None) -> None:
        """Wake callers that wait for the end of a ticket; without this they notice a little later."""
        self._versions.tidy()
        for table in transaction.tables if transaction is not None else ():
            table.tidy()
        self._turnstile.tidy()

    def claim(self, ticket: Ticket) -> None:
        """Return when no transaction is running; none begins until the ticket is over. See `FairLock.claim`."""
        if self._turnstile.mine:
            raise InvalidArgument("this thread has a running transaction: end it first")
        self._turnstile.claim(ticket)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Return a context in which no transaction is running, and none begins. Waits for the running one."""
        ticket = Ticket()
        try:
            self.claim(ticket)
            yield
        finally:
            ticket.over = True
            self.tidy()

    def is_idle_within(self, seconds: float) -> bool:
        """Wait up to so many seconds for running transactions; return whether there is none then."""
        return not self._turnstile.mine and self._turnstile.is_free_within(seconds)

    def recover(self) -> int:
        """Finish transactions that were decided and may be incomplete; return how many. Called at opening."""
        from holdfast.table.storage.transaction_log import unfinished  # noqa: PLC0415 - loaded only if it is needed

        self._log = self._opened()
        left = unfinished(record.payload for record in self._log.read())
        for decision in left:
            self._finish(decision)
        self._log.clear(force=True)
        return len(left)

    def _opened(self) -> Log:
        settings = LogSettings(flush=Flush.sync(), roll=_ROLL, max_message=DECISION_MAX)
        return self._open_log(TRANSACTIONS, self.path, settings)

    def logs(self) -> list[Log]:
        """Return the log of decisions as a list, empty if it is not open."""
        return [] if self._log is None else [self._log]

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def detach_after_fork(self) -> None:
        """Release the log without writing to it. Called in a forked child: the log is the parent's."""
        self._turnstile = FairLock(Condition(threading.RLock()))
        if self._log is not None:
            self._log.appender.detach_after_fork()

    def _include(self, table: "CommitPipeline") -> None:
        table.running_transaction, table.join = _current.get, self._joins(table)
        table.before_recovery = self.finish
        if self._visited:
            table.access.before_read = self._visits(table)

    def _visit(self, visited: bool) -> None:
        """Make tables report reads, also those that are opened from now on, or stop that."""
        self._visited = visited
        for commits in [table.engine.commits for table in list(self._tables.open_tables.values())]:
            commits.access.before_read = self._visits(commits) if visited else None

    def include_queue(self, queue: Queue) -> None:
        """Let a queue take part in transactions, if there has been one in this process."""
        if self._watched:
            queue.intake.join_transactions(self._takes(queue))

    def watch_queues(self) -> None:
        """Let every queue report puts. Called with the first transaction of any store in this process."""
        if not self._watched:
            self._watched = True
            for queue in self._open_queues():
                self.include_queue(queue)

    def _joins(self, table: "CommitPipeline") -> "Callable[[Sequence[Operation]], list[Outcome] | None]":
        def join(operations: "Sequence[Operation]") -> "list[Outcome] | None":
            transaction = self._callers_transaction("table", table.name)
            if transaction is None:
                return None
            transaction.reserve(table)
            staging = transaction.stagings.get(table)
            if staging is None:
                staging = transaction.stagings[table] = table.begin_staging(transaction.version)
            return [staging.run(operation) for operation in operations]

        return join

    def _takes(self, queue: Queue) -> Callable[[list[bytes | Message]], bool]:
        def take(messages: list[bytes | Message]) -> bool:
            transaction = self._callers_transaction("queue", queue.name)
            if transaction is None:
                return False
            gathered, size = transaction.puts.get(queue, []), transaction.sizes.get(queue, 0)
            more = queue.intake.check_messages(messages, staged=(len(gathered), size))
            if any(isinstance(one, Message) and TARGET_QUEUE_HEADER in (one.headers or {}) for one in messages):
                raise InvalidArgument(
                    f"the header {TARGET_QUEUE_HEADER!r} is reserved for moves between queues: use another name"
                )
            gathered += [one if isinstance(one, Message) else Message(one) for one in messages]
            transaction.puts[queue], transaction.sizes[queue] = gathered, size + more
            return True

        return take

    def _visits(self, table: "CommitPipeline") -> Callable[[], None]:
        """Return the function that a table calls before a read, to reserve it for the transaction of the caller.

        A read of another store's table is not part of the transaction.
        """

        def visit() -> None:
            transaction = _find()
            if transaction is not None and not transaction.over and transaction.of is self and transaction.ticket.mine:
                transaction.reserve(table)

        return visit

    def _callers_transaction(self, kind: str, name: str) -> Transaction | None:
        """Return the caller's transaction for a write to a table or queue of this store; None if there is none.

        Raises `InvalidArgument` if it has ended, belongs to another thread, or to another store.
        """
        transaction = _find()
        if transaction is None:
            return None
        if transaction.over or not transaction.ticket.mine:
            raise InvalidArgument(
                "this call belongs to a transaction, and was made "
                + ("after its end" if transaction.over else "in another thread")
                + ": call it inside the transaction, in the thread that began it"
            )
        if transaction.of is not self:
            raise InvalidArgument(
                f"the {kind} {name!r} belongs to the store {str(self.path)!r}, the transaction to the store "
                f"{str(transaction.of.path)!r}, and a transaction changes one store: write to it before the "
                "transaction or after it, or in a transaction of its own store"
            )
        return transaction

    def carry_out(self, transaction: Transaction) -> None:
        """Commit a transaction. With several tables or queues, a synced decision record makes it atomic.

        With one, it is as durable as the flush mode of its log promises. Raises `WriterStopped` if it was decided, or
        may have been, and could not be applied: then it is finished when the disk works again.
        """
        from holdfast.table.storage.transaction_log import (  # noqa: PLC0415
            Decision,
            QueuePart,
            TablePart,
            encode,
            kept,
            records_in,
        )

        stagings = {table: staging for table, staging in transaction.stagings.items() if staging.steps}
        assert self._log is not None
        for table, staging in stagings.items():
            staging.settle()
            table.check_size(staging)
        if transaction.parts < 2:
            self._do(transaction, stagings, self._clock.time_ns())
            return
        decision = Decision(
            transaction.version,
            self._clock.time_ns(),
            [
                TablePart(table.name, table.log.id, table.log.end, records_in(staging))
                for table, staging in stagings.items()
            ],
            [
                QueuePart(queue.name, queue.log.id, queue.log.end, [kept(message) for message in messages])
                for queue, messages in transaction.puts.items()
            ],
        )
        _sync(stagings)  # earlier changes of these tables must not be lost either
        payload = encode(decision)
        if len(payload) > self._log.settings.max_message:
            raise MessageTooLarge(
                f"the transaction takes {len(payload)} bytes, over the limit of {self._log.settings.max_message}: "
                "nothing was written; change less in one transaction"
            )
        with self._finishing:
            self._decide(transaction, stagings, payload, decision.time)
        self._empty(self._log, len(payload))

    def _decide(
        self, transaction: Transaction, stagings: "dict[CommitPipeline, Staging]", payload: bytes, now: int
    ) -> None:
        """Write the decision and apply it. If that is interrupted, `finish` completes it before any later write."""
        from holdfast.table.storage.transaction_log import finished  # noqa: PLC0415

        assert self._log is not None
        decided = False
        try:
            self._decided_from = self._log.end
            self._unfinished = "it may have been decided, and was not completed"
            self._log.append(payload)
            decided = True
            self._do(transaction, stagings, now)
            _sync([*stagings, *transaction.puts])  # before it is recorded as finished
            # Now, not with the next one: the records by which recovery knows that it was applied may be dropped, or
            # deleted with their log.
            self._log.append(finished(transaction.version))
            self._unfinished = ""
        except BaseException as error:
            for table in stagings:
                table.doubt = table.doubt or "a transaction was not completed"
            if not decided and isinstance(error, HoldfastError) and not isinstance(error, WriterStopped):
                self._unfinished = ""
                raise  # nothing of the decision was written: the transaction has no effect
            if is_interrupt(error):
                raise
            raise WriterStopped(
                f"the transaction {'was' if decided else 'may have been'} decided, and was not completed: {error}. It "
                "is finished when the disk works again, before the next one and before its tables are written"
            ) from error

    def finish(self) -> None:
        """Finish a decided transaction that was not applied, from its decision. Called with no lock held."""
        from holdfast.table.storage.transaction_log import finished, unfinished  # noqa: PLC0415

        if not self._unfinished:
            return
        with self._guard.lock, self._finishing:
            if self._unfinished and self._log is not None:
                self._log.appender.recover()
                self._log.sync()  # if the decision was not written completely, the transaction has no effect
                for decision in unfinished(record.payload for record in self._log.read(self._decided_from)):
                    self._finish(decision)
                    self._log.append(finished(decision.version))
                self._unfinished = ""

    def _empty(self, log: Log, grown: int) -> None:
        """Clear the log after 16 MiB of decisions. All are completed then: transactions run one at a time."""
        self._grown += grown
        if self._grown < DECISIONS_FULL or log.retention.pinned:  # a backup needs it: the next transaction clears it
            return
        try:
            log.clear(force=True)
            self._grown = 0
        except HoldfastError as error:  # the transaction is committed
            logger.warning("transaction log not cleared, will retry: error=%s", error)

    def _do(self, transaction: Transaction, stagings: "dict[CommitPipeline, Staging]", now: int) -> None:
        try:
            self._tables.carry_out(stagings)
        except BaseException:
            for table in stagings:
                table.doubt = table.doubt or "a transaction was not completed"
            raise
        for queue, messages in transaction.puts.items():
            queue.intake.put_committed(messages, transaction.version, now)

    def _finish(self, decision: "Decision") -> None:
        from holdfast.table.storage.transaction_log import message_of  # noqa: PLC0415

        logger.info(
            "finishing an interrupted transaction: version=%d", decision.version, extra={"version": decision.version}
        )
        self._versions.see(decision.version)
        for part in decision.tables:
            self._tables.finish(part.table, part.log, part.end, decision.version, part.records)
        for entry in decision.queues:
            open_now = (one for one in self._open_queues() if one.name == entry.queue and not one.closed)
            queue = next(open_now, None) or self.open_queue(entry.queue)
            if queue is None:
                logger.warning("recovered transaction skips a queue that was deleted: queue=%s", entry.queue)
                continue
            queue.log.appender.recover()
            queue.log.appender.sync()  # pending records are in it now
            if queue.log.id == entry.log and not _arrived(queue.log, entry.end, decision.version):
                queue.intake.put_committed([message_of(one) for one in entry.messages], decision.version, decision.time)
                queue.log.appender.sync()


def _sync(several: "Iterable[CommitPipeline | Queue]") -> None:
    """Return when all records that were appended to these are on disk, whatever their flush modes."""
    for one in several:
        if one.log.settings.flush.mode != "sync":
            one.log.appender.sync()


def _arrived(log: Log, start: int, producer: int) -> bool:
    """Return whether messages of a transaction are in a log, somewhere from `start` on."""
    end = log.readable()[1]
    if log.start > start:
        return True  # they were read by all, and dropped since
    for block in log.reader.blocks_between(max(start, log.start), end):
        producers = block.numbers("producer")
        if producers is not None and producer in producers:
            return True
    return False
