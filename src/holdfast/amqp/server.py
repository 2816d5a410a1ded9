"""The AMQP server: listeners, plain or with TLS, the timer tick, and a shutdown that completes pending syncs."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.amqp.acceptor import Acceptor
from holdfast.amqp.admission import Admission
from holdfast.amqp.channel import Channel
from holdfast.amqp.connection import Connection
from holdfast.amqp.connection_report import Report
from holdfast.amqp.direct_reply_to import Replies
from holdfast.amqp.file_limits import shares_of
from holdfast.amqp.listeners import listen_on
from holdfast.amqp.liveness import look
from holdfast.amqp.settings import Settings
from holdfast.amqp.tls import tls_context
from holdfast.base.errors import StorageError
from holdfast.base.files import UnsyncedFiles
from holdfast.broker.administration import Administration
from holdfast.broker.broker import Broker
from holdfast.broker.errors import BrokerError
from holdfast.broker.memory_alarm import Limits
from holdfast.running_server import TRANSIENT
from holdfast.store import Store

__all__ = ["Server"]

logger = logging.getLogger("holdfast.amqp")

_TICK_S = 0.1
_LOOK_S = 1.0
_GOODBYE_S = 1.5
_BACKLOG = 1024
_INBOX_BYTES = 1 << 20
_REASON_MAX = 200
"""Characters of an operator's reason that are logged and sent: an AMQP reply text has at most 255 bytes in all."""


class _Forced(BrokerError):
    """320: an operator closes the connection, or stops the broker."""

    code = 320
    name = "CONNECTION_FORCED"


class _ForcedChannel(_Forced):
    """The same for one channel: AMQP has no code of its own for it."""

    closes_connection = False


class Server:
    """An AMQP server over an open store. Created and used inside a running event loop."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.settings = settings
        self.connections: set[Connection] = set()
        self.admission = Admission("amqp", shares_of(settings).amqp)
        self.replies = Replies()
        self.inbox = memoryview(bytearray(_INBOX_BYTES))
        """The receive buffer that all connections share."""
        self._loop = asyncio.get_running_loop()
        limits = Limits(
            bodies=settings.memory_bodies,
            queue_bodies=settings.memory_queue_bodies,
            resident=settings.memory_limit,
            disk_free=settings.disk_free_limit,
        )
        folder = store.path / TRANSIENT
        shutil.rmtree(folder, ignore_errors=True)  # left by the last process
        self._transient = Store(folder, read_only=False, files=UnsyncedFiles(), clock=None, background=True)
        self.broker = Broker(
            store,
            self._transient,
            post=self.post,
            soon=self._loop.call_soon,
            limits=limits,
            alarm=self._alarm,
            history_s=settings.history,
        )
        if store.is_replicated:
            self.broker.memory.may_confirm = lambda: store.replica.may_confirm
        self.administration = Administration(self.broker, self._disconnect)
        self.report = Report(self)
        self.connections_opened = self.connections_closed = 0
        """Since the start, including those that never logged in."""
        self._listeners: list[Acceptor] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock: asyncio.Task[None] | None = None
        self.addresses: list[tuple[str, int, bool]] = []
        """Host, port and whether it uses TLS, of each listening socket."""

    async def start(self) -> None:
        """Open the listeners and start the timer; raise `StorageError` if a port cannot be used."""
        settings = self.settings
        ports = [(settings.amqp_port, None)] if settings.amqp_port is not None else []
        if settings.amqps_port is not None:
            ports.append((settings.amqps_port, tls_context(settings)))  # type: ignore[arg-type]
        for port, context in ports:
            try:
                sockets = listen_on(settings.hosts, port, _BACKLOG)
            except OSError as error:
                raise StorageError(
                    f"cannot listen on {settings.host} port {port}: {error.strerror or error}. "
                    "Stop the process that uses the port, or set another with --amqp-port"
                ) from error
            for one in sockets:
                self.addresses.append((*one.getsockname()[:2], context is not None))
                acceptor = Acceptor(
                    one,
                    self.admission,
                    lambda admitted: Connection(self, admitted),
                    tls=context,
                    handshake_timeout_s=settings.handshake_timeout,
                )
                self._listeners.append(acceptor)
        self._clock = self._loop.create_task(self._tick())

    @property
    def accepts(self) -> bool:
        """Whether no listener is closed."""
        return all(one.accepts for one in self._listeners)

    async def stop(self) -> None:
        """Close the listeners and all connections, complete pending syncs and discard the transient store.

        Clients have 1.5 s to confirm the close. Confirms that are pending when it begins are not sent.
        """
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.fail(_Forced("broker forced connection closure with reason 'shutdown'"))
            connection.finish()
        deadline = self._loop.time() + _GOODBYE_S
        while self.connections and self._loop.time() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)
        if self._clock is not None:
            self._clock.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._clock
        self.broker.turns.begin_syncs()  # on this thread, to which the callbacks belong
        await self._loop.run_in_executor(None, self.broker.close)
        await self._loop.run_in_executor(None, self._transient.ending.close_discarding)
        shutil.rmtree(self._transient.path, ignore_errors=True)

    # For connections.

    def joined(self, connection: Connection) -> None:
        """Register a new connection. How many may be open was decided by `Admission` before."""
        self.connections.add(connection)
        self.connections_opened += 1

    def left(self, connection: Connection) -> None:
        """Unregister a closed connection."""
        self.connections.discard(connection)
        self.connections_closed += 1

    def close(self, connection: Connection, reason: str) -> None:
        """Close a connection at an operator's request."""
        connection.fail(_Forced(reason[:_REASON_MAX]))

    def close_channel(self, channel: Channel, reason: str) -> None:
        """Close one channel at an operator's request; its unsettled deliveries are requeued."""
        channel.connection.refuse(_ForcedChannel(reason[:_REASON_MAX]), channel)

    def _disconnect(self, which: Callable[[str, str], bool], reason: str) -> int:
        doomed = [one for one in self.connections if one.user and which(one.user, one.host.name if one.host else "")]
        for connection in doomed:
            self.close(connection, reason)
        return len(doomed)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task of its own, and keep a reference to it until it ends."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def after(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Schedule a call on the broker's thread after a delay."""
        return self._loop.call_later(delay_s, call)

    def post(self, call: Any) -> None:
        """Schedule a call on the broker's thread. May be called from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nothing left to notify
            self._loop.call_soon_threadsafe(call)

    def _alarm(self, reason: str | None) -> None:
        # Nothing to do when an alarm begins: a client is blocked when it publishes.
        for connection in list(self.connections) if reason is None else ():
            connection.unblock()

    async def _tick(self) -> None:
        looked = self._loop.time()
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                self.broker.tick()
                self.broker.memory.look_at_replica()
                self.broker.memory.page_out()
                now = self._loop.time()
                if now - looked >= _LOOK_S:
                    looked = now
                    self.broker.memory.look()
                    for connection in list(self.connections):
                        look(connection, connection.now(), self.settings.consumer_timeout)
            except Exception:  # any error: without the timer there are no heartbeats, expiries and alarms
                logger.exception("timer failed: it continues")
