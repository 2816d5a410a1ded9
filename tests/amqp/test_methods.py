"""Methods: what goes in comes out, pamqp agrees about every one, and bad bytes raise one error with the right code."""

import contextlib
import struct
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp import frame as pamqp_frame

from holdfast.amqp import methods
from holdfast.amqp.methods import (
    METHODS,
    REPLY_CODES,
    AccessRequest,
    BasicAck,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    ConnectionClose,
    Layout,
    Method,
    MethodError,
    QueueDeclare,
    decode_method,
    encode_method,
    method_frame,
)
from holdfast.broker.amqp_values import MalformedField
from tests.amqp.make_spec import FILE, generated
from tests.amqp.values import damaged, prefixes, shorts, tables

ALL = sorted(METHODS, key=lambda method: METHODS[method][:2])
every_method = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "B": st.integers(0, 255),
    "H": st.integers(0, (1 << 16) - 1),
    "I": st.integers(0, (1 << 32) - 1),
    "Q": st.integers(0, (1 << 64) - 1),
    "?": st.booleans(),
    "s": shorts,
    "S": st.binary(max_size=300),
    "T": tables,
}
TAME = {  # what pamqp writes and reads as it is
    **ARGUMENTS,
    "Q": st.integers(0, (1 << 63) - 1),
    "s": st.text("abc-_.:", max_size=40),
    "S": st.text(max_size=40),
    "T": st.dictionaries(st.text("abc", max_size=9), st.booleans() | st.integers(0, 9) | st.text(max_size=9)),
}


def types_of(kind: type) -> list[str]:
    return list(METHODS[kind][2])


def made(kind: type, values: list[Any]) -> Method:
    return cast("Method", kind(*values))


def arguments(kind: type, of: dict[str, st.SearchStrategy[Any]] = ARGUMENTS) -> st.SearchStrategy[list[Any]]:
    return st.tuples(*(of[name] for name in types_of(kind))).map(list)


def theirs_of(kind: type) -> type:
    class_id, method_id, _ = METHODS[kind]
    return commands.INDEX_MAPPING[class_id << 16 | method_id]


def full(kind: type) -> Method:
    """One with something in every argument."""
    something = {
        **dict.fromkeys("BHIQ", 7),
        "?": True,
        "s": "some text",
        "S": b"some bytes",
        "T": {"key": ["value", 1, {"deep": None}]},
    }
    return made(kind, [something[name] for name in types_of(kind)])


@every_method
@given(st.data())
def test_a_method_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    method = made(kind, data.draw(arguments(kind)))
    raw = encode_method(method)
    for payload in (raw, memoryview(raw)):
        back = decode_method(payload)
        assert type(back) is kind
        assert back == method


@every_method
def test_a_method_can_be_made_without_arguments(kind: type) -> None:
    method = made(kind, [])
    assert decode_method(encode_method(method)) == method


def test_a_method_is_framed() -> None:
    assert (
        method_frame(3, BasicAck(5, True))
        == b"\x01\x00\x03\x00\x00\x00\x0d\x00\x3c\x00\x50" + bytes(7) + b"\x05\x01\xce"
    )


def test_bits_share_an_octet_from_the_lowest_up() -> None:
    assert encode_method(QueueDeclare(durable=True, nowait=True)) == b"\x00\x32\x00\x0a\x00\x00\x00\x12" + bytes(4)
    assert encode_method(AccessRequest("", False, False, False, False, True))[-1] == 0x10
    assert encode_method(BasicNack(1, False, True))[-1] == 2


def test_bits_that_are_none_are_overlooked() -> None:
    assert decode_method(b"\x00\x3c\x00\x50" + bytes(8) + b"\xfe") == BasicAck(0, False)
    assert decode_method(b"\x00\x3c\x00\x28" + bytes(4) + b"\xfe") == BasicPublish(immediate=True)


@pytest.mark.parametrize("kind", [BasicAck, BasicPublish, BasicDeliver])
@given(st.data())
def test_the_fast_ways_are_the_declared_ones(kind: type, data: st.DataObject) -> None:
    method = made(kind, data.draw(arguments(kind)))
    layout = Layout(METHODS[kind][2])
    raw = encode_method(method)
    assert raw[4:] == layout.encode(method)
    assert list(decode_method(raw)) == layout.decode(raw, 4)


def test_every_reply_code_of_the_protocol_has_a_name() -> None:
    assert {200, 311, 312, 313, 320, 402, 403, 404, 405, 406} <= set(REPLY_CODES)
    assert {501, 502, 503, 504, 505, 506, 530, 540, 541} <= set(REPLY_CODES)
    assert REPLY_CODES[406] == "PRECONDITION_FAILED"


def test_every_declared_method_is_exported() -> None:
    assert {kind.__name__ for kind in METHODS} <= set(methods.__all__)


def test_the_module_of_methods_is_the_one_that_the_generator_writes() -> None:
    assert FILE.read_text() == generated(), "write it again: python -m tests.amqp.make_spec"


# What is no method


@every_method
def test_every_beginning_of_a_method_is_refused(kind: type) -> None:
    raw = encode_method(full(kind))
    for part in prefixes(raw):
        with pytest.raises(MethodError) as caught:
            decode_method(part)
        assert caught.value.code == 501


@every_method
def test_a_byte_too_many_is_refused_and_named(kind: type) -> None:
    with pytest.raises(MethodError, match=kind.__name__) as caught:
        decode_method(encode_method(full(kind)) + b"\x00")
    assert caught.value.code == 501
    assert (caught.value.class_id, caught.value.method_id) == METHODS[kind][:2]


@every_method
def test_a_damaged_method_raises_nothing_else(kind: type) -> None:
    for raw in damaged(encode_method(full(kind))):
        try:
            decode_method(raw)
        except MethodError as error:
            assert error.code in (501, 540)


@given(st.sampled_from(ALL), st.binary(max_size=80))
def test_random_arguments_raise_nothing_else(kind: type, raw: bytes) -> None:
    for payload in (struct.pack(">HH", *METHODS[kind][:2]) + raw, raw):
        with contextlib.suppress(MethodError):
            decode_method(payload)


@pytest.mark.parametrize("ids", [(60, 41), (61, 40), (0, 0), (40, 41), (65535, 65535)])
def test_an_unknown_method_is_not_implemented(ids: tuple[int, int]) -> None:
    with pytest.raises(MethodError) as caught:
        decode_method(struct.pack(">HH", *ids) + b"whatever")
    assert caught.value.code == 540
    assert (caught.value.class_id, caught.value.method_id) == ids


def test_names_that_are_no_utf8_are_refused() -> None:
    for raw in (b"\x00\x3c\x00\x28\x00\x00\x01\xff\x00\x00", b"\x00\x32\x00\x1e\x00\x00\x01\xff\x00"):
        with pytest.raises(MethodError) as caught:
            decode_method(raw)
        assert caught.value.code == 501


@pytest.mark.parametrize(
    "method",
    [
        BasicAck(-1),
        BasicAck(1 << 64),
        BasicDeliver("c", -1),
        BasicDeliver("c" * 256),
        ConnectionClose(reply_text="x" * 256),
        ConnectionClose(reply_code=65536),
        QueueDeclare(arguments={"k": cast("Any", object())}),
        ("no", "method"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(method: Method) -> None:
    with pytest.raises(MalformedField):
        encode_method(method)


# pamqp as the judge. It refuses to write other values than its own in arguments that mean nothing any more.

RETIRED = {"ticket", "capabilities", "insist", "known_hosts", "out_of_band", "channel_id", "cluster_id"}
UNKNOWN_TO_PAMQP = {kind for kind in ALL if METHODS[kind][0] << 16 | METHODS[kind][1] not in commands.INDEX_MAPPING}
judged = pytest.mark.parametrize(
    "kind", [kind for kind in ALL if kind not in UNKNOWN_TO_PAMQP], ids=lambda kind: kind.__name__
)


def text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def test_we_know_every_method_that_pamqp_knows() -> None:
    ours = {class_id << 16 | method_id for class_id, method_id, _ in METHODS.values()}
    assert set(commands.INDEX_MAPPING) <= ours
    assert {kind.__name__ for kind in UNKNOWN_TO_PAMQP} <= {"AccessRequest", "AccessRequestOk"}
    for kind in set(ALL) - UNKNOWN_TO_PAMQP:
        assert cast("Any", theirs_of(kind)).name.replace(".", "") == kind.__name__


@judged
@pytest.mark.filterwarnings("ignore:This command is deprecated")
@given(st.data())
def test_we_read_what_pamqp_writes(kind: type, data: st.DataObject) -> None:
    theirs = theirs_of(kind)()
    expected = []
    for name, value in zip(theirs.attributes(), data.draw(arguments(kind, TAME)), strict=True):
        if name not in RETIRED:
            setattr(theirs, name, value)
        expected.append(getattr(theirs, name))
    method = decode_method(pamqp_frame.marshal(theirs, 1)[7:-1])
    assert type(method) is kind
    assert [text(value) for value in method] == expected


@judged
@pytest.mark.filterwarnings("ignore:This command is deprecated")
@given(st.data())
def test_pamqp_reads_what_we_write(kind: type, data: st.DataObject) -> None:
    values = [value.encode() if name == "S" else value
              for name, value in zip(types_of(kind), data.draw(arguments(kind, TAME)), strict=True)]  # fmt: skip
    raw = method_frame(8, made(kind, values))
    size, channel, theirs = pamqp_frame.unmarshal(raw)
    assert (size, channel) == (len(raw), 8)
    assert type(theirs) is theirs_of(kind)
    assert [value for _, value in cast("Any", theirs)] == [text(value) for value in values]
