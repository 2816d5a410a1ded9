"""Publishes dead letters to their queue's dead-letter exchange, with their history in the header `x-death`."""

import logging
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import Closed
from holdfast.broker.amqp_values import Long, MalformedField
from holdfast.broker.basic_properties import Properties, decode_properties, encode_properties
from holdfast.broker.errors import NoSuch, PreconditionFailed
from holdfast.broker.message import Content, content_of, copies_in, instructions_in
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.log.appender import accepted_before
from holdfast.log.log import Log
from holdfast.queue.dead_letter_forwarder import ForwardedLetter

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.vhost import VirtualHostRuntime

__all__ = ["DeadLetters", "die"]

logger = logging.getLogger("holdfast.broker")

LOG_EVERY_S = 60.0
"""Seconds between two log messages about dead letters that were dropped."""
REASONS = {"ttl": "expired", "overflow": "maxlen", "attempts": "delivery_limit", "rejected": "rejected"}
"""RabbitMQ's names of the causes of dead-lettering."""


class DeadLetters:
    """Publishes the dead letters of all queues. Called on a thread of the store or on the broker's.

    Locks: publishing, counting and logging happen under the broker's `guard`; syncs do not.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.dropped = 0
        """Dead letters that no queue accepted, since the start."""
        self._unlogged: dict[BrokerQueue, int] = {}
        """Dropped dead letters that no log line names yet, by their queue. Changed under the broker's guard."""
        self._logged_at = -math.inf
        self._closed = False

    def forward(self, queue: str, target: str, letters: list[ForwardedLetter]) -> None:
        """Publish dead letters of a queue; unroutable ones are dropped and counted.

        When this returns, persistent dead letters in durable queues are on disk. Raises `Closed` if the broker has not
        opened the queue: the store then keeps its dead letters and tries again later.
        """
        broker = self._broker
        with broker.guard:
            found = broker.by_store_name.get(queue)
            if found is None:
                raise Closed(f"the queue {queue!r} is not open: its dead letters are kept")
            host, broker_queue = found
            logs: dict[Log, None] = {}
            for letter in letters:
                content = content_of(letter.key, letter.headers, broker_queue.name)
                if not self._publish(host, broker_queue, content, letter.payload, REASONS[letter.cause], logs):
                    self._drop(broker_queue)
            self._log_dropped()
        for log in logs:
            log.appender.sync()

    def refused(
        self, host: "VirtualHostRuntime", broker_queue: BrokerQueue, content: Content, bodies: list[bytes]
    ) -> None:
        """Dead-letter messages that a full queue rejected. Nothing is synced here."""
        with self._broker.guard:
            for body in bodies:
                if not self._publish(host, broker_queue, content, body, "maxlen", {}):
                    self._drop(broker_queue)
            self._log_dropped()

    def tick(self) -> None:
        """Log dropped dead letters that no log line names yet, if the last line is at least a minute old."""
        if self._unlogged:
            with self._broker.guard:
                self._log_dropped()

    def close(self) -> None:
        """Log all dropped dead letters that no log line names yet. Later ones are logged at once."""
        with self._broker.guard:
            self._closed = True
            self._log_dropped()

    def _drop(self, broker_queue: BrokerQueue) -> None:
        """Count a dead letter that no queue accepted."""
        self.dropped += 1
        broker_queue.dead_letters_dropped += 1
        self._unlogged[broker_queue] = self._unlogged.get(broker_queue, 0) + 1

    def _log_dropped(self) -> None:
        """Log the dropped dead letters, one line for each queue; at most once a minute until `close`."""
        now = time.monotonic()
        if not self._unlogged or (now - self._logged_at < LOG_EVERY_S and not self._closed):
            return
        for broker_queue, count in self._unlogged.items():
            logger.warning(
                "dead letters dropped: queue=%s exchange=%s count=%d reason=no-route: declare the exchange and bind a "
                "queue to it",
                broker_queue.name,
                broker_queue.definition.settings.dead_letter_exchange,
                count,
                extra={"queue": broker_queue.name, "vhost": broker_queue.definition.vhost},
            )
        self._unlogged, self._logged_at = {}, now

    def _publish(
        self,
        host: "VirtualHostRuntime",
        broker_queue: BrokerQueue,
        content: Content,
        body: bytes,
        reason: str,
        logs: dict[Log, None],
    ) -> bool:
        """Publish one dead letter; return False if it was lost: no queue accepted it.

        A queue without a dead-letter exchange has nothing to publish: True. Queues that it would reach again in a cycle
        of automatic dead-lettering are skipped.
        """
        settings = broker_queue.definition.settings
        exchange = settings.dead_letter_exchange
        if exchange is None:
            return True
        key = settings.dead_letter_routing_key
        now = datetime.now(UTC).replace(microsecond=0)
        try:
            properties = decode_properties(content.raw)
            copies = copies_in(properties.headers)
            dead = die(properties, broker_queue.name, reason, content.exchange, (content.routing_key, *copies), now)
            if key is not None and copies:
                dead = dead.with_headers({name: one for name, one in (dead.headers or {}).items() if name != "CC"})
            raw = encode_properties(dead)
            directives = instructions_in(raw)
        except (MalformedField, PreconditionFailed) as error:
            # Clients can write anything into x-death, and programs into the log. Losing the body would be worse.
            logger.warning("dead letter properties discarded: queue=%s error=%s", broker_queue.name, error)
            copies = ()
            dead = die(
                Properties(delivery_mode=2), broker_queue.name, reason, content.exchange, (content.routing_key,), now
            )
            raw = encode_properties(dead)
            directives = instructions_in(raw)
        keys = (content.routing_key, *copies) if key is None else (key,)
        try:
            targets = host.route(exchange, keys, dict(dead.headers or {}))
        except NoSuch:
            return False
        taken = False
        fresh = Content(exchange, keys[0], raw)
        for other in targets:
            if reason != "rejected" and _goes_in_a_circle(other.name, dead.headers or {}):
                continue
            with accepted_before():  # a dead letter that was refused would be published again and again
                count = other.put(fresh, [body], directives.for_another_queue())
            if count:
                taken = True
                if directives.persistent and other.definition.durable:
                    logs[other.queue.log] = None
            elif other.definition.settings.overflow == "reject-publish-dlx":
                taken = self._publish(host, other, fresh, body, "maxlen", logs) or taken
        return taken


def die(
    properties: Properties, queue: str, reason: str, exchange: str, keys: tuple[str, ...], now: datetime
) -> Properties:
    """Return the properties of a dead letter: this death added to `x-death`, and no expiration."""
    headers: dict[str, Any] = dict(properties.headers or {})
    before = headers.get("x-death")
    deaths = [dict(one) for one in before if isinstance(one, Mapping)] if isinstance(before, list) else []
    for death in deaths:
        if isinstance(death.get("count"), int):
            death["count"] = Long(death["count"])
    known = next((one for one in deaths if one.get("queue") == queue and one.get("reason") == reason), None)
    if known is not None:
        deaths.remove(known)
        count = known.get("count")
        known["count"] = Long((count if isinstance(count, int) else 0) + 1)
    else:
        known = {
            "count": Long(1),
            "reason": reason,
            "queue": queue,
            "time": now,
            "exchange": exchange,
            "routing-keys": list(keys),
        }
        if properties.expiration is not None:
            known["original-expiration"] = properties.expiration
    headers["x-death"] = [known, *deaths]
    if before is None:
        headers["x-first-death-exchange"] = exchange
        headers["x-first-death-queue"] = queue
        headers["x-first-death-reason"] = reason
    return properties.of_dead_letter(headers)


def _goes_in_a_circle(queue: str, headers: Mapping[str, Any]) -> bool:
    """Whether the message was in this queue before and was not rejected by a client since."""
    deaths = headers.get("x-death")
    for death in deaths if isinstance(deaths, list) else ():
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False
