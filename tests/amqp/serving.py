"""How is a broker served that a test may kill, and how does a thin and fast client speak to it?"""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from holdfast.amqp import methods as m
from holdfast.amqp.frames import (
    BODY,
    HEADER,
    METHOD,
    PROTOCOL_HEADER,
    content_frames,
    decode_content_header,
    read_frame,
)
from holdfast.broker.basic_properties import PERSISTENT_ONLY

__all__ = [
    "Arrived",
    "Client",
    "Closed",
    "Confirms",
    "Served",
    "Watcher",
    "eventually",
    "frames_of",
    "publish_frames",
    "served",
]

PATIENCE_S = 180.0
CAPABILITIES = {
    "publisher_confirms": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}
_CONFIRMED = struct.Struct(">QB")
T = TypeVar("T")
M = TypeVar("M", bound=tuple[object, ...])


class Closed(Exception):
    """The broker closed the connection or the channel, or dropped the socket (code 0)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


class Arrived(NamedTuple):
    """A message with the method that brought it."""

    method: m.Method
    body: bytes


class Served:
    """`holdfast serve` in a process of its own."""

    def __init__(self, data: Path, **settings: object) -> None:
        self.data = data
        command = [sys.executable, "-m", "holdfast", "serve", "--data", str(data), "--amqp-port", "0"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        self._errors = (data.parent / f"{data.name}.stderr").open("ab")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("AMQP on "):
            self.stop()
            raise AssertionError(
                f"the broker did not start ({self.process.returncode}): {line!r} {self.said()[-2000:]}"
            )
        self.port = int(line.rsplit(":", 1)[1])
        self.pid = self.process.pid

    def said(self) -> str:
        """What it wrote to standard error."""
        return (self.data.parent / f"{self.data.name}.stderr").read_text(errors="replace")

    def resident(self) -> int:
        """Bytes of memory that it holds now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        raise AssertionError("the broker is gone")

    def runs(self) -> bool:
        """Whether the process is alive."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it as a power cut would: it gets no chance to finish anything."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        """Ask it to end, and wait."""
        if self.process.poll() is None:
            self.process.terminate()
        self._reap()

    def _reap(self) -> None:
        try:
            self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the broker did not end when it was asked to") from None
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
            self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @contextmanager
    def client(self, **options: object) -> Iterator["Client"]:
        """A client that is logged in, with channel 1 open."""
        client = Client(self.port)
        try:
            client.log_in(**options)  # type: ignore[arg-type]
            yield client
        finally:
            client.close()


@contextmanager
def served(data: Path, **settings: object) -> Iterator[Served]:
    """A broker until the end of the block; it must not have failed with a traceback."""
    with Served(data, **settings) as broker:
        yield broker
        assert broker.runs(), f"the broker ended by itself: {broker.said()[-2000:]}"
    assert "Traceback" not in broker.said(), broker.said()[-3000:]


def eventually(ask: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return answer


def frames_of(data: bytes, frame_max: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """The frames in `data`, which must be whole ones: type, channel, payload."""
    at = 0
    while at < len(data):
        found = read_frame(data, at, frame_max)
        assert found is not None, f"a frame is cut off: {data[at : at + 40]!r}"
        kind, channel, start, stop, at = found
        yield kind, channel, data[start:stop]


def publish_frames(
    queue: str, bodies: Iterable[bytes], *, raw: bytes = PERSISTENT_ONLY, exchange: str = "", channel: int = 1
) -> bytes:
    """Messages to a queue, as bytes to send."""
    method = m.method_frame(channel, m.BasicPublish(0, exchange, queue))
    out = []
    for body in bodies:
        out.append(method)
        out += content_frames(channel, 60, raw, body, 131_072)
    return b"".join(out)


class Confirms:
    """Which publishes of a channel in confirm mode are confirmed: all tags up to `up_to`, and `apart`."""

    def __init__(self) -> None:
        self.up_to = 0
        self.refused: set[int] = set()
        self._apart: set[int] = set()

    def note(self, tag: int, *, multiple: bool, good: bool) -> None:
        """An ack or nack has come."""
        tags = range(self.up_to + 1, tag + 1) if multiple else [tag]
        for one in tags:
            assert one > self.up_to, f"{one} is confirmed twice"
            assert one not in self._apart, f"{one} is confirmed twice"
            self._apart.add(one)
            if not good:
                self.refused.add(one)
        while self.up_to + 1 in self._apart:
            self.up_to += 1
            self._apart.discard(self.up_to)


class Client:
    """One socket to the broker. What comes is looked at only when a test waits for something."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self._at = 0
        self.confirms = Confirms()

    def close(self) -> None:
        """Drop the socket without a goodbye."""
        self.socket.close()

    def log_in(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        channels: int = 1,
        channel_max: int | None = None,
        frame_max: int | None = None,
    ) -> m.Method:
        """Shake hands and open channels; what the broker proposed."""
        self.send(PROTOCOL_HEADER)
        self.expect(m.ConnectionStart)
        response = f"\0{user}\0{password}".encode()
        start = m.ConnectionStartOk({"capabilities": dict(CAPABILITIES)}, "PLAIN", response, "en_US")
        self.send(m.method_frame(0, start))
        tune = self.expect(m.ConnectionTune)
        chosen = m.ConnectionTuneOk(
            tune.channel_max if channel_max is None else channel_max,
            tune.frame_max if frame_max is None else frame_max,
            0,
        )
        self.send(m.method_frame(0, chosen) + m.method_frame(0, m.ConnectionOpen(vhost)))
        self.expect(m.ConnectionOpenOk)
        for number in range(1, channels + 1):
            self.call(m.ChannelOpen(), m.ChannelOpenOk, channel=number)
        return tune

    # Sending.

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        try:
            self.socket.sendall(data)
        except (ConnectionError, TimeoutError) as error:
            raise Closed(0, str(error)) from error

    def call(self, method: m.Method, answer: type[M], *, channel: int = 1) -> M:
        """Send a method and wait for its answer."""
        self.send(m.method_frame(channel, method))
        return self.expect(answer)

    def declare(self, queue: str, *, durable: bool = True, exclusive: bool = False, **arguments: object) -> int:
        """Declare a queue; how many messages are ready in it."""
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        method = m.QueueDeclare(queue=queue, durable=durable, exclusive=exclusive, arguments=named)  # type: ignore[arg-type]
        return int(self.call(method, m.QueueDeclareOk).message_count)

    def count(self, queue: str) -> int:
        """How many messages are ready in a queue that must be there."""
        return int(self.call(m.QueueDeclare(queue=queue, passive=True), m.QueueDeclareOk).message_count)

    def publish(self, queue: str, bodies: Iterable[bytes], **options: object) -> None:
        """Publish and wait for nothing."""
        self.send(publish_frames(queue, bodies, **options))  # type: ignore[arg-type]

    def publish_confirmed(
        self, queue: str, bodies: Sequence[bytes], *, batch: int = 500, window: int = 4000, first: int = 0
    ) -> None:
        """Publish on a channel in confirm mode until all are confirmed; `confirms` knows how far it came."""
        for start in range(0, len(bodies), batch):
            part = bodies[start : start + batch]
            self.publish(queue, part)
            while first + start + len(part) - self.confirms.up_to > window:
                self.take_confirms()
            self.take_confirms(0)
        while self.confirms.up_to < first + len(bodies):
            self.take_confirms()

    def take_confirms(self, seconds: float = PATIENCE_S) -> None:
        """Note the confirms that are there, or with `seconds` that come within them."""
        if not select.select([self.socket], [], [], seconds)[0]:
            assert not seconds, "no confirm came"
            return
        self._receive()
        while (found := self._next()) is not None:
            kind, _, payload = found
            if kind == METHOD and payload[:4] in (b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"):
                tag, bits = _CONFIRMED.unpack(payload[4:])
                self.confirms.note(tag, multiple=bool(bits & 1), good=payload[3] == 0x50)
            else:
                self._look(m.decode_method(payload))

    # Receiving.

    def _receive(self) -> None:
        try:
            more = self.socket.recv(1 << 20)
        except ConnectionError as error:
            raise Closed(0, str(error)) from error
        except TimeoutError:
            raise AssertionError("the broker says nothing") from None
        if not more:
            raise Closed(0, "the broker hung up")
        self._data = self._data[self._at :] + more
        self._at = 0

    def _next(self) -> tuple[int, int, bytes] | None:
        found = read_frame(self._data, self._at, 0)
        if found is None:
            return None
        kind, channel, start, stop, self._at = found
        return kind, channel, self._data[start:stop]

    @property
    def has_more(self) -> bool:
        """Whether bytes have arrived that were not looked at."""
        return self._at < len(self._data)

    def rest(self) -> bytes:
        """What has arrived and was not looked at; it is the caller's from now on."""
        data, self._data, self._at = self._data[self._at :], b"", 0
        return data

    def receive(self) -> tuple[int, int, bytes]:
        """The next frame: its type, its channel and its payload."""
        while (found := self._next()) is None:
            self._receive()
        return found

    def _look(self, method: m.Method) -> None:
        if isinstance(method, m.ConnectionClose | m.ChannelClose):
            raise Closed(method.reply_code, method.reply_text)

    def expect(self, kind: type[M]) -> M:
        """The next method of this kind; others, and the content of messages, are passed over."""
        while True:
            frame, _, payload = self.receive()
            if frame != METHOD:
                continue
            method = m.decode_method(payload)
            if isinstance(method, kind):
                return method
            self._look(method)

    def expect_close(self) -> Closed:
        """Wait until the broker closes connection or channel, or drops the socket."""
        try:
            while True:
                frame, _, payload = self.receive()
                if frame == METHOD:
                    self._look(m.decode_method(payload))
        except Closed as closed:
            return closed

    def message(self) -> Arrived | None:
        """The next message, by delivery, get-ok or return; None for get-empty."""
        while True:
            frame, _, payload = self.receive()
            if frame != METHOD:
                continue
            method = m.decode_method(payload)
            if isinstance(method, m.BasicGetEmpty):
                return None
            if isinstance(method, m.BasicDeliver | m.BasicGetOk | m.BasicReturn):
                return Arrived(method, self._content())
            self._look(method)

    def _content(self) -> bytes:
        kind, _, payload = self.receive()
        assert kind == HEADER
        _, size, _ = decode_content_header(payload)
        parts: list[bytes] = []
        while size:
            kind, _, payload = self.receive()
            assert kind == BODY
            parts.append(payload)
            size -= len(payload)
        return b"".join(parts)

    def get(self, queue: str, *, no_ack: bool = True) -> Arrived | None:
        """One message of a queue, or None."""
        self.send(m.method_frame(1, m.BasicGet(queue=queue, no_ack=no_ack)))
        return self.message()

    def consume(self, queue: str, count: int, *, no_ack: bool = True, tag: str = "reader") -> Iterator[Arrived]:
        """So many messages of a queue, as they are delivered."""
        self.call(m.BasicConsume(queue=queue, consumer_tag=tag, no_ack=no_ack), m.BasicConsumeOk)
        for _ in range(count):
            arrived = self.message()
            assert arrived is not None
            yield arrived


class Watcher:
    """A client in a thread of its own that publishes and gets all the time, and notes how long the worst took."""

    def __init__(self, broker: Served) -> None:
        self.rounds = 0
        self.slowest_s = 0.0
        self._broker = broker
        self._over = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            with self._broker.client() as client:
                client.declare("watched", durable=False, exclusive=True)
                while not self._over.is_set():
                    began = time.monotonic()
                    body = b"%d" % self.rounds
                    client.publish("watched", [body])
                    got = client.get("watched")
                    assert got is not None
                    assert got.body == body
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                    self.rounds += 1
                    self._over.wait(0.005)
        except BaseException as error:  # it is told to the test's own thread
            self._failed = error

    def __enter__(self) -> Self:
        self._thread.start()
        eventually(lambda: self.rounds or self._failed)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(timeout=PATIENCE_S)
        if kind is None:
            assert self._failed is None, f"the watcher was disturbed: {self._failed!r}"
            assert not self._thread.is_alive(), "the watcher still waits for an answer"
