"""Access of the web's threads to a served store, its broker and its tokens."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable
from typing import TypeVar

import anyio

from holdfast.amqp.server import Server
from holdfast.base.clock import SystemClock
from holdfast.base.errors import Closed, NotFound, StorageError
from holdfast.base.names import check_name
from holdfast.broker.memory_alarm import ALARMS
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.store_names import PART, name_in_store
from holdfast.broker.vhost import VirtualHostRuntime, log_options
from holdfast.log import Log
from holdfast.queue import Queue
from holdfast.queue.async_lease import AsyncLeases
from holdfast.replica.present import PresentStore
from holdfast.web.allowed_paths import AllowedPaths
from holdfast.web.health import Pulse
from holdfast.web.overview_stats import Figures, names_of
from holdfast.web.replica_watch import ReplicaWatch
from holdfast.web.response_types import Listener
from holdfast.web.responses import Refused
from holdfast.web.stats_history import History
from holdfast.web.tailer_lag import TailerLags
from holdfast.web.tokens import Tokens

__all__ = ["ServerContext"]

T = TypeVar("T")
PATIENCE_S = 60.0
_LOOK_S = 0.5
_LOGINS = 2
"""Passwords that are checked at the same time: each takes a core, and much memory."""


class ServerContext:
    """A served store as the web's threads use it.

    Threads: any but the broker's own. Logs, queues and tables may be used directly; whatever iterates over or changes
    the broker goes through `on_broker`.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.broker = server.broker
        self.store = server.broker.store
        self.settings = server.settings
        self.clock = SystemClock()
        self.started_at = self.clock.time_ns()
        self.tokens = Tokens(self.store.path, self._credential)
        self.present = PresentStore(self.store.path)
        self.paths = AllowedPaths(server.settings.allowed_paths)
        self.figures = Figures(self)
        self.tailers = TailerLags(self)
        self.replica = ReplicaWatch(self.store, self.clock, server.settings.replica_lag_limit)
        self.history: History | None = None
        if server.settings.history_interval > 0:
            self.history = History(self.store, self.figures, interval=server.settings.history_interval)
        self.pulse = Pulse(server.post, self.store.metrics)
        self.polls: dict[Queue, AsyncLeases] = {}
        """By queue: the HTTP requests that wait for messages. Used by the web's event loop alone."""
        self.listeners: list[Listener] = []
        """The listeners: protocol, host, port, tls."""
        self.logins = anyio.CapacityLimiter(_LOGINS)
        """Limits concurrent password checks; the others wait without a thread, so that they block no other request."""
        self.stopping = False
        """Whether requests may no longer wait, because the server stops."""
        self.stopped = False
        """Whether the web server has stopped; the broker's thread may be gone."""

    def on_broker(self, function: Callable[[], T]) -> T:
        """Run a function on the broker's thread; return its result, or raise what it raises.

        Never call it on that thread. Raises `StorageError` if the function has not begun after 60 s, `Closed` if the
        server has stopped: then it never runs.
        """
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if not done.set_running_or_notify_cancel():  # the caller got an error that says that nothing was done
                return
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        self.server.post(run)
        for _ in range(round(PATIENCE_S / _LOOK_S)):
            with contextlib.suppress(concurrent.futures.TimeoutError):
                return done.result(_LOOK_S)
            if done.done():  # just now, or the error was the function's own
                return done.result()
            if self.stopped and done.cancel():
                raise Closed("the server is stopping: try again when it is back")
        if done.cancel():
            raise StorageError("the broker does not respond, and nothing was done: it is stopping, or the disk is slow")
        return done.result()  # it has begun: the caller must learn its result

    async def goodbye(self) -> None:
        """Fail all requests that wait for messages. Call it on the web's own loop."""
        self.stopping = True
        await asyncio.gather(*(polls.close() for polls in list(self.polls.values())))

    def check_space(self) -> None:
        """Raise 503 while publishers are blocked by an alarm: memory, disk or the replica.

        Every protocol applies the alarm: HTTP routes that add data and puts over Cap'n Proto check it here.
        """
        if low := self.broker.memory.blocked:
            raise Refused(503, "blocked", f"publishing is blocked: {ALARMS[low]}; try again later")

    def host(self, vhost: str) -> VirtualHostRuntime:
        """Return a virtual host, or raise `NotFound`."""
        found = self.broker.hosts.get(vhost)
        if found is None:
            raise NotFound(
                f"there is no virtual host {vhost!r}"
            )  # the others are not listed: not every caller may know them
        return found

    def log_to_write(self, name: str) -> Log:
        """Return a log, opened as the broker opens it: a queue that is declared on it later can then share it."""
        return self.store.open_log(name) or self.store.log(name, **log_options(self.broker.memory.limits))

    def queue(self, vhost: str, name: str) -> tuple[Queue, BrokerQueue | None]:
        """Return a queue with its broker queue, or raise `NotFound`; a queue that only programs use has no broker
        queue."""
        broker_queue = self.host(vhost).broker_queues.get(name)
        if broker_queue is not None and not broker_queue.queue.closed:  # a closed one is being deleted
            return broker_queue.queue, broker_queue
        check_name(name, "queue name")
        # With that character it would be the name, in the store, of a queue of another virtual host.
        queue = None if PART in name else self.store.find_queue(name_in_store(vhost, name))
        if queue is None:
            raise NotFound(f"there is no queue {name!r} in the virtual host {vhost!r}")
        return queue, None

    def names_of(self, stored: str) -> tuple[str, str]:
        """Return the virtual host and the queue name that a name in the store denotes."""
        host, broker_queue = self.broker.by_store_name.get(stored, (None, None))
        return names_of(stored) if host is None or broker_queue is None else (host.name, broker_queue.name)

    def _credential(self, user: str) -> str | None:
        try:
            return self.broker.users.get(user).password_hash
        except NotFound:
            return None
