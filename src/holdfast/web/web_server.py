"""Starts and stops the HTTP and Cap'n Proto servers of a served store."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.amqp.file_limits import shares_of
from holdfast.amqp.server import Server
from holdfast.base.errors import NotFound
from holdfast.broker.users import Kind
from holdfast.queue import Queue
from holdfast.running_server import note_server
from holdfast.web.api import OWN
from holdfast.web.app import make_app
from holdfast.web.assets import asset_routes
from holdfast.web.auth import caller_of
from holdfast.web.context import ServerContext
from holdfast.web.health import health_routes
from holdfast.web.metrics import metric_routes
from holdfast.web.openapi import openapi_routes
from holdfast.web.rabbitmq_api import RABBIT
from holdfast.web.responses import ResourceLocked
from holdfast.web.routes import Routes
from holdfast.web.stats_history import history_routes
from holdfast.web.uvicorn_thread import UvicornThread

if TYPE_CHECKING:
    from holdfast.rpc.server import RpcServer

__all__ = ["ROUTES", "WebServer"]

ROUTES: list[Routes] = [*OWN, history_routes, metric_routes, health_routes, *RABBIT, asset_routes]
"""All routes, except that of their OpenAPI description."""


class WebServer:
    """The HTTP and Cap'n Proto servers. Created on the broker's thread, started and stopped on any other."""

    def __init__(self, server: Server) -> None:
        self.site = ServerContext(server)
        app = make_app(self.site, [*ROUTES, openapi_routes(ROUTES)])
        self._server = UvicornThread(app, server.settings, self.site.goodbye)
        self._rpc = _rpc(self.site)

    def start(self) -> None:
        """Start the background threads and open the listeners."""
        if self.site.history is not None:
            self.site.history.start()
        self.site.pulse.start()
        self.site.replica.start()
        self._server.start()
        rpc = []
        if self._rpc is not None:
            self._rpc.start()
            rpc = [(*address, False) for address in self._rpc.addresses]
        for protocol, listening in (("amqp", self.site.server.addresses), ("http", self.addresses), ("capnp", rpc)):
            self.site.listeners += [
                {"protocol": protocol + "s" * tls, "host": host, "port": port, "tls": tls}
                for host, port, tls in listening
            ]
        shown = self.site.settings.tls_certificate if any(one["tls"] for one in self.site.listeners) else None
        status = self.site.replica.status
        note_server(
            self.site.store.path,
            os.getpid(),
            self.site.listeners,
            Path(shown) if shown else None,
            None if status is None else status.url,
        )

    def stop(self) -> None:
        """Close the listeners and stop the background threads."""
        if self._rpc is not None:
            self._rpc.stop()
        self._server.stop()
        self.site.stopped = True
        self.site.pulse.stop()
        self.site.replica.stop()
        if self.site.history is not None:
            self.site.history.stop()

    @property
    def addresses(self) -> list[tuple[str, int, bool]]:
        """Host, port and whether TLS is spoken, of each listening socket."""
        return self._server.addresses


def _rpc(site: ServerContext) -> "RpcServer | None":
    settings = site.settings
    if settings.rpc_port is None:
        return None
    from holdfast.rpc.auth import Access  # noqa: PLC0415 - loads a large library, only if it is needed
    from holdfast.rpc.server import RpcServer, RpcSettings  # noqa: PLC0415

    users = site.broker.users

    def enter(token: str, loopback: bool) -> str:
        return caller_of({"authorization": f"Bearer {token}"}, users, site.tokens, loopback=loopback).name

    def check(user: str, vhost: str, kind: Kind, queue: str) -> None:
        users.check_vhost(user, vhost)
        users.check(user, vhost, kind, "queue", queue)

    def find(vhost: str, name: str) -> Queue:
        try:
            queue, broker_queue = site.queue(vhost, name)
        except NotFound:
            if (vhost, name) != ("/", settings.rpc_queue):
                raise
            # Not a broker queue: its leases outlive a restart, as those of Queueber do.
            return site.store.queue(name, max_attempts=None)
        if broker_queue is not None and broker_queue.definition.exclusive:
            raise ResourceLocked(name)
        return queue

    return RpcServer(
        RpcSettings(
            settings.host,
            settings.rpc_port,
            queue=settings.rpc_queue,
            queueber_clients=settings.rpc_queueber,  # type: ignore[arg-type]
            connection_max=shares_of(settings).rpc,
            login_timeout=settings.handshake_timeout,
        ),
        find=find,
        access=Access(
            lambda user, password, loopback: users.authenticate(user, password, loopback).name,
            enter,
            check,
            site.check_space,
        ),
    )
