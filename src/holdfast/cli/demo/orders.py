"""Test data of the demo: orders whose every byte follows from their number, and how they are shipped."""

import json
from collections.abc import Iterator

from holdfast import Backoff, Queue, Store
from holdfast.log import Log

__all__ = [
    "ATTEMPTS",
    "BACKOFF",
    "LEASE_S",
    "LOG",
    "QUEUE",
    "count_right",
    "number_of",
    "open_queue",
    "order",
    "orders",
    "orders_to_ship",
    "ship",
]

LOG = "orders"
QUEUE = "shipping"
LEASE_S = 1.5
ATTEMPTS = 3
BACKOFF = Backoff(base=0.2, cap=2)
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


def open_queue(store: Store) -> Queue:
    """Return the queue of orders to be shipped."""
    return store.queue(QUEUE, lease=LEASE_S, max_attempts=ATTEMPTS, backoff=BACKOFF)


def orders_to_ship(count: int) -> tuple[list[bytes], int]:
    """Return the payloads, and the number of the order that cannot be shipped until the code is fixed."""
    payloads = list(orders(0, count))
    poison = count * 9 // 10
    payloads[poison] = payloads[poison].replace(b"by sea", b"by rail")
    return payloads, poison


def number_of(payload: bytes) -> int:
    """Return the number of an order."""
    return int(payload[len(b'{"order":') :].split(b",", 1)[0])


def ship(payload: bytes, *, mended: bool = False) -> int:
    """Ship an order and return its number."""
    if not payload.endswith(b'"ship":"by sea"}') and not mended:
        # The number has leading zeros, so that all orders have the same length; JSON does not allow them.
        way = json.loads(payload.replace(b'{"order":', b'{"order":1'))["ship"]
        raise ValueError(f"cannot ship order {number_of(payload)} {way}")
    return number_of(payload)
