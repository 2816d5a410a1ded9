"""Access gate of a table that is being migrated: only the migration's own thread passes."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from holdfast.base.errors import HoldfastError

__all__ = ["Gate"]


class Gate:
    """Refuses access to a table whose migration is not complete.

    Threads: any may call `check`; callers ensure that one thread at a time is in `passing`.
    """

    def __init__(self, refusal: Callable[[], HoldfastError]) -> None:
        """`refusal` returns the error that `check` raises."""
        self._refusal = refusal
        self._passing: int | None = None

    def check(self) -> None:
        """Raise, unless this is the thread in which the migration runs."""
        if self._passing != threading.get_ident():
            raise self._refusal()

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Let this thread pass, and no other."""
        self._passing = threading.get_ident()
        try:
            yield
        finally:
            self._passing = None
