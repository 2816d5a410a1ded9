"""Errors as RPC clients see them: their kind and text in one line, without a traceback."""

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.base.errors import HoldfastError

__all__ = ["Refused", "answered"]

logger = logging.getLogger("holdfast.rpc")

Method = TypeVar("Method", bound=Callable[..., Awaitable[None]])


class Refused(Exception):
    """An error that is sent to a client.

    pycapnp sends what `traceback` prints of it, which would include our files and lines: so this class hides its
    traceback, and is printed under the name of the original error.
    """

    __traceback__ = property(lambda _: None)

    @classmethod
    def of(cls, error: BaseException) -> "Refused":
        """Return the error to send to a client."""
        if isinstance(error, HoldfastError):
            return _named(type(error).__name__)(str(error))
        return _named("InternalError")("internal error: see the server's log")


def answered(method: Method) -> Method:
    """Decorate a method so that its errors reach the client as one line."""

    @functools.wraps(method)
    async def wrapper(self: Any, context: Any) -> None:
        refused: Refused
        try:
            await method(self, context)
            return
        except Refused:
            raise
        except HoldfastError as error:
            refused = Refused.of(error)
        except Exception as error:
            logger.exception("call failed: method=%s", method.__name__.removesuffix("_context"))
            refused = Refused.of(error)
        raise refused

    return wrapper  # type: ignore[return-value]


@functools.cache
def _named(name: str) -> type[Refused]:
    return type(name, (Refused,), {"__module__": "builtins", "__doc__": Refused.__doc__})
