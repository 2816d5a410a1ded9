"""Test data of the demo: orders whose every byte follows from their number, so that each can be verified."""

from collections.abc import Iterator

from holdfast.log import Log

__all__ = ["LOG", "count_right", "order", "orders"]

LOG = "orders"
_ITEMS = (b"anchor", b"bollard", b"cleat", b"dinghy", b"fender", b"halyard", b"lantern", b"mooring line")


def order(number: int) -> bytes:
    """Return the payload of one order, about a hundred bytes."""
    return b'{"order":%07d,"customer":"c-%05d","item":"%s","quantity":%d,"cents":%d,"paid":true,"ship":"by sea"}' % (
        number,
        number * 7919 % 100_000,
        _ITEMS[number % len(_ITEMS)],
        number % 9 + 1,
        number * 104_729 % 1_000_000,
    )


def orders(start: int, stop: int) -> Iterator[bytes]:
    """Yield the payloads from one number up to another."""
    return map(order, range(start, stop))


def count_right(log: Log, start: int, stop: int) -> int:
    """Return how many of these records can be read and hold the order of their sequence."""
    return sum(record.payload == order(record.sequence) for record in log.read(start, stop))
