"""What tests of the codec share: strategies for everything that can be in a table, and ways to damage bytes."""

import datetime
from collections.abc import Iterator
from decimal import Decimal

from hypothesis import strategies as st

from holdfast.broker.amqp_values import LateTime

__all__ = ["damaged", "prefixes", "shorts", "tables", "times", "values"]

shorts = st.text(max_size=255).filter(lambda text: len(text.encode()) <= 255)
decimals = st.builds(
    lambda digits, places: Decimal(digits).scaleb(-places), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 255)
)
times = st.integers(0, 253_402_300_799).map(
    lambda seconds: datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=seconds)
) | st.integers(253_402_300_800, (1 << 64) - 1).map(LateTime)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | decimals
    | st.text(max_size=40)
    | st.binary(max_size=40)
    | times
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(shorts, inner, max_size=4), max_leaves=12
)
tables = st.dictionaries(shorts, values, max_size=6)


def prefixes(data: bytes) -> Iterator[bytes]:
    """Every beginning of the data that is not all of it."""
    return (data[:stop] for stop in range(len(data)))


def damaged(data: bytes) -> Iterator[bytes]:
    """The data with each byte changed in turn, in a way that hits lengths, letters and flags."""
    for place, byte in enumerate(data):
        for change in (0x01, 0x20, 0x80, 0xFF):
            yield data[:place] + bytes((byte ^ change,)) + data[place + 1 :]
