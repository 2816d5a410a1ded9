"""Who may use a table while it is migrated? The migration itself, and nobody else."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from holdfast.base.errors import HoldfastError

__all__ = ["Gate"]


class Gate:
    """Stands before a table whose migration is not done. Threads: any; one at a time is let through."""

    def __init__(self, refusal: Callable[[], HoldfastError]) -> None:
        """`refusal` makes the error that others get."""
        self._refusal = refusal
        self._passing: int | None = None

    def check(self) -> None:
        """Raise, unless this is the thread in which the migration runs."""
        if self._passing != threading.get_ident():
            raise self._refusal()

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Let this thread through."""
        self._passing = threading.get_ident()
        try:
            yield
        finally:
            self._passing = None
