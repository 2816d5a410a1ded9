"""Queue ids and leases as the 16-byte identifiers of Queueber's interface; they sort as the originals do.

Both are UUIDs (RFC 9562), so that tools print them well. An id is of version 8, whose meaning is the maker's own:

    48 bits  mark of the queue        4 bits  8       12 bits  zero        2 bits  10b       62 bits  sequence

A lease, which is a point in time in nanoseconds, is of version 7, as Queueber's are:

    48 bits  milliseconds             4 bits  7       12 bits  the upper 12 of 20 bits of nanoseconds beyond those
     2 bits  10b                      8 bits  the lower 8       54 bits  mark of the queue
"""

import hashlib

__all__ = ["SIZE", "Identifiers"]

SIZE = 16
_MS = 1_000_000
_VARIANT = 0b10 << 62
_ID_MARK_BITS = 48
_LEASE_MARK_BITS = 54


class Identifiers:
    """Codec for the ids and leases of one queue.

    The mark identifies the queue: an identifier of another queue, or of one whose log is gone, is unknown.
    """

    def __init__(self, log_id: bytes, queue: str) -> None:
        mark = int.from_bytes(hashlib.blake2b(queue.encode(), key=log_id[:64], digest_size=8).digest(), "big")
        self._id_prefix = (mark >> (64 - _ID_MARK_BITS)) << 80 | 8 << 76 | _VARIANT
        self._lease_mark = mark & ((1 << _LEASE_MARK_BITS) - 1)

    def of_id(self, sequence: int) -> bytes:
        """Return the 16 bytes of a message's id."""
        return (self._id_prefix | sequence).to_bytes(SIZE, "big")

    def to_id(self, data: bytes) -> int | None:
        """Return the message's id; None if no message of this queue can have these bytes."""
        number = int.from_bytes(data, "big") ^ self._id_prefix
        return number if len(data) == SIZE and number < 1 << 62 else None

    def of_lease(self, lease: int) -> bytes:
        """Return the 16 bytes of a lease."""
        ms, ns = divmod(lease, _MS)
        upper = ms << 16 | 7 << 12 | ns >> 8
        return (upper << 64 | _VARIANT | (ns & 0xFF) << _LEASE_MARK_BITS | self._lease_mark).to_bytes(SIZE, "big")

    def to_lease(self, data: bytes) -> int | None:
        """Return the lease; None if no lease of this queue can have these bytes."""
        number = int.from_bytes(data, "big")
        ms, ns = number >> 80, (number >> 64 & 0xFFF) << 8 | (number >> _LEASE_MARK_BITS & 0xFF)
        lease = ms * _MS + ns
        return lease if len(data) == SIZE and ns < _MS and self.of_lease(lease) == data else None
