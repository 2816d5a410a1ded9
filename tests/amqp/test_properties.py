"""Properties of a message: what goes in comes out, pamqp agrees, and bad bytes raise one error."""

import contextlib
import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header
from pamqp import frame as pamqp_frame

from holdfast.broker.amqp_values import MalformedField
from holdfast.broker.basic_properties import (
    PERSISTENT_ONLY,
    Properties,
    decode_properties,
    encode_properties,
)
from tests.amqp.values import damaged, prefixes, shorts, tables

octets = st.integers(0, 255)
SHORTS = [name for name, kind in Properties.__annotations__.items() if kind == str | None]
properties = st.builds(
    Properties,
    headers=st.none() | tables,
    delivery_mode=st.none() | octets,
    priority=st.none() | octets,
    timestamp=st.none() | st.integers(0, (1 << 64) - 1),
    **{name: st.none() | shorts for name in SHORTS},
)
FULL = Properties(
    "text/plain",
    "gzip",
    {"a": [1]},
    2,
    5,
    "correlation",
    "reply",
    "60000",
    "id",
    1_800_000_000,
    "kind",
    "guest",
    "app",
    "c",
)


@given(properties)
def test_properties_come_back_as_they_were(some: Properties) -> None:
    raw = encode_properties(some)
    assert decode_properties(raw) == some
    assert decode_properties(memoryview(raw)) == some
    assert encode_properties(decode_properties(raw)) == raw


def test_the_common_shapes_are_these_bytes() -> None:
    assert encode_properties(Properties()) == b"\x00\x00"
    assert encode_properties(Properties(delivery_mode=2)) == PERSISTENT_ONLY
    assert decode_properties(PERSISTENT_ONLY) == Properties(delivery_mode=2)


def test_empty_headers_differ_from_none() -> None:
    assert decode_properties(encode_properties(Properties(headers={}))).headers == {}
    assert decode_properties(encode_properties(Properties())).headers is None


def test_a_timestamp_in_milliseconds_is_kept() -> None:
    late = Properties(timestamp=1_800_000_000_000)
    assert decode_properties(encode_properties(late)) == late


def test_text_that_is_no_utf8_is_kept() -> None:
    raw = b"\x04\x00\x02\xff\xfe"
    assert encode_properties(decode_properties(raw)) == raw


@pytest.mark.parametrize(
    "bad",
    [
        {"delivery_mode": 256},
        {"priority": -1},
        {"priority": "high"},
        {"timestamp": 1 << 64},
        {"timestamp": datetime.datetime(2026, 1, 1)},
        {"type": "x" * 256},
        {"headers": {"k": object()}},
    ],
)
def test_a_value_out_of_range_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(MalformedField):
        encode_properties(Properties(**bad))


def test_every_beginning_is_refused_and_so_is_a_byte_too_many() -> None:
    raw = encode_properties(FULL)
    for part in prefixes(raw):
        with pytest.raises(MalformedField):
            decode_properties(part)
    for whole in (raw, PERSISTENT_ONLY, b"\x00\x00"):
        with pytest.raises(MalformedField, match="follow"):
            decode_properties(whole + b"\x00")


@pytest.mark.parametrize("flags", [b"\x00\x01", b"\x00\x02", b"\x10\x01", b"\xff\xff"])
def test_flags_that_mean_nothing_are_refused(flags: bytes) -> None:
    with pytest.raises(MalformedField, match="flags"):
        decode_properties(flags + b"\x00" * 40)


def test_damaged_properties_raise_nothing_else() -> None:
    refused = 0
    for raw in damaged(encode_properties(FULL)):
        try:
            decode_properties(raw)
        except MalformedField:
            refused += 1
    assert refused > 50


@given(st.binary(max_size=100))
def test_random_bytes_raise_nothing_else(raw: bytes) -> None:
    with contextlib.suppress(MalformedField):
        decode_properties(raw)


# pamqp as the judge: it has a datetime for the timestamp, wants cluster_id empty and leaves out what is empty.

ascii_shorts = st.text("abc-:/.", min_size=1, max_size=30)
judged = st.builds(
    Properties,
    headers=st.none()
    | st.dictionaries(ascii_shorts, st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=9), min_size=1),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 9),
    timestamp=st.none() | st.integers(0, (1 << 32) - 1),
    cluster_id=st.none(),
    **{name: st.none() | ascii_shorts for name in SHORTS if name != "cluster_id"},
)


@given(judged)
def test_pamqp_and_we_read_each_other(some: Properties) -> None:
    named: dict[str, Any] = some._asdict()
    del named["cluster_id"]
    named["message_type"] = named.pop("type")
    if some.timestamp is not None:
        named["timestamp"] = datetime.datetime.fromtimestamp(some.timestamp, datetime.UTC)
    theirs = pamqp_frame.marshal(header.ContentHeader(0, 7, commands.Basic.Properties(**named)), 1)
    assert decode_properties(theirs[7 + 12 : -1]) == some
    back = commands.Basic.Properties()
    raw = encode_properties(some)
    back.unmarshal(int.from_bytes(raw[:2], "big"), raw[2:])
    assert {name: getattr(back, name) for name in named} == named
