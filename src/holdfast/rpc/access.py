"""Who may do what? Callables that whoever starts the server gives, so that this room knows neither users nor tokens."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.errors import AccessRefused
from holdfast.broker.users import Kind

__all__ = ["Access"]


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
