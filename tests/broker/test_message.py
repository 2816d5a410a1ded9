"""What a message asks for is found by a glance where that is enough, and its record is the same whichever way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.amqp_values import MalformedField
from holdfast.broker.basic_properties import (
    PERSISTENT_ONLY,
    Properties,
    decode_properties,
    encode_properties,
    mode_if_modest,
)
from holdfast.broker.message import Content, as_message, columns_of, instructions_in
from holdfast.broker.queue_arguments import QueueArguments
from holdfast.log.batch import ALL, check_batch
from tests.amqp.values import damaged, prefixes, shorts, tables

SPECIAL = {b"x-delay", b"CC"}
modest = st.builds(
    Properties,
    content_type=st.none() | shorts,
    headers=st.none() | tables,
    delivery_mode=st.none() | st.integers(0, 255),
    correlation_id=st.none() | shorts,
    message_id=st.none() | shorts,
    timestamp=st.none() | st.integers(0, (1 << 64) - 1),
    type=st.none() | shorts,
    app_id=st.none() | shorts,
    cluster_id=st.none() | shorts,
    content_encoding=st.none() | shorts,
    **dict.fromkeys(("priority", "reply_to", "expiration", "user_id"), st.none()),
)


def check_glance(raw: bytes) -> int | None:
    """Whatever a glance says must be so."""
    mode = mode_if_modest(raw, SPECIAL)
    if mode is not None:
        found = decode_properties(raw)  # does not raise
        assert (found.delivery_mode or 0) == mode
        assert (found.priority, found.expiration, found.reply_to, found.user_id) == (None,) * 4
        assert not {name.encode("utf-8", "surrogateescape") for name in found.headers or {}} & SPECIAL
    return mode


@given(modest)
def test_a_glance_at_what_asks_for_nothing_finds_the_mode(some: Properties) -> None:
    mode = check_glance(encode_properties(some))
    nested = any(isinstance(value, dict | list) for value in (some.headers or {}).values())
    assert (mode is None) == (nested or not {"x-delay", "CC"}.isdisjoint(some.headers or {}))


@given(modest, st.randoms(use_true_random=False))
def test_a_glance_at_damaged_properties_never_takes_them_for_good(some: Properties, random: Any) -> None:
    raw = encode_properties(some)
    for bad in [*prefixes(raw), *damaged(raw), raw + b"\x00", random.randbytes(12)]:
        check_glance(bad)


@pytest.mark.parametrize(
    "asking",
    [{"priority": 0}, {"expiration": "5"}, {"reply_to": "a"}, {"user_id": "guest"}, {"headers": {"CC": ["a"]}}],
    ids=str,
)
def test_what_asks_for_something_is_read_as_a_whole(asking: dict[str, Any]) -> None:
    raw = encode_properties(Properties(delivery_mode=2, **asking))
    assert mode_if_modest(raw, SPECIAL) is None
    assert instructions_in(raw).properties == Properties(delivery_mode=2, **asking)


@given(modest)
def test_instructions_say_the_same_after_a_glance(some: Properties) -> None:
    raw = encode_properties(some)
    try:
        whole = instructions_in(raw, whole=True)
    except MalformedField:
        return
    glance = instructions_in(raw)
    assert glance.headers == whole.headers
    assert glance._replace(properties=None) == whole._replace(properties=None)


def test_a_header_that_is_cut_off_is_malformed_after_a_glance_too() -> None:
    for bad in prefixes(encode_properties(Properties(headers={"name": "value", "n": 5}, delivery_mode=2))):
        with pytest.raises(MalformedField):
            instructions_in(bad)


@given(
    st.lists(st.tuples(st.binary(max_size=9), modest.map(encode_properties) | st.just(PERSISTENT_ONLY)), min_size=1),
    st.sampled_from(["", "shop", "märkte"]),
    st.sampled_from(["work", "order.new", "ü"]),
)
def test_columns_are_those_of_the_messages(
    messages: list[tuple[bytes, bytes]], exchange: str, routing_key: str
) -> None:
    content = Content(exchange, routing_key, b"")
    bodies, raws = [body for body, _ in messages], [raw for _, raw in messages]
    extras, largest = columns_of(content, bodies, raws, "work")
    directives = instructions_in(PERSISTENT_ONLY)
    made = [as_message(content._replace(raw=raw), body, directives, QueueArguments(), "work") for body, raw in messages]
    payloads, expected, most = check_batch(made)
    assert payloads == bodies
    spread = [
        extra._replace(position=position)
        for extra in extras
        for position in (range(len(bodies)) if extra.position == ALL else [extra.position])
    ]
    assert sorted(spread, key=repr) == sorted(expected, key=repr)
    assert largest >= most


@pytest.mark.parametrize("mode", [None, 1, 2])
@pytest.mark.parametrize("asking", [{}, {"priority": 3}, {"expiration": "60000"}, {"headers": {"x-delay": 5}}])
def test_a_message_is_persistent_by_its_mode_whatever_else_it_asks_for(
    mode: int | None, asking: dict[str, Any]
) -> None:
    raw = encode_properties(Properties(delivery_mode=mode, **asking))
    for whole in (False, True):
        assert instructions_in(raw, whole=whole).persistent == (mode == 2)


@pytest.mark.parametrize(
    ("expiration", "of_the_queue", "delay", "lives"),
    [
        (None, None, None, None),
        (None, None, 5, None),
        ("70000", None, None, 70),
        ("70000", None, 5, 70),
        ("70000", 60_000, None, 60),
        ("60000", 70_000, None, 60),
        ("60000", 70_000, 5, 60),
        ("70000", 60_000, 5, 60),
        (None, 60_000, None, None),  # the queue applies its own
        (None, 60_000, 5, 60),
        ("0", None, 5, 0.05),
        ("49", 60_000, 5, 0.05),
        (None, 51, 5, 0.051),
    ],
)
def test_a_message_lives_for_the_shorter_of_its_own_time_and_that_of_the_queue(
    expiration: str | None, of_the_queue: int | None, delay: int | None, lives: float | None
) -> None:
    headers = None if delay is None else {"x-delay": delay}
    raw = encode_properties(Properties(delivery_mode=2, expiration=expiration, headers=headers))
    arguments = QueueArguments(message_ttl_ms=of_the_queue)
    made = as_message(Content("", "work", raw), b"", instructions_in(raw), arguments, "work")
    assert made.ttl == lives
    assert made.delay == (None if delay is None else delay / 1000)
