"""Transactions over tables and queues: one synced record decides, then the changes are carried out."""

import contextlib
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.base.clock import Clock
from holdfast.base.errors import HoldfastError, InvalidArgument, WriterStopped, is_interrupt
from holdfast.base.section import Condition
from holdfast.base.turnstile import Ticket, Turnstile
from holdfast.base.versions import Versions
from holdfast.log.log import Log
from holdfast.log.policy import Flush, Roll
from holdfast.log.record import Message
from holdfast.log.settings import LogSettings
from holdfast.queue import Queue
from holdfast.queue.standing import FOR
from holdfast.tables import Tables

if TYPE_CHECKING:
    from holdfast.table.core import Core
    from holdfast.table.decisions import Decision
    from holdfast.table.requests import Operation, Outcome
    from holdfast.table.staging import Staging

__all__ = ["TRANSACTIONS", "Transaction", "Transactions"]

logger = logging.getLogger("holdfast.store")

TRANSACTIONS = "transactions"
_FULL = 16 << 20
"""Bytes of decisions that are done, from which on the log is emptied: as many as it has in a segment."""
_ROLL = Roll.size(_FULL)
_RECORD_MAX = 256 << 20


@dataclass(slots=True, eq=False)
class Transaction:
    """A running transaction: its staged changes, which nobody else sees."""

    of: "Transactions"
    """Those of its store."""
    ticket: Ticket
    """The owner of all that it has for itself: it ends when that is over."""
    version: int
    """Of every change in it."""
    stagings: "dict[Core[Any], Staging]" = field(default_factory=dict)
    puts: dict[Queue, list[Message]] = field(default_factory=dict)
    sizes: dict[Queue, int] = field(default_factory=dict)
    """Bytes of payload that are put into each queue."""
    tables: "set[Core[Any]]" = field(default_factory=set)
    """Those that it has for itself: what it has read or written."""
    over: bool = False
    """Whether no more calls are taken into it."""

    @property
    def parts(self) -> int:
        """Return how many tables and queues it changes."""
        return sum(bool(staging.steps) for staging in self.stagings.values()) + len(self.puts)

    def reserve(self, table: "Core[Any]") -> None:
        """Reserve a table until the end: others write to it when this is over."""
        if table not in self.tables:
            table.reserve(self.ticket)
            self.tables.add(table)


_current: ContextVar[Transaction | None] = ContextVar("holdfast_transaction", default=None)
_known: "dict[int, weakref.ref[Transactions]]" = {}
"""Those of every store of this process, by id."""


class _Scope:
    """What `with` enters and leaves. An interrupt at any place ends the transaction, and with it all that it has.

    At one place it ends a little later, when the traceback is dropped: where a signal's handler raises at the very
    start of `__exit__`. The next one of the same thread, and `close`, end it before that.
    """

    _transaction: Transaction | None = None

    def __init__(self, of: "Transactions") -> None:
        self._of = of

    def __enter__(self) -> Transaction:
        ticket = Ticket(self)
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction = self._transaction
        assert transaction is not None
        try:
            transaction.over = True
            _current.set(None)
            try:
                if kind is None:
                    self._of.carry_out(transaction)
            finally:
                self._of.leave_alone()
        finally:
            transaction.ticket.over = True  # ends the fence and lets the tables go, in one step
            self._of.tidy(transaction)

    def give_up(self) -> None:
        """End it, and nothing of it takes place."""
        if self._transaction is not None:
            self._transaction.ticket.over = True


def _find() -> Transaction | None:
    """The transaction of the calling context, or one that has ended: not one whose end was cut off at its start."""
    transaction = _current.get()
    if transaction is not None and transaction.ticket.ended and not transaction.over:
        _current.set(None)
        return None
    return transaction


def _forget(number: int, _: object) -> None:
    _known.pop(number, None)


def _end_what_was_cut_off() -> None:
    """End transactions whose `__exit__` raised at its start, before it did anything.

    They are referred to by the traceback of an exception that is handled now, or that waits to be collected.
    """
    error = sys.exc_info()[1]
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code is _Scope.__exit__.__code__:
                trace.tb_frame.f_locals["self"].give_up()
            trace = trace.tb_next
        error = error.__context__
    gc.collect()


class Transactions:
    """The transactions of a store, one at a time. Files: the log in `transactions/`, made by the first one.

    A transaction reserves a table when it first reads or writes it, until its end. There is one transaction at a time,
    and every other writer needs one table only, so no two can wait for each other.
    """

    def __init__(
        self,
        clock: Clock,
        path: Path,
        tables: Tables,
        open_log: Callable[[str, Path, LogSettings], Log],
        open_queue: Callable[[str], Queue | None],
        open_queues: Callable[[], list[Queue]],
    ) -> None:
        self._clock = clock
        self.path = path
        self._tables = tables
        self._versions: Versions = tables.versions
        self._open_log = open_log
        self._open_queue = open_queue
        self._open_queues = open_queues
        self._log: Log | None = None
        self._grown = 0
        """Bytes of decisions that went into the log since it was empty."""
        self._turnstile = Turnstile(Condition(threading.RLock()))
        self._broken = ""
        """Why there can be no more transactions: one is decided and could not be carried out."""
        self._visited = False
        """Whether reads of tables are reported: while a transaction is under way."""
        self._watched = False
        """Whether queues report puts, so that what is put in a transaction of another store can be refused."""
        tables.opened = self._include
        _known[id(self)] = weakref.ref(self, partial(_forget, id(self)))

    def begin(self) -> contextlib.AbstractContextManager[Transaction]:
        """A transaction for the calls inside, in this thread: at the end all of it takes place, or none."""
        return _Scope(self)

    def start(self, ticket: Ticket) -> Transaction:
        """Begin a transaction that ends with this ticket."""
        if _find() is not None or self._turnstile.mine:
            _end_what_was_cut_off()
        if _find() is not None or self._turnstile.mine:
            raise InvalidArgument(
                "a transaction of this thread is under way: put all of it into that one, or end it first"
            )
        self._turnstile.claim(ticket)
        if self._broken:
            raise WriterStopped(f"there are no more transactions: {self._broken}. Open the store again")
        self._log = self._log or self._opened()
        for known in list(_known.values()):
            if (one := known()) is not None:
                one.watch_queues()
        transaction = Transaction(self, ticket, self._versions.begin_fence(ticket))
        self._visit(True)
        return transaction

    def leave_alone(self) -> None:
        """Tables need not report reads any more. Before the ticket is over: the next transaction wants them to."""
        self._visit(False)

    def tidy(self, transaction: Transaction | None = None) -> None:
        """Wake who waited for the end of a ticket, who else would notice a little later."""
        self._versions.tidy()
        for table in transaction.tables if transaction is not None else ():
            table.tidy()
        self._turnstile.tidy()

    def claim(self, ticket: Ticket) -> None:
        """Return when no transaction is under way; none begins until the ticket is over. See `Turnstile.claim`."""
        if self._turnstile.mine:
            _end_what_was_cut_off()
        if self._turnstile.mine:
            raise InvalidArgument("a transaction of this thread is under way: end it first")
        self._turnstile.claim(ticket)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While no transaction is under way, and none begins."""
        ticket = Ticket()
        try:
            self.claim(ticket)
            yield
        finally:
            ticket.over = True
            self.tidy()

    def is_idle_within(self, seconds: float) -> bool:
        """Whether the transaction under way, if there is one, ends within so many seconds."""
        if self._turnstile.mine:
            _end_what_was_cut_off()
        return not self._turnstile.mine and self._turnstile.is_free_within(seconds)

    def recover(self) -> int:
        """Finish transactions that were decided and may be incomplete; return how many. Called at opening."""
        from holdfast.table.decisions import unfinished  # noqa: PLC0415 - who has no tables need not load them

        self._log = self._opened()
        left = unfinished(record.payload for record in self._log.read())
        for decision in left:
            self._finish(decision)
        self._log.clear(force=True)
        return len(left)

    def _opened(self) -> Log:
        settings = LogSettings(flush=Flush.sync(), roll=_ROLL, max_message=_RECORD_MAX)
        return self._open_log(TRANSACTIONS, self.path, settings)

    def logs(self) -> list[Log]:
        """The log, if there is one."""
        return [] if self._log is None else [self._log]

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def disown(self) -> None:
        """Called in a forked child: the log is the parent's."""
        self._turnstile = Turnstile(Condition(threading.RLock()))
        if self._log is not None:
            self._log.disown()

    def _include(self, table: "Core[Any]") -> None:
        table.join = self._joins(table)
        if self._visited:
            table.before_read = self._visits(table)

    def _visit(self, visited: bool) -> None:
        """Make tables report reads, also those that are opened from now on, or stop that."""
        self._visited = visited
        for table in list(self._tables.open_tables.values()):
            table.before_read = self._visits(table) if visited else None

    def include_queue(self, queue: Queue) -> None:
        """Let a queue take part in transactions, once there is one."""
        if self._watched:
            queue.join_transactions(self._takes(queue))

    def watch_queues(self) -> None:
        """Let every queue report what is put into it, from the first transaction of any store in this process on."""
        if not self._watched:
            self._watched = True
            for queue in self._open_queues():
                self.include_queue(queue)

    def _joins(self, table: "Core[Any]") -> "Callable[[Sequence[Operation]], list[Outcome] | None]":
        def join(operations: "Sequence[Operation]") -> "list[Outcome] | None":
            transaction = self._under_way("table", table.name)
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
            transaction = self._under_way("queue", queue.name)
            if transaction is None:
                return False
            gathered, size = transaction.puts.get(queue, []), transaction.sizes.get(queue, 0)
            more = queue.check_messages(messages, beside=(len(gathered), size))
            if any(isinstance(one, Message) and FOR in (one.headers or {}) for one in messages):
                raise InvalidArgument(f"the header {FOR!r} is for moves between queues: use another one")
            gathered += [one if isinstance(one, Message) else Message(one) for one in messages]
            transaction.puts[queue], transaction.sizes[queue] = gathered, size + more
            return True

        return take

    def _visits(self, table: "Core[Any]") -> Callable[[], None]:
        """What a table calls before it is read. A read of another store's table is not part of a transaction."""

        def visit() -> None:
            transaction = _find()
            if transaction is not None and not transaction.over and transaction.of is self and transaction.ticket.mine:
                transaction.reserve(table)

        return visit

    def _under_way(self, kind: str, name: str) -> Transaction | None:
        """The transaction that a write to a table or queue of this store is made in."""
        transaction = _find()
        if transaction is None:
            return None
        if transaction.over or not transaction.ticket.mine:
            raise InvalidArgument(
                "this call was begun in a transaction, and is made "
                + ("after its end" if transaction.over else "in another thread")
                + ": make it inside, in the thread that began it"
            )
        if transaction.of is not self:
            raise InvalidArgument(
                f"the {kind} {name!r} belongs to the store {str(self.path)!r}, the transaction to the store "
                f"{str(transaction.of.path)!r}, and a transaction is of one store: write to it before the transaction "
                "or after it, or in a transaction of its own store"
            )
        return transaction

    def carry_out(self, transaction: Transaction) -> None:
        """Make all of it take place."""
        from holdfast.table.decisions import (  # noqa: PLC0415
            Decision,
            QueuePart,
            TablePart,
            encode,
            finished,
            kept,
            records_in,
        )

        stagings = {table: staging for table, staging in transaction.stagings.items() if staging.steps}
        assert self._log is not None
        for table, staging in stagings.items():
            table.check_size(staging)
        if transaction.parts < 2:
            self._do(transaction, stagings, self._clock.time_ns())
            return
        decision = Decision(
            transaction.version,
            self._clock.time_ns(),
            [
                TablePart(table.name, table.changelog.id, table.changelog.end, records_in(staging))
                for table, staging in stagings.items()
            ],
            [
                QueuePart(queue.name, queue.log.id, queue.log.end, [kept(message) for message in messages])
                for queue, messages in transaction.puts.items()
            ],
        )
        _sync(stagings)  # what it builds upon must not be lost either
        payload = encode(decision)
        decided = False
        try:
            self._log.append(payload)
            decided = True
            self._do(transaction, stagings, decision.time)
            _sync([*stagings, *transaction.puts])  # nor what is said to be done
            # Now, not with the next one: a log may drop, or be deleted, what would tell recovery that it was done.
            self._log.append(finished(transaction.version))
        except BaseException as error:
            if not decided and isinstance(error, HoldfastError) and not isinstance(error, WriterStopped):
                raise  # nothing of the decision was written: it does not take place
            # Else nobody knows, after an interrupt or a failed sync, until the log is opened again.
            self._broken = f"one is decided{'' if decided else ', perhaps'}, and was not carried out ({error!r})"
            for table in transaction.stagings:
                table.stop(self._broken)
            if is_interrupt(error):
                raise
            raise WriterStopped(
                f"the transaction is decided{'' if decided else ', perhaps'}, and was not carried out to its end: "
                f"{error}. Open the store again: that finishes it"
            ) from error
        self._empty(self._log, len(payload))

    def _empty(self, log: Log, grown: int) -> None:
        """Drop completed decisions now and then, which is all there is: transactions come one at a time."""
        self._grown += grown
        if self._grown < _FULL or log.pinned:  # a backup needs it as it is: the next one empties it
            return
        try:
            log.clear(force=True)
            self._grown = 0
        except HoldfastError as error:  # the transaction took place all the same
            logger.warning("the log of transactions was not emptied: %s", error)

    def _do(self, transaction: Transaction, stagings: "dict[Core[Any], Staging]", now: int) -> None:
        try:
            self._tables.carry_out(stagings)
        except BaseException as error:
            for table in stagings:
                table.stop(f"a transaction was not carried out to its end ({error!r})")
            raise
        for queue, messages in transaction.puts.items():
            queue.put_decided(messages, transaction.version, now)

    def _finish(self, decision: "Decision") -> None:
        from holdfast.table.decisions import message_of  # noqa: PLC0415

        logger.info("finishing a transaction that a crash cut off", extra={"version": decision.version})
        self._versions.see(decision.version)
        for part in decision.tables:
            self._tables.finish(part.table, part.log, part.end, decision.version, part.records)
        for entry in decision.queues:
            queue = self._open_queue(entry.queue)
            if queue is None:
                logger.warning("a transaction put into the queue %r, which is deleted", entry.queue)
                continue
            if queue.log.id == entry.log and not _arrived(queue.log, entry.end, decision.version):
                queue.put_decided([message_of(one) for one in entry.messages], decision.version, decision.time)


def _sync(several: "Iterable[Core[Any] | Queue]") -> None:
    """Return when all that was appended to these is on disk, whatever their flush modes."""
    for one in several:
        if one.log.settings.flush.mode != "sync":
            one.log.sync()


def _arrived(log: Log, start: int, producer: int) -> bool:
    """Return whether messages of a transaction are in a log, somewhere from `start` on."""
    end = log.readable()[1]
    if log.start > start:
        return True  # and more than that: it was read by all, and dropped
    for block in log.blocks_between(max(start, log.start), end):
        producers = block.numbers("producer")
        if producers is not None and producer in producers:
            return True
    return False
