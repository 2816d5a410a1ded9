"""Client liveness: missed heartbeats, clients that stop reading, and the consumer acknowledgement timeout."""

import logging
from typing import TYPE_CHECKING

from holdfast.broker.errors import PreconditionFailed

if TYPE_CHECKING:
    from holdfast.amqp.connection import Connection

__all__ = ["look"]

logger = logging.getLogger("holdfast.amqp")

_FROZEN_S = 30.0
"""Seconds: a client that reads nothing for longer than this, and than two heartbeats, is disconnected."""


def look(client: "Connection", now: float, consumer_timeout_s: float) -> None:
    """Check one connection, about once a second: close it, or a channel of it, if a timeout has passed."""
    if client.close_by is not None and now > client.close_by:
        client.abort()
        return
    if client.state in ("header", "login", "tuning", "closing", "closed"):
        return
    heartbeat = client.heartbeat
    reads_not = not client.writable
    if reads_not and (read := client.sent - client.unsent()) > client.stuck[1]:
        client.stuck = now, read
    frozen = reads_not and now - client.stuck[0] > max(heartbeat * 2, _FROZEN_S)
    silent = heartbeat and not client.waits and now - client.heard > heartbeat * 2
    if frozen or silent:
        reason = "missed-heartbeats" if silent else "not-reading"
        logger.warning("connection timed out: %s reason=%s heartbeat=%d", client.label, reason, heartbeat)
        client.abort()
        return
    for channel in list(client.channels.values()):
        since = channel.unacked.oldest()
        if consumer_timeout_s and since is not None and now - since > consumer_timeout_s:
            client.refuse(
                PreconditionFailed(
                    f"delivery acknowledgement on channel {channel.number} timed out. "
                    f"Timeout value used: {int(consumer_timeout_s * 1000)} ms"
                ),
                channel,
            )
