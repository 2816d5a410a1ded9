"""What can a hostile or broken client do to a served broker? Be refused, and leave others and the memory alone."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.amqp import methods as m
from holdfast.amqp.frames import BODY, HEADER, METHOD, PROTOCOL_HEADER, frame
from holdfast.broker.basic_properties import PERSISTENT_ONLY
from tests.amqp.recorded import greeted
from tests.amqp.serving import Client, Closed, Served, Watcher, eventually, publish_frames, served

pytestmark = pytest.mark.slow

MIB = 1 << 20
NEVER_READ_MIB = 200
SLACK = 96 * MIB
"""What a broker may take more than it had, beside the bodies that it was allowed: buffers, and Python's own."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker that many tests share: each leaves it as good as it was."""
    with served(tmp_path_factory.mktemp("bad") / "data", login_delay=0.1) as one, Watcher(one):
        yield one


def header(size: int, *, channel: int = 1, raw: bytes = b"\x00\x00") -> bytes:
    """The content header of a message of this size."""
    return frame(HEADER, channel, struct.pack(">HHQ", 60, 0, size) + raw)


def nested(depth: int, innermost: bytes = b"") -> bytes:
    """A table in a table in a table, as bytes: made by hand, as no encoder should be asked for this."""
    inner = innermost
    for _ in range(depth):
        inner = b"\x01aF" + struct.pack(">I", len(inner)) + inner
    return struct.pack(">I", len(inner)) + inner


# Frames.


def test_a_frame_that_says_it_is_huge_is_refused_before_it_comes(broker: Served) -> None:
    before = broker.resident()
    with broker.client() as client:
        client.send(struct.pack(">BHI", METHOD, 1, (1 << 32) - 1))
        assert client.expect_close().code == 501
    assert broker.resident() - before < 32 * MIB


def test_a_frame_larger_than_what_was_agreed_is_refused(broker: Served) -> None:
    """As RabbitMQ does, the broker lets the eight octets around a payload pass that frame-max should count."""
    with broker.client(frame_max=4096) as client:
        client.declare("agreed", durable=False, exclusive=True)
        client.send(m.method_frame(1, m.BasicPublish(0, "", "agreed")) + header(4088))
        client.send(frame(BODY, 1, bytes(4088)))
        assert client.get("agreed") is not None
        client.send(m.method_frame(1, m.BasicPublish(0, "", "agreed")) + header(4097))
        client.send(frame(BODY, 1, bytes(4097)))
        assert client.expect_close().code == 501


@pytest.mark.parametrize("asked", [1, 4095, 131_073, (1 << 32) - 1])
def test_a_frame_max_that_cannot_be_is_refused(broker: Served, asked: int) -> None:
    client = Client(broker.port)
    with contextlib.closing(client), pytest.raises(Closed) as refused:
        client.log_in(frame_max=asked)
    assert refused.value.code in (0, 501, 502, 530)


def test_a_body_longer_or_shorter_than_its_header_says_is_refused(broker: Served) -> None:
    for size in (10, 30):
        with broker.client() as client:
            client.declare("exact", durable=False, exclusive=True)
            client.send(m.method_frame(1, m.BasicPublish(0, "", "exact")) + header(size))
            client.send(frame(BODY, 1, bytes(20)))
            client.send(m.method_frame(1, m.BasicGet(queue="exact")))
            assert client.expect_close().code in (501, 505)


def test_a_message_larger_than_may_be_closes_the_channel_before_its_body_comes(broker: Served) -> None:
    before = broker.resident()
    with broker.client(channels=2) as client:
        client.send(m.method_frame(1, m.BasicPublish(0, "", "anything")) + header((128 << 20) + 1))
        refused = client.expect_close()
        assert (refused.code, "larger" in refused.text) == (406, True)
        client.send(frame(BODY, 1, bytes(100_000)) * 20)  # it was on its way already
        client.send(m.method_frame(1, m.ChannelCloseOk()))
        client.call(m.ChannelOpen(), m.ChannelOpenOk)
        assert client.declare("after", durable=False, exclusive=True) == 0
    with broker.client() as client:
        client.send(m.method_frame(1, m.BasicPublish(0, "", "anything")) + header((1 << 64) - 1))
        assert client.expect_close().code == 406
    assert broker.resident() - before < 32 * MIB


def test_clients_that_vanish_within_a_message_leave_nothing_behind(broker: Served) -> None:
    with broker.client() as other:
        other.declare("halves", durable=False)
        for _ in range(20):
            with broker.client() as client:
                client.send(m.method_frame(1, m.BasicPublish(0, "", "halves")) + header(100 * MIB))
                client.send(frame(BODY, 1, bytes(131_064)) * 16)
        before = broker.resident()
        for _ in range(60):
            with broker.client() as client:
                client.send(m.method_frame(1, m.BasicPublish(0, "", "halves")) + header(100 * MIB))
                client.send(frame(BODY, 1, bytes(131_064)) * 16)
        other.publish("halves", [b"whole"])
        assert eventually(lambda: other.count("halves")) == 1
        assert broker.resident() - before < 48 * MIB
        other.call(m.QueueDelete(queue="halves"), m.QueueDeleteOk)


def test_a_client_that_sends_one_byte_at_a_time_is_served_like_any_other(broker: Served) -> None:
    data = (
        greeted()
        + m.method_frame(1, m.ChannelOpen())
        + m.method_frame(1, m.QueueDeclare(queue="bytewise", exclusive=True))
        + publish_frames("bytewise", [b"in the end it is there" * 20])
        + m.method_frame(1, m.BasicGet(queue="bytewise", no_ack=True))
    )
    client = Client(broker.port)
    with contextlib.closing(client):
        for at in range(len(data)):
            client.send(data[at : at + 1])
        arrived = client.message()
        assert arrived is not None
        assert arrived.body == b"in the end it is there" * 20


# Tables.


@pytest.mark.parametrize("depth", [20, 500, 10_000])
def test_tables_within_tables_are_read_or_refused_but_do_no_harm(broker: Served, depth: int) -> None:
    table = nested(depth)
    with broker.client() as client:
        client.send(frame(METHOD, 1, b"\x00\x32\x00\x0a\x00\x00\x01q\x08" + table))
        if depth > 100:
            assert client.expect_close().code in (501, 502, 406)
    with broker.client() as client:
        client.declare("deep", durable=False, exclusive=True)
        headers = b"\x20\x00" + table
        client.send(m.method_frame(1, m.BasicPublish(0, "", "deep")) + header(2, raw=headers) + frame(BODY, 1, b"ok"))
        if depth > 100:
            client.send(m.method_frame(1, m.BasicQos(0, 1)))
            assert client.expect_close().code in (501, 502, 406)
        else:
            assert client.get("deep") is not None


def test_arrays_within_arrays_do_no_harm(broker: Served) -> None:
    inner = b""
    for _ in range(20_000):
        inner = b"A" + struct.pack(">I", len(inner)) + inner
    table = b"\x01a" + inner
    with broker.client() as client:
        client.send(frame(METHOD, 1, b"\x00\x32\x00\x0a\x00\x00\x01q\x08" + struct.pack(">I", len(table)) + table))
        assert client.expect_close().code in (501, 502, 406)


def test_huge_tables_are_carried(broker: Served) -> None:
    entries = {f"key {number}": number for number in range(5000)}
    with broker.client() as client:
        client.declare("wide", durable=False, exclusive=True, **{f"mine {number}": number for number in range(3000)})
        client.call(m.ExchangeDeclare(exchange="by header", type="headers"), m.ExchangeDeclareOk)
        binding = m.QueueBind(queue="wide", exchange="by header", arguments={"x-match": "all", **entries})
        client.call(binding, m.QueueBindOk)
        client.call(m.ExchangeDelete(exchange="by header"), m.ExchangeDeleteOk)


@pytest.mark.parametrize(
    "table",
    [
        struct.pack(">I", 100) + b"\x01a",
        struct.pack(">I", (1 << 32) - 1) + b"\x01at\x01",
        struct.pack(">I", 3) + b"\x01a?",
        struct.pack(">I", 3) + b"\xffab",
        struct.pack(">I", 7) + b"\x01aS\xff\xff\xff\xff",
        struct.pack(">I", 4) + b"\x01\xffV" + b"V",
    ],
)
def test_malformed_tables_are_refused(broker: Served, table: bytes) -> None:
    with broker.client() as client:
        client.send(frame(METHOD, 1, b"\x00\x32\x00\x0a\x00\x00\x01q\x08" + table))
        assert client.expect_close().code in (501, 502)


# Names.


NAMES = [
    "../../escaped",
    "..",
    ".",
    "/",
    "//etc/passwd",
    "a/b/c",
    "a\0b",
    "\x01\x02\x7f",
    "tab\t",
    "x" * 255,
    "é" * 127 + "x",
    "\U0001f600" * 63,
    "UPPER",
    "upper",
    "-rf",
    "~root",
    "%2e%2e%2f",
    "journals",
    "holdfast.definitions",
    "LOCK",
    "a\x1fb",
    "work\x1ftransient",
    "con",
    " leading and trailing ",
]


def test_names_with_tricks_stay_in_the_data_folder_and_are_told_apart(tmp_path: Path) -> None:
    """Each name is refused with 403 or 406, or names a queue of its own that is there after a restart."""
    taken: list[str] = []
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    with Served(tmp_path / "outer" / "inner" / "data") as one:
        for name in NAMES:
            with one.client() as client:
                try:
                    client.declare(name)
                except Closed as refused:
                    assert refused.code in (403, 406), (name, refused)
                    continue
                taken.append(name)
                client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
                client.publish_confirmed(name, [name.encode()])
        one.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outer"]
    assert sorted(path.name for path in (tmp_path / "outer").iterdir()) == ["inner"]
    assert sorted(path.name for path in (tmp_path / "outer" / "inner").iterdir()) == ["data", "data.stderr"]
    with Served(tmp_path / "outer" / "inner" / "data") as one, one.client() as client:
        for name in taken:
            assert client.count(name) == 1, name
            arrived = client.get(name)
            assert arrived is not None
            assert arrived.body == name.encode()
    assert len(taken) > 15


@pytest.mark.parametrize("vhost", ["../../x", "\0", "no such", "/" * 255, "é" * 127])
def test_a_virtual_host_that_is_not_there_is_refused_whatever_its_name(broker: Served, vhost: str) -> None:
    client = Client(broker.port)
    with contextlib.closing(client), pytest.raises(Closed) as refused:
        client.log_in(vhost=vhost)
    assert refused.value.code in (530, 403)


# Logins.


@pytest.mark.parametrize(
    ("user", "password"),
    [("guest", "wrong"), ("nobody", "guest"), ("", ""), ("guest", ""), ("guest\0", "guest"), ("x" * 5000, "y" * 5000)],
)
def test_wrong_credentials_are_refused(broker: Served, user: str, password: str) -> None:
    client = Client(broker.port)
    with contextlib.closing(client), pytest.raises(Closed) as refused:
        client.log_in(user=user, password=password)
    assert refused.value.code == 403
    assert "wrong" not in refused.value.text


@pytest.mark.parametrize("mechanism", ["", "CRAM-MD5", "PLAIN ", "EXTERNAL", "AMQPLAIN"])
def test_a_mechanism_that_cannot_work_is_refused(broker: Served, mechanism: str) -> None:
    client = Client(broker.port)
    with contextlib.closing(client):
        client.send(PROTOCOL_HEADER)
        client.expect(m.ConnectionStart)
        start = m.ConnectionStartOk({"capabilities": {"authentication_failure_close": True}}, mechanism, b"\xff\0", "")
        client.send(m.method_frame(0, start))
        assert client.expect_close().code == 403


def test_many_wrong_logins_at_once_do_not_stop_others(tmp_path: Path) -> None:
    """While forty clients try passwords, another publishes and gets, and one more logs in."""

    def guess(port: int) -> None:
        client = Client(port)
        with contextlib.closing(client), contextlib.suppress(Closed):
            client.log_in(password="guess")

    with served(tmp_path / "data", handshake_timeout=60) as one, Watcher(one) as watcher:
        before = one.resident()
        most = before
        threads = [threading.Thread(target=guess, args=(one.port,)) for _ in range(40)]
        started = watcher.rounds
        for thread in threads:
            thread.start()
        with one.client() as client:
            client.declare("in spite of it", durable=False, exclusive=True)
        while any(thread.is_alive() for thread in threads):
            most = max(most, one.resident())
            time.sleep(0.01)
        assert watcher.rounds - started > 20
        assert most - before < 600 * MIB  # each check of a password takes 32 MiB: not all are made at once


@pytest.mark.parametrize("said", [0, 4, 8], ids=["nothing", "half a header", "a header"])
def test_a_handshake_that_is_never_finished_is_ended(tmp_path: Path, said: int) -> None:
    with served(tmp_path / "data", handshake_timeout=5) as one, Watcher(one):
        lines = [socket.create_connection(("127.0.0.1", one.port), timeout=60) for _ in range(50)]
        for line in lines:
            line.sendall(PROTOCOL_HEADER[:said])
        with one.client() as client:  # one that is in is not ended
            for line in lines:
                while line.recv(4096):
                    pass
                line.close()
            assert client.declare("still in", durable=False, exclusive=True) == 0


def test_a_client_that_stops_after_its_password_is_ended(tmp_path: Path) -> None:
    with served(tmp_path / "data", handshake_timeout=5) as one:
        client = Client(one.port)
        with contextlib.closing(client):
            client.send(PROTOCOL_HEADER)
            start = m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")
            client.send(m.method_frame(0, start))
            client.expect(m.ConnectionTune)
            assert client.expect_close().code == 0


def test_a_client_that_leaves_while_its_password_is_checked_leaves_no_consumer(broker: Served) -> None:
    """Everything up to basic.consume is sent at once, and the socket is closed before the password is checked."""
    with broker.client() as other:
        other.declare("haunted", durable=False)
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", broker.port)) as line:
                line.sendall(
                    greeted()
                    + m.method_frame(1, m.ChannelOpen())
                    + m.method_frame(1, m.BasicConsume(queue="haunted", no_ack=True))
                )
        time.sleep(1)
        eventually(
            lambda: other.call(m.QueueDeclare(queue="haunted", passive=True), m.QueueDeclareOk).consumer_count == 0
        )
        other.publish("haunted", [b"boo"])
        assert other.get("haunted") is not None
        other.call(m.QueueDelete(queue="haunted"), m.QueueDeleteOk)


# Numbers.


def test_channels_are_counted(broker: Served) -> None:
    with broker.client(channel_max=100, channels=100) as client:
        with pytest.raises(Closed) as refused:
            client.call(m.ChannelOpen(), m.ChannelOpenOk, channel=101)
        assert refused.value.code == 530


def test_ten_thousand_channels_of_one_connection(tmp_path: Path) -> None:
    with served(tmp_path / "data", channel_max=0) as one, Watcher(one):
        before = one.resident()
        with one.client() as client:
            client.declare("work", durable=False, exclusive=True)
            for number in range(2, 10_001):
                client.send(m.method_frame(number, m.ChannelOpen()))
            for _ in range(2, 10_001):
                client.expect(m.ChannelOpenOk)
            for number in range(1, 10_001):
                client.send(publish_frames("work", [b"%d" % number], channel=number))
            client.send(m.method_frame(10_000, m.QueueDeclare(queue="work", passive=True)))
            assert client.expect(m.QueueDeclareOk).message_count == 10_000
            for number in range(1, 10_001):
                client.send(m.method_frame(number, m.BasicConsume(queue="work", consumer_tag="same", no_ack=True)))
            found = {client.message().body for _ in range(10_000)}  # type: ignore[union-attr]
            assert len(found) == 10_000
            assert one.resident() - before < 200 * MIB
        with one.client() as client:  # all of them ended with their connection
            eventually(lambda: client.declare("work", durable=False, exclusive=True) == 0)


def test_five_hundred_connections_at_once(tmp_path: Path) -> None:
    with served(tmp_path / "data") as one:
        before = one.resident()
        with one.client() as client:
            client.declare("work", durable=False)
        clients: list[Client] = []
        try:
            for _ in range(500):
                clients.append(Client(one.port))
                clients[-1].log_in()
            for number, client in enumerate(clients):
                client.publish("work", [b"%d" % number])
            for client in clients:  # each has been heard
                client.call(m.BasicQos(0, 1), m.BasicQosOk)
            found = {client.get("work").body for client in clients}  # type: ignore[union-attr]
            assert found == {b"%d" % number for number in range(500)}
            assert one.resident() - before < 200 * MIB
        finally:
            for client in clients:
                client.close()


def test_more_connections_than_allowed_are_turned_away(tmp_path: Path) -> None:
    with served(tmp_path / "data", connection_max=5) as one:
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(one.client())
            with pytest.raises(Closed):
                stack.enter_context(one.client())
        assert eventually(lambda: _is_let_in(one))


def _is_let_in(broker: Served) -> bool:
    try:
        with broker.client() as client:
            return client.declare("again", durable=False, exclusive=True) == 0
    except Closed:
        return False


# Clients that do not read.


def _steady(ask: Callable[[], int]) -> int:
    """What the answer is when it no longer changes."""
    last, same = ask(), 0
    while same < 5:
        time.sleep(0.1)
        now = ask()
        same = same + 1 if now == last else 0
        last = now
    return last


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("size", [10_240, MIB])
def test_a_consumer_that_does_not_read_gets_no_more_than_a_buffer_full(no_ack: bool, size: int, tmp_path: Path) -> None:
    count = NEVER_READ_MIB * MIB // size
    with (
        served(tmp_path / "data", memory_bodies="32MiB", memory_queue_bodies="32MiB") as one,
        Watcher(one) as watcher,
        one.client() as client,
        one.client() as slow,
    ):
        before = one.resident()
        client.declare("work", durable=False)
        slow.send(m.method_frame(1, m.BasicConsume(queue="work", no_ack=no_ack)))
        most = before
        for start in range(0, count, max(1, 10 * MIB // size)):
            part = range(start, min(count, start + max(1, 10 * MIB // size)))
            client.publish("work", [(b"%d " % number).ljust(size, b".") for number in part])
            client.call(m.BasicQos(0, 1), m.BasicQosOk)
            most = max(most, one.resident())
        waiting = _steady(lambda: client.count("work"))
        most = max(most, one.resident())
        assert waiting > count // 2
        assert most - before < 32 * MIB + SLACK, f"{(most - before) // MIB} MiB more"
        rounds = watcher.rounds
        eventually(lambda: watcher.rounds > rounds + 20)
        found = [slow.message() for _ in range(count)]  # in the end it reads, and nothing is missing
        assert [int(one.body.split(b" ")[0]) for one in found if one is not None] == list(range(count))


def test_a_publisher_that_does_not_read_what_is_returned_to_it_is_stopped(tmp_path: Path) -> None:
    returned = m.method_frame(1, m.BasicPublish(0, "", "nowhere", True)) + header(MIB, raw=PERSISTENT_ONLY)
    returned += frame(BODY, 1, bytes(131_064)) * 8 + frame(BODY, 1, bytes(MIB - 8 * 131_064))
    with served(tmp_path / "data") as one, Watcher(one), one.client() as client:
        before = one.resident()
        _send_without_reading(client, returned, 200)
        assert one.resident() - before < SLACK


def test_a_client_that_gets_and_does_not_read_is_stopped(tmp_path: Path) -> None:
    with served(tmp_path / "data", memory_bodies="16MiB") as one, Watcher(one), one.client() as client:
        client.declare("work", durable=False)
        for _ in range(20):
            client.publish("work", [bytes(MIB)] * 10)
            client.call(m.BasicQos(0, 1), m.BasicQosOk)
        before = one.resident()
        _send_without_reading(client, m.method_frame(1, m.BasicGet(queue="work")), 200)
        assert one.resident() - before < SLACK


def test_bodies_that_were_begun_are_not_read_while_memory_is_short(tmp_path: Path) -> None:
    """Many channels announce much and send it in parts: whoever has begun before the alarm is stopped by it too."""
    with served(tmp_path / "data") as one:
        empty = one.resident()
    limit = empty + 64 * MIB
    with Served(tmp_path / "data", memory_limit=limit) as one, one.client() as client:
        for channel in range(2, 12):
            client.call(m.ChannelOpen(), m.ChannelOpenOk, channel=channel)
            client.send(m.method_frame(channel, m.BasicPublish(0, "", "work")) + header(100 * MIB, channel=channel))
        part = b"".join(frame(BODY, channel, bytes(131_064)) for channel in range(2, 12))
        _send_without_reading(client, part, 10 * 80)
        assert one.resident() < limit + SLACK
        client.socket.settimeout(10)
        client.expect(m.ConnectionBlocked)


def _send_without_reading(client: Client, data: bytes, times: int) -> None:
    """Send as much as the broker takes; that it stops taking is what it should do."""
    client.socket.settimeout(2)
    with contextlib.suppress(Closed):
        for _ in range(times):
            client.send(data)
    time.sleep(1.5)


def test_a_consumer_that_never_acks_loses_its_channel_also_without_heartbeats(tmp_path: Path) -> None:
    with Served(tmp_path / "data", consumer_timeout=1) as one, one.client() as client:
        client.declare("work")  # who asked for no heartbeats
        client.publish("work", [b"x"])
        assert client.get("work", no_ack=False) is not None
        assert client.expect_close().code == 406
