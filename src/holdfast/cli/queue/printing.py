"""Output of queue messages: id, time, attempts, priority, key, headers and payload."""

from typing import Any

from holdfast.base.units import iso_time
from holdfast.cli.options import FormatChoice
from holdfast.cli.printing import Printer, body_json
from holdfast.queue import DeadLetter, Delivery, PeekedMessage

__all__ = ["dead_letter_json", "message_printer"]


def message_printer(
    form: FormatChoice, *, json: bool, newline_between: bool = False
) -> Printer[Delivery | PeekedMessage]:
    """Return a printer of messages to standard output, leased or only peeked at."""
    return Printer(_message_json, _heading, form, json=json, newline_between=newline_between)


def _message_json(message: Delivery | PeekedMessage) -> dict[str, object]:
    tried = {"attempt": message.attempt} if isinstance(message, Delivery) else {"attempts": message.attempts}
    return {
        "id": message.id,
        **tried,
        "priority": message.priority,
        "enqueued_at": message.enqueued_at,
        "enqueued_time": iso_time(message.enqueued_at),
        **body_json(message),
    }


def _heading(message: Delivery | PeekedMessage) -> tuple[int, int, list[str]]:
    """Return its id, the time it was put, and its attempts and priority if they are not the defaults."""
    facts = []
    if isinstance(message, Delivery):
        if message.attempt > 1:
            facts.append(f"attempt={message.attempt}")
    elif message.attempts:
        facts.append(f"attempts={message.attempts}")
    if message.priority:
        facts.append(f"priority={message.priority}")
    return message.id, message.enqueued_at, facts


def dead_letter_json(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as `--json` shows it."""
    fields: dict[str, Any] = dict(zip(DeadLetter.__annotations__, letter, strict=True))
    content = fields | body_json(letter)
    for moment in ("first_failed", "last_failed", "enqueued", "died"):
        content[f"{moment}_time"] = iso_time(content[f"{moment}_at"])
    return content
