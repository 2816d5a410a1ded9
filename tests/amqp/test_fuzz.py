"""Can bytes that no client should send do harm? Seeded mutations of recorded sessions, and what must hold after each.

A failure prints its seed; `HOLDFAST_FUZZ_SEED=<seed> HOLDFAST_FUZZ_CASES=1` runs that case alone.
"""

import asyncio
import os
import random
import socket
import struct
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.amqp import methods as m
from holdfast.amqp.connection import Connection
from holdfast.amqp.frames import BODY, HEADER, HEARTBEAT, METHOD, PROTOCOL_HEADER, decode_content_header, read_frame
from holdfast.amqp.server import Server
from holdfast.amqp.settings import Settings
from holdfast.base.files import File, Mode, SystemFile, SystemFiles
from holdfast.broker.properties import decode_properties
from tests.amqp.recorded import CLIENT, FRAME_MAX, SESSIONS, greeted, published, sent
from tests.amqp.serving import Closed, Served, Watcher, frames_of, served

CASES = int(os.environ.get("HOLDFAST_FUZZ_CASES", "100000"))
FIRST_SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", "1"))
WORKERS = 4
HANDSHAKES = 1500
OVER_A_SOCKET = 3000
REOPEN_EVERY = 5000
HANDSHAKE = greeted()
SETTINGS = Settings(login_delay=0.0, memory_bodies=64 << 20)


class _UnsyncedFile(SystemFile):
    def sync(self) -> None:
        """Not waited for: these tests cut no power."""


class _UnsyncedFiles(SystemFiles):
    """The operating system's files without waiting for the disk, which a queue that is made does ten times."""

    def open(self, path: Path, mode: Mode) -> File:
        found = super().open(path, mode)
        assert isinstance(found, SystemFile)
        other = _UnsyncedFile(os.dup(found._fd))
        found.close()
        return other

    def sync_dir(self, path: Path) -> None:
        """Not waited for."""


class Line(asyncio.Transport):
    """The far end of a connection: it keeps what the server writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """The server says something."""
        assert not self.closed, "written after the line was closed"
        self.written.append(bytes(data))

    def close(self) -> None:
        """The server hangs up."""
        self.closed = True

    def abort(self) -> None:
        """The server hangs up at once."""
        self.closed = True

    def is_closing(self) -> bool:
        """Whether it hung up."""
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """A client on this machine."""
        return ("127.0.0.1", 40_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered here."""

    def pause_reading(self) -> None:
        """The server wants no more for now."""
        self.paused = True

    def resume_reading(self) -> None:
        """It does again."""
        self.paused = False


class Bench:
    """A server without a socket, and a watcher that is connected all the time."""

    def __init__(self, store: holdfast.Store) -> None:
        self.server = Server(store, SETTINGS)
        self.loop = asyncio.get_running_loop()
        self.failures: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda loop, context: self.failures.append(context))
        self.watcher, self._line = self.open()
        self.watcher.data_received(sent(m.ChannelOpen(), m.QueueDeclare(queue="watched", exclusive=True)))
        self._probes = 0

    def connect(self) -> tuple[Connection, Line]:
        """A client that has not said anything."""
        connection, line = Connection(self.server), Line()
        connection.connection_made(line)
        return connection, line

    def open(self) -> tuple[Connection, Line]:
        """A client that is in: what the handshake ends with, without its bytes."""
        connection, line = self.connect()
        connection.client = dict(CLIENT)
        connection.user = "guest"
        connection.host = self.server.broker.host("/")
        connection.frame_max, connection.channel_max, connection.heartbeat = FRAME_MAX, 2047, 60
        connection._state = "open"
        connection._close_by = None
        return connection, line

    async def settle(self) -> None:
        """Let everything happen that the last bytes set off."""
        for _ in range(100):
            await asyncio.sleep(0)
            if not self.server.broker._turn_is_set:
                return

    async def watch(self) -> None:
        """The watcher publishes and gets."""
        self._probes += 1
        body = b"probe %d" % self._probes
        self._line.written.clear()
        self.watcher.data_received(published("", "watched", body) + sent(m.BasicGet(queue="watched", no_ack=True)))
        frames = [*frames_of(b"".join(self._line.written))]
        assert [kind for kind, _, _ in frames] == [METHOD, HEADER, BODY], "the watcher got no message"
        assert frames[-1][2] == body, "the watcher got another message"

    def tidy(self) -> None:
        """Delete what no recorded session declares, and empty the rest."""
        host = self.server.broker.host("/")
        for name in [name for name in host.mailboxes if name not in LASTING]:
            host.delete_queue(name, None)
        for mailbox in host.mailboxes.values():
            mailbox.queue.purge()
        for name in [name for name in host.topology.exchanges if name and not name.startswith("amq.")]:
            host.delete_exchange(name, if_unused=False)


# Mutations.


def cut(data: bytes) -> list[bytes]:
    """The frames of what a client sends after the protocol header; the last one may be a part."""
    found, at = [], 0
    while at < len(data):
        frame = read_frame(data, at, 0)
        end = frame[4] if frame is not None else len(data)
        found.append(data[at:end])
        at = end
    return found


SCRIPTS: dict[str, list[bytes]] = {
    name: cut(data[len(HANDSHAKE) :].replace(b"\x04work", b"\x04wk%02d" % number))
    for number, (name, data) in enumerate(SESSIONS.items())
    if data.startswith(HANDSHAKE) and len(data) > len(HANDSHAKE)
}
"""What the recorded clients send after the handshake, each with a queue of its own."""
LASTING = {"watched", *(f"wk{number:02}" for number in range(len(SESSIONS)))}
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


def mutated(frames: list[bytes], rng: random.Random) -> bytes:
    """A session with a few things wrong; now and then random bytes alone."""
    if rng.random() < 0.02:
        return rng.randbytes(rng.randrange(1, 2000))
    frames = list(frames)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        rng.choice(MUTATIONS)(frames, rng)
    return b"".join(frames)


def chunks(data: bytes, rng: random.Random) -> list[bytes]:
    """The same bytes as a network may bring them: mostly as a whole, else in pieces down to single bytes."""
    kind = rng.random()
    if kind < 0.6:
        return [data]
    if kind < 0.65 and len(data) < 600:
        return [data[at : at + 1] for at in range(len(data))]
    found, at = [], 0
    while at < len(data):
        size = rng.choice((1, 3, 20, 100, 1000))
        found.append(data[at : at + size])
        at += size
    return found


# What must hold.


def check_written(data: bytes) -> None:
    """What the server wrote is frames in an order that a client can follow, and it refuses by AMQP's codes alone."""
    if data.startswith(PROTOCOL_HEADER):
        data = data[len(PROTOCOL_HEADER) :]
    awaited: dict[int, int | None] = {}  # by channel with content under way: how much of the body is missing
    refused: set[int] = set()
    over = False
    for kind, channel, payload in frames_of(data, 131_072):
        assert not over or payload[:4] == b"\x00\x0a\x00\x33", f"{payload[:4]!r} after connection.close"
        if kind == METHOD:
            assert channel not in awaited, "a method in the middle of a message"
            method = m.decode_method(payload)
            assert channel not in refused or isinstance(method, m.ChannelCloseOk | m.ChannelOpenOk), (
                f"{method} on a channel that was closed"
            )
            if isinstance(method, m.ConnectionClose | m.ChannelClose):
                assert method.reply_code in m.REPLY_CODES, method
                assert method.reply_code != 541, method
                assert m.REPLY_CODES[method.reply_code] in method.reply_text, method
            if isinstance(method, m.ConnectionClose):
                over = True
            elif isinstance(method, m.ChannelClose):
                refused.add(channel)
            elif isinstance(method, m.ChannelOpenOk | m.ChannelCloseOk):
                refused.discard(channel)
            elif isinstance(method, m.BasicDeliver | m.BasicGetOk | m.BasicReturn):
                awaited[channel] = None
        elif kind == HEADER:
            assert awaited.get(channel, 0) is None, "a header that nothing announced"
            _, size, raw = decode_content_header(payload)
            decode_properties(raw)
            if size:
                awaited[channel] = size
            else:
                del awaited[channel]
        elif kind == BODY:
            left = awaited[channel]
            assert left is not None
            assert len(payload) <= left, "more body than its header says"
            if left == len(payload):
                del awaited[channel]
            else:
                awaited[channel] = left - len(payload)
        else:
            assert kind == HEARTBEAT
    assert not awaited, "a message without its end"


def check_nothing_left(bench: Bench, connection: Connection) -> None:
    """What belonged to a connection that is gone is gone, or back in its queue."""
    server = bench.server
    assert not connection.channels
    assert server.connections == {bench.watcher}
    for host in server.broker.hosts.values():
        assert not list(host.topology.owned_by(connection)), "an exclusive queue outlived its connection"
        for mailbox in host.mailboxes.values():
            assert not mailbox.consumers, f"{mailbox.name!r} still has a consumer"
            assert mailbox.exclusive is None
            assert mailbox.unacked == 0, f"{mailbox.name!r} counts {mailbox.unacked} unsettled"
            assert mailbox.queue.standing.leases.count == 0, f"{mailbox.name!r} has messages that nobody holds"
            assert mailbox.ready() >= 0


async def feed(bench: Bench, connection: Connection, line: Line, pieces: list[bytes]) -> None:
    """Let the bytes come, as a transport would: not while the server wants none, and none after it hung up."""
    for piece in pieces:
        for _ in range(2000):
            if not line.paused or line.closed:
                break
            await asyncio.sleep(0.001)
        if line.closed:
            break
        connection.data_received(piece)
        if bench.server.broker._turn_is_set:
            await bench.settle()


async def one_case(bench: Bench, seed: int) -> None:
    """One mutated session on an open connection, and all that must hold after it."""
    rng = random.Random(seed)
    data = mutated(rng.choice(DEAR if rng.random() < 0.01 else CHEAP), rng)
    connection, line = bench.open()
    await feed(bench, connection, line, chunks(data, rng))
    line.closed = True
    connection.connection_lost(None)
    await bench.settle()
    line.closed = False
    check_written(b"".join(line.written))
    check_nothing_left(bench, connection)
    await bench.watch()
    assert not bench.failures, bench.failures[0]
    if seed % 25 == 0:
        bench.tidy()


async def run_cases(folder: Path, first: int, count: int) -> None:
    """Cases with the seeds from `first` on; the store is closed and opened again in between."""
    for start in range(first, first + count, REOPEN_EVERY):
        with holdfast.open(folder, files=_UnsyncedFiles()) as store:
            bench = Bench(store)
            for seed in range(start, min(start + REOPEN_EVERY, first + count)):
                try:
                    await one_case(bench, seed)
                except BaseException as error:
                    raise AssertionError(
                        f"seed {seed}: {type(error).__name__}: {error}\n{traceback.format_exc()[-3000:]}"
                    ) from None
            bench.watcher.connection_lost(None)
            await bench.server.stop()


def run(work: Coroutine[Any, Any, None]) -> None:
    """In a loop of its own."""
    asyncio.run(work)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(WORKERS))
def test_no_mutated_session_does_harm(part: int, tmp_path: Path) -> None:
    share = max(1, CASES // WORKERS)
    if part * share < CASES:
        run(run_cases(tmp_path / "data", FIRST_SEED + part * share, share))


def test_recorded_sessions_get_what_they_expect(tmp_path: Path) -> None:
    """The seeds of the fuzzing come deep: unchanged, none of them is refused except where it asks for that."""

    async def work() -> None:
        with holdfast.open(tmp_path / "data", files=_UnsyncedFiles()) as store:
            bench = Bench(store)
            for name, frames in SCRIPTS.items():
                connection, line = bench.open()
                await feed(bench, connection, line, [b"".join(frames)])
                connection.connection_lost(None)
                await bench.settle()
                written = b"".join(line.written)
                check_written(written)
                check_nothing_left(bench, connection)
                closes = [
                    method
                    for kind, _, payload in frames_of(written)
                    if kind == METHOD
                    and isinstance(method := m.decode_method(payload), m.ChannelClose | m.ConnectionClose)
                ]
                if name not in ("is refused and goes on", "consumes and settles"):
                    assert not closes, (name, closes)
            bench.watcher.connection_lost(None)
            await bench.server.stop()

    run(work())


def test_the_shortcut_into_a_connection_is_what_a_login_leads_to(tmp_path: Path) -> None:
    async def work() -> None:
        with holdfast.open(tmp_path / "data", files=_UnsyncedFiles()) as store:
            bench = Bench(store)
            short, _ = bench.open()
            real, line = bench.connect()
            await feed(bench, real, line, [HANDSHAKE])
            for _ in range(2000):
                if real._state == "open":
                    break
                await asyncio.sleep(0.005)
            own = {"_transport", "_login", "_heard", "_said", "opened_at", "performing"}
            assert set(vars(real)) == set(vars(short))
            for name in set(vars(real)) - own:
                assert getattr(real, name) == getattr(short, name), name
            for connection in (short, real, bench.watcher):
                connection.connection_lost(None)
            await bench.server.stop()

    run(work())


@pytest.mark.slow
def test_no_mutated_handshake_does_harm(tmp_path: Path) -> None:
    """From the first octet on, with the password checked as it is for everyone."""

    async def work() -> None:
        with holdfast.open(tmp_path / "data", files=_UnsyncedFiles()) as store:
            bench = Bench(store)
            for seed in range(FIRST_SEED, FIRST_SEED + min(CASES, HANDSHAKES)):
                rng = random.Random(f"handshake {seed}")
                frames = [PROTOCOL_HEADER, *cut(greeted()[len(PROTOCOL_HEADER) :]), *rng.choice(CHEAP)[:4]]
                connection, line = bench.connect()
                try:
                    await feed(bench, connection, line, chunks(mutated(frames[: rng.choice((4, 8))], rng), rng))
                    connection.connection_lost(None)
                    for _ in range(2000):
                        if not bench.server._tasks:
                            break
                        await asyncio.sleep(0.002)
                    await bench.settle()
                    check_written(b"".join(line.written))
                    check_nothing_left(bench, connection)
                    await bench.watch()
                    assert not bench.failures, bench.failures[0]
                except BaseException as error:
                    raise AssertionError(f"seed {seed}: {traceback.format_exc()[-3000:]}") from error
                if seed % 25 == 0:
                    bench.tidy()
            bench.watcher.connection_lost(None)
            await bench.server.stop()

    run(work())


# Over a socket.


def _over_a_socket(broker: Served, seed: int) -> bytes:
    rng = random.Random(f"socket {seed}")
    data = HANDSHAKE + mutated(rng.choice(CHEAP), rng)
    if rng.random() < 0.1:
        data = mutated([PROTOCOL_HEADER, *cut(HANDSHAKE[len(PROTOCOL_HEADER) :])], rng)
    received = []
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as line:
        try:
            for piece in chunks(data, rng)[:40]:
                line.sendall(piece)
            if rng.random() < 0.7:
                line.shutdown(socket.SHUT_WR)
                while more := line.recv(1 << 16):
                    received.append(more)
        except ConnectionError:
            pass  # the broker hung up first, which it may
    return b"".join(received)


@pytest.mark.slow
def test_mutated_sessions_over_a_socket_leave_others_alone_and_memory_where_it_was(tmp_path: Path) -> None:
    with served(tmp_path / "data", login_delay=0, memory_bodies="64MiB") as broker, Watcher(broker) as watcher:
        for seed in range(200):
            _over_a_socket(broker, -seed)
        before = broker.resident()
        for seed in range(FIRST_SEED, FIRST_SEED + min(CASES, OVER_A_SOCKET)):
            try:
                _over_a_socket(broker, seed)
            except TimeoutError:
                raise AssertionError(f"seed {seed}: the broker neither answered nor hung up") from None
        assert broker.resident() - before < 64 << 20
        assert watcher.rounds > 100
        with broker.client() as client:
            with pytest.raises(Closed) as refused:
                client.count("a queue that nobody made")
            assert refused.value.code == 404
