"""Runs uvicorn on a thread of its own, so that no request blocks the broker."""

import asyncio
import concurrent.futures
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from holdfast.amqp.acceptor import Acceptor
from holdfast.amqp.admission import Admission, Admitted
from holdfast.amqp.file_limits import shares_of
from holdfast.amqp.listeners import listen_on
from holdfast.amqp.settings import Settings
from holdfast.amqp.tls import tls_context
from holdfast.base.errors import InvalidArgument, StorageError
from holdfast.web.connection_limits import BUSY, Connections

__all__ = ["UvicornThread"]

_BACKLOG = 128
_GOODBYE_S = 2
_START_S = 30.0


class _Uvicorn(uvicorn.Server):
    """uvicorn with our accept loop: its own sees a TLS client only after the handshake."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept clients on these listening sockets."""
        await super().startup(sockets=[])
        for one in sockets or ():
            acceptor = Acceptor(
                one,
                self._connections.admission,
                self._protocol,
                tls=self.config.ssl,
                handshake_timeout_s=self._connections.header_timeout_s,
                refusal=BUSY,
            )
            self._acceptors.append(acceptor)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting clients, and close the connections."""
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets=[])

    def _protocol(self, admitted: Admitted) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        inner = make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        return self._connections.guard(inner, admitted)


class UvicornThread:
    """The HTTP server, plain and with TLS, on a thread of its own."""

    def __init__(
        self, app: ASGIApp, settings: Settings, goodbye: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        shares = shares_of(settings)
        admission = Admission("http", shares.http, shares.http_per_address)
        self.connections = Connections(admission, settings.http_header_timeout, settings.http_stall_timeout)
        self._app = self.connections.watch(app)
        self._settings = settings
        self._goodbye = goodbye
        """Run on the web's event loop at `stop`: it ends requests that wait."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._servers: list[tuple[_Uvicorn, list[socket.socket]]] = []
        self._thread: threading.Thread | None = None
        self.addresses: list[tuple[str, int, bool]] = []
        """Host, port and whether TLS is spoken, of each listening socket."""

    def start(self) -> None:
        """Open the listeners; return when requests are answered.

        Raises `InvalidArgument` for unusable TLS files, `StorageError` if a port cannot be used or the server does not
        start.
        """
        if self._settings.https_port is not None:
            tls_context(self._settings)  # before the listeners are opened; its errors name the file
        for port, secure in ((self._settings.http_port, False), (self._settings.https_port, True)):
            if port is None:
                continue
            config = self._config(secure=secure)
            try:
                config.load()
            except OSError as error:
                raise InvalidArgument(f"the TLS files cannot be used: {error}") from error
            listening = _bound(self._settings, port)
            self.addresses += [(*one.getsockname()[:2], secure) for one in listening]
            self._servers.append((_Uvicorn(config, self.connections), listening))
        if not self._servers:
            return
        self._thread = threading.Thread(target=self._run, name="holdfast-web", daemon=True)
        self._thread.start()
        waited = threading.Event()
        for _ in range(round(_START_S / 0.01)):
            if all(server.started for server, _ in self._servers):
                return
            if not self._thread.is_alive():
                break
            waited.wait(0.01)
        raise StorageError("the HTTP server could not be started: see the server's log")

    def stop(self) -> None:
        """End requests that wait, finish the others within a few seconds, and close the listeners."""
        if self._goodbye is not None and self._loop is not None:
            bye = self._goodbye()
            try:
                said = asyncio.run_coroutine_threadsafe(bye, self._loop)
            except RuntimeError:  # the loop has ended already
                bye.close()
            else:
                with contextlib.suppress(concurrent.futures.TimeoutError):  # the disk is slow
                    said.result(_GOODBYE_S)
        for server, _ in self._servers:
            server.should_exit = True
        if self._thread is not None:
            self._thread.join(_GOODBYE_S + 3)

    def _run(self) -> None:
        async def serve_all() -> None:
            self._loop = asyncio.get_running_loop()
            await asyncio.gather(*(server.serve(listening) for server, listening in self._servers))

        with contextlib.suppress(SystemExit):  # raised by uvicorn if it could not start; it has logged why
            try:
                import uvloop  # noqa: PLC0415 - only where it is installed
            except ImportError:
                asyncio.run(serve_all())
            else:
                uvloop.run(serve_all())

    def _config(self, *, secure: bool) -> uvicorn.Config:
        settings = self._settings
        tls: dict[str, Any] = {}
        if secure:
            tls = {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": settings.tls_key}
            if settings.tls_verify:
                tls |= {"ssl_ca_certs": settings.tls_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            date_header=True,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=_GOODBYE_S,
            **tls,
        )


def _bound(settings: Settings, port: int) -> list[socket.socket]:
    try:
        return listen_on(settings.hosts, port, _BACKLOG)
    except OSError as error:
        raise StorageError(
            f"cannot listen on {settings.host} port {port}: {error.strerror or error}. "
            "Is another server running there? Choose another with --http-port, or none with --set http_port=none"
        ) from error
