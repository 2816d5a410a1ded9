"""How does a person learn what went wrong? In one line, also where Spark tells it."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from holdfast.base.errors import HoldfastError

__all__ = ["in_one_line"]

P = ParamSpec("P")
T = TypeVar("T")


def in_one_line(call: Callable[P, T]) -> Callable[P, T]:
    """Where Spark runs this in a worker and it raises an error of ours, the error is told without its traceback."""

    @wraps(call)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except HoldfastError:
            # The worker prints the traceback into Spark's error, then ends: what a person reads first is the message.
            spec = getattr(sys.modules["__main__"], "__spec__", None)
            if spec is not None and spec.name.startswith("pyspark."):
                sys.tracebacklimit = 0
            raise

    return wrapper
