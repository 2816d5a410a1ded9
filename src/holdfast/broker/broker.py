"""The broker: virtual hosts over one store, and the turns in which queues deliver to their consumers."""

import logging
import threading
from collections.abc import Callable
from functools import partial

from holdfast.base.errors import HoldfastError
from holdfast.broker.dead_letter_router import DeadLetters
from holdfast.broker.definitions import Definitions, HostDefinition, open_definitions
from holdfast.broker.errors import no_such_vhost
from holdfast.broker.group_commit import Done, GroupCommitter
from holdfast.broker.memory_alarm import Limits, MemoryMonitor
from holdfast.broker.permissions import Permissions
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.users import Cost, UserCheck
from holdfast.broker.vhost import DEAD_LETTERS, VirtualHostRuntime
from holdfast.log.log import Log
from holdfast.store import Store

__all__ = ["Broker"]

logger = logging.getLogger("holdfast.broker")

DAY_S = 86_400.0
_AT_ONCE = 4
"""Chunks that `serve` delivers at most: more than one put adds, but not all of a long backlog."""


class Broker:
    """Exchanges, queues and users over a store that is open for writing, and a second store for transient queues.

    Threads: one thread owns the broker and calls its methods; `post` brings a call to that thread from any other, and
    `soon` schedules one after the current turn. Locks: `guard` is held while the topology changes, and by the thread
    that forwards dead letters; it is taken before any lock of a queue.
    """

    def __init__(
        self,
        store: Store,
        transient: Store,
        *,
        post: Callable[[Callable[[], None]], None],
        soon: Callable[[Callable[[], None]], object],
        limits: Limits | None = None,
        alarm: Callable[[str | None], None] = lambda reason: None,
        history_s: float = 7 * DAY_S,
        cost: Cost | None = None,
    ) -> None:
        self.store = store
        self.transient = transient
        """For queues that do not outlive the broker: empty at the start, and never synced."""
        self.guard = threading.RLock()
        self.history_s = history_s
        self.by_store_name: dict[str, tuple[VirtualHostRuntime, BrokerQueue]] = {}
        self._post = post
        self.soon = soon
        self._thread = threading.get_ident()
        self._due: dict[BrokerQueue, None] = {}
        self._turn_is_set = False
        self._asking = threading.Lock()
        self._asked: dict[BrokerQueue, list[Callable[[], None]]] = {}
        """Queues that other threads passed to `serve`, each with the functions to call after its deliveries."""
        self.memory = MemoryMonitor(limits or Limits(), str(store.path), alarm)
        self.syncer = GroupCommitter(post, soon)
        self.dead_letters = DeadLetters(self)
        self.definitions: Definitions = open_definitions(store)
        if self.definitions.is_new:
            self.definitions.begin(cost or Cost())
        self.users = self.definitions.users(cost or Cost())
        self.permissions = Permissions(self.users)
        self.hosts: dict[str, VirtualHostRuntime] = {}
        for topology in self.definitions.vhosts().values():
            self.hosts[topology.name] = VirtualHostRuntime(self, topology)
        for host in self.hosts.values():
            host.start()
        for one in (store, transient):  # after all queues are open to which a dead letter may go
            one.forward(DEAD_LETTERS, self.dead_letters.forward)

    # Virtual hosts.

    def host(self, name: str) -> VirtualHostRuntime:
        """Return a virtual host, or raise 530."""
        found = self.hosts.get(name)
        if found is None:
            raise no_such_vhost(name)
        return found

    def add_vhost(self, name: str) -> VirtualHostRuntime:
        """Return the virtual host of this name; create it if there is none."""
        if name not in self.hosts:
            self.hosts[name] = VirtualHostRuntime(self, self.definitions.add_vhost(name))
        return self.hosts[name]

    def import_definitions(self, document: dict[str, object], *, check_user: UserCheck = lambda user: None) -> int:
        """Import definitions in RabbitMQ's form, all or none; return how many were added or changed."""
        with self.guard:
            added = self.definitions.import_(document, check_user=check_user)
            for one in added:
                if isinstance(one, HostDefinition) and one.name not in self.hosts:
                    self.hosts[one.name] = VirtualHostRuntime(self, self.definitions.vhosts()[one.name])
            self.users.restore([one for one in added if type(one).__name__ in ("User", "Permission")])  # type: ignore[misc]
            for host in self.hosts.values():
                host.restore([one for one in added if getattr(one, "vhost", None) == host.name])
        return len(added)

    # Turns.

    def schedule(self, broker_queue: BrokerQueue) -> None:
        """Schedule deliveries from a queue for the next turn. May be called from any thread."""
        if threading.get_ident() != self._thread:
            self._post(lambda: self.schedule(broker_queue))
            return
        self._due[broker_queue] = None
        if not self._turn_is_set:
            self._turn_is_set = True
            self.soon(self._deliver)

    def _deliver(self) -> None:
        self._turn_is_set = False
        self.syncer.end_turn()  # first: publishers wait for the sync, which need not wait for consumers
        due, self._due = self._due, {}
        for broker_queue in due:
            if self._deliver_from(broker_queue):
                self.schedule(broker_queue)

    def serve(self, broker_queue: BrokerQueue, then: Callable[[], None]) -> None:
        """Deliver some chunks from a queue now, then call `then`; from another thread, post both to the broker's."""
        if threading.get_ident() == self._thread:
            self._serve(broker_queue, [then])
            return
        with self._asking:
            waiting = self._asked.setdefault(broker_queue, [])
            waiting.append(then)
            is_first = len(waiting) == 1  # else a request for this queue is pending already
        if is_first:
            self._post(partial(self._serve_asked, broker_queue))

    def _serve_asked(self, broker_queue: BrokerQueue) -> None:
        with self._asking:
            waiting = self._asked.pop(broker_queue)
        self._serve(broker_queue, waiting)

    def _serve(self, broker_queue: BrokerQueue, waiting: list[Callable[[], None]]) -> None:
        for _ in range(_AT_ONCE):
            if not self._deliver_from(broker_queue):
                break
        for then in waiting:
            try:
                then()
            except HoldfastError:  # the others must be called nevertheless
                logger.exception(
                    "applying queue limits failed: queue=%s", broker_queue.name, extra={"queue": broker_queue.name}
                )

    def _deliver_from(self, broker_queue: BrokerQueue) -> bool:
        try:
            if not broker_queue.deliver():
                return False
            self.memory.note_delivery(broker_queue.queue)
        except Exception:  # an error of one queue must not affect other queues or publishers
            logger.exception("delivery failed: queue=%s", broker_queue.name, extra={"queue": broker_queue.name})
            return False
        return True

    def sync(self, logs: dict[Log, None], done: Done, *, small: bool) -> None:
        """Call `done` on the broker's thread when these logs are on disk, or with the error that prevents it.

        `small` says that little was written to them.
        """
        self.syncer.request(logs, done, small=small)

    def tick(self) -> None:
        """Delete queues that expired unused, and log dropped dead letters. The server calls it ten times a second."""
        for host in self.hosts.values():
            host.expire()
        self.dead_letters.tick()

    def close(self) -> None:
        """Complete pending syncs and stop the threads. The caller closes the store."""
        for host in self.hosts.values():
            for broker_queue in host.broker_queues.values():
                broker_queue.unlisten()
        self.dead_letters.close()
        self.syncer.stop()
        self.memory.close()
