"""HTTP responses: results and errors as JSON, and the mapping of errors to status codes."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.base.errors import (
    Closed,
    Conflict,
    HoldfastError,
    InvalidArgument,
    LeaseLost,
    Locked,
    NotFound,
    QueueFull,
    ReadOnly,
    ReplicaError,
    StorageError,
)
from holdfast.broker.errors import AccessRefused, BrokerError, NoSuch, NotAllowed
from holdfast.table.errors import ValidationFailed
from holdfast.table.migration.errors import MigrationNeeded, MigrationPending
from holdfast.table.operations import AlreadyExists
from holdfast.table.query.planner import TableScanRefused
from holdfast.web.routes import Reply

__all__ = [
    "SECURITY",
    "NotAuthenticated",
    "Refused",
    "ResourceLocked",
    "encoded",
    "error_word",
    "refusal",
    "response",
]

SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response: a browser runs no scripts except ours, and shows the page in no frame."""


class Refused(HoldfastError):
    """A rejected request, with its HTTP status, error code and response headers."""

    def __init__(self, status: int, word: str, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.word = word
        self.headers = headers or {}


class NotAuthenticated(Refused):
    """401: no credentials, a wrong password, or a token that is unknown or expired."""

    def __init__(self, reason: str, *, ask: bool, login: tuple[str, str] | None = None) -> None:
        self.login = login
        """User name and reason of a failed login, for the server's log; None if there was no attempt to log in."""
        # With this header a browser opens its own login dialog; the page has a better one.
        super().__init__(401, "not_authorised", reason, {"WWW-Authenticate": 'Basic realm="Holdfast"'} if ask else {})


class ResourceLocked(Refused):
    """409: an exclusive queue, reserved for the connection that declared it."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            409, "resource_locked", f"the queue {queue!r} is exclusive to the AMQP connection that declared it"
        )


_STATUSES: tuple[tuple[type[HoldfastError], int, str], ...] = (
    (NoSuch, 404, "not_found"),
    (NotFound, 404, "not_found"),
    (AccessRefused, 403, "access_refused"),
    (NotAllowed, 403, "access_refused"),
    (BrokerError, 400, "bad_request"),
    (ValidationFailed, 400, ""),
    (TableScanRefused, 400, ""),
    (AlreadyExists, 409, ""),
    (MigrationNeeded, 409, ""),
    (MigrationPending, 503, ""),
    (InvalidArgument, 400, ""),
    (LeaseLost, 409, ""),
    (Locked, 409, ""),
    (QueueFull, 409, ""),
    (Conflict, 409, ""),
    (ReadOnly, 409, ""),
    (Closed, 503, ""),
    (StorageError, 503, ""),
    (ReplicaError, 503, ""),
    (HoldfastError, 500, ""),
)
"""Status and code of each error. An empty code means that the name of the error is it: `queue_full`, `lease_lost`."""


def encoded(content: Any) -> bytes:
    """Return content as JSON. Names that are not valid text are escaped."""
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(content)).encode()


def response(result: Any) -> Response:
    """Return the HTTP response for a handler's result."""
    if result is None:
        return Response(status_code=204, headers=SECURITY)
    if not isinstance(result, Reply):
        return Response(encoded(result), headers=SECURITY, media_type="application/json")
    body = result.raw if result.raw is not None else b"" if result.content is None else encoded(result.content)
    return Response(body, result.status, {**SECURITY, **result.headers}, result.media)


def error_word(error: HoldfastError) -> str:
    """Return the code of an error, from which clients raise the same error."""
    kind = type(error)
    if kind in (InvalidArgument, HoldfastError):
        return "bad_request" if kind is InvalidArgument else "internal_error"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def refusal(error: HoldfastError, *, as_rabbitmq: bool = False) -> Response:
    """Return the HTTP response for an error.

    With `as_rabbitmq`, an access error is reported as 401, as in RabbitMQ's API.
    """
    if isinstance(error, Refused):
        status, word, headers = error.status, error.word, error.headers
    else:
        status, word = next((status, word) for kind, status, word in _STATUSES if isinstance(error, kind))
        word, headers = word or error_word(error), {}
    if as_rabbitmq and word == "access_refused":  # RabbitMQ answers 401 to missing permissions, too
        status, word = 401, "not_authorised"
    return Response(
        encoded({"error": word, "reason": str(error)}), status, {**SECURITY, **headers}, media_type="application/json"
    )
