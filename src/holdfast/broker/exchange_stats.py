"""Message counters of an exchange, updated once a run of messages, so that they cost publishers little."""

import time

from holdfast.base.metrics import Rate, Reading

__all__ = ["Traffic"]


class Traffic:
    """Messages published to an exchange, routed to queues, dropped and returned.

    The counts are in memory: they begin with the server or, if that is later, with the first message.
    """

    __slots__ = ("came", "dropped", "rates", "returned", "went")

    def __init__(self) -> None:
        self.came = 0
        self.went = 0
        """One message that goes to two queues counts twice."""
        self.dropped = 0
        """Unroutable messages that were not published as mandatory."""
        self.returned = 0
        """Unroutable messages that were returned to their publisher: they were mandatory."""
        self.rates = tuple(
            Rate(Reading(read), time.monotonic)
            for read in (lambda: self.came, lambda: self.went, lambda: self.dropped, lambda: self.returned)
        )
        """The present rates a second of the four counts above, in their order."""
