"""Holdfast's own API under /api/holdfast: queues, messages, dead letters, logs, tables and the server."""

from holdfast.web.own.clients import client_routes
from holdfast.web.own.dead import dead_routes
from holdfast.web.own.logs import log_routes
from holdfast.web.own.messages import message_routes
from holdfast.web.own.pipelines import pipeline_routes
from holdfast.web.own.queues import queue_routes
from holdfast.web.own.rights import right_routes
from holdfast.web.own.sessions import session_routes
from holdfast.web.own.system import system_routes
from holdfast.web.own.tables import table_routes
from holdfast.web.routes import Routes

__all__ = ["OWN"]

OWN: list[Routes] = [
    session_routes,
    right_routes,
    system_routes,
    queue_routes,
    message_routes,
    dead_routes,
    client_routes,
    log_routes,
    table_routes,
    pipeline_routes,
]
"""All routes of our own."""
