"""RabbitMQ's management API: its paths and JSON, for tools written for RabbitMQ."""

from holdfast.web.rabbitmq_api.bindings import routes as _bindings
from holdfast.web.rabbitmq_api.connections import routes as _clients
from holdfast.web.rabbitmq_api.definitions import routes as _definitions
from holdfast.web.rabbitmq_api.exchanges import routes as _exchanges
from holdfast.web.rabbitmq_api.health import routes as _health
from holdfast.web.rabbitmq_api.messages import routes as _messages
from holdfast.web.rabbitmq_api.overview import routes as _overview
from holdfast.web.rabbitmq_api.policies import routes as _policies
from holdfast.web.rabbitmq_api.queues import routes as _queues
from holdfast.web.rabbitmq_api.users import routes as _users
from holdfast.web.rabbitmq_api.vhosts import routes as _vhosts
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
"""All routes of RabbitMQ's management API."""
