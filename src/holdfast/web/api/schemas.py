"""JSON forms of messages and records, for the requests and responses of the API."""

from dataclasses import replace
from datetime import datetime
from typing import Any, cast, overload

from holdfast.base.clock import instant_ns
from holdfast.base.errors import InvalidArgument
from holdfast.base.json_payload import Body, body_json, bytes_of
from holdfast.base.units import iso_time, parse_time
from holdfast.broker.amqp_values import LateTime, MalformedField
from holdfast.broker.basic_properties import decode_properties
from holdfast.broker.message import EXCHANGE, PROPERTIES, content_of
from holdfast.log.record import HeaderValue, Message
from holdfast.queue import Delivery, PeekedMessage
from holdfast.web.api.response_types import LeasedJson, PeekedJson
from holdfast.web.request_schema import BYTES, FLAG, NUMBER, TEXT, WHOLE, body, said
from holdfast.web.routes import Call

__all__ = [
    "BODY_MAX",
    "HELD",
    "MESSAGE",
    "QUEUE_SETTINGS",
    "RECORD",
    "as_json",
    "instant",
    "message_json",
    "messages_in",
    "moments",
    "parts_in",
    "record_in",
]

BODY_MAX = 1 << 40
"""Size limit, in bytes, of a body that is not to be truncated: none in effect."""
HELD = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["id", "lease"],
        "properties": {"id": WHOLE, "lease": WHOLE},
        "description": "As returned by a lease; other fields are ignored.",
    },
}
"""Schema of leased messages to settle."""
RECORD = body(
    payload=BYTES,
    payload_base64=said(TEXT, "Any bytes in base64, instead of payload."),
    key=BYTES,
    headers={"type": "object", "description": "Text or bytes, by name."},
)
"""Schema of a record to append to a log."""
MESSAGE = body(
    **RECORD["properties"],
    priority={"type": "integer", "minimum": 0, "maximum": 255},
    delay=said(NUMBER, "Seconds until it can be delivered."),
    ttl=said(NUMBER, "Seconds until it expires."),
    dedup=said(BYTES, "Deduplication id: a second message with it is not stored."),
)
"""Schema of a message to put into a queue."""
QUEUE_SETTINGS = body(
    lease=said(NUMBER, "Seconds that a delivery is leased to its consumer."),
    max_attempts=said({"type": ["integer", "null"]}, "Deliveries before a message is dead-lettered; null: no limit."),
    backoff=body(base=NUMBER, cap=NUMBER, factor=NUMBER),
    dead_letter=said({"type": ["string", "null"]}, "The queue for dead letters; null: failed messages are dropped."),
    dedup_window=said(NUMBER, "Seconds that a deduplication id is recognised."),
    dedup_limit=said(WHOLE, "The most deduplication ids that are kept."),
    starvation=said({"type": ["number", "null"]}, "Seconds after which a message precedes higher priorities."),
    ttl=said({"type": ["number", "null"]}, "Seconds that a message may wait to be delivered; null: forever."),
    expired=said(TEXT, "What happens to an expired message: `drop` or `dead-letter`."),
    max_length={"type": ["integer", "null"], "minimum": 1},
    max_bytes={"type": ["integer", "null"], "minimum": 1},
    overflow=said(TEXT, "When the queue is full: `drop-head`, `dead-letter` or `reject`."),
    history=said(NUMBER, "Seconds that acknowledged messages are kept."),
    shorten_history=said(FLAG, "Whether they are dropped earlier if the disk is full."),
)
"""Schema of the settings of a queue; that of its log cannot be chosen over HTTP."""
_DIGITS_MAX = 20


def moments(**times: int | None) -> dict[str, Any]:
    """Return times as numbers and as text: `died=...` gives `died_at` and `died_time`."""
    found: dict[str, Any] = {}
    for name, value in times.items():
        found[f"{name}_at"] = value
        found[f"{name}_time"] = None if value is None else iso_time(value)
    return found


def as_json(thing: Body, most: int | None = None) -> dict[str, Any]:
    """Return key, headers and payload; for a message published over AMQP also its AMQP properties."""
    form = body_json(thing, most)
    if PROPERTIES in thing.headers or EXCHANGE in thing.headers:
        content = content_of(thing.key, thing.headers, "")
        try:
            properties = decode_properties(content.raw).present()
        except MalformedField:
            return form
        headers = properties.pop("headers", {})
        form |= {
            "headers": plain(headers),
            "exchange": content.exchange,
            "routing_key": content.routing_key,
            "properties": {name: plain(value) for name, value in properties.items()},
        }
    return form


@overload
def message_json(message: PeekedMessage, most: int | None = None) -> PeekedJson: ...
@overload
def message_json(message: Delivery, most: int | None = None) -> LeasedJson: ...
def message_json(message: PeekedMessage | Delivery, most: int | None = None) -> PeekedJson | LeasedJson:
    """Return a waiting or leased message as JSON."""
    form: dict[str, Any] = {"id": message.id, "priority": message.priority, **moments(enqueued=message.enqueued_at)}
    if isinstance(message, Delivery):
        form |= {"attempt": message.attempt, "lease": message.lease}
    else:
        form["attempts"] = message.attempts
    return cast("PeekedJson | LeasedJson", form | as_json(message, most))


def plain(value: Any) -> Any:
    """Return a value of an AMQP table as JSON."""
    match value:
        case dict():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "backslashreplace")
        case datetime():
            return value.isoformat()
        case LateTime():
            return value.seconds
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def messages_in(call: Call) -> list[Message]:
    """Return the messages to put, from the request's body."""
    listed = call.field("messages", list)
    return [_message(one, place) for place, one in enumerate(listed)]


def _message(one: Any, place: int) -> Message:
    where = f"messages[{place}]"
    plain = record_in(one, where)
    dedup = None if one.get("dedup") in (None, "") else bytes_of(one["dedup"], f"{where}.dedup")
    for name in ("delay", "priority", "ttl"):
        if isinstance(one.get(name), str | bool | dict | list):
            raise InvalidArgument(f"{where}.{name} must be a number, not {str(one[name])[:40]!r}")
    return replace(plain, delay=one.get("delay"), priority=one.get("priority") or 0, ttl=one.get("ttl"), dedup=dedup)


def record_in(one: Any, where: str) -> Message:
    """Return a record to append or put: payload, key and headers."""
    if not isinstance(one, dict):
        raise InvalidArgument(f"{where} must be an object with a payload")
    if "payload_base64" in one:
        payload = bytes_of({"base64": one["payload_base64"]}, f"{where}.payload_base64")
    else:
        payload = bytes_of(one.get("payload"), f"{where}.payload")
    headers: dict[str, HeaderValue] | None = None
    if one.get("headers"):
        if not isinstance(one["headers"], dict):
            raise InvalidArgument(f"{where}.headers must be an object")
        headers = {
            name: value if isinstance(value, str) else bytes_of(value, f"{where}.headers[{name!r}]")
            for name, value in one["headers"].items()
        }
    key = None if one.get("key") is None else bytes_of(one["key"], f"{where}.key")
    return Message(payload, key, headers)


def parts_in(call: Call) -> dict[int, set[int]]:
    """Return the messages to settle as ids by lease, each once however often it is listed."""
    parts: dict[int, set[int]] = {}
    for one in call.field("messages", list):
        if not isinstance(one, dict) or type(one.get("id")) is not int or type(one.get("lease")) is not int:
            raise InvalidArgument("each item of messages must have the id and the lease with which it was delivered")
        parts.setdefault(one["lease"], set()).add(one["id"])
    return parts


def instant(text: str | int) -> int:
    """Parse a time from a request: nanoseconds since 1970, or text such as 2026-11-15T12:00:00Z."""
    if isinstance(text, int):
        return text
    if text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX:
        return int(text)
    return instant_ns(parse_time(text), "time")
