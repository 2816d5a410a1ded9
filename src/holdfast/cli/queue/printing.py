"""Output of queue messages: id, time, attempts, priority, key, headers and payload."""

from typing import Any

from holdfast.base.units import iso_time
from holdfast.cli.printing import Printer, body_json
from holdfast.queue import DeadLetter, Delivery, PeekedMessage

__all__ = ["MessagePrinter", "dead_letter_json"]


class MessagePrinter(Printer[Delivery | PeekedMessage]):
    """Prints messages to standard output, leased or only peeked at."""

    def as_json(self, thing: Delivery | PeekedMessage) -> dict[str, object]:
        """Return the message as `--json` shows it."""
        tried = {"attempt": thing.attempt} if isinstance(thing, Delivery) else {"attempts": thing.attempts}
        return {
            "id": thing.id,
            **tried,
            "priority": thing.priority,
            "enqueued_at": thing.enqueued_at,
            "enqueued_time": iso_time(thing.enqueued_at),
            **body_json(thing),
        }

    def place(self, thing: Delivery | PeekedMessage) -> tuple[int, int, list[str]]:
        """Return its id, the time it was put, and its attempts and priority if they are not the defaults."""
        facts = []
        if isinstance(thing, Delivery):
            if thing.attempt > 1:
                facts.append(f"attempt={thing.attempt}")
        elif thing.attempts:
            facts.append(f"attempts={thing.attempts}")
        if thing.priority:
            facts.append(f"priority={thing.priority}")
        return thing.id, thing.enqueued_at, facts


def dead_letter_json(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as `--json` shows it."""
    content = letter._asdict() | body_json(letter)
    for moment in ("first_failed", "last_failed", "enqueued", "died"):
        content[f"{moment}_time"] = iso_time(content[f"{moment}_at"])
    return content
