"""What tests change behind the public face of a replicated store, so that it is renamed in one place."""

import contextlib
from collections.abc import Iterator

from holdfast import Store

__all__ = ["not_shipped"]


@contextlib.contextmanager
def not_shipped(store: Store) -> Iterator[None]:
    """Let the store's background work ship nothing."""
    replica, store._replica = store._replica, None
    try:
        yield
    finally:
        store._replica = replica
