"""Can bytes that no client should send do harm? Seeded mutations of recorded sessions, and what must hold after each.

A failure prints its seed: `HOLDFAST_FUZZ_SEED=<seed> HOLDFAST_FUZZ_CASES=1` runs that case alone. Where it needs
the queues that others left, the first seed and the number of cases that it prints run the same ones in one go.
"""

import asyncio
import logging
import os
import random
import socket
import tempfile
import traceback
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.amqp import methods as m
from holdfast.amqp.connection import Connection
from holdfast.amqp.frames import BODY, HEADER, HEARTBEAT, METHOD, PROTOCOL_HEADER, decode_content_header
from holdfast.amqp.server import Server
from holdfast.amqp.settings import Settings
from holdfast.base.files import UnsyncedFiles
from holdfast.broker.basic_properties import Properties, decode_properties, encode_properties
from tests.amqp.internals import has_tasks, open_without_handshake
from tests.amqp.mutations import CHEAP, DEAR, HANDSHAKE, LASTING, SCRIPTS, chunks, cut, invented, mutated
from tests.amqp.recorded import CLIENT, FRAME_MAX, published, sent
from tests.amqp.serving import Closed, Served, Watcher, frames_of, served
from tests.queue.internals import state_of
from tests.tiers import rounds

CASES = int(os.environ.get("HOLDFAST_FUZZ_CASES", rounds(100_000, 8_000)))
FIRST_SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", "1"))
WORKERS = 4
HANDSHAKES = rounds(1500, 200)
OVER_A_SOCKET = rounds(3000, 400)
REOPEN_EVERY = 5000
CHANNEL_CLOSE = b"\x00\x14\x00\x28"
SETTINGS = Settings(login_delay=0.0, memory_bodies=64 << 20)


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
        admitted = self.server.admission.admit("127.0.0.1", 40_000)
        assert admitted is not None
        connection, line = Connection(self.server, admitted), Line()
        connection.connection_made(line)
        return connection, line

    def open(self) -> tuple[Connection, Line]:
        """A client that is in: what the handshake ends with, without its bytes."""
        connection, line = self.connect()
        connection.client = dict(CLIENT)
        connection.user = "guest"
        connection.host = self.server.broker.host("/")
        connection.frame_max, connection.channel_max, connection.heartbeat = FRAME_MAX, 2047, 60
        open_without_handshake(connection)
        return connection, line

    async def settle(self) -> None:
        """Let everything happen that the last bytes set off."""
        for _ in range(100):
            await asyncio.sleep(0)
            if not self.server.broker.turns.is_pending:
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
        for name in [name for name in host.broker_queues if name not in LASTING]:
            host.delete_queue(name, None)
        for broker_queue in host.broker_queues.values():
            broker_queue.queue.purge()
        for name in [name for name in host.topology.exchanges if name and not name.startswith("amq.")]:
            host.delete_exchange(name, if_unused=False)


# What must hold.


def check_written(data: bytes) -> None:
    """What the server wrote is frames in an order that a client can follow, and it refuses by AMQP's codes alone."""
    data = data.removeprefix(PROTOCOL_HEADER)
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
        for broker_queue in host.broker_queues.values():
            assert not broker_queue.consumers, f"{broker_queue.name!r} still has a consumer"
            assert broker_queue.exclusive is None
            assert broker_queue.unacked == 0, f"{broker_queue.name!r} counts {broker_queue.unacked} unsettled"
            assert state_of(broker_queue.queue).leases.count == 0, (
                f"{broker_queue.name!r} has messages that nobody holds"
            )


async def feed(bench: Bench, connection: Connection, line: Line, pieces: list[bytes]) -> None:
    """Let the bytes come, as a transport would: not while the server wants none, and none after it hung up."""
    for piece in pieces:
        for _ in range(30_000):  # a busy machine may take long to check a password
            if not line.paused or line.closed:
                break
            await asyncio.sleep(0.001)
        if line.closed:
            break
        connection.data_received(memoryview(piece) if connection.large_bodies else piece)
        if bench.server.broker.turns.is_pending:
            await bench.settle()


async def one_case(bench: Bench, seed: int) -> None:
    """One session of a broken client on an open connection, and all that must hold after it."""
    rng = random.Random(seed)
    connection, line = bench.open()
    if rng.random() < 0.01:
        await resume_limits(bench, connection, line, invented(rng))
    else:
        script = rng.choice(DEAR if rng.random() < 0.01 else CHEAP)
        await feed(bench, connection, line, chunks(mutated(script, rng), rng))
    line.closed = True
    connection.connection_lost(None)
    await bench.settle()
    check_written(b"".join(line.written))
    check_nothing_left(bench, connection)
    await bench.watch()
    assert not bench.failures, bench.failures[0]
    if seed % 25 == 0:
        bench.tidy()


async def resume_limits(bench: Bench, connection: Connection, line: Line, frames: list[bytes]) -> None:
    """Send frame by frame on two channels, and open a channel anew when it is closed."""
    await feed(bench, connection, line, [sent(m.ChannelOpen()) + sent(m.ChannelOpen(), channel=2)])
    for frame in frames:
        seen = len(line.written)
        await feed(bench, connection, line, [frame])
        for said in line.written[seen:]:
            if said[7:11] == CHANNEL_CLOSE:
                number = int.from_bytes(said[1:3], "big")
                await feed(bench, connection, line, [sent(m.ChannelCloseOk(), m.ChannelOpen(), channel=number)])


async def run_cases(folder: Path, first: int, count: int) -> None:
    """Cases with the seeds from `first` on; the store is closed and opened again in between."""
    for start in range(first, first + count, REOPEN_EVERY):
        with holdfast.open(folder, files=UnsyncedFiles()) as store:
            bench = Bench(store)
            for seed in range(start, min(start + REOPEN_EVERY, first + count)):
                try:
                    await one_case(bench, seed)
                except BaseException as error:
                    raise AssertionError(
                        f"seed {seed}, of HOLDFAST_FUZZ_SEED={first} HOLDFAST_FUZZ_CASES={seed - first + 1}: "
                        f"{type(error).__name__}: {error}\n{traceback.format_exc()[-3000:]}"
                    ) from None
            bench.watcher.connection_lost(None)
            await bench.server.stop()


def run(work: Coroutine[Any, Any, None]) -> None:
    """In a loop of its own."""
    asyncio.run(work)


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a hundred thousand cases make and delete some thousand queues."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(WORKERS))
def test_no_mutated_session_does_harm(part: int, ram: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")  # to keep a line for each refusal takes as long as to refuse
    share = CASES // WORKERS if CASES > REOPEN_EVERY else CASES
    if part * share < CASES:
        run(run_cases(ram / "data", FIRST_SEED + part * share, share))


def test_recorded_sessions_get_what_they_expect(tmp_path: Path) -> None:
    """The seeds of the fuzzing come deep: unchanged, none of them is refused except where it asks for that."""

    async def work() -> None:
        with holdfast.open(tmp_path / "data", files=UnsyncedFiles()) as store:
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
                if name not in ("is refused and goes on", "consumes and settles", "two consumers share"):
                    assert not closes, (name, closes)
            bench.watcher.connection_lost(None)
            await bench.server.stop()

    run(work())


TWO_GETS = sent(m.BasicGet(queue="wk00"), m.BasicAck(1), m.BasicGet(queue="wk00"), m.BasicAck(2))
FILLED = sent(m.ChannelOpen(), m.QueueDeclare(queue="wk00")) + published("", "wk00", b"1") + published("", "wk00", b"2")
FOUND = {
    "a channel is spoken to after its connection failed": sent(m.ChannelOpen(), m.ChannelOpen(), m.ChannelCloseOk()),
    "immediate": sent(m.ChannelOpen()) + sent(m.BasicPublish(0, "", "wk00", False, True)),
    "two goodbyes": sent(m.ConnectionClose(), m.ConnectionClose(), channel=0),
    "a confirm is due when the connection fails": sent(m.ChannelOpen(), m.ConfirmSelect())
    + published("", "nowhere", b"lost")
    + sent(m.ChannelOpen()),
    "a confirm is due when the channel fails": sent(m.ChannelOpen(), m.ConfirmSelect())
    + published("", "nowhere", b"lost")
    + sent(m.BasicAck(99)),
    "a priority above nine": sent(m.ChannelOpen(), m.QueueDeclare(queue="wk99", arguments={"x-max-priority": 200}))
    + published("", "wk99", b"urgent", encode_properties(Properties(priority=150))),
    "a transaction that settled what came within it ends": FILLED + sent(m.TxSelect()) + TWO_GETS,
    "a transaction that settled what came within it is rolled back": FILLED
    + sent(m.TxSelect())
    + TWO_GETS
    + sent(m.TxRollback(), m.TxRollback()),
    "a transaction that settled what came within it is committed": FILLED
    + sent(m.TxSelect())
    + TWO_GETS
    + sent(m.TxCommit(), m.TxRollback()),
    "a commit fails after it took what was settled": FILLED
    + sent(m.ExchangeDeclare(exchange="brief", type="fanout"), m.TxSelect())
    + TWO_GETS
    + published("brief", "", b"too late")
    + sent(m.ExchangeDelete(exchange="brief"), m.TxCommit()),
    "a queue is deleted under a transaction": FILLED
    + sent(m.TxSelect())
    + TWO_GETS
    + published("", "wk00", b"too late")
    + sent(m.QueueDelete(queue="wk00"), m.TxRollback(), m.BasicRecover(True), m.TxCommit()),
    "a queue is deleted under its consumer": FILLED
    + sent(m.BasicConsume(queue="wk00"), m.QueueDelete(queue="wk00"), m.BasicAck(1), m.BasicRecover(True)),
    "a queue is made anew under its consumer": FILLED
    + sent(m.BasicConsume(queue="wk00"), m.QueueDelete(queue="wk00"), m.QueueDeclare(queue="wk00"))
    + published("", "wk00", b"3")
    + sent(m.BasicConsume(queue="wk00", no_ack=True), m.BasicNack(0, True, True)),
}
"""What did harm once, in as few frames as it took."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name: str, tmp_path: Path) -> None:
    async def work() -> None:
        with holdfast.open(tmp_path / "data", files=UnsyncedFiles()) as store:
            bench = Bench(store)
            for pieces in ([FOUND[name]], cut(FOUND[name])):
                connection, line = bench.open()
                await feed(bench, connection, line, pieces)
                line.closed = True
                connection.connection_lost(None)
                await bench.settle()
                check_written(b"".join(line.written))
                check_nothing_left(bench, connection)
                assert not bench.failures, bench.failures[0]
                await bench.watch()
            bench.watcher.connection_lost(None)
            await bench.server.stop()

    run(work())


def test_the_shortcut_into_a_connection_is_what_a_login_leads_to(tmp_path: Path) -> None:
    async def work() -> None:
        with holdfast.open(tmp_path / "data", files=UnsyncedFiles()) as store:
            bench = Bench(store)
            short, _ = bench.open()
            real, line = bench.connect()
            other, its_line = bench.connect()
            for connection, its in ((real, line), (other, its_line)):
                await feed(bench, connection, its, [HANDSHAKE])
                for _ in range(12_000):
                    if connection.state == "open":
                        break
                    await asyncio.sleep(0.005)
            own = {name for name in vars(real) if getattr(real, name) != getattr(other, name)}  # of each its own
            own |= {"heard", "said", "opened_at", "performing", "received", "sent", "mechanism"}
            assert set(vars(real)) == set(vars(short))
            for name in set(vars(real)) - own:
                assert getattr(real, name) == getattr(short, name), name
            for connection in (short, real, other, bench.watcher):
                connection.connection_lost(None)
            await bench.server.stop()

    run(work())


@pytest.mark.slow
def test_no_mutated_handshake_does_harm(tmp_path: Path) -> None:
    """From the first octet on, with the password checked as it is for everyone."""

    async def work() -> None:
        with holdfast.open(tmp_path / "data", files=UnsyncedFiles()) as store:
            bench = Bench(store)
            for seed in range(FIRST_SEED, FIRST_SEED + min(CASES, HANDSHAKES)):
                rng = random.Random(f"handshake {seed}")
                frames = [PROTOCOL_HEADER, *cut(HANDSHAKE[len(PROTOCOL_HEADER) :]), *rng.choice(CHEAP)[:4]]
                connection, line = bench.connect()
                try:
                    await feed(bench, connection, line, chunks(mutated(frames[: rng.choice((4, 8))], rng), rng))
                    connection.connection_lost(None)
                    for _ in range(30_000):
                        if not has_tasks(bench.server):
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
    data = [HANDSHAKE, *mutated(rng.choice(CHEAP), rng)]
    if rng.random() < 0.1:
        data = mutated([PROTOCOL_HEADER, *cut(HANDSHAKE[len(PROTOCOL_HEADER) :])], rng)
    received = []
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as line:
        try:
            for piece in chunks(data, rng)[:40]:
                line.sendall(piece)
            if rng.random() < 0.7:
                line.shutdown(socket.SHUT_WR)
                while more := line.recv(1 << 16):
                    received.append(more)
        except TimeoutError:
            raise
        except OSError:
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
