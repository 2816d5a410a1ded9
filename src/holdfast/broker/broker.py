"""The broker: users and virtual hosts over one store."""

import threading
from collections.abc import Callable

from holdfast.broker.dead_letter_router import DeadLetters
from holdfast.broker.definitions import Definitions, InHost, open_definitions
from holdfast.broker.errors import no_such_vhost
from holdfast.broker.memory_alarm import Limits, MemoryMonitor
from holdfast.broker.permissions import Permissions
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.turns import TurnScheduler
from holdfast.broker.users import Cost, UserCheck
from holdfast.broker.vhost import DEAD_LETTERS, VirtualHostRuntime
from holdfast.store import Store

__all__ = ["Broker"]

DAY_S = 86_400.0


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
        self.memory = MemoryMonitor(limits or Limits(), str(store.path), alarm, store.gate)
        self.turns = TurnScheduler(post, soon, self.memory.note_delivery, store.gate)
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
                if one.kind == "vhost" and one.name not in self.hosts:
                    self.hosts[one.name] = VirtualHostRuntime(self, self.definitions.vhosts()[one.name])
            self.users.restore([one for one in added if one.kind in ("user", "permission")])
            for host in self.hosts.values():
                host.restore([one for one in added if isinstance(one, InHost) and one.vhost == host.name])
        return len(added)

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
        self.turns.stop()
        self.memory.close()
