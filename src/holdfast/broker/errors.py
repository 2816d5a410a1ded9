"""Broker errors, each with its AMQP reply code and a text worded as RabbitMQ words it."""

from typing import ClassVar

from holdfast.base.errors import HoldfastError

__all__ = [
    "AccessRefused",
    "BrokerError",
    "CommandInvalid",
    "InternalError",
    "NoSuch",
    "NotAllowed",
    "NotOffered",
    "PreconditionFailed",
    "ResourceLocked",
    "named",
    "no_such_vhost",
]


class BrokerError(HoldfastError):
    """A request that the broker rejects; `text` is sent to the client, after the name of the code."""

    code: ClassVar[int] = 541
    name: ClassVar[str] = "INTERNAL_ERROR"
    closes_connection: ClassVar[bool] = True
    """Whether AMQP ends the whole connection for it (a hard error), and not only the channel."""

    def __init__(self, explanation: str) -> None:
        self.text = f"{self.name} - {explanation}"
        super().__init__(self.text)


class AccessRefused(BrokerError):
    """403: the user lacks the permission, the login failed, or no user may do this."""

    code = 403
    name = "ACCESS_REFUSED"
    closes_connection = False
    login: tuple[str, str] | None = None
    """Of a failed login: the user name and the reason, for the server's log. Neither is sent to the client."""


class NoSuch(BrokerError):
    """404: the queue, exchange or binding does not exist."""

    code = 404
    name = "NOT_FOUND"
    closes_connection = False


class ResourceLocked(BrokerError):
    """405: an exclusive queue of another connection."""

    code = 405
    name = "RESOURCE_LOCKED"
    closes_connection = False


class PreconditionFailed(BrokerError):
    """406: the object exists with other properties, is in use, or an argument is invalid."""

    code = 406
    name = "PRECONDITION_FAILED"
    closes_connection = False


class CommandInvalid(BrokerError):
    """503: an unknown exchange type, or a method that is not supported here."""

    code = 503
    name = "COMMAND_INVALID"


class NotAllowed(BrokerError):
    """530: the virtual host does not exist or is closed to the user, or a rule of the broker forbids it."""

    code = 530
    name = "NOT_ALLOWED"


class NotOffered(BrokerError):
    """540: a part of the protocol that is not implemented."""

    code = 540
    name = "NOT_IMPLEMENTED"


class InternalError(BrokerError):
    """541: the broker itself failed."""


def named(kind: str, name: str, vhost: str) -> str:
    """Return how error texts name an object: `queue 'orders' in vhost '/'`."""
    return f"{kind} '{name}' in vhost '{vhost}'"


def no_such_vhost(name: str) -> NotAllowed:
    """Return the error for a connection to an unknown virtual host."""
    return NotAllowed(f"vhost {name} not found")
