"""Under which keys does a queue keep its state? A prefix of its own, then numbers that sort as they count."""

from struct import Struct

__all__ = ["after", "number", "number_of"]

_NUMBER = Struct(">Q")


def number(prefix: bytes, value: int) -> bytes:
    """The key of a number under a prefix."""
    return prefix + _NUMBER.pack(value)


def number_of(key: bytes) -> int:
    """The number at the end of a key."""
    return int(_NUMBER.unpack(key[-8:])[0])


def after(prefix: bytes) -> bytes:
    """The first key behind all that start with the prefix."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
