"""JSON codec for bytes, messages and records, in the form of the server's API; pure functions."""

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.base.clock import NS, Duration, Instant, duration_ns, instant_ns
from holdfast.base.errors import InvalidArgument
from holdfast.base.json_payload import bytes_of, json_bytes
from holdfast.base.units import iso_time
from holdfast.log import Damage, Flush, Headers, Message, Record, Retention, Roll
from holdfast.log.record import NO_HEADERS, as_bytes
from holdfast.log.settings import LogSettings
from holdfast.queue import DeadLetter, PeekedMessage

__all__ = [
    "damage_from",
    "headers_from",
    "letter_from",
    "log_settings_from",
    "made",
    "message_json",
    "record_from",
    "seconds",
    "time_text",
    "waiting_from",
]

T = TypeVar("T")


def headers_from(value: Mapping[str, Any] | None) -> Headers:
    """Return the headers of a message: text, or bytes. AMQP values that are neither become JSON text."""
    if not value:
        return NO_HEADERS
    return {name: one if isinstance(one, str) else _header_from(one) for name, one in value.items()}


def _header_from(value: Any) -> str | bytes:
    try:
        return bytes_of(value, "a header")
    except InvalidArgument:
        return json.dumps(value, ensure_ascii=False)


def message_json(message: bytes | Message, *, for_queue: bool) -> dict[str, Any]:
    """Return the JSON of a message to be put; default values are left out.

    Raises `InvalidArgument` if a message for a log has a setting that only queues support.
    """
    if not isinstance(message, Message):
        return _payload_json(as_bytes(message, "payload"))
    written = _payload_json(as_bytes(message.payload, "payload"))
    if message.key is not None:
        written["key"] = json_bytes(as_bytes(message.key, "key"))
    if message.headers:
        written["headers"] = {
            name: value if isinstance(value, str) else json_bytes(value) for name, value in message.headers.items()
        }
    if not message.is_for_queues:
        return written
    if not for_queue:
        raise InvalidArgument("delay, priority, ttl and dedup are for queues: put the message into a queue instead")
    if message.priority:
        written["priority"] = message.priority
    for name in ("delay", "ttl"):
        given: Duration | None = getattr(message, name)
        if given is not None:
            written[name] = seconds(given, name)
    if message.dedup is not None:
        written["dedup"] = message.dedup if isinstance(message.dedup, str) else json_bytes(message.dedup)
    return written


def _payload_json(payload: bytes) -> dict[str, Any]:
    written = json_bytes(payload)
    return {"payload_base64": written["base64"]} if isinstance(written, dict) else {"payload": written}


def waiting_from(one: Mapping[str, Any]) -> PeekedMessage:
    """Return a waiting message from JSON."""
    return PeekedMessage(
        one["id"],
        bytes_of(one["payload"], "the payload"),
        _key_from(one),
        headers_from(one.get("headers")),
        one.get("attempts", 0),
        one["enqueued_at"],
        one.get("priority", 0),
    )


def letter_from(one: Mapping[str, Any]) -> DeadLetter:
    """Return a dead letter from JSON."""
    return DeadLetter(
        id=one["id"],
        payload=bytes_of(one["payload"], "the payload"),
        key=_key_from(one),
        headers=headers_from(one.get("headers")),
        reason=one.get("reason") or "",
        cause=one.get("cause") or "",
        attempts=one.get("attempts", 0),
        first_failed_at=one.get("first_failed_at"),
        last_failed_at=one.get("last_failed_at"),
        queue=one.get("queue") or "",
        original_id=one.get("original_id", 0),
        enqueued_at=one.get("enqueued_at", 0),
        died_at=one.get("died_at", 0),
        redriven=one.get("redriven", 0),
    )


def record_from(one: Mapping[str, Any]) -> Record:
    """Return a record of a log from JSON."""
    return Record(
        one["sequence"],
        one["timestamp"],
        _key_from(one),
        headers_from(one.get("headers")),
        bytes_of(one["payload"], "the payload"),
    )


def log_settings_from(content: Mapping[str, Any]) -> LogSettings:
    """Return the settings of a log from JSON; a setting that the server does not report has its default."""
    given: dict[str, Any] = {
        name: content[name]
        for name in ("index_interval", "verify_on_open", "max_message", "compression")
        if name in content
    }
    if "flush_bytes" in content:
        given["flush"] = Flush(content["flush"], content["flush_bytes"], round(content["flush_interval"] * NS))
        interval = content["roll_interval"]
        given["roll"] = Roll(
            content["roll_bytes"], None if interval is None else round(interval * NS), content["roll_records"]
        )
    for name in ("retention", "local_retention"):
        if content.get(name) is not None:
            given[name] = made(Retention, content[name])
    return LogSettings(**given)


def damage_from(one: Any) -> Damage:
    """Return a damage report from JSON; if only its text is known, that is what it shows."""
    return made(Damage, one) if isinstance(one, Mapping) else Damage("", 0, 0, str(one))


def made(kind: type[T], content: Mapping[str, Any], **more: Any) -> T:
    """Return a dataclass from JSON; fields of a newer server are ignored."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in content.items() if name in known} | more)


def _key_from(one: Mapping[str, Any]) -> bytes | None:
    key = one.get("key")
    return None if key is None else bytes_of(key, "the key")


def seconds(value: Duration, what: str) -> float:
    """Return a duration in seconds, after the checks of a local store."""
    nanoseconds = duration_ns(value, what)
    return value if not isinstance(value, timedelta) else nanoseconds / NS


def time_text(when: Instant, what: str = "when") -> str:
    """Return a time as it is sent: in nanoseconds since 1970; an earlier time in ISO format."""
    exact = instant_ns(when, what)
    return str(exact) if exact >= 0 else str(iso_time(exact))
