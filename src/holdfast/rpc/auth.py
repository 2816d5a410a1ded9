"""Authentication and permission callbacks of the RPC server, supplied by the caller that starts it."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.errors import AccessRefused
from holdfast.broker.permissions import RULES, Operation
from holdfast.broker.users import Kind

__all__ = ["Access", "Visitor"]


def _nobody(*_: object) -> str:
    raise AccessRefused("login is not possible: this server was started without users")


def _nothing(*_: object) -> None:
    raise AccessRefused("permission denied: this server was started without users")


@dataclass(frozen=True, slots=True)
class Access:
    """Callbacks that authenticate a client and check permissions. Each is called in a worker thread, and may be slow.

    Their errors are sent to the client.
    """

    login: Callable[[str, str, bool], str] = _nobody
    """Called with a user, a password and whether the client is on this machine; returns the user's name."""
    enter: Callable[[str, bool], str] = _nobody
    """Called with a token and whether the client is on this machine; returns the user's name."""
    check: Callable[[str, str, Kind, str], None] = _nothing
    """Raises unless this user may, in this virtual host, configure, write to or read from this queue."""
    check_space: Callable[[], None] = lambda: None
    """Raises while no messages may be put, also by clients that need no login."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """An authenticated user. Its methods may be slow: call them in a worker thread."""

    access: Access
    name: str
    enter_again: Callable[[], object] = lambda: None
    """Checks the user's token again, which may expire before the connection ends. Nothing for a password."""

    def may_stay(self) -> None:
        """Raise if the user logged in with a token that has expired or was revoked since."""
        self.enter_again()

    def may(self, operation: Operation, vhost: str, queue: str) -> None:
        """Raise unless the user still has the permission for this operation on this queue."""
        self.may_stay()
        needed = RULES[operation].permission
        assert needed is not None
        self.access.check(self.name, vhost, needed, queue)
