"""How is the broker served? Listening sockets, plain or with TLS, a clock that ticks, and an end that loses nothing."""

import asyncio
import contextlib
import logging
import shutil
import ssl
from collections.abc import Coroutine
from typing import Any

from holdfast.amqp.connection import Connection
from holdfast.amqp.replies import Replies
from holdfast.amqp.settings import Settings
from holdfast.base.errors import InvalidArgument, StorageError
from holdfast.base.files import UnsyncedFiles
from holdfast.broker.broker import Broker
from holdfast.broker.errors import BrokerError
from holdfast.broker.memory import Limits
from holdfast.store import Store

__all__ = ["Server", "tls_context"]

logger = logging.getLogger("holdfast.amqp")

TRANSIENT = "transient"
"""The folder, in that of the store, of queues that do not outlive the broker."""
_TICK_S = 0.1
_LOOK_S = 1.0
_GOODBYE_S = 1.5
_BACKLOG = 1024


class _Shutdown(BrokerError):
    """320: the operator stops the broker."""

    code = 320
    name = "CONNECTION_FORCED"


class Server:
    """An AMQP server over an open store. Made and used inside a running event loop."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.settings = settings
        self.connections: set[Connection] = set()
        self.replies = Replies()
        self._loop = asyncio.get_running_loop()
        limits = Limits(
            bodies=settings.memory_bodies,
            queue_bodies=settings.memory_queue_bodies,
            resident=settings.memory_limit,
            disk_free=settings.disk_free_limit,
        )
        folder = store.path / TRANSIENT
        shutil.rmtree(folder, ignore_errors=True)  # of the last process
        self._transient = Store(folder, read_only=False, files=UnsyncedFiles(), clock=None, background=True)
        self.broker = Broker(
            store,
            self._transient,
            post=self._post,
            soon=self._loop.call_soon,
            limits=limits,
            alarm=self._alarm,
            history_s=settings.history,
        )
        self._listeners: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock: asyncio.Task[None] | None = None
        self.addresses: list[tuple[str, int, bool]] = []
        """Host, port and whether TLS is spoken, of each listening socket."""

    async def start(self) -> None:
        """Listen."""
        settings = self.settings
        ports = [(settings.amqp_port, None)] if settings.amqp_port is not None else []
        if settings.amqps_port is not None:
            ports.append((settings.amqps_port, tls_context(settings)))  # type: ignore[arg-type]
        for port, context in ports:
            try:
                listener = await self._loop.create_server(
                    lambda: Connection(self), settings.host, port, ssl=context, backlog=_BACKLOG
                )
            except OSError as error:
                raise StorageError(
                    f"cannot listen on {settings.host} port {port}: {error.strerror or error}. "
                    "Is another broker running there? Choose another with --amqp-port"
                ) from error
            self._listeners.append(listener)
            for one in listener.sockets:
                self.addresses.append((*one.getsockname()[:2], context is not None))
        self._clock = self._loop.create_task(self._tick())

    async def stop(self) -> None:
        """Take no more clients, tell those that are there, and finish what they were promised."""
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.fail(_Shutdown("broker forced connection closure with reason 'shutdown'"))
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
        await self._loop.run_in_executor(None, self.broker.close)
        await self._loop.run_in_executor(None, self._transient.close)
        shutil.rmtree(self._transient.path, ignore_errors=True)

    # For connections.

    def joined(self, connection: Connection) -> None:
        """A client came."""
        self.connections.add(connection)
        if len(self.connections) > self.settings.connection_max:
            logger.warning("there are %d connections already: one more is turned away", self.settings.connection_max)
            connection.abort()

    def left(self, connection: Connection) -> None:
        """A client went."""
        self.connections.discard(connection)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that takes a while, beside everything else."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _post(self, call: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(call)

    def _alarm(self, reason: str | None) -> None:
        for connection in list(self.connections):
            connection.tell_blocked(reason)

    async def _tick(self) -> None:
        looked = self._loop.time()
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                self.broker.tick()
                self.broker.memory.page_out()
                now = self._loop.time()
                if now - looked >= _LOOK_S:
                    looked = now
                    self.broker.memory.look()
                    for connection in list(self.connections):
                        connection.look(connection.now())
            except Exception:  # whatever it is: without a clock there are no heartbeats, expiries and alarms
                logger.exception("the broker's clock goes on after an error")


def tls_context(settings: Settings) -> ssl.SSLContext:
    """How TLS is spoken, from the files that the settings name."""
    if settings.tls_certificate is None:
        raise InvalidArgument("TLS needs a certificate: set tls_certificate and tls_key, or leave amqps_port out")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
        if settings.tls_ca is not None:
            context.load_verify_locations(settings.tls_ca)
            context.verify_mode = ssl.CERT_REQUIRED if settings.tls_verify else ssl.CERT_OPTIONAL
        elif settings.tls_verify:
            raise InvalidArgument("tls_verify needs tls_ca: the certificates that clients' must be signed by")
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(f"the TLS files cannot be used: {error}") from error
    return context
