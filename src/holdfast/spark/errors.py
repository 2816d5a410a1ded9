"""Hides tracebacks of HoldfastError in Spark workers, so that users read the message first."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from holdfast.base.errors import HoldfastError

__all__ = ["in_one_line"]

P = ParamSpec("P")
T = TypeVar("T")


def in_one_line(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that a HoldfastError that it raises in a Spark worker is reported without traceback."""

    @wraps(call)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except HoldfastError:
            # The worker prints the traceback into Spark's error: without it, the user reads the message first.
            spec = getattr(sys.modules["__main__"], "__spec__", None)
            if spec is not None and spec.name.startswith("pyspark."):
                sys.tracebacklimit = 0
            raise

    return wrapper
