"""Holdfast's own API under /api/holdfast: queues, messages, dead letters, logs, tables and the server."""

from holdfast.web.api.batches import batch_routes
from holdfast.web.api.blocks import block_routes
from holdfast.web.api.channels import client_routes
from holdfast.web.api.dead_letters import dead_routes
from holdfast.web.api.logs import log_routes
from holdfast.web.api.messages import message_routes
from holdfast.web.api.pipelines import pipeline_routes
from holdfast.web.api.queues import queue_routes
from holdfast.web.api.replica import replica_routes
from holdfast.web.api.rights import right_routes
from holdfast.web.api.sessions import session_routes
from holdfast.web.api.system import system_routes
from holdfast.web.api.tables import table_routes
from holdfast.web.routes import Routes

__all__ = ["OWN"]

OWN: list[Routes] = [
    session_routes,
    right_routes,
    system_routes,
    replica_routes,
    queue_routes,
    message_routes,
    dead_routes,
    client_routes,
    log_routes,
    block_routes,
    batch_routes,
    table_routes,
    pipeline_routes,
]
"""All routes of the API."""
