"""Liveness of a process of this machine by its id, to recognise files that a dead process left behind."""

import os

__all__ = ["is_alive"]


def is_alive(process: int) -> bool:
    """Return whether a process with this id exists, also one of another user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
