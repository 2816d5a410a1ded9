"""The Cap'n Proto server, in a thread with an event loop of its own."""

import asyncio
import logging
import socket
import ssl
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import capnp

from holdfast.amqp.acceptor import Acceptor
from holdfast.amqp.admission import Admission, Admitted
from holdfast.amqp.file_limits import clients_allowed
from holdfast.amqp.listeners import addresses_in, listen_on
from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.rpc.auth import Access
from holdfast.rpc.client import Client, Desk
from holdfast.rpc.queue_service import Find, QueueServices
from holdfast.rpc.session import Bootstrap
from holdfast.rpc.transport import Transport

__all__ = ["RpcServer", "RpcSettings"]

logger = logging.getLogger("holdfast.rpc")

_WORKERS = 8
_LOGINS = 2
_BACKLOG = 1024
_LAST_ANSWERS_S = 0.05
"""Time for the last responses to reach the sockets."""


@dataclass(frozen=True, slots=True)
class RpcSettings:
    """Settings of the RPC server."""

    host: str = "127.0.0.1,::1"
    """Addresses, separated by commas."""
    port: int = 0
    """0 takes a free one."""
    vhost: str = "/"
    queue: str = "queueber"
    """The queue that Queueber's interface serves."""
    queueber_clients: Literal["loopback", "anyone", "nobody"] = "loopback"
    """Clients that may call Queueber's methods, which have no login: those on this machine, all, or none."""
    connection_max: int = 10_000
    """Never more than half of the process's open files: the others are kept for the store."""
    login_timeout: float = 10.0
    """Seconds that a client may take until it has logged in or called a method of Queueber that it may call."""
    max_request: int = 64 << 20
    """Bytes of a message on the wire: a client that sends a larger one is disconnected."""
    max_reply: int = 16 << 20
    """Bytes of payload in one answer, unless a single message has more."""

    def __post_init__(self) -> None:
        """Reject settings that cannot work."""
        if self.queueber_clients not in ("loopback", "anyone", "nobody"):
            raise InvalidArgument(f"queueber_clients must be loopback, anyone or nobody, not {self.queueber_clients!r}")
        for name, least in (("connection_max", 1), ("max_request", 1 << 16), ("max_reply", 1)):
            if getattr(self, name) < least:
                raise InvalidArgument(f"{name} is {getattr(self, name)}: it must be at least {least}")
        if self.login_timeout <= 0:
            raise InvalidArgument(f"login_timeout is {self.login_timeout}: it must be more than 0")


class RpcServer:
    """A Cap'n Proto server over queues that `find` returns, for users that `access` authenticates.

    `start` and `stop` are called from any other thread. All use of Cap'n Proto happens in the server's own: its objects
    must not be touched anywhere else.
    """

    def __init__(
        self, settings: RpcSettings, *, find: Find, access: Access | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.settings = settings
        self._find = find
        self._access = access or Access()
        self._tls = tls
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stops: asyncio.Event | None = None
        self.addresses: list[tuple[str, int]] = []
        """Host and port of each listening socket."""
        self._clients: set[Client] = set()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first listener."""
        if not self.addresses:
            raise InvalidArgument("the RPC server is not listening: start it first")
        return self.addresses[0]

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._clients)

    def start(self) -> None:
        """Open the listeners; return when clients can connect.

        Raises `InvalidArgument` if the address cannot be used or the server is running, else what prevents the start.
        """
        if self._thread is not None:
            raise InvalidArgument("the RPC server is already running")
        listens: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(listens,), name="holdfast-rpc", daemon=True)
        self._thread.start()
        try:
            listens.result()
        except OSError as error:
            self._thread.join()
            self._thread = None
            where = f"{self.settings.host}:{self.settings.port}"
            raise InvalidArgument(f"cannot listen on {where}: {error.strerror or error}; set another port") from error

    def stop(self) -> None:
        """Answer waiting calls with an error, finish the others, and close all connections. Idempotent."""
        thread, loop, stops = self._thread, self._loop, self._stops
        if thread is None:
            return
        if loop is not None and stops is not None and thread.is_alive():
            loop.call_soon_threadsafe(stops.set)
        thread.join()
        self._thread, self.addresses = None, []

    def _run(self, listens: "Future[None]") -> None:
        try:
            # Not uvloop: where it differs from asyncio, pycapnp ends the process.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve(listens))
        except BaseException as error:
            if listens.done():
                logger.exception("RPC server failed")
            else:
                listens.set_exception(error)

    async def _serve(self, listens: "Future[None]") -> None:
        settings = self.settings
        self._loop, self._stops = asyncio.get_running_loop(), asyncio.Event()
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="holdfast-rpc") as executor:
            queue_services = QueueServices(self._find, executor, self._access.check_space)
            desk = Desk(
                queue_services=queue_services,
                access=self._access,
                executor=executor,
                logins=asyncio.Semaphore(_LOGINS),
                queueber=(settings.vhost, settings.queue),
                queueber_clients=settings.queueber_clients,
                max_reply=settings.max_reply,
            )
            async with capnp.kj_loop():
                sockets = listen_on(addresses_in(settings.host), settings.port, _BACKLOG)
                self.addresses = [one.getsockname()[:2] for one in sockets]
                admission = Admission("capnp", min(settings.connection_max, clients_allowed()))
                acceptors = [self._acceptor(one, admission, desk) for one in sockets]
                listens.set_result(None)
                await self._stops.wait()
                for acceptor in acceptors:
                    acceptor.close()
                await queue_services.close()
                await asyncio.sleep(_LAST_ANSWERS_S)

    def _acceptor(self, listening: socket.socket, admission: Admission, desk: Desk) -> Acceptor:
        return Acceptor(
            listening,
            admission,
            lambda admitted: self._wire(desk, admitted),
            tls=self._tls,
            handshake_timeout_s=self.settings.login_timeout,
        )

    def _wire(self, desk: Desk, admitted: Admitted) -> Transport:
        wire = Transport(admitted, self.settings.login_timeout)
        # As `AsyncIoStream.create_server` does, with our transport between it and the socket.
        wire.inner = capnp.AsyncIoStream._connect(lambda stream: self._attend(stream, wire, desk))
        return wire

    async def _attend(self, stream: Any, wire: Transport, desk: Desk) -> None:
        client = Client(wire, desk)
        self._clients.add(client)
        try:
            words = self.settings.max_request // 8
            await capnp.TwoPartyServer(
                stream, bootstrap=Bootstrap(client), traversal_limit_in_words=words
            ).on_disconnect()
        except (capnp.KjException, HoldfastError) as error:
            logger.info("connection closed: peer=%s protocol=capnp error=%s", wire.peer, str(error).partition("\n")[0])
        finally:
            self._clients.discard(client)
            wire.close()
