"""What does a task's process need before it reads or writes? That the garbage collector leaves it alone."""

import gc

__all__ = ["settle"]

_THRESHOLDS = (200_000, 50, 1000)


def settle() -> None:
    """Keep the garbage collector out of the way.

    The modules of a worker are not searched again and again, and what a task makes is freed by counting references:
    30 ms a task, and a twentieth of all that a write costs.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
