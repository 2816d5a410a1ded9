"""AMQP frame codec: splits a byte stream into frames, and builds frames.

A frame is a type (1 byte), a channel (2), the payload's size (4), the payload and an end octet. Nothing here reads or
writes a socket: the functions take the bytes received so far and say whether they hold a whole frame.
"""

import struct

from holdfast.base.errors import HoldfastError

__all__ = [
    "ACK_FRAME",
    "BODY",
    "END",
    "END_OCTET",
    "FRAME_MIN",
    "FRAME_START",
    "HEADER",
    "HEADER_START",
    "HEARTBEAT",
    "HEARTBEAT_FRAME",
    "METHOD",
    "OVERHEAD",
    "PROTOCOL_HEADER",
    "FrameError",
    "check_heartbeat",
    "content_frames",
    "decode_content_header",
    "frame",
    "missing_in",
    "read_frame",
]

METHOD = 1
HEADER = 2
BODY = 3
HEARTBEAT = 8
END = b"\xce"
END_OCTET = END[0]

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
"""The first bytes of a client, and the answer of a server to a client with another protocol version."""
OVERHEAD = 8
"""The bytes of a frame without its payload; frame-max includes them."""
FRAME_MIN = 4096
"""The smallest frame-max that either side may ask for."""

FRAME_START = struct.Struct(">BHI")
"""Type, channel and the size of the payload."""
HEADER_START = struct.Struct(">BHIHHQ")
"""The same of a header frame, with the class, weight and body size that its payload begins with."""
ACK_FRAME = struct.Struct(">BHIHHQBB")
"""The whole frame of an ack, or of a nack to a publisher: up to its method, then tag, bits and end."""
_CONTENT = struct.Struct(">HHQ")
_KINDS = frozenset((METHOD, HEADER, BODY, HEARTBEAT))


class FrameError(HoldfastError):
    """The peer violated the protocol; the connection has to be closed with this reply code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return a whole frame around a payload."""
    return b"%b%b\xce" % (FRAME_START.pack(kind, channel, len(payload)), payload)


def check_heartbeat(channel: int, payload: bytes) -> None:
    """Check that a heartbeat is on channel 0 and empty."""
    if payload:
        raise FrameError(501, "heartbeat frame with a payload")
    if channel:
        raise FrameError(505, "heartbeat frame on a channel other than 0")


HEARTBEAT_FRAME = frame(HEARTBEAT, 0, b"")
"""The whole heartbeat frame."""


def read_frame(
    buffer: bytes | bytearray | memoryview, offset: int, frame_max: int
) -> tuple[int, int, int, int, int] | None:
    """Return the frame at `offset`: its type, channel, payload start, payload stop, and the offset of the next frame.

    None if it has not fully arrived. An invalid type or size is rejected as soon as it is seen, so that no client makes
    the server buffer a frame of 4 GiB. A `frame_max` of 0 sets no limit.
    """
    start = offset + 7
    if len(buffer) < start:
        return None
    kind, channel, size = FRAME_START.unpack_from(buffer, offset)
    if kind not in _KINDS:
        raise FrameError(501, f"unknown frame type {kind}: AMQP 0-9-1 has types 1, 2, 3 and 8")
    if size + OVERHEAD > frame_max and frame_max:
        raise FrameError(501, f"frame of {size + OVERHEAD} bytes is too large: frame-max is {frame_max}")
    stop = start + size
    if len(buffer) <= stop:
        return None
    if buffer[stop] != END_OCTET:
        raise FrameError(501, f"frame of type {kind} ends with octet {buffer[stop]}, not with {END_OCTET}")
    return kind, channel, start, stop, stop + 1


def missing_in(buffer: bytes) -> int:
    """Return how many bytes of the frame that begins here are missing; 0 if its size is unknown, or none are."""
    if len(buffer) < 7:
        return 0
    return max(0, int.from_bytes(buffer[3:7], "big") + OVERHEAD - len(buffer))


def content_frames(
    channel: int, class_id: int, properties_raw: bytes, body: bytes | memoryview, frame_max: int
) -> list[bytes]:
    """Return the header frame of a message, then its body in as many frames as `frame_max` requires: none if empty."""
    size = len(body)
    header = HEADER_START.pack(HEADER, channel, 12 + len(properties_raw), class_id, 0, size)
    frames = [b"%b%b\xce" % (header, properties_raw)]
    if not size:
        return frames
    capacity = frame_max - OVERHEAD if frame_max else size
    if size <= capacity:
        frames.append(b"".join((FRAME_START.pack(BODY, channel, size), body, END)))
        return frames
    view = memoryview(body)  # so that each part is copied once
    for start in range(0, size, capacity):
        part = view[start : start + capacity]
        frames.append(b"".join((FRAME_START.pack(BODY, channel, len(part)), part, END)))
    return frames


def decode_content_header(payload: bytes | memoryview) -> tuple[int, int, bytes]:
    """Return the class, the body size and the raw properties of a header frame's payload."""
    if len(payload) < 14:
        raise FrameError(501, f"content header of {len(payload)} bytes is too short: it has at least 14")
    class_id, weight, size = _CONTENT.unpack_from(payload)
    if weight:
        raise FrameError(505, f"content header has weight {weight}: it must be 0")
    return class_id, size, bytes(payload[12:])
