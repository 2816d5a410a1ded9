"""Errors of remote calls, and the mapping of a server's responses to the errors that a local store raises."""

import re
from collections.abc import Mapping
from typing import Any

from holdfast.base import errors
from holdfast.base.errors import (
    Closed,
    Conflict,
    HoldfastError,
    InvalidArgument,
    LeaseLost,
    Locked,
    NotFound,
)

__all__ = ["TOKEN", "OutcomeUnknown", "Refused", "ServerFailed", "Unreachable", "error_of"]

TOKEN = "the token"
"""The name of the caller in messages if a token authenticates it, and not a user and password."""


class Unreachable(HoldfastError):
    """The server cannot be reached, or does not speak HTTP.

    If the connection could not be made, nothing was sent. If a repeatable request was sent twice and got no response,
    it may have been carried out.
    """


class OutcomeUnknown(Unreachable):
    """A request that must not be repeated was sent, and the connection was lost or the response timed out.

    Whether the request was carried out is not known.
    """


class Refused(HoldfastError):
    """The server does not accept these credentials, or the user lacks the permission."""


class ServerFailed(HoldfastError):
    """An unexpected response: an internal error of the server, a redirect, or content that is not JSON."""


_BY_STATUS: dict[int, type[HoldfastError]] = {
    400: InvalidArgument,
    401: Refused,
    403: Refused,
    404: NotFound,
    405: InvalidArgument,
    409: Conflict,
    413: errors.MessageTooLarge,
    415: InvalidArgument,
    422: InvalidArgument,
    503: Closed,
}
_BY_WORD: dict[str, type[HoldfastError]] = {
    **{
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): getattr(errors, name)
        for name in errors.__all__
        if name != "HoldfastError"
    },
    "bad_request": InvalidArgument,
    "not_authorised": Refused,
    "not_authorized": Refused,
    "access_refused": Refused,
    "unavailable": Closed,
}
_OF_TABLES = ("table_scan_refused", "already_exists", "no_record", "validation_failed", "invalid_filter")


def error_of(status: int, answer: object, who: str, path: str) -> HoldfastError:
    """Return, and do not raise, the error for a failed response; its message names `who` if authentication failed."""
    content: Mapping[str, Any] = answer if isinstance(answer, Mapping) else {}
    word, reason = str(content.get("error", "")).lower(), str(content.get("reason", "") or "")
    if status == 401:
        return Refused(_login_failed(who, reason))
    if word in _OF_TABLES:
        return _of_tables(word, reason)
    kind = _BY_WORD.get(word) or _BY_STATUS.get(status)
    if kind is None:
        said = reason or word or f"status {status}; see the server's log"
        return ServerFailed(f"{path} failed at the server: {said}")
    if status == 404 and not content:  # not a response of Holdfast: there is no such path
        return NotFound(f"the server has no {path}: check that it is a Holdfast server, and not older than this client")
    message = reason or f"the server answered {status} to {path}"
    if kind is LeaseLost:
        return LeaseLost(message, [one for one in content.get("ids", ()) if isinstance(one, int)])
    if kind is Locked:
        pid = content.get("pid")
        return Locked(message, pid if isinstance(pid, int) else None)
    return kind(message)


def _login_failed(who: str, reason: str) -> str:
    why = f" ({reason})" if reason else ""
    if who == TOKEN:
        return f"the server did not accept {who}{why}: create another one with holdfast token create"
    return f"the server did not accept {who}{why}: check the URL, http://user:password@host:port"


def _of_tables(word: str, reason: str) -> HoldfastError:
    from holdfast.table import AlreadyExists, NoRecord, TableScanRefused, ValidationFailed  # noqa: PLC0415 - only for tables

    match word:
        case "table_scan_refused":
            return TableScanRefused(reason)
        case "already_exists":
            return AlreadyExists(reason, b"")
        case "no_record":
            return NoRecord(reason, b"")
        case "validation_failed":
            failed = ValidationFailed("", ())
            failed.args = (reason,)
            return failed
    return InvalidArgument(reason)
