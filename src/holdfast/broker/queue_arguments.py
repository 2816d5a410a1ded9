"""Queue x-arguments: validation, with RabbitMQ's error texts, and comparison of repeated declarations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from holdfast.base.clock import duration_ns
from holdfast.broker.amqp_values import LateTime
from holdfast.broker.errors import PreconditionFailed, named
from holdfast.broker.routing import X_MATCHES, Arguments
from holdfast.queue.settings import QueueSettings

__all__ = [
    "COMPARED",
    "FORWARDED",
    "SETTINGS",
    "TIME_MAX_MS",
    "QueueArguments",
    "amqp_type",
    "check_chosen",
    "check_equivalent",
    "check_same_arguments",
    "check_x_match",
    "effective",
    "new_settings",
    "queue_settings",
]

PRIORITY_MAX = 255
TIME_MAX_MS = 10 * 365 * 86_400 * 1000
"""The longest message TTL or queue expiry that RabbitMQ accepts: ten years."""
OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
FORWARDED = "amqp-dlx:"
"""Prefix of a queue's dead-letter target in the store, if its dead letters go to an exchange."""
OF_STREAMS = ("x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size")
"""Arguments that only streams support."""


@dataclass(frozen=True, slots=True)
class QueueArguments:
    """The parsed x-arguments of a queue; None or False if an argument was not given."""

    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    """The queue is deleted after this time without use."""
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    dead_letter_exchange: str | None = None
    """May be "", the default exchange."""
    dead_letter_routing_key: str | None = None
    """None: a dead letter keeps its own routing key."""
    max_priority: int | None = None
    delivery_limit: int | None = None
    single_active_consumer: bool = False
    deduplicates: bool = False
    queue_type: str = "classic"
    lazy: bool = False
    """Set by `x-queue-mode`; every queue here keeps its messages on disk anyway."""

    @property
    def limited(self) -> bool:
        """Whether the queue can be full."""
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def rejects(self) -> bool:
        """Whether a full queue rejects new messages instead of dropping its oldest."""
        return self.limited and self.overflow != "drop-head"


class _Wrong(Exception):
    """An invalid argument, with the reason as Erlang would print it."""


def amqp_type(value: object) -> str:
    """Return RabbitMQ's name for the type of a table's value; the width of an integer is a guess."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    for kind, name in (
        (str, "longstr"),
        (bytes, "binary"),
        (float, "double"),
        (Decimal, "decimal"),
        (datetime, "timestamp"),
        (LateTime, "timestamp"),
        (dict, "table"),
        (list, "array"),
    ):
        if isinstance(value, kind):
            return name
    return "void"


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Wrong(f'"expected integer, got {amqp_type(value)}"')
    return value


def _not_negative(value: object) -> int:
    number = _whole(value)
    if number < 0:
        raise _Wrong(f"{{value_negative,{number}}}")
    return number


def _expiry(value: object) -> int:
    number = _not_negative(value)
    if number > TIME_MAX_MS:
        raise _Wrong(f"{{value_too_large,{number}}}")
    return number


def _expires(value: object) -> int:
    if _whole(value) == 0:
        raise _Wrong("{value_zero,0}")
    return _expiry(value)


def _priority(value: object) -> int:
    number = _not_negative(value)
    if number > PRIORITY_MAX:
        raise _Wrong(f"{{max_value_exceeded,{number}}}")
    return number


def _delivery_limit(value: object) -> int | None:
    # RabbitMQ 4 gives quorum queues a limit of 20; -1 means none.
    return None if _whole(value) == -1 else _not_negative(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f"{{unacceptable_type,{amqp_type(value)}}}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"{{unacceptable_type,{amqp_type(value)}}}")
    return value


def _overflow(value: object) -> str:
    text = _text(value)
    if text not in OVERFLOWS:
        raise _Wrong("invalid_overflow")
    return text


def _is_lazy(value: object) -> bool:
    text = _text(value)
    if text not in ("default", "lazy"):
        raise _Wrong(f"\"unsupported queue mode '{text}'\"")
    return text == "lazy"


def _queue_type(value: object) -> str:
    text = _text(value)
    if text == "stream":
        raise _Wrong("stream queues are not supported: declare a classic or quorum queue")
    if text not in ("classic", "quorum"):
        raise _Wrong("\"unsupported queue type '" + text + "'\"")
    return text


def _version(value: object) -> int:
    number = _whole(value)
    if number not in (1, 2):
        raise _Wrong(f"\"unsupported queue version '{number}'\"")
    return number


_KNOWN: dict[str, tuple[str | None, Callable[[object], Any]]] = {
    "x-queue-type": ("queue_type", _queue_type),
    "x-expires": ("expires_ms", _expires),
    "x-message-ttl": ("message_ttl_ms", _expiry),
    "x-dead-letter-exchange": ("dead_letter_exchange", _text),
    "x-dead-letter-routing-key": ("dead_letter_routing_key", _text),
    "x-max-length": ("max_length", _not_negative),
    "x-max-length-bytes": ("max_length_bytes", _not_negative),
    "x-max-priority": ("max_priority", _priority),
    "x-overflow": ("overflow", _overflow),
    "x-delivery-limit": ("delivery_limit", _delivery_limit),
    "x-single-active-consumer": ("single_active_consumer", _flag),
    "x-message-deduplication": ("deduplicates", _flag),
    "x-queue-mode": ("lazy", _is_lazy),
    "x-queue-version": (None, _version),
}
COMPARED = tuple(_KNOWN)
"""The arguments in which a second declaration of a queue must agree with the first."""


def queue_settings(arguments: Arguments, name: str = "", vhost: str = "/") -> QueueArguments:
    """Parse the arguments of the queue `name`; raise 406 for an invalid one. Unknown arguments are ignored."""
    chosen: dict[str, Any] = {}
    exchange = arguments.get("x-dead-letter-exchange", "")
    if not isinstance(exchange, str):  # RabbitMQ has another text for exchange names
        raise PreconditionFailed(
            f"invalid type '{amqp_type(exchange)}' for arg 'x-dead-letter-exchange' in {named('queue', name, vhost)}"
        )
    for argument, (setting, check) in _KNOWN.items():
        if argument not in arguments:
            continue
        try:
            value = check(arguments[argument])
            if argument == "x-dead-letter-routing-key" and "x-dead-letter-exchange" not in arguments:
                raise _Wrong("routing_key_but_no_dlx_defined")
        except _Wrong as reason:
            raise PreconditionFailed(f"invalid arg '{argument}' for {named('queue', name, vhost)}: {reason}") from None
        if setting is not None:
            chosen[setting] = value
    return QueueArguments(**chosen)


def new_settings(arguments: Arguments, name: str, vhost: str) -> QueueArguments:
    """Parse the arguments of a new queue: also raise 406 for arguments that only a stream supports."""
    settings = queue_settings(arguments, name, vhost)
    for argument in OF_STREAMS:
        if argument in arguments:
            raise PreconditionFailed(
                f"invalid arg '{argument}' for {named('queue', name, vhost)} of queue type "
                f"rabbit_{settings.queue_type}_queue"
            )
    return settings


SETTINGS = {
    "x-delivery-limit": "max_attempts",
    "x-dead-letter-exchange": "dead_letter",
    "x-message-ttl": "ttl",
    "x-max-length": "max_length",
    "x-max-length-bytes": "max_bytes",
    "x-overflow": "overflow",
}
"""By argument: the setting of a queue that it decides."""


def check_chosen(what: str, wanted: QueueArguments, given: Arguments, chosen: Mapping[str, Any]) -> None:
    """Raise 406 if an argument contradicts a setting that a program chose for the same queue."""
    for argument, setting in SETTINGS.items():
        if argument in given and setting in chosen and not _agrees(argument, wanted, chosen[setting]):
            raise PreconditionFailed(
                f"inequivalent arg '{argument}' for {what}: received {_said(given[argument])} but a program chose "
                f"{setting} {_said(chosen[setting])}"
            )


def _agrees(argument: str, wanted: QueueArguments, chosen: Any) -> bool:
    match argument:
        case "x-delivery-limit":
            return bool(chosen == (None if wanted.delivery_limit is None else wanted.delivery_limit + 1))
        case "x-message-ttl":
            return chosen is not None and duration_ns(chosen, "ttl") == max(1, (wanted.message_ttl_ms or 0) * 1_000_000)
        case "x-max-length":
            return bool(chosen == max(1, wanted.max_length or 0))  # our queues store a limit of 0 as 1
        case "x-max-length-bytes":
            return bool(chosen == max(1, wanted.max_length_bytes or 0))
        case "x-overflow":
            return bool((chosen == "reject") == (wanted.overflow != "drop-head"))
    # A program names a queue and AMQP an exchange. A value that the broker stored is not a program's choice.
    return isinstance(chosen, str) and chosen.startswith(FORWARDED)


def effective(arguments: QueueArguments, settings: QueueSettings) -> QueueArguments:
    """Return the arguments of a queue, completed by the settings that a program chose."""
    ttl = settings.nanoseconds("ttl")
    if arguments.message_ttl_ms is None and ttl is not None:
        arguments = replace(arguments, message_ttl_ms=max(1, ttl // 1_000_000))
    if arguments.max_length is None:
        arguments = replace(arguments, max_length=settings.max_length)
    if arguments.max_length_bytes is None:
        arguments = replace(arguments, max_length_bytes=settings.max_bytes)
    if arguments.overflow == "drop-head" and settings.overflow == "reject":
        arguments = replace(arguments, overflow="reject-publish")
    return arguments


def check_x_match(arguments: Arguments) -> None:
    """Raise 406 unless the `x-match` of a binding is one that a headers exchange supports."""
    kind = arguments.get("x-match", "all")
    if not isinstance(kind, str):
        raise PreconditionFailed(f"Invalid x-match field type {amqp_type(kind)} (value {kind!r}); expected longstr")
    if kind not in X_MATCHES:
        raise PreconditionFailed(
            f'Invalid x-match field value <<"{kind}">>; expected all, any, all-with-x, or any-with-x'
        )


def check_equivalent(what: str, name: str, received: object, current: object) -> None:
    """Raise 406 unless a redeclared object has the same property as before; `what` comes from `named`."""
    if type(received) is not type(current) or received != current:
        raise PreconditionFailed(
            f"inequivalent arg '{name}' for {what}: received {_said(received)} but current is {_said(current)}"
        )


def check_same_arguments(what: str, names: tuple[str, ...], received: Arguments, current: Arguments) -> None:
    """Raise 406 unless a redeclared object has the same arguments, of those named, as before."""
    for name in names:
        new, old = received.get(name), current.get(name)
        if name == "x-queue-type":  # without it the type is classic
            new, old = new or "classic", old or "classic"
        if (isinstance(new, bool), new) != (isinstance(old, bool), old):
            say = _described if new is None or old is None else _said
            raise PreconditionFailed(
                f"inequivalent arg '{name}' for {what}: received {say(new)} but current is {say(old)}"
            )


def _printed(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _said(value: object) -> str:
    return f"'{_printed(value)}'"


def _described(value: object) -> str:
    return "none" if value is None else f"the value '{_printed(value)}' of type '{amqp_type(value)}'"
