"""What tests of the web need to know of its internals, and of those of the server."""

from holdfast.amqp.server import Server

__all__ = ["close_a_listener"]


def close_a_listener(server: Server) -> None:
    """Close the first listener of a server, as if its socket had failed. Call it on the broker's thread."""
    server._listeners[0].close()
