"""Keys of a queue's rows in the state: a prefix for each queue, then big-endian numbers, which sort numerically."""

from struct import Struct

__all__ = ["after", "number", "number_of"]

_NUMBER = Struct(">Q")


def number(prefix: bytes, value: int) -> bytes:
    """Return the key of a number under a prefix."""
    return prefix + _NUMBER.pack(value)


def number_of(key: bytes) -> int:
    """Return the number at the end of a key."""
    return int(_NUMBER.unpack(key[-8:])[0])


def after(prefix: bytes) -> bytes:
    """Return the first key behind all that start with the prefix."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
