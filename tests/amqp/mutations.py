"""What could a broken client send? Sessions as frames, and seeded ways to get them wrong."""

import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.amqp import methods as m
from holdfast.amqp.frames import read_frame
from holdfast.broker.amqp_values import FieldValue
from holdfast.broker.basic_properties import Properties, encode_properties
from tests.amqp.recorded import FRAME_MAX, SESSIONS, greeted, published, sent

__all__ = ["CHEAP", "DEAR", "HANDSHAKE", "LASTING", "SCRIPTS", "chunks", "cut", "invented", "mutated"]

HANDSHAKE = greeted()
"""What a client sends until its virtual host is open."""


def cut(data: bytes) -> list[bytes]:
    """The frames of what a client sends after the protocol header; the last one may be a part."""
    found, at = [], 0
    while at < len(data):
        frame = read_frame(data, at, 0)
        end = frame[4] if frame is not None else len(data)
        found.append(data[at:end])
        at = end
    return found


def _own(frames: list[bytes], number: int) -> list[bytes]:
    """A session with a queue of its own, and with a consumer for replies where it asks for some."""
    found = [frame.replace(b"\x04work", b"\x04wk%02d" % number) for frame in frames]
    if any(REPLIES.encode() in frame for frame in found):
        found.insert(1, sent(m.BasicConsume(queue=REPLIES, consumer_tag="replies", no_ack=True)))
    return found


REPLIES = "amq.rabbitmq.reply-to"
MORE: dict[str, list[bytes]] = {
    "gets and settles": [
        sent(m.ChannelOpen()),
        sent(m.QueueDeclare(queue="work")),
        *(published("", "work", b"message %d" % number) for number in range(6)),
        *[sent(m.BasicGet(queue="work"))] * 6,
        sent(m.BasicAck(1)),
        sent(m.BasicAck(3, True)),
        sent(m.BasicReject(4, True)),
        sent(m.BasicNack(6, True, False)),
        sent(m.BasicGet(queue="work")),
        sent(m.BasicRecover(True)),
        sent(m.BasicGet(queue="work", no_ack=True)),
    ],
    "settles in transactions": [
        sent(m.ChannelOpen()),
        sent(m.TxSelect()),
        sent(m.QueueDeclare(queue="work")),
        *(published("", "work", b"message %d" % number) for number in range(3)),
        sent(m.TxCommit()),
        *[sent(m.BasicGet(queue="work"))] * 3,
        sent(m.BasicAck(1)),
        sent(m.BasicReject(2, True)),
        sent(m.TxRollback()),
        sent(m.BasicNack(2, True, False)),
        sent(m.TxCommit()),
        sent(m.BasicAck(3)),
        published("", "work", b"never committed"),
    ],
    "two consumers share": [
        sent(m.ChannelOpen()) + sent(m.ChannelOpen(), channel=2),
        sent(m.QueueDeclare(queue="work", arguments={"x-single-active-consumer": True})),
        sent(m.BasicQos(0, 2)),
        sent(m.BasicQos(0, 3, True), channel=2),
        sent(m.BasicConsume(queue="work", consumer_tag="one", arguments={"x-priority": 3})),
        sent(m.BasicConsume(queue="work", consumer_tag="two", no_ack=True), channel=2),
        *(published("", "work", b"message %d" % number, channel=1 + number % 2) for number in range(6)),
        sent(m.BasicAck(1)),
        sent(m.BasicCancel("one")),
        sent(m.BasicAck(2)),
        sent(m.ChannelClose(200, "enough"), channel=2),
    ],
    "dead letters come back": [
        sent(m.ChannelOpen()),
        sent(m.ConfirmSelect()),
        sent(
            m.QueueDeclare(
                queue="work",
                durable=True,
                arguments={
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": "work",
                    "x-max-length": 3,
                    "x-overflow": "reject-publish",
                    "x-message-ttl": 5000,
                },
            )
        ),
        *(published("", "work", b"message %d" % number, mandatory=True) for number in range(5)),
        *[sent(m.BasicGet(queue="work"))] * 2,
        sent(m.BasicReject(1, False)),
        sent(m.BasicNack(2, False, False)),
        sent(m.BasicGet(queue="work", no_ack=True)),
        published("", "nowhere", b"comes back", mandatory=True),
        sent(m.QueuePurge(queue="work")),
    ],
}
"""Sessions that need no answer to come this deep, beside the recorded ones."""
RECORDED = {
    name: cut(data[len(HANDSHAKE) :])
    for name, data in SESSIONS.items()
    if data.startswith(HANDSHAKE) and len(data) > len(HANDSHAKE)
}
SCRIPTS: dict[str, list[bytes]] = {
    name: _own(frames, number) for number, (name, frames) in enumerate((RECORDED | MORE).items())
}
"""What clients send after the handshake, each with a queue of its own."""
LASTING = {"watched", *(f"wk{number:02}" for number in range(len(SCRIPTS)))}
"""The queues that are kept from case to case: to make one takes as long as ten cases."""
COSTLY = {"uses many channels at once", "builds a topology and takes it down", "gets one by one"}
"""Each of these makes and deletes queues: they come less often."""
CHEAP = [frames for name, frames in SCRIPTS.items() if name not in COSTLY]
DEAR = [frames for name, frames in SCRIPTS.items() if name in COSTLY]
ALL_FRAMES = [frame for frames in SCRIPTS.values() for frame in frames]
NUMBERS = (0, 1, 2, 3, 7, 8, 0x7F, 0x80, 0xFF, 0xCE)


def _flip(frames: list[bytes], rng: random.Random) -> None:
    place = rng.randrange(len(frames))
    data = bytearray(frames[place])
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(data))
        data[at] = rng.choice(NUMBERS) if rng.random() < 0.4 else data[at] ^ 1 << rng.randrange(8)
    frames[place] = bytes(data)


def _flip_inside(frames: list[bytes], rng: random.Random) -> None:
    """Change arguments and leave the frame whole: this comes deeper than a broken frame."""
    place = rng.randrange(len(frames))
    data = bytearray(frames[place])
    if len(data) > 9:
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(7, len(data) - 1)
            data[at] = rng.choice(NUMBERS) if rng.random() < 0.4 else data[at] ^ 1 << rng.randrange(8)
    frames[place] = bytes(data)


def _truncate(frames: list[bytes], rng: random.Random) -> None:
    place = rng.randrange(len(frames))
    frames[place] = frames[place][: rng.randrange(len(frames[place]) + 1)] or b"\x01"


def _resize(frames: list[bytes], rng: random.Random) -> None:
    """A length that does not fit what follows."""
    place = rng.randrange(len(frames))
    data = bytearray(frames[place])
    if len(data) >= 8:
        length = rng.choice((0, 1, len(data), len(data) - 7, FRAME_MAX - 8, FRAME_MAX, 1 << 31, (1 << 32) - 1))
        struct.pack_into(">I", data, 3, length)
    frames[place] = bytes(data)


def _shorten_payload(frames: list[bytes], rng: random.Random) -> None:
    """A whole frame around a part of its payload, or around more."""
    place = rng.randrange(len(frames))
    data = frames[place]
    if len(data) > 12:
        payload = data[7:-1]
        payload = payload[: rng.randrange(len(payload))] if rng.random() < 0.7 else payload + rng.randbytes(3)
        frames[place] = data[:3] + struct.pack(">I", len(payload)) + payload + b"\xce"


def _change_channel(frames: list[bytes], rng: random.Random) -> None:
    place = rng.randrange(len(frames))
    data = bytearray(frames[place])
    if len(data) >= 8:
        struct.pack_into(">H", data, 1, rng.choice((0, 1, 2, 2047, 2048, 65535)))
    frames[place] = bytes(data)


def _duplicate(frames: list[bytes], rng: random.Random) -> None:
    place = rng.randrange(len(frames))
    frames[place:place] = [frames[place]] * rng.choice((1, 1, 2, 10))


def _swap(frames: list[bytes], rng: random.Random) -> None:
    one, other = rng.randrange(len(frames)), rng.randrange(len(frames))
    frames[one], frames[other] = frames[other], frames[one]


def _drop(frames: list[bytes], rng: random.Random) -> None:
    if len(frames) > 1:
        del frames[rng.randrange(len(frames))]


def _splice(frames: list[bytes], rng: random.Random) -> None:
    """Frames of another session come in between."""
    place = rng.randrange(1, len(frames) + 1)
    frames[place:place] = [rng.choice(ALL_FRAMES) for _ in range(rng.choice((1, 2, 5)))]


def _garble(frames: list[bytes], rng: random.Random) -> None:
    frames.insert(rng.randrange(len(frames) + 1), rng.randbytes(rng.choice((1, 7, 40, 300))))


MUTATIONS: list[Callable[[list[bytes], random.Random], None]] = [
    _flip,
    _flip_inside,
    _flip_inside,
    _flip_inside,
    _truncate,
    _resize,
    _shorten_payload,
    _shorten_payload,
    _change_channel,
    _duplicate,
    _swap,
    _drop,
    _splice,
    _garble,
]


def mutated(frames: list[bytes], rng: random.Random) -> list[bytes]:
    """A session with a few things wrong; now and then random bytes alone."""
    if rng.random() < 0.02:
        return [rng.randbytes(rng.randrange(1, 2000))]
    frames = list(frames)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        rng.choice(MUTATIONS)(frames, rng)
    return frames


def chunks(frames: list[bytes], rng: random.Random) -> list[bytes]:
    """The same bytes as a network may bring them: as a whole, frame by frame, or in pieces down to single bytes."""
    kind = rng.random()
    if kind < 0.3:
        return frames
    data = b"".join(frames)
    if kind < 0.6:
        return [data]
    if kind < 0.61 and len(data) < 600:
        return [data[at : at + 1] for at in range(len(data))]
    found, at = [], 0
    while at < len(data):
        size = rng.choice((1, 20, 100, 500, 2000))
        found.append(data[at : at + size])
        at += size
    return found


# Sessions that nobody recorded: whole methods with arguments that may be anything.


QUEUES = (*["wk00"] * 6, *["wk01"] * 4, "", "missing")
EXCHANGES = ("amq.direct", "amq.topic", "amq.fanout", "amq.headers", "brief", "brief", "", "missing")
KEYS = ("", "wk00", "wk00", "wk01", "a.b", "#", "*.*")
TAGS = ("one", "two", "")
VALUES: tuple[FieldValue, ...] = (0, 1, 2, 9, 10, 255, -1, 1 << 31, -(1 << 63), True, None, "", "wk01", "drop-head")
VALUES += (
    "reject-publish",
    "reject-publish-dlx",
    "quorum",
    "classic",
    "stream",
    "all",
    "any",
    0.5,
    b"\xff",
    {"a": 1},
    [1],
)
ARGUMENTS = (
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-single-active-consumer",
    "x-max-priority",
    "x-queue-type",
    "x-delivery-limit",
    "x-queue-mode",
    "x-priority",
    "x-match",
    "x-cancel-on-ha-failover",
    "alternate-exchange",
    "x-delayed-type",
    "x-message-deduplication",
)
HEADERS = ("CC", "BCC", "x-delay", "x-deduplication-header", "x-death", "a", "x-delivery-count", "x-match")
ASKED = (
    *[m.BasicGet, m.BasicAck, m.BasicNack, m.BasicReject, m.BasicConsume, m.BasicCancel, m.BasicQos] * 3,
    *[m.BasicGet] * 4,
    *[m.BasicRecover, m.TxCommit, m.TxRollback, m.QueueBind, m.QueueUnbind, m.QueuePurge, m.QueueDeclare] * 2,
    *(m.ExchangeDeclare, m.ExchangeBind, m.ExchangeUnbind, m.ExchangeDelete, m.QueueDelete, m.BasicRecoverAsync),
    *(m.ChannelFlow, m.TxSelect, m.ConfirmSelect),
)
MODES = (m.TxSelect(), m.ConfirmSelect(), m.BasicQos(0, 1), m.BasicQos(0, 2, True))


def _table(names: tuple[str, ...], rng: random.Random) -> dict[str, FieldValue]:
    return {rng.choice(names): rng.choice(VALUES) for _ in range(rng.choice((0, 0, 1, 1, 3)))}


def _asked(kind: Any, rng: random.Random) -> bytes:
    """A method of this kind; what it needs is told by the names and defaults of its fields."""
    chosen: dict[str, Any] = {}
    for name, default in kind._field_defaults.items():
        if name == "type":
            chosen[name] = rng.choice(("direct", "fanout", "topic", "headers", "x-delayed-message", "none"))
        elif isinstance(default, bool):
            chosen[name] = rng.random() < (
                0.5 if name in ("multiple", "no_ack") else 0.9 if name in ("requeue", "active") else 0.1
            )
        elif isinstance(default, int):
            chosen[name] = rng.choice((0, 1, 1, 2, 2, 3, 4, 10)) if name in ("delivery_tag", "prefetch_count") else 0
        elif isinstance(default, str):
            names = {"queue": QUEUES, "consumer_tag": TAGS, "routing_key": KEYS}
            chosen[name] = rng.choice(names.get(name, EXCHANGES))
        elif isinstance(default, Mapping):
            chosen[name] = _table(ARGUMENTS, rng)
    return sent(kind(**chosen), channel=rng.choice((1, 1, 1, 2)))


def _published(rng: random.Random) -> bytes:
    properties = Properties(
        headers=(_table(HEADERS, rng) if rng.random() < 0.2 else None) or None,
        delivery_mode=rng.choice((None, 1, 2, 2, 7)),
        priority=rng.choice((None, 0, 5, 255)),
        expiration=rng.choice((*[None] * 40, "0", "1", "60000", "-1", "99999999999999999999")),
        reply_to=rng.choice((*[None] * 30, REPLIES, "wk00")),
        user_id=rng.choice((*[None] * 30, "guest", "other")),
    )
    body = bytes(rng.choice((0, 1, 100, FRAME_MAX - 8, 3 * FRAME_MAX)))
    raw = encode_properties(properties)
    exchange, key = rng.choice((*[""] * 8, *EXCHANGES)), rng.choice(KEYS)
    return published(exchange, key, body, raw, mandatory=rng.random() < 0.5, channel=rng.choice((1, 1, 2)))


def invented(rng: random.Random) -> list[bytes]:
    """What a client does that has two channels open: methods that are whole, and make sense by chance only."""
    frames = [sent(m.QueueDeclare(queue=f"wk0{number}")) for number in range(2)]
    frames += [sent(m.ExchangeDeclare(exchange="brief", type="direct")), sent(rng.choice(MODES))]
    for _ in range(rng.choice((5, 15, 40))):
        frames.append(_published(rng) if rng.random() < 0.4 else _asked(rng.choice(ASKED), rng))
    return frames
