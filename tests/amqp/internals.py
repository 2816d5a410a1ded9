"""What tests of AMQP need to know of the server's internals."""

from holdfast.amqp.client import Client
from holdfast.amqp.connection import Connection
from holdfast.amqp.server import Server
from holdfast.importers.rabbitmq import RabbitSource

__all__ = ["has_tasks", "open_without_handshake", "use_client"]


def open_without_handshake(connection: Connection) -> None:
    """Set the state of a connection that has logged in."""
    connection._state = "open"
    connection.close_by = None


def has_tasks(server: Server) -> bool:
    """Whether a server has work in progress that it does not wait for, such as a login."""
    return bool(server._tasks)


def use_client(source: RabbitSource, vhost: str, client: Client) -> None:
    """Let a source read a virtual host through this client."""
    source._clients[vhost] = client
