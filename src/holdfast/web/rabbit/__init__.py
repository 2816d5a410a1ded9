"""RabbitMQ's management API: its paths and JSON, for tools written for RabbitMQ."""

from holdfast.web.rabbit.bindings import routes as _bindings
from holdfast.web.rabbit.clients import routes as _clients
from holdfast.web.rabbit.definitions import routes as _definitions
from holdfast.web.rabbit.exchanges import routes as _exchanges
from holdfast.web.rabbit.health import routes as _health
from holdfast.web.rabbit.messages import routes as _messages
from holdfast.web.rabbit.overview import routes as _overview
from holdfast.web.rabbit.policies import routes as _policies
from holdfast.web.rabbit.queues import routes as _queues
from holdfast.web.rabbit.users import routes as _users
from holdfast.web.rabbit.vhosts import routes as _vhosts
from holdfast.web.routes import Routes

__all__ = ["RABBIT"]

RABBIT: list[Routes] = [
    _overview,
    _queues,
    _messages,
    _exchanges,
    _bindings,
    _clients,
    _vhosts,
    _users,
    _definitions,
    _policies,
    _health,
]
"""All routes that follow RabbitMQ's."""
