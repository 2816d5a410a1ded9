"""How long does a broker take for a load of messages? Measures the broker: the client does as little as it can.

Run as `python -m benchmarks.amqp_load URL LOAD`, where LOAD is JSON; prints one JSON object. Publishes are encoded
before the start and sent in blocks. A delivery of a fixed-size message has a fixed size on the wire, so that a consumer
counts bytes. All consumers add to one total: however unevenly a broker shares the messages out, the load ends with the
last of them.
"""

import itertools
import json
import multiprocessing
import os
import random
import select
import socket
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.context import ForkProcess
from queue import Empty
from threading import BrokenBarrierError
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["Load", "Wire", "main", "run_load"]

_FORK = multiprocessing.get_context("fork")  # a worker is ready at once, and nothing here has threads
_LIMIT_S = 120.0
_QUEUE = "benchmark"
_METHOD, _HEADER, _BODY, _END = 1, 2, 3, 0xCE
_FRAME = struct.Struct(">BHI")
_ACK = struct.Struct(">BHIHHQBB")
"""A basic.ack and its frame: what a consumer sends, and a broker to confirm."""
_PERSISTENT, _TRANSIENT = 2, 1
_POOL = 20
"""How many blocks of messages of one size are made, each body another; they are sent again and again."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent through one queue, and how."""

    messages: int
    size: int = 100
    producers: int = 1
    consumers: int = 1
    """None: what is measured is publishing."""
    persistent: bool = True
    confirms: bool = True
    varied: bool = False
    """Each message has a size, an id and headers of its own; frames are parsed and each delivery has its own ack."""
    backlog: bool = False
    """Consumers begin when all is published."""
    block: int = 50
    """How many publishes are sent at once."""
    window: int = 1000
    """How many publishes of a producer may wait for their confirms."""
    prefetch: int = 1000
    ack_every: int = 100

    def as_json(self) -> str:
        """As `main` takes it."""
        return json.dumps(asdict(self))


class Wire:
    """A connection with one channel: frames out as they are given, frames in one by one or as raw bytes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 5672), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        """What came and was not taken yet."""
        self._inbox = memoryview(bytearray(1 << 20))
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.server_properties = self.expect(10, 10)[6:]
        """The table with which the broker introduced itself, as on the wire."""
        login = f"\0{unquote(parts.username or 'guest')}\0{unquote(parts.password or 'guest')}".encode()
        self.socket.sendall(_method(10, 11, bytes(4) + _short("PLAIN") + _long(login) + _short("en_US"), channel=0))
        channels, frame_size, _ = struct.unpack_from(">HIH", self.expect(10, 30), 4)
        # No heartbeats: a consumer that counts bytes must get nothing but deliveries.
        self.socket.sendall(_method(10, 31, struct.pack(">HIH", channels, frame_size, 0), channel=0))
        vhost = _short(unquote(parts.path.removeprefix("/")) or "/")
        self.socket.sendall(_method(10, 40, vhost + b"\0\0", channel=0))
        self.expect(10, 41)
        self.call(20, 10, b"\0")
        self.socket.settimeout(None)

    def call(self, class_id: int, method_id: int, arguments: bytes) -> bytes:
        """Send a method and wait for its answer, which has the next number."""
        self.socket.sendall(_method(class_id, method_id, arguments))
        return self.expect(class_id, method_id + 1)

    def expect(self, class_id: int, method_id: int) -> bytes:
        """The payload of the next method, which must be this one."""
        while True:
            for size in _whole_frames(self.buffer):
                payload = bytes(self.buffer[7 : size - 1])
                del self.buffer[:size]
                if payload[:4] != struct.pack(">HH", class_id, method_id):
                    raise ConnectionError(f"the broker sent {payload!r} instead of method {class_id}.{method_id}")
                return payload
            self.buffer += self.receive()

    def receive(self) -> memoryview:
        """Whatever comes next; what this gives is written over by the next call."""
        if size := self.socket.recv_into(self._inbox):
            return self._inbox[:size]
        raise ConnectionError("the broker closed the connection")

    def declare(self) -> None:
        """A durable queue that is there and empty."""
        self.delete()
        self.call(50, 10, bytes(2) + _short(_QUEUE) + b"\x02" + bytes(4))

    def delete(self) -> int:
        """Delete the queue; how many messages were in it."""
        answer = self.call(50, 40, bytes(2) + _short(_QUEUE) + b"\0")
        return int(struct.unpack_from(">I", answer, 4)[0])

    def consume(self, prefetch: int) -> None:
        """Ask for deliveries."""
        self.call(60, 10, struct.pack(">IHB", 0, prefetch, 0))
        self.call(60, 20, bytes(2) + _short(_QUEUE) + _short("c") + b"\0" + bytes(4))

    def close(self) -> None:
        """Say goodbye and wait until the broker did all that was sent before."""
        self.socket.sendall(_method(10, 50, struct.pack(">HBHH", 200, 0, 0, 0), channel=0))
        self.expect(10, 51)
        self.socket.close()


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the workers of a load have in common."""

    load: Load
    url: str
    ready: Any
    """A barrier: all are connected."""
    begin: Any
    """An event, set after the clock was read: from the barrier the parent may wake when others are already at work."""
    published: Any
    """An event: the consumers of a backlog may begin."""
    total: Any
    """How many messages all consumers got."""
    reports: Any
    """A queue of (what happened, when)."""
    stop: tuple[int, int]
    """A pipe that is closed when all is done."""


def main() -> int:
    """Run the load of the command line and print how long it took."""
    url, orders = sys.argv[1:]
    print(json.dumps({"seconds": run_load(url, Load(**json.loads(orders)))}))
    return 0


def run_load(url: str, load: Load) -> float:
    """The seconds from the common start until the last message was consumed, or confirmed where nobody consumes."""
    control = Wire(url)
    control.declare()
    workers = load.producers + load.consumers
    shared = _Shared(
        load,
        url,
        _FORK.Barrier(workers + 1),
        _FORK.Event(),
        _FORK.Event(),
        _FORK.Value("q", 0),
        _FORK.Queue(),
        os.pipe(),
    )
    processes = [_FORK.Process(target=_work, args=(_produce, shared, number)) for number in range(load.producers)]
    processes += [_FORK.Process(target=_work, args=(_consume, shared, number)) for number in range(load.consumers)]
    try:
        for process in processes:
            process.daemon = True
            process.start()
        try:
            shared.ready.wait(_LIMIT_S)
        except BrokenBarrierError:
            raise RuntimeError(shared.reports.get(timeout=_LIMIT_S)[0]) from None
        start = time.perf_counter()
        shared.begin.set()
        end = _await(shared)
        _join(shared, processes)
    finally:
        for process in processes:
            process.kill()
    if load.consumers:
        _check_all_consumed(shared, control)
    control.delete()
    control.close()
    return end - start


def _await(shared: _Shared) -> float:
    """The moment that counts; waits for the other ends too."""
    awaited = {"published": shared.load.producers, "consumed": 1 if shared.load.consumers else 0}
    moments: dict[str, float] = {}
    deadline = time.monotonic() + _LIMIT_S
    while any(awaited.values()):
        try:
            what, moment = shared.reports.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            got = shared.total.value
            raise TimeoutError(f"{got} of {shared.load.messages} messages came in {_LIMIT_S:g} s") from None
        if what not in awaited:
            raise RuntimeError(what)
        awaited[what] -= 1
        moments[what] = max(moment, moments.get(what, moment))
        if not awaited["published"]:
            shared.published.set()
    return moments["consumed" if shared.load.consumers else "published"]


def _join(shared: _Shared, processes: list[ForkProcess]) -> None:
    os.close(shared.stop[1])
    for process in processes:
        process.join(_LIMIT_S)
    os.close(shared.stop[0])
    if any(process.exitcode for process in processes):
        raise RuntimeError(shared.reports.get(timeout=_LIMIT_S)[0])


def _check_all_consumed(shared: _Shared, control: Wire) -> None:
    """A broker that loses or repeats messages is not measured."""
    left = control.delete()
    if shared.total.value != shared.load.messages or left:
        raise RuntimeError(f"{shared.total.value} of {shared.load.messages} messages were consumed, {left} are left")


def _work(part: Any, shared: _Shared, number: int) -> None:
    """A worker process; an error is told to the parent and never waits for others."""
    os.close(shared.stop[1])
    try:
        part(shared, number)
    except BrokenBarrierError:
        sys.exit(1)  # because of another worker, which tells why
    except BaseException:
        shared.reports.put((traceback.format_exc(), 0.0))
        shared.ready.abort()
        sys.exit(1)


def _start_together(shared: _Shared) -> None:
    shared.ready.wait(_LIMIT_S)
    if not shared.begin.wait(_LIMIT_S):
        raise TimeoutError("the load did not begin")


def _produce(shared: _Shared, number: int) -> None:
    load = shared.load
    wire = Wire(shared.url)
    if load.confirms:
        wire.call(85, 10, b"\0")
    share = load.messages // load.producers + (number < load.messages % load.producers)
    blocks = list(_blocks(load, share, number))
    confirms = _Confirms(wire)
    _start_together(shared)
    sent = 0
    for block, count in blocks:
        while load.confirms and sent + count - confirms.count > load.window:
            confirms.receive()
        wire.socket.sendall(block)
        sent += count
    while load.confirms and confirms.count < sent:
        confirms.receive()
    shared.reports.put(("published", time.perf_counter()))
    wire.close()


class _Confirms:
    """How many publishes of a channel were confirmed? Brokers confirm one by one or many at once, in any order."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._until = 0
        self._beyond: set[int] = set()
        self._rest = b""

    @property
    def count(self) -> int:
        return self._until + len(self._beyond)

    def receive(self) -> None:
        """Take in what comes next."""
        data = self._rest + self._wire.receive()
        whole = len(data) - len(data) % _ACK.size
        self._rest = data[whole:]
        for kind, _, _, class_id, method_id, tag, multiple, end in _ACK.iter_unpack(memoryview(data)[:whole]):
            if (kind, class_id, method_id, end) != (_METHOD, 60, 80, _END):
                raise ConnectionError(f"the broker did not confirm a publish: {data!r}")
            if multiple:
                self._until = max(tag, self._until)
                self._beyond = {one for one in self._beyond if one > tag}
            else:
                self._beyond.add(tag)
            while self._until + 1 in self._beyond:
                self._until += 1
                self._beyond.remove(self._until)


def _blocks(load: Load, share: int, number: int) -> Iterator[tuple[bytes, int]]:
    """The publishes of one producer, and how many each block has."""
    source = random.Random(number)
    mode = _PERSISTENT if load.persistent else _TRANSIENT
    if load.varied:
        messages = (_varied(source, load.size, mode, f"{number}-{at}") for at in range(share))
        while several := list(itertools.islice(messages, load.block)):
            yield b"".join(several), len(several)
        return
    pool = [[_plain(source, load.size, mode) for _ in range(load.block)] for _ in range(_POOL)]
    whole = [b"".join(several) for several in pool]
    for at, left in enumerate(range(share, 0, -load.block)):
        if left >= load.block:
            yield whole[at % _POOL], load.block
        else:
            yield b"".join(pool[at % _POOL][:left]), left


def _plain(source: random.Random, size: int, mode: int) -> bytes:
    return _publish(source.randbytes(size), 0x1000, bytes([mode]))  # delivery-mode


def _varied(source: random.Random, size: int, mode: int, name: str) -> bytes:
    trace = _short("trace") + b"S" + _long(source.randbytes(8).hex().encode())
    attempt = _short("attempt") + b"I" + struct.pack(">i", source.randrange(100))
    properties = _long(trace + attempt) + bytes([mode]) + _short(name)
    body = source.randbytes(source.randint(size * 6 // 10, size * 14 // 10))
    return _publish(body, 0x2000 | 0x1000 | 0x0080, properties)  # headers, delivery-mode, message-id


def _publish(body: bytes, flags: int, properties: bytes) -> bytes:
    method = _method(60, 40, bytes(2) + b"\0" + _short(_QUEUE) + b"\0")
    header = struct.pack(">HHQH", 60, 0, len(body), flags) + properties
    return method + _frame(_HEADER, header) + _frame(_BODY, body)


def _consume(shared: _Shared, _number: int) -> None:
    wire = Wire(shared.url)
    if not shared.load.backlog:
        wire.consume(shared.load.prefetch)
    _start_together(shared)
    if shared.load.backlog:
        if not shared.published.wait(_LIMIT_S):
            raise TimeoutError(f"the backlog was not published in {_LIMIT_S:g} s")
        wire.consume(shared.load.prefetch)
    (_parse if shared.load.varied else _count)(shared, wire)
    wire.close()


def _count(shared: _Shared, wire: Wire) -> None:
    """Consume messages that are all of one size: the first is parsed, then bytes are divided by its size."""
    head = bytearray()
    each = received = counted = acked = 0
    for chunk in _arrivals(shared, wire):
        received += len(chunk)
        if not each:
            head += chunk
            each = _delivery_size(head)
            if not each:
                continue
        whole = received // each
        if whole > counted:
            _add(shared, whole - counted)
            counted = whole
        if counted - acked >= shared.load.ack_every:
            wire.socket.sendall(_ack(counted, multiple=True))
            acked = counted
    if counted > acked:
        wire.socket.sendall(_ack(counted, multiple=True))
    if each and received % each:
        raise RuntimeError(f"{received} B came, which are no deliveries of {each} B each")


def _parse(shared: _Shared, wire: Wire) -> None:
    """Consume messages of any size, frame by frame, and acknowledge them one by one."""
    rest = b""
    tag = missing = 0
    for chunk in _arrivals(shared, wire):
        data = rest + chunk
        start = 0
        acks = []
        for size in _whole_frames(data):
            kind = data[start]
            if kind == _METHOD:
                if data[start + 7 : start + 11] != b"\0\x3c\0\x3c":
                    raise ConnectionError(f"the broker sent {data[start : start + size]!r} instead of a delivery")
                (tag,) = struct.unpack_from(">Q", data, start + 12 + data[start + 11])
            elif kind == _HEADER:
                (missing,) = struct.unpack_from(">Q", data, start + 11)
            elif kind == _BODY:
                missing -= size - 8
                if not missing:
                    acks.append(_ack(tag, multiple=False))
            start += size
        rest = data[start:]
        if acks:
            wire.socket.sendall(b"".join(acks))
            _add(shared, len(acks))


def _arrivals(shared: _Shared, wire: Wire) -> Iterator[bytes | memoryview]:
    """What comes, chunk by chunk, until the load is done; a chunk lasts until the next is asked for."""
    if wire.buffer:
        yield bytes(wire.buffer)
        wire.buffer.clear()
    stop = shared.stop[0]
    either = select.poll()
    either.register(wire.socket, select.POLLIN)
    either.register(stop, select.POLLIN)
    while True:
        ready = [number for number, _ in either.poll()]
        if wire.socket.fileno() in ready:
            yield wire.receive()
        elif stop in ready:
            return


def _add(shared: _Shared, count: int) -> None:
    with shared.total.get_lock():
        before = shared.total.value
        shared.total.value = before + count
    if before < shared.load.messages <= before + count:
        shared.reports.put(("consumed", time.perf_counter()))


def _delivery_size(data: bytearray) -> int:
    """How long the first delivery is, all its frames together; 0 while it is not all there."""
    end = 0
    missing = None
    for size in _whole_frames(data):
        if data[end] == _HEADER:
            (missing,) = struct.unpack_from(">Q", data, end + 11)
        elif data[end] == _BODY and missing is not None:
            missing -= size - 8
        end += size
        if missing == 0:
            return end
    return 0


def _whole_frames(data: bytes | bytearray) -> Iterator[int]:
    """The sizes of the frames that are all there, one after the other."""
    start = 0
    while len(data) >= start + 7:
        size = _FRAME.unpack_from(data, start)[2] + 8
        if len(data) < start + size:
            return
        if data[start + size - 1] != _END:
            raise ConnectionError("the broker sent a frame without an end")
        start += size
        yield size


def _ack(tag: int, *, multiple: bool) -> bytes:
    return _ACK.pack(_METHOD, 1, 13, 60, 80, tag, multiple, _END)


def _method(class_id: int, method_id: int, arguments: bytes, channel: int = 1) -> bytes:
    return _frame(_METHOD, struct.pack(">HH", class_id, method_id) + arguments, channel)


def _frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + bytes([_END])


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


if __name__ == "__main__":
    sys.exit(main())
