"""Tables and strings: what goes in comes out, other implementations agree, and bad bytes raise one error."""

import contextlib
import datetime
import struct
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pamqp import decode as pamqp_decode
from pamqp import encode as pamqp_encode

from holdfast.broker.amqp_values import (
    DEPTH_MAX,
    FieldValue,
    LateTime,
    Long,
    MalformedField,
    cut_short,
    decode_long,
    decode_short,
    decode_table,
    encode_long,
    encode_short,
    encode_table,
)
from tests.amqp.values import damaged, prefixes, shorts, tables

RICH: dict[str, FieldValue] = {
    "text": "grün",
    "bytes": b"\xff\x00",
    "yes": True,
    "no": False,
    "small": -1,
    "large": 1 << 40,
    "real": 0.1,
    "price": Decimal("-19.99"),
    "when": datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC),
    "list": [1, "two", [None, {"deep": b"x"}]],
    "table": {"inner": {"more": []}},
    "nothing": None,
}


def table_of(value: bytes) -> bytes:
    """A table with one field, named k, of these bytes."""
    return struct.pack(">I", len(value) + 2) + b"\x01k" + value


def nested(depth: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for _ in range(depth):
        table = {"k": table}
    return table


def nested_bytes(depth: int, letter: bytes) -> bytes:
    value = b""
    for _ in range(depth):
        value = letter + struct.pack(">I", len(value)) + value if letter == b"A" else b"F" + table_of(value or b"V")
    return table_of(value)


@given(tables)
@example(RICH)
def test_a_table_comes_back_as_it_was(table: dict[str, FieldValue]) -> None:
    raw = encode_table(table)
    assert decode_table(raw, 0) == (table, len(raw))


@given(tables, st.binary(max_size=9), st.binary(max_size=9))
def test_a_table_is_found_in_the_midst_of_other_bytes(
    table: dict[str, FieldValue], before: bytes, after: bytes
) -> None:
    raw = before + encode_table(table) + after
    assert decode_table(raw, len(before)) == (table, len(raw) - len(after))
    assert decode_table(memoryview(raw), len(before)) == (table, len(raw) - len(after))


def test_types_come_back_and_not_only_equal_values() -> None:
    table, _ = decode_table(encode_table(RICH), 0)
    assert {key: type(value) for key, value in table.items()} == {key: type(value) for key, value in RICH.items()}
    assert str(table["price"]) == "-19.99"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"t\x00", False),
        (b"t\x02", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xfd", -3),
        (b"i\xff\xff\xff\xfd", 4294967293),
        (b"l\xff\xff\xff\xff\xff\xff\xff\xfc", -4),
        (b"L\xff\xff\xff\xff\xff\xff\xff\xfc", -4),
        (b"f\x3f\x00\x00\x00", 0.5),
        (b"d\x3f\xe0\x00\x00\x00\x00\x00\x00", 0.5),
        (b"D\x02\x00\x00\x00\x7b", Decimal("1.23")),
        (b"D\x02\xff\xff\xff\x85", Decimal("-1.23")),
        (b"S\x00\x00\x00\x02\xc3\xa4", "ä"),
        (b"S\x00\x00\x00\x01\xff", b"\xff"),
        (b"A\x00\x00\x00\x03Vt\x01", [None, True]),
        (b"T\x00\x00\x00\x00\x00\x00\x00\x01", datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)),
        (b"F\x00\x00\x00\x00", {}),
        (b"V", None),
        (b"x\x00\x00\x00\x02ab", b"ab"),
    ],
)
def test_every_type_letter_of_rabbitmq_is_read(raw: bytes, value: object) -> None:
    table, stop = decode_table(table_of(raw), 0)
    assert table == {"k": value}
    assert stop == len(raw) + 6


@pytest.mark.parametrize(("number", "letter"), [(0, b"I"), (-(1 << 31), b"I"), ((1 << 31) - 1, b"I"), (1 << 31, b"l")])
def test_a_number_is_written_in_32_bits_where_it_fits(number: int, letter: bytes) -> None:
    assert encode_table({"k": number})[6:7] == letter


def test_a_long_number_takes_64_bits_however_small() -> None:
    assert encode_table({"k": Long(1)})[6:] == b"l" + bytes(7) + b"\x01"
    with pytest.raises(MalformedField):
        encode_table({"k": Long(1 << 63)})


def test_a_subclass_is_written_as_what_it_is() -> None:
    Mode = IntEnum("Mode", ["SOFT", "HARD"])
    assert encode_table({"k": Mode.HARD}) == encode_table({"k": 2})
    assert encode_table({"k": (1, 2)}) == encode_table({"k": [1, 2]})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        -(1 << 63) - 1,
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("1E+999999999"),
        Decimal("1E-256"),
        Decimal(1 << 31),
        datetime.datetime(2026, 1, 1),
        datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC),
        LateTime(1 << 64),
        "\ud800",
        object(),
        {1: 2},
        {"k" * 256: 1},
        {"\ud800": 1},
    ],
)
def test_what_no_field_can_hold_is_refused(value: Any) -> None:
    with pytest.raises(MalformedField):
        encode_table({"k": value})
    with pytest.raises(MalformedField):
        encode_table({"k": [value]})


def test_nesting_has_a_limit_both_ways() -> None:
    deep = nested(DEPTH_MAX)
    assert decode_table(encode_table(deep), 0)[0] == deep
    for depth in (DEPTH_MAX + 1, 900):
        with pytest.raises(MalformedField, match="deep"):
            encode_table(nested(depth))
    for letter in (b"A", b"F"):
        for depth in (DEPTH_MAX + 1, 5000):
            with pytest.raises(MalformedField, match="deep"):
                decode_table(nested_bytes(depth, letter), 0)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(MalformedField, match="deep"):
        encode_table({"k": endless})


def test_a_time_beyond_the_calendar_keeps_its_number() -> None:
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
    assert decode_table(table_of(b"T" + struct.pack(">Q", 253_402_300_799)), 0)[0] == {"k": last}
    for seconds in (253_402_300_800, 1_800_000_000_000, (1 << 64) - 1):
        raw = table_of(b"T" + struct.pack(">Q", seconds))
        table, _ = decode_table(raw, 0)
        assert table == {"k": LateTime(seconds)}
        assert encode_table(table) == raw


def test_a_key_that_is_no_utf8_survives() -> None:
    raw = struct.pack(">I", 3) + b"\x01\xffV"
    table, _ = decode_table(raw, 0)
    assert encode_table(table) == raw


def test_every_beginning_of_a_table_is_refused() -> None:
    for part in prefixes(encode_table(RICH)):
        with pytest.raises(MalformedField):
            decode_table(part, 0)


@pytest.mark.parametrize("raw", [b"I\x00", b"S\x00\x00\x00\x09abc", b"A\x00\x00\x00\x02I\x00", b"D\x00", b"T\x00", b""])
def test_a_value_never_reaches_beyond_its_table(raw: bytes) -> None:
    with pytest.raises(MalformedField):
        decode_table(table_of(raw) + b"more than enough bytes behind it", 0)


def test_a_key_never_reaches_beyond_its_table() -> None:
    with pytest.raises(MalformedField):
        decode_table(b"\x00\x00\x00\x02\x09k" + b"VVVVVVVVVVVVVVVV", 0)


def test_unknown_letters_are_refused() -> None:
    for letter in set(range(256)) - set(b"tbBsuIilLfdDSATFVx"):
        with pytest.raises(MalformedField):
            decode_table(table_of(bytes((letter,)) + b"\x00" * 16), 0)


def test_a_damaged_table_raises_nothing_else() -> None:
    refused = 0
    for raw in damaged(encode_table(RICH)):
        try:
            decode_table(raw, 0)
        except MalformedField:
            refused += 1
    assert refused > 100


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(raw: bytes) -> None:
    for data in (raw, struct.pack(">I", len(raw)) + raw, table_of(raw)):
        for read in (decode_table, decode_short, decode_long):
            with contextlib.suppress(MalformedField):
                read(data, 0)


@given(shorts)
def test_a_short_string_comes_back(text: str) -> None:
    raw = encode_short(text)
    assert decode_short(b"." + raw + b".", 1) == (text, 1 + len(raw))
    assert raw == pamqp_encode.short_string(text)


@pytest.mark.parametrize("text", ["x" * 256, "ä" * 128, "\ud800", None, 7])
def test_what_is_no_short_string_is_refused(text: Any) -> None:
    with pytest.raises(MalformedField):
        encode_short(text)


@pytest.mark.parametrize("raw", [b"", b"\x02a", b"\xff"])
def test_a_short_string_that_ends_too_early_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedField, match="incomplete"):
        decode_short(raw, 0)


def test_a_short_string_that_is_no_utf8_is_refused_unless_asked_for() -> None:
    with pytest.raises(MalformedField, match="UTF-8"):
        decode_short(b"\x01\xff", 0)
    text, _ = decode_short(b"\x01\xff", 0, "surrogateescape")
    assert encode_short(text) == b"\x01\xff"


@given(st.text(max_size=400))
def test_a_text_cut_short_fits_and_is_a_beginning(text: str) -> None:
    cut = cut_short(text)
    assert text.startswith(cut)
    assert len(encode_short(cut)) <= 256
    assert cut == text or len(cut.encode()) > 251


@given(st.binary(max_size=300))
def test_a_long_string_comes_back(data: bytes) -> None:
    raw = encode_long(data)
    assert decode_long(raw + b".", 0) == (data, len(raw))


# pamqp as the judge. It writes floats in 32 bits, takes bytes only as bytearray, and reads late times as milliseconds.

plain = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(width=32, allow_nan=False)
    | st.text(max_size=20)
    | st.decimals(-20000, 20000, places=5)
    | st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2100, 1, 1)).map(
        lambda time: time.replace(microsecond=0, tzinfo=datetime.UTC)
    )
)
keys = st.text(max_size=20)
judged = st.dictionaries(
    keys,
    st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
    ),
    max_size=5,
)


@given(judged)
def test_tables_that_pamqp_writes_are_read(table: dict[str, Any]) -> None:
    raw = pamqp_encode.field_table(table)
    assert decode_table(raw, 0) == (table, len(raw))


@given(judged)
def test_pamqp_reads_the_tables_that_we_write(table: dict[str, Any]) -> None:
    raw = encode_table({**table, "bytes": b"\x00\xff"})
    assert pamqp_decode.field_table(raw) == (len(raw), {**table, "bytes": b"\x00\xff"})
