"""The demo's work: orders to be shipped, one of which fails until the code is fixed."""

import json
from collections.abc import Iterator

from holdfast import Backoff, Queue, Store
from holdfast.cli.demo.orders import order

__all__ = ["ATTEMPTS", "BACKOFF", "LEASE_S", "QUEUE", "number_of", "open_queue", "orders_to_ship", "parts", "ship"]

QUEUE = "shipping"
LEASE_S = 1.5
ATTEMPTS = 3
BACKOFF = Backoff(base=0.2, cap=2)
_BY_SEA, _BY_RAIL = b"by sea", b"by rail"


def open_queue(store: Store) -> Queue:
    """Return the queue of orders to be shipped."""
    return store.queue(QUEUE, lease=LEASE_S, max_attempts=ATTEMPTS, backoff=BACKOFF)


def orders_to_ship(count: int) -> tuple[list[bytes], int]:
    """Return the payloads, and the number of the order that cannot be shipped."""
    payloads = [order(number) for number in range(count)]
    poison = count * 9 // 10
    payloads[poison] = payloads[poison].replace(_BY_SEA, _BY_RAIL)
    return payloads, poison


def number_of(payload: bytes) -> int:
    """Return the number of an order."""
    return int(payload[len(b'{"order":') :].split(b",", 1)[0])


def ship(payload: bytes, *, mended: bool = False) -> int:
    """Ship an order and return its number."""
    if not payload.endswith(b'"ship":"by sea"}') and not mended:
        raise ValueError(f"cannot ship order {number_of(payload)} {_way_of(payload)}")
    return number_of(payload)


def parts(things: list[bytes], count: int) -> Iterator[list[bytes]]:
    """Split the items into `count` parts, one for each worker."""
    return (things[part::count] for part in range(count))


def _way_of(payload: bytes) -> str:
    # The number has leading zeros, so that all orders have the same length; JSON does not allow them.
    return str(json.loads(payload.replace(b'{"order":', b'{"order":1'))["ship"])
