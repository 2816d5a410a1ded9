"""The writing half of a table: a request becomes one append to the log, a shared sync and one batch of the state."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from holdfast.base.clock import Clock
from holdfast.base.errors import (
    Closed,
    Corrupt,
    HoldfastError,
    InvalidArgument,
    ReadOnly,
    StorageError,
    WriterStopped,
)
from holdfast.base.section import Condition
from holdfast.base.turnstile import Ticket, Turnstile
from holdfast.base.versions import Fenced, Versions
from holdfast.log.batch import Extra
from holdfast.log.draft import Draft
from holdfast.log.log import Log
from holdfast.log.readonly import ReadOnlyLog
from holdfast.state import State, Transaction
from holdfast.table.cache import RowCache
from holdfast.table.keys import KeyLayout
from holdfast.table.late_unique import LateUnique
from holdfast.table.model import Model
from holdfast.table.past import NEVER, NO_PAST, Past
from holdfast.table.place import Place, clear_table, keep_place, place_in
from holdfast.table.requests import Operation, Outcome
from holdfast.table.rows import EventKind, Row, decode_event, encode_event
from holdfast.table.settings import TableSettings
from holdfast.table.staging import Busy, Staging, Step
from holdfast.table.views import Images, View, plain_images

__all__ = ["Core", "Doubtful"]

logger = logging.getLogger("holdfast.table")

M = TypeVar("M", bound=Model)
S = TypeVar("S", bound=Staging)


class Gate(Protocol):
    """Access check that `holdfast.table.migrating` puts before a table."""

    def check(self) -> None:
        """Raise, unless the caller may pass."""
        ...


class Doubtful(WriterStopped):
    """The state may not follow the log: call `Core.recover`, holding no lock, and begin again."""


_REPLAY = 1000
"""Records whose events are replayed in one batch."""


@dataclass(slots=True, eq=False)
class _Flight:
    """A request that is pending: appended to the log, and not yet in the state."""

    steps: list[Step]
    names: set[bytes]
    batch: Transaction
    draft: Draft
    offset: int
    """Index of its first event in the draft."""
    version: int
    landed: bool = field(default=False)

    @property
    def position(self) -> int:
        """Return the position behind its last event in the log."""
        return self.draft.first + self.offset + len(self.steps)


class Core(Generic[M]):
    """The writing half of a table.

    Threads: any. `_lock` is held while a request is staged and appended, not while the disk works; `landing` while
    durable requests are applied to the state, in the order of the log. Exclusive access is claimed at `_turnstile`,
    where requests wait: a transaction does not hold `_lock` between its calls. `landing` is taken before `_lock`.

    Where a failure of the disk, or an interrupt, leaves it open what the log or the state have of a request, `doubt` is
    set, and the next call recovers: all that was gathered is written, and the state follows the log. Nothing is built
    upon a state in doubt.
    """

    def __init__(
        self,
        model: type[M],
        settings: TableSettings,
        log: Log,
        state: State,
        versions: Versions,
        *,
        clock: Clock,
        images: Images | None = None,
        tables: "Callable[[str], Any]" = lambda name: None,
        read_only: bool = False,
        past: Past = NO_PAST,
    ) -> None:
        """`tables` finds other tables by name, for references; `past` is the schema history of the log."""
        self.name = model.__spec__.name
        self.past = past
        self.settings = settings
        self.changelog = log
        """The log of its changes, which nobody else may write. Users are given `log`."""
        self.log = ReadOnlyLog(
            log,
            f"it is what the table {self.name!r} is built from. Change records with add, change and delete; forget one "
            "with delete(hard=True), and all of them with Store.delete_table",
        )
        """The log of its changes, to be read and followed."""
        self.read_only = read_only
        self.tables = tables
        self._state = state
        self._clock = clock
        self.bind(model, images or plain_images(model))
        self._versions = versions
        self._lock = threading.RLock()
        self._landed = Condition(self._lock)
        self._turnstile = Turnstile(self._landed)
        self.landing = threading.Lock()
        self._flights: deque[_Flight] = deque()
        self._pending: set[bytes] = set()
        """Keys of records and of unique values that pending requests touch."""
        self.cache = RowCache()
        self._durable = log.settings.flush.mode == "sync"
        self.closed = False
        # In the object and not in its class, where each read would find it only after a miss.
        self.before_read: Callable[[], None] | None = None
        """Called before a read. While a transaction of the store is under way it reserves what that reads; in a store
        that was opened read-only it takes in what the owner wrote."""
        self.doubt = ""
        """Why the state may not follow the log; empty if it does. Set by plain assignments, and by `recover`."""
        self._doubtful: list[_Flight] = []
        """Requests of which it is not known whether they are in the log."""
        self.before_recovery: Callable[[], None] = lambda: None
        """Finishes a transaction that is decided and was not carried out."""
        self.recover_state: Callable[[], None] = state.recover
        """Opens the state again after a failed write. Called with no lock held."""
        self._reserved: Ticket | None = None
        """Of the transaction that has the table, or the last one that had it."""
        self.gate: Gate | None = None
        """The access check while the table is migrated."""
        self.rebuilt = False
        """Whether the state was built anew since the table was opened."""
        self.position = 0
        """The log position up to which the state is applied."""
        self.last_version = 0
        """The version of the last change that the state has."""
        self._open()
        if read_only:
            self.before_read = self._refresh

    def bind(self, model: type[M], images: Images) -> None:
        """Use this class for the records; it may replace one with an equal definition."""
        self.model = model
        self.spec = model.__spec__
        self.plannable = self.spec
        """The model, as far as scans may rely on it: without indexes that are being filled."""
        self.layout = KeyLayout(self.spec, self._clock)
        self.view = View(
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
        """Carry out a request: all its operations get one version, and the valid ones are applied together.

        An invalid operation is answered with its error, and changes nothing. Returns when the rest is as safe as the
        log's flush mode promises, and can be read.
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
                        flight = self._take_off(staging)
                    break
                except Fenced:
                    self.wait_for_transaction()
                except Doubtful:
                    self.recover()
            self._land(flight)
            return outcomes
        except HoldfastError:
            raise
        except BaseException:  # an interrupt: whoever comes next brings what is on its way to its end
            self.doubt = self.doubt or "a request was interrupted"
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the table exclusively: no request is pending, and no other thread can begin one."""
        self._check_free()
        ticket = Ticket()
        try:
            self._turnstile.claim(ticket)
            self._check_writable()
            with self._lock:
                self._check_now()
                self._wait_for_flights(self._check_now)
                yield
        finally:
            ticket.over = True
            self._turnstile.tidy()

    def _stand_back(self) -> None:
        """Wait at the turnstile, with the lock held, and check again what may have changed meanwhile."""
        self._check_free()
        self._turnstile.enter()
        self._check_now()

    def _wait_for_flights(self, check: Callable[[], None] | None = None) -> None:
        while self._flights:
            self._landed.wait(1)
            if check is not None:
                check()

    def reserve(self, ticket: Ticket) -> None:
        """The same for a transaction, until its ticket is over: also nobody else in this thread, as another task.

        `_lock` is free meanwhile, so that other callers wait at the turnstile, in turn.
        """
        self._check_free()
        self._turnstile.claim(ticket)
        while True:
            if self.doubt:
                self.recover()
            with self._lock:
                self._wait_for_flights()
                if not self.doubt:
                    self._reserved = ticket
                    return

    def tidy(self) -> None:
        """Let those in at once who waited for a ticket that is over."""
        self._turnstile.tidy()

    def wait_for_transaction(self) -> None:
        """Return when the transaction that is running in the store has ended. Call it after `Fenced`."""
        self._versions.wait_for_end()

    def begin_staging(self, version: int) -> Staging:
        """Begin the staging of a transaction that has reserved the table."""
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
        """Raise what appending this to the log would raise, if it is too large."""
        self.changelog.check_size(*records_of(staging.steps))

    def take_off(self, staging: Staging) -> "_Flight":
        """For a transaction: append its events to the log, as safe as that promises. If this fails, call `stop`."""
        with self._lock:
            flight = self._take_off(staging)
        self._make_safe(flight)
        return flight

    def stop(self, why: str) -> None:
        """Refuse requests until `recover`: what the log or the state has of the pending ones is not known."""
        with self._lock:
            self.doubt = self.doubt or why
            self._doubt_flights()

    def _doubt_flights(self) -> None:
        self._doubtful += self._flights
        self._flights.clear()
        self._pending.clear()
        self._landed.notify_all()

    def recover(self) -> None:
        """Let the state follow the log again, after an interrupt or a failure of the disk. With no lock held.

        Raises `WriterStopped` as long as the disk fails. Can be done again, wherever it is cut off.
        """
        try:
            self.before_recovery()
            self.recover_state()
            with self.landing, self._lock:
                if self.doubt and not self.closed:
                    self._recover()
        except StorageError as error:
            raise WriterStopped(
                f"the table {self.name!r} takes no requests: {self.doubt or 'its state has failed'}. It goes on when "
                f"the disk works, without opening the store again: {error}"
            ) from error

    def _recover(self) -> None:
        why, self.doubt = self.doubt, ""  # what is cut off from here on, in another thread, is not forgotten
        try:
            self._doubt_flights()
            self.changelog.recover()
            self.changelog.write_out()  # all that was gathered is in the log now, or has failed
            place = place_in(self._state, self.view.prefix, self.changelog)
            self.cache.reset()
            if place is None:
                self._rebuild(force=True)
            else:
                self.position, self.last_version = place.position, place.version
                self.follow()
            for one in self._doubtful:
                one.landed = one.draft.error is None
            self._doubtful.clear()
            self._landed.notify_all()
        except BaseException:
            self.doubt = why
            raise
        logger.warning("the table %s goes on: %s", self.name, why, extra={"table": self.name})

    def _recover_to_read(self) -> None:
        """Recover before a read, if that is possible: else what is known is read."""
        if not self.read_only and (self._reserved is None or self._reserved.ended):
            with contextlib.suppress(StorageError):
                self.recover()

    def _stage(self, operations: Sequence[Operation]) -> tuple[Staging, list[Outcome]]:
        while True:
            if self._turnstile.line or self.doubt:
                self._stand_back()
            staging = self.staging(Staging, self._versions.next())
            try:
                return staging, staging.outcomes([staging.run(operation) for operation in operations])
            except Busy:
                # What another thread has on its way may fail to get there: nothing is ever built on it.
                self._landed.wait(1)
                self._check_now()

    def _take_off(self, staging: Staging) -> _Flight:
        return self._launch(staging.steps, staging.names, staging.version, staging.batch)

    def _launch(self, steps: list[Step], names: set[bytes], version: int, batch: Transaction | None = None) -> _Flight:
        if batch is None:
            batch = self._state.transaction()
            for step in steps:
                self.view.apply(batch, *step)
        records = records_of(steps)
        try:
            draft, first, _ = self.changelog.gather(*records)
            flight = _Flight(steps, names, batch, draft, first - draft.first, version)
            self._pending |= flight.names
            self._flights.append(flight)
            return flight
        except HoldfastError:  # nothing of it was taken
            raise
        except BaseException:  # before the lock is free: nobody may build upon a state that lacks this
            self.doubt = self.doubt or "a request was interrupted while it was handed to the log"
            raise

    def _make_safe(self, flight: _Flight) -> None:
        self.changelog.commit(flight.draft)
        if not self._durable:
            self.changelog.write_out()  # if not synced: the state must not be ahead of what a kill leaves
        if flight.draft.error is not None:
            raise flight.draft.error

    def _land(self, flight: _Flight) -> None:
        """Make a request durable and apply it to the state. After an error it is applied, absent or in doubt."""
        try:
            self._make_safe(flight)
            self._follow(flight)
        except BaseException as error:
            if flight.draft.error is None:
                self.doubt = self.doubt or f"a request is perhaps in the log, and not in the state ({error!r})"
            else:  # nothing of it was written
                self._forget([flight])
            raise

    def _follow(self, flight: _Flight) -> None:
        """Apply a pending request to the state, with all before it and in its draft, unless they failed."""
        if not self._follow_if_sure(flight):
            self.recover()
            if not flight.landed:  # closed meanwhile
                raise WriterStopped(f"the table {self.name!r} was closed before this was in its state: {self.doubt}")

    def _follow_if_sure(self, flight: _Flight) -> bool:
        with self.landing:
            if flight.landed:
                return True
            if self.doubt:
                return False
            with self._lock:
                landing: list[_Flight] = []
                for one in self._flights:
                    if one.draft is not flight.draft and flight in landing:
                        break
                    landing.append(one)
                arrived = [one for one in landing if one.draft.error is None]
            if len(arrived) == 1:
                batch = arrived[0].batch
                self._put_place(batch, arrived)
            else:
                batch = self._state.transaction()
                self.put_into(batch, arrived)
            batch.commit(sync=False)
            self.arrive(arrived)
            return True

    def put_into(self, batch: Transaction, flights: "Sequence[_Flight]") -> None:
        """Add the changes of these requests, and the log position after them, to a batch; then call `arrive`."""
        for one in flights:
            batch.absorb(one.batch)
        self._put_place(batch, flights)

    def _put_place(self, batch: Transaction, flights: "Sequence[_Flight]") -> None:
        self._keep_place(batch, flights[-1].position, self._latest(flights))
        self.cache.hold(step.key for one in flights for step in one.steps)

    def arrive(self, flights: "Sequence[_Flight]") -> None:
        """Note that these requests are in the state."""
        self.cache.release()
        # Only now: whoever asks for the records as of this version must not be given older ones.
        self.position, self.last_version = flights[-1].position, self._latest(flights)
        for one in flights:
            one.landed = True
        self._forget(flights)

    def _latest(self, flights: "Sequence[_Flight]") -> int:
        """Return the last version after these: a request from another store may be older than what is here."""
        return max(self.last_version, *[one.version for one in flights])

    def _forget(self, flights: "Sequence[_Flight]") -> None:
        """Remove these from the pending requests. Idempotent, should an interrupt divide it."""
        with self._lock:
            for one in [*filter(self._flights.__contains__, flights)]:
                self._flights.remove(one)
            self._pending.clear()
            for one in self._flights:
                self._pending |= one.names
            self._landed.notify_all()

    def _keep_place(self, batch: Transaction, position: int, version: int) -> None:
        keep_place(batch, self.view.prefix, Place(self.changelog.id, position, version, self._kept_past))

    def _commit(self, batch: Transaction, position: int, version: int) -> None:
        """Change the state, together with its log position."""
        self._keep_place(batch, position, version)
        batch.commit(sync=False)
        self.cache.clear()
        # Only now: whoever sees the version must find what it did in the state.
        self.position, self.last_version = position, version

    # Following the log

    def _open(self) -> None:
        place = place_in(self._state, self.view.prefix, self.changelog)
        if place is None:
            self.rebuild(force=True)
        elif place.kept != self._kept_past:
            self.rebuild()  # the log knows the past that was not kept, or not all of it
        else:
            self.position, self.last_version = place.position, place.version
            self._versions.see(place.version)
            self.follow()

    def rebuild(self, *, force: bool = False) -> int:
        """Delete the state and build it from the log; return how many events there were.

        Concurrent readers see what is built so far. With a damaged log this would be incomplete, and is refused unless
        `force`.
        """
        ticket = Ticket()
        try:
            self._turnstile.claim(ticket)
            if self.doubt:
                self.recover()
            with self._lock:
                self._wait_for_flights()  # before the next lock: those who land take it first, and then ours
                with self.landing:
                    return self._rebuild(force=force)
        finally:
            ticket.over = True
            self._turnstile.tidy()

    def _rebuild(self, *, force: bool) -> int:
        if not force and (damage := self.changelog.verify().damage):
            raise Corrupt(
                f"the log of the table {self.name!r} is damaged ({damage[0]}): what is there stays as it is; "
                "rebuild(force=True) builds what the log still has"
            )
        clear_table(self._state, self.view.prefix)
        self.position = self.changelog.start
        self.rebuilt = True
        return self.follow(anew=True)

    def follow(self, *, anew: bool = False) -> int:
        """Apply the log beyond the state's position, or from its start if `anew`; return how many events."""
        count = 0
        late = LateUnique(self.view, self.past.unique_since, 0 if anew else self.last_version)
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
        """Refuse further requests; the pending ones finish. Idempotent."""
        if self.doubt and not (self.closed or self.read_only):
            with contextlib.suppress(HoldfastError):  # else the next opening does it
                self.recover()
        with self._lock:
            self.closed = True
            self._wait_for_last()

    def _wait_for_last(self) -> None:
        while self._flights:
            if self.doubt:
                self._doubt_flights()
            elif not self._landed.wait(5):
                break

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the table {self.name!r} is closed: open the store again")
        if self.gate is not None:
            self.gate.check()

    def _check_writable(self) -> None:
        """Raise, unless the table may be written; recover first, if need be. With no lock held."""
        if self.closed or self.gate is not None or self.read_only:
            self._check_may_write()
        if self.doubt:
            self.recover()

    def _check_now(self) -> None:
        """The same with `_lock` held, where nothing can be recovered: that raises `Doubtful`."""
        self._check_may_write()
        if self.doubt:
            raise Doubtful(f"the table {self.name!r} takes no requests: {self.doubt}. Try again")

    def _check_may_write(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnly("the store was opened read-only: open it without read_only=True to change a table")

    def _check_free(self) -> None:
        if self._reserved is not None and self._reserved.mine:
            raise InvalidArgument(
                f"a transaction of this thread has the table {self.name!r}: end it first, or write in it"
            )

    def _catch_up(self) -> None:
        self._check_open()
        if self.doubt:
            self._recover_to_read()
        if self.before_read is not None:
            self.before_read()

    def _refresh(self) -> None:
        """Apply what the process that owns the store wrote to the log."""
        with self._lock:
            self.changelog.refresh()
            if self.changelog.visible_end > self.position:
                self.follow()


def records_of(steps: Sequence[Step]) -> tuple[list[bytes], list[Extra], int]:
    """Return events as validated records of a log: payloads, keys, and the size of the largest."""
    payloads: list[bytes] = []
    extras: list[Extra] = []
    largest = 0
    for position, step in enumerate(steps):
        key = step.key
        payload = encode_event(step.event)
        payloads.append(payload)
        extras.append(Extra(position, "key", key, len(key)))
        largest = max(largest, len(payload) + len(key))
    return payloads, extras, largest
