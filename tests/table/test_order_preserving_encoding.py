"""Values as bytes: they sort as the values do, none begins another one, and they come back."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.storage.order_preserving_encoding import (
    complement,
    decode,
    decode_reversed,
    encode,
    fixed_size,
    successor,
    text_prefix,
)


class Severity(Enum):
    INFO = 1
    DEBUG = 20
    ERROR = -300


class Colour(Enum):
    RED = "r"
    DARK_RED = "rr"
    NONE = ""


ZONES = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
DIGITS = st.builds(
    lambda sign, digits, exponent: Decimal((sign, tuple(digits), exponent)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.integers(-400, 400) | st.integers(-(10**17), 10**17),
)
KINDS: dict[str, tuple[FieldType, st.SearchStrategy[Any]]] = {
    "bool": (FieldType(Kind.BOOL), st.booleans()),
    "int": (FieldType(Kind.INT), st.integers(-(2**63), 2**64 - 1) | st.integers(-300, 300)),
    "float": (FieldType(Kind.FLOAT), st.floats(allow_nan=False)),
    "decimal": (FieldType(Kind.DECIMAL), st.decimals(allow_nan=False) | DIGITS | st.integers(-200, 200).map(Decimal)),
    "str": (FieldType(Kind.STR), st.text() | st.text("\0\1\2a", max_size=4)),
    "bytes": (FieldType(Kind.BYTES), st.binary() | st.lists(st.sampled_from([0, 1, 2, 255]), max_size=4).map(bytes)),
    "reference": (FieldType(Kind.REFERENCE), st.binary(max_size=16)),
    "int enum": (FieldType(Kind.ENUM, enum=Severity), st.sampled_from(Severity)),
    "str enum": (FieldType(Kind.ENUM, enum=Colour), st.sampled_from(Colour)),
    "date": (FieldType(Kind.DATE), st.dates()),
    "time": (FieldType(Kind.TIME), st.times()),
    "datetime": (FieldType(Kind.DATETIME), st.datetimes(timezones=ZONES) | st.datetimes(timezones=st.just(UTC))),
    "uuid": (FieldType(Kind.UUID), st.uuids()),
    "timedelta": (FieldType(Kind.TIMEDELTA), st.timedeltas()),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def sortable(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


@each_kind
@given(data=st.data())
def test_bytes_sort_as_the_values_do(kind: str, data: st.DataObject) -> None:
    ftype, values = KINDS[kind]
    one, other = data.draw(values), data.draw(values)
    low, high = encode(ftype, one), encode(ftype, other)
    assert (low < high) == (sortable(one) < sortable(other))
    assert (low == high) == (one == other)
    assert (complement(low) < complement(high)) == (sortable(one) > sortable(other))


@each_kind
@given(data=st.data())
def test_no_encoding_is_the_beginning_of_another_one(kind: str, data: st.DataObject) -> None:
    ftype, values = KINDS[kind]
    one, other = encode(ftype, data.draw(values)), encode(ftype, data.draw(values))
    assert one == other or not (one.startswith(other) or other.startswith(one))


@each_kind
@given(data=st.data(), before=st.binary(max_size=3), behind=st.binary(max_size=3))
def test_values_come_back_from_between_other_bytes(
    kind: str, data: st.DataObject, before: bytes, behind: bytes
) -> None:
    ftype, values = KINDS[kind]
    value = data.draw(values)
    code = encode(ftype, value)
    assert decode(ftype, before + code + behind, len(before)) == (value, len(before + code))
    assert decode_reversed(ftype, before + complement(code) + behind, len(before)) == (value, len(before + code))


@each_kind
@given(data=st.data())
def test_a_fixed_size_is_the_size_of_every_value(kind: str, data: st.DataObject) -> None:
    ftype, values = KINDS[kind]
    assert fixed_size(ftype) in (None, len(encode(ftype, data.draw(values))))


@each_kind
@given(junk=st.binary(max_size=12))
@example(b"\x03\x80\x00")
@example(b"\xff" * 16)
def test_bytes_that_are_no_value_are_refused_and_nothing_else_happens(kind: str, junk: bytes) -> None:
    ftype, _ = KINDS[kind]
    try:
        value, end = decode(ftype, junk)
    except InvalidArgument:
        return
    assert end <= len(junk)
    assert value is not None


@each_kind
@given(data=st.data())
def test_a_value_cut_short_is_refused(kind: str, data: st.DataObject) -> None:
    ftype, values = KINDS[kind]
    code = encode(ftype, data.draw(values))
    with pytest.raises(InvalidArgument):
        decode(ftype, code[:-1])


@given(st.lists(st.tuples(st.text("\0\1ab", max_size=3), st.integers(-9, 9)), min_size=2, max_size=2))
def test_two_values_behind_each_other_sort_as_a_tuple_does(pairs: list[tuple[str, int]]) -> None:
    text, number = FieldType(Kind.STR), FieldType(Kind.INT)
    codes = [encode(text, one) + complement(encode(number, other)) for one, other in pairs]
    (one, first), (other, second) = pairs
    assert (codes[0] < codes[1]) == ((one, -first) < (other, -second))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("float", -0.0, 0.0),
        ("decimal", Decimal("1.0"), Decimal("1.00")),
        ("decimal", Decimal("-0E+7"), Decimal(0)),
        ("decimal", Decimal("1E3"), Decimal(1000)),
        ("decimal", Decimal("12345678901234567890123456789012345.0"), Decimal(12345678901234567890123456789012345)),
        (
            "datetime",
            datetime(2026, 1, 1, 12, tzinfo=UTC),
            datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        ),
    ],
)
def test_equal_values_have_equal_bytes(kind: str, one: Any, other: Any) -> None:
    ftype = KINDS[kind][0]
    assert encode(ftype, one) == encode(ftype, other)


@pytest.mark.parametrize("value", [datetime.min, datetime.max])
@pytest.mark.parametrize("hours", [-23, 23])
def test_instants_that_utc_has_no_date_for_come_back(value: datetime, hours: int) -> None:
    ftype = KINDS["datetime"][0]
    value = value.replace(tzinfo=timezone(timedelta(hours=hours)))
    assert decode(ftype, encode(ftype, value)) == (value, 8)


@pytest.mark.parametrize("kind", ["float", "decimal"])
def test_infinities_lie_outside_of_all_numbers_and_nan_is_last(kind: str) -> None:
    ftype = KINDS[kind][0]
    make: Callable[[str], Any] = float if kind == "float" else Decimal
    codes = [encode(ftype, make(text)) for text in ("-inf", "-1e300", "0", "1e300", "inf", "nan")]
    assert codes == sorted(codes)
    assert len(set(codes)) == 6
    assert math.isnan(decode(ftype, codes[-1])[0])


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("bool", True, "01"),
        ("int", 0, "80"),
        ("int", 300, "82012c"),
        ("int", -1, "7f"),
        ("int", -256, "7e00"),
        ("int", -257, "7dfeff"),
        ("int", 2**64 - 1, "88ffffffffffffffff"),
        ("float", 1.5, "bff8000000000000"),
        ("decimal", Decimal("-12.5"), "01" + complement(bytes.fromhex("81010d3300")).hex()),
        ("str", "a\0b\1", "610101620102" + "00"),
        ("date", date(1, 1, 1), "000001"),
        ("time", time(0, 0, 1), "00000f4240"),
        ("datetime", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "80000000000f4240"),
        ("timedelta", timedelta(microseconds=-1), "7fffffffffffffffff"),
        ("uuid", UUID(int=5), "00000000000000000000000000000005"),
        ("int enum", Severity.DEBUG, "8114"),
    ],
)
def test_the_bytes_are_those_of_the_format(kind: str, value: Any, code: str) -> None:
    assert encode(KINDS[kind][0], value).hex() == code


@pytest.mark.parametrize("kind", [Kind.LIST, Kind.DICT, Kind.EMBEDDED, Kind.UNION])
def test_what_has_no_order_is_refused(kind: Kind) -> None:
    with pytest.raises(InvalidArgument, match="no order"):
        encode(FieldType(kind), [])


@given(st.text("\0\1\2ab\uffff", max_size=3), st.text("\0\1\2ab\uffff", max_size=3))
@example("a", "a\0")
def test_what_begins_with_a_text_lies_between_its_prefix_and_the_successor(prefix: str, text: str) -> None:
    start, code = text_prefix(prefix), encode(FieldType(Kind.STR), text)
    stop = successor(start)
    assert text.startswith(prefix) == (start <= code and (stop is None or code < stop))


@given(st.binary(max_size=3), st.binary(max_size=4))
def test_the_successor_is_the_first_behind_all_with_the_prefix(prefix: bytes, other: bytes) -> None:
    stop = successor(prefix)
    if stop is None:
        assert not prefix.strip(b"\xff")
    else:
        assert (other < stop) == (other < prefix or other.startswith(prefix))
