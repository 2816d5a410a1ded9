"""Who may do what? Callables that whoever starts the server gives, so that this room knows neither users nor tokens."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.errors import AccessRefused
from holdfast.broker.permissions import RULES, Operation
from holdfast.broker.users import Kind

__all__ = ["Access", "Visitor"]


def _nobody(*_: object) -> str:
    raise AccessRefused("nobody can log in here: this server was started without users")


def _nothing(*_: object) -> None:
    raise AccessRefused("nobody is permitted anything here: this server was started without users")


@dataclass(frozen=True, slots=True)
class Access:
    """How a client proves who it is, and what that one may do. Each is called in a worker thread, and may take a while.

    What they raise is what the client reads.
    """

    login: Callable[[str, str, bool], str] = _nobody
    """From a user, a password and whether the client is on this machine, the user's name."""
    enter: Callable[[str, bool], str] = _nobody
    """The same from a token."""
    check: Callable[[str, str, Kind, str], None] = _nothing
    """Raises unless this user may, in this virtual host, configure, write to or read from this queue."""
    room: Callable[[], None] = lambda: None
    """Raises while nobody may put anything, also those who need not log in."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who was let in. In a worker thread, too."""

    access: Access
    name: str
    enter_again: Callable[[], object] = lambda: None
    """How they came in by a token, which may end before their connection does; a password is asked for once."""

    def may_stay(self) -> None:
        """Raises if their token has expired or was withdrawn since."""
        self.enter_again()

    def may(self, operation: Operation, vhost: str, queue: str) -> None:
        """Raises unless they may still do this to this queue."""
        self.may_stay()
        needed = RULES[operation].permission
        assert needed is not None
        self.access.check(self.name, vhost, needed, queue)
