"""Frames: a stream is cut where it should be, however it arrives, and what is no frame is refused at once."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body as pamqp_body
from pamqp import commands, header, heartbeat
from pamqp import frame as pamqp_frame

from holdfast.amqp.frames import (
    BODY,
    FRAME_MIN,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    OVERHEAD,
    PROTOCOL_HEADER,
    FrameError,
    content_frames,
    decode_content_header,
    frame,
    read_frame,
)
from holdfast.broker.basic_properties import PERSISTENT_ONLY

kinds = st.sampled_from([METHOD, HEADER, BODY, HEARTBEAT])
channels = st.integers(0, 65535)


@given(st.lists(st.tuples(kinds, channels, st.binary(max_size=50)), max_size=6), st.sampled_from([0, 58, 131072]))
def test_a_stream_is_cut_into_the_frames_it_was_made_of(frames: list[tuple[int, int, bytes]], frame_max: int) -> None:
    stream = b"".join(frame(*one) for one in frames)
    for buffer in (stream, bytearray(stream), memoryview(stream)):
        found = []
        offset = 0
        while (one := read_frame(buffer, offset, frame_max)) is not None:
            kind, channel, start, stop, offset = one
            found.append((kind, channel, bytes(buffer[start:stop])))
        assert found == frames
        assert offset == len(stream)


@given(kinds, channels, st.binary(max_size=20))
def test_a_frame_that_is_not_all_there_is_awaited(kind: int, channel: int, payload: bytes) -> None:
    whole = frame(kind, channel, payload)
    for stop in range(len(whole)):
        assert read_frame(whole[:stop], 0, 4096) is None
    assert read_frame(b"xx" + whole, 2, 4096) == (kind, channel, 9, 9 + len(payload), 2 + len(whole))


def test_frame_max_counts_the_whole_frame() -> None:
    fits = frame(BODY, 1, bytes(FRAME_MIN - OVERHEAD))
    assert len(fits) == FRAME_MIN
    assert read_frame(fits, 0, FRAME_MIN) is not None
    with pytest.raises(FrameError, match="4097") as caught:
        read_frame(frame(BODY, 1, bytes(FRAME_MIN - OVERHEAD + 1)), 0, FRAME_MIN)
    assert caught.value.code == 501


def test_a_frame_too_large_is_refused_before_it_has_arrived() -> None:
    with pytest.raises(FrameError, match="frame-max"):
        read_frame(struct.pack(">BHI", BODY, 1, 0xFFFFFFFF), 0, 131072)
    assert read_frame(struct.pack(">BHI", BODY, 1, 0xFFFFFFFF), 0, 0) is None


def test_a_type_that_is_none_is_refused_before_the_frame_has_arrived() -> None:
    for kind in set(range(256)) - {METHOD, HEADER, BODY, HEARTBEAT}:
        with pytest.raises(FrameError, match="type") as caught:
            read_frame(struct.pack(">BHI", kind, 1, 100), 0, 131072)
        assert caught.value.code == 501


def test_a_wrong_end_octet_is_refused() -> None:
    with pytest.raises(FrameError, match="octet 0") as caught:
        read_frame(frame(METHOD, 1, b"payload")[:-1] + b"\x00", 0, 4096)
    assert caught.value.code == 501


@given(st.binary(max_size=60), st.integers(0, 5000))
def test_random_bytes_raise_nothing_else(raw: bytes, frame_max: int) -> None:
    with contextlib.suppress(FrameError):
        read_frame(raw, 0, frame_max)
    with contextlib.suppress(FrameError):
        decode_content_header(raw)


@given(channels, st.binary(max_size=300), st.binary(min_size=2, max_size=12), st.sampled_from([0, 20, 21, 108, 308]))
def test_content_is_split_into_full_frames(channel: int, body: bytes, raw: bytes, frame_max: int) -> None:
    first, *rest = content_frames(channel, 60, raw, body, frame_max)
    kind, where, start, stop, end = read_frame(first, 0, 0) or (0,) * 5
    assert (kind, where, end) == (HEADER, channel, len(first))
    assert decode_content_header(first[start:stop]) == (60, len(body), raw)
    assert b"".join(part[7:-1] for part in rest) == body
    assert all(part == frame(BODY, channel, part[7:-1]) for part in rest)
    if frame_max:
        assert all(len(part) == frame_max for part in rest[:-1])
        assert all(OVERHEAD < len(part) <= frame_max for part in rest)
    else:
        assert len(rest) == (1 if body else 0)


@pytest.mark.parametrize(
    ("payload", "code"),
    [(b"", 501), (b"\x00\x3c\x00\x00", 501), (bytes(13), 501), (b"\x00\x3c\x00\x01" + bytes(10), 505)],
)
def test_what_is_no_content_header_is_refused(payload: bytes, code: int) -> None:
    with pytest.raises(FrameError) as caught:
        decode_content_header(payload)
    assert caught.value.code == code


def test_pamqp_makes_the_same_bytes() -> None:
    content = header.ContentHeader(0, 3, commands.Basic.Properties(delivery_mode=2))
    theirs = [pamqp_frame.marshal(content, 9), pamqp_frame.marshal(pamqp_body.ContentBody(b"abc"), 9)]
    assert content_frames(9, 60, PERSISTENT_ONLY, b"abc", 4096) == theirs
    assert heartbeat.Heartbeat().marshal() == HEARTBEAT_FRAME
    assert header.ProtocolHeader().marshal() == PROTOCOL_HEADER
