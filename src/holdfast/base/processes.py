"""Does a process of this machine live? For what it left behind, and what it promised to come back to."""

import os

__all__ = ["is_alive"]


def is_alive(process: int) -> bool:
    """Whether there is a process with this id, be it ours or another's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
