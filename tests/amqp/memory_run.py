"""How much memory does a long queue take? `python -m tests.amqp.memory_run` fills one and drains it, and prints it.

Five million messages of 1 KiB, of which the broker may keep 256 MiB in memory: about six gigabytes on disk, which are
deleted at the end.
"""

import argparse
import shutil
import struct
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.amqp import methods as m
from holdfast.amqp.frames import content_frames
from holdfast.base.units import parse_size
from holdfast.broker.basic_properties import PERSISTENT_ONLY
from tests.amqp.serving import Client, Served

__all__ = ["Figures", "Peak", "bound", "drain", "fill", "measure"]

MIB = 1 << 20
BATCH = 1000
WINDOW = 20_000
PREFETCH = 20_000
ACK_EVERY = 4000
A_MESSAGE = 16
"""Bytes that the broker may keep for each message, wherever its body is."""
BESIDE = 150 * MIB
"""What the process may take beside bodies and messages."""
_NUMBER = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Figures:
    """What was seen."""

    messages: int
    limit: int
    empty: int
    """Bytes of resident memory before the first message, and at most in what follows."""
    publishing: int
    draining: int
    publish_s: float
    drain_s: float

    @property
    def bound(self) -> int:
        """What it must stay under."""
        return bound(self.limit, self.messages)


def bound(limit: int, messages: int) -> int:
    """The memory that a broker may take which keeps so many messages, and `limit` bytes of their bodies."""
    return limit + A_MESSAGE * messages + BESIDE


class Peak:
    """The most memory that a broker had while this was open."""

    def __init__(self, broker: Served) -> None:
        self.most = 0
        self._broker = broker
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.wait(0.05):
            self.most = max(self.most, self._broker.resident())

    def __enter__(self) -> Self:
        self.most = self._broker.resident()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self.most = max(self.most, self._broker.resident())


def fill(client: Client, queue: str, count: int, size: int) -> None:
    """Publish numbered persistent messages with confirms."""
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    whole = m.method_frame(1, m.BasicPublish(0, "", queue))
    whole += b"".join(content_frames(1, 60, PERSISTENT_ONLY, bytes(size), 131_072))
    before, after = whole[: -size - 1], whole[-size - 1 + _NUMBER.size :]
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        client.send(b"".join([part for number in numbers for part in (before, _NUMBER.pack(number), after)]))
        client.take_confirms(0)
        while numbers.stop - client.confirms.up_to > WINDOW:
            client.take_confirms()
    while client.confirms.up_to < count:
        client.take_confirms()


def drain(client: Client, queue: str, count: int, size: int) -> None:
    """Consume and acknowledge them all; they must be whole, and in order."""
    client.call(m.BasicQos(0, PREFETCH), m.BasicQosOk)
    client.call(m.BasicConsume(queue=queue, consumer_tag="drain"), m.BasicConsumeOk)
    expected = acked = 0
    data = client.rest()
    step = 0  # every delivery is as long as the first one: its numbers have a fixed width
    while expected < count:
        at = 0
        while step and at + step <= len(data):
            place = at + step - 1 - size
            assert _NUMBER.unpack_from(data, place)[0] == expected, f"message {expected} is missing"
            expected += 1
            at += step
        if expected - acked >= ACK_EVERY or (expected == count and acked < count):
            client.send(m.method_frame(1, m.BasicAck(expected, True)))
            acked = expected
        data = data[at:]
        if expected < count:
            data += client.socket.recv(MIB)
            if not step:
                step = _length_of_first(data)
    client.call(m.BasicQos(0, PREFETCH), m.BasicQosOk)


def _length_of_first(data: bytes) -> int:
    """The length of the first delivery with its content; 0 if it is not there as a whole."""
    at = 0
    for _ in range(3):
        if len(data) < at + 7:
            return 0
        at += 8 + int.from_bytes(data[at + 3 : at + 7], "big")
    return at


def measure(folder: Path, messages: int, size: int, limit: int, **settings: object) -> Figures:
    """Fill and drain one queue of a broker in `folder`, and watch its memory."""
    with Served(folder, memory_bodies=limit, memory_queue_bodies=limit, **settings) as broker:
        with broker.client() as client:
            client.declare("long")
            empty = broker.resident()
            began = time.monotonic()
            with Peak(broker) as publishing:
                fill(client, "long", messages, size)
            filled = time.monotonic()
        with broker.client() as client, Peak(broker) as draining:
            assert client.count("long") == messages
            drain(client, "long", messages, size)
            drained = time.monotonic()
            assert client.count("long") == 0
    return Figures(messages, limit, empty, publishing.most, draining.most, filled - began, drained - filled)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--limit", type=parse_size, default=256 * MIB, help="bytes of bodies in memory, e.g. 256MiB")
    parser.add_argument(
        "--folder", type=Path, help="where to keep the data while it runs; a temporary one if not given"
    )
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-memory-", dir=chosen.folder))
    try:
        found = measure(folder / "data", chosen.messages, chosen.size, chosen.limit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [
        ("messages", f"{found.messages:,} of {chosen.size:,} bytes"),
        ("limit of bodies", f"{found.limit / MIB:,.0f} MiB"),
        ("memory when empty", f"{found.empty / MIB:,.0f} MiB"),
        ("at most while publishing", f"{found.publishing / MIB:,.0f} MiB"),
        ("at most while draining", f"{found.draining / MIB:,.0f} MiB"),
        ("bound", f"{found.bound / MIB:,.0f} MiB"),
        ("published", f"{found.messages / found.publish_s:,.0f} messages/s"),
        ("drained", f"{found.messages / found.drain_s:,.0f} messages/s"),
    ]
    for name, value in rows:
        print(f"{name:<26}{value:>32}")
    if max(found.publishing, found.draining) > found.bound:
        raise SystemExit("the broker took more memory than it may")


if __name__ == "__main__":
    _main()
