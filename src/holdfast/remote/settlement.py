"""Settling of messages that were leased from a queue that a server keeps."""

from collections.abc import Mapping
from typing import Any

from holdfast.base.clock import Duration
from holdfast.queue.messages import Delivery
from holdfast.remote.codec import seconds
from holdfast.remote.http_client import HttpClient

__all__ = ["RemoteSettlement"]


class RemoteSettlement:
    """Settles deliveries by requests. Each call returns the ids of those whose lease was lost, in place of an error."""

    __slots__ = ("_path", "_wire")

    def __init__(self, wire: HttpClient, path: str) -> None:
        """Settle the messages of the queue at this path."""
        self._wire = wire
        self._path = path

    def ack_one(self, delivery: Delivery) -> bool:
        """Acknowledge one delivery; False if its lease was lost."""
        return not self._settle("ack", [delivery])

    def try_ack(self, deliveries: list[Delivery]) -> list[int]:
        """Do as `RemoteQueue.ack`."""
        return self._settle("ack", deliveries)

    def try_nack(self, deliveries: list[Delivery], reason: str, delay: Duration | None) -> list[int]:
        """Do as `RemoteQueue.nack`."""
        more: dict[str, Any] = {"reason": reason.encode("utf-8", "backslashreplace").decode()}
        return self._settle("nack", deliveries, more | ({} if delay is None else {"delay": seconds(delay, "delay")}))

    def try_release(self, deliveries: list[Delivery]) -> list[int]:
        """Do as `RemoteQueue.release`."""
        return self._settle("release", deliveries)

    def try_extend(self, deliveries: list[Delivery], duration: Duration | None) -> list[int]:
        """Do as `RemoteQueue.extend`."""
        return self._settle("extend", deliveries, {} if duration is None else {"lease": seconds(duration, "duration")})

    def _settle(self, verb: str, deliveries: list[Delivery], more: Mapping[str, Any] | None = None) -> list[int]:
        if not deliveries:
            return []
        body = {"messages": [{"id": one.id, "lease": one.lease} for one in deliveries], **(more or {})}
        return list(self._wire.request("POST", f"{self._path}/{verb}", body)["lost"])
