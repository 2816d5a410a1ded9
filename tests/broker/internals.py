"""What tests of the broker need to know of its internals."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from holdfast.broker.routing import Router
from holdfast.broker.turns import TurnScheduler
from holdfast.broker.users import Users

__all__ = ["after_each_check", "is_idle", "is_stopping", "routes_cached"]


def is_idle(turns: TurnScheduler) -> bool:
    """Whether no thread of the group commit works."""
    return not turns.committer._working


def is_stopping(turns: TurnScheduler) -> bool:
    """Whether the threads of the group commit were asked to end."""
    return turns.committer.stopping


def routes_cached(router: Router) -> int:
    """Return how many routes are cached."""
    return len(router._routes)


@contextmanager
def after_each_check(users: Users, call: Callable[[], None]) -> Iterator[None]:
    """Call `call` between each check of a permission and the caching of its answer."""
    found = users._is_allowed

    def slow(user: str, vhost: str, kind: object, name: str) -> bool:
        answer = found(user, vhost, kind, name)  # type: ignore[arg-type]
        call()
        return answer

    with patch.object(users, "_is_allowed", slow):
        yield
