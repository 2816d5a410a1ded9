"""Message counters of an exchange, updated once a run of messages, so that they cost publishers little."""

import time

from holdfast.base.metrics import Rate, Reading

__all__ = ["Traffic"]


class Traffic:
    """Messages published to an exchange since it was created, routed to queues, dropped and returned."""

    __slots__ = ("came", "dropped", "rates", "returned", "went")

    def __init__(self) -> None:
        self.came = 0
        self.went = 0
        """One message that goes to two queues counts twice."""
        self.dropped = 0
        """Messages that no queue was for, and nobody was told."""
        self.returned = 0
        """Messages that no queue was for, and that went back to who published them."""
        self.rates = tuple(
            Rate(Reading(read), time.monotonic)
            for read in (lambda: self.came, lambda: self.went, lambda: self.dropped, lambda: self.returned)
        )
        """Of each, a second."""
