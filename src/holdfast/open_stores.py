"""The stores that are open in this process: closed when it ends, disowned in a forked child."""

import atexit
import logging
import os
import sys
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.errors import is_interrupt

__all__ = ["StoreEnding", "close_all", "forget", "note_for_fork", "register"]

logger = logging.getLogger("holdfast.store")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class StoreEnding:
    """The ends of an open store other than `Store.close`. It is referred to as long as the store is."""

    path: Path
    close_at_exit: Callable[[], None]
    """Close it within a bounded time, or at least write and sync accepted messages."""
    close_discarding: Callable[[], None]
    """Close it before its folder is deleted."""
    detach_after_fork: Callable[[], None]
    """Mark it as closed. Called in a forked child, where the open store is the parent's."""


_openings: weakref.WeakSet[StoreEnding] = weakref.WeakSet()
"""Every opening, also those that are closed and not yet collected."""
_to_close: dict[int, StoreEnding] = {}
"""The writable stores by id, in the order of their opening.

They are kept alive until they are closed. The garbage collector could not close them: it calls the finalizers of a
store and of its files in any order, so that the files may be closed before the data in memory was written to them.
"""
_closes_in: set[int] = set()
"""The ids of processes where `multiprocessing` closes the stores: its children run no `atexit` handlers."""

_ATTEMPTS = 10
"""How often closing a store is attempted at the end of the process, if each attempt is cut off by an interrupt."""


def note_for_fork(store: StoreEnding) -> None:
    """Disown this opening in children that are forked."""
    _openings.add(store)


def register(store: StoreEnding) -> None:
    """Close this store at the end of the process, unless it is closed before."""
    _to_close[id(store)] = store
    if "multiprocessing.util" in sys.modules and os.getpid() not in _closes_in:
        from multiprocessing import parent_process, util  # noqa: PLC0415 - only if it is loaded anyway

        if parent_process() is not None:
            _closes_in.add(os.getpid())
            util.Finalize(None, close_all, exitpriority=0)


def forget(store: StoreEnding) -> None:
    """Remove a store that is closed."""
    _to_close.pop(id(store), None)


def close_all() -> None:
    """Close every open store, the last one first. A failure is logged, and the other stores are closed.

    An interrupt (a second Ctrl-C) does not prevent accepted messages from being written: closing continues, and the
    interrupt is raised at its end. After ten interrupts of one store that store is logged as failed.
    """
    left: list[StoreEnding] = []
    try:
        left.extend(reversed(_to_close.values()))
        _close_left()
    finally:
        try:
            _close_left()
        finally:  # also if the handler raised between two attempts of the first
            _close_left()
    if left:
        names = ", ".join(repr(str(store.path)) for store in left)
        warnings.warn(
            f"{'a store was' if len(left) == 1 else f'{len(left)} stores were'} open at the end of the process: "
            f"{names}. Accepted messages are written now, but a program should close the stores that it opens: "
            "use `with holdfast.open(...) as store:`, or call close()",
            ResourceWarning,
            stacklevel=2,
        )


def _close_left() -> None:
    """Close the stores that are left, and raise the last interrupt that came meanwhile."""
    interrupt: BaseException | None = None
    while _to_close:
        store = next(reversed(_to_close.values()))
        for attempt in range(_ATTEMPTS):
            try:
                store.close_at_exit()
                break
            except BaseException as error:  # of any kind: the others are closed and the exit code stays
                if is_interrupt(error):
                    interrupt = error
                if not is_interrupt(error) or attempt == _ATTEMPTS - 1:
                    logger.error(
                        "closing a store at exit failed, unwritten messages are lost: store=%s error=%s",
                        store.path,
                        error,
                        extra={"path": str(store.path)},
                    )
                    break
        forget(store)
    if interrupt is not None:
        raise interrupt


def _disown_in_child() -> None:
    _to_close.clear()
    for store in list(_openings):
        store.detach_after_fork()


atexit.register(close_all)
os.register_at_fork(after_in_child=_disown_in_child)
