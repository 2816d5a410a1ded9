"""JSON form of bytes, keys, headers and payloads: the same on the command line, over HTTP and in our own logs."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.base.errors import InvalidArgument

__all__ = ["Body", "body_json", "bytes_of", "json_bytes"]


class Body(Protocol):
    """An object with a payload: a record, a message, a delivery or a dead letter."""

    @property
    def key(self) -> bytes | None:
        """Return the key."""
        ...

    @property
    def headers(self) -> Mapping[str, str | bytes]:
        """Return the headers."""
        ...

    @property
    def payload(self) -> bytes:
        """Return the payload."""
        ...


def json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Return bytes for JSON: text if they are valid UTF-8, else `{"base64": ...}`."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def bytes_of(value: Any, what: str) -> bytes:
    """Return the bytes that `json_bytes` encoded; `what` names the value in the error."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            pass
    raise InvalidArgument(f'{what} must be text, or {{"base64": "..."}} for any bytes')


def body_json(thing: Body, most: int | None = None) -> dict[str, Any]:
    """Return key, headers and payload; with `most`, at most so many bytes of the payload, and then its size."""
    payload = thing.payload
    if most is None:
        shown: dict[str, Any] = {"payload": json_bytes(payload)}
    else:
        shown = {
            "payload": json_bytes(_cut(payload, most)),
            "size": len(payload),
            "truncated": len(payload) > most,
        }
    return {
        "key": json_bytes(thing.key),
        "headers": {
            name: value if isinstance(value, str) else json_bytes(value) for name, value in thing.headers.items()
        },
        **shown,
    }


def _cut(payload: bytes, most: int) -> bytes:
    """Return the first bytes, without dividing a character, so that text remains text."""
    if len(payload) <= most:
        return payload
    cut = payload[:most]
    for back in range(1, min(4, len(cut)) + 1):
        if cut[-back] & 0xC0 != 0x80:
            if cut[-back] >= 0xC0:  # a character begins here, and may continue behind the cut
                try:
                    cut[-back:].decode()
                except UnicodeDecodeError:
                    return cut[:-back]
            break
    return cut
