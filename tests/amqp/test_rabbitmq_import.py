"""Does all that a broker held come over, as it was, and is nothing given up before it is safe here?"""

import base64
import hashlib
import json
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.amqp import methods as m
from holdfast.amqp.client import Address, ChannelClosed, Client, ConnectionEnded, Got
from holdfast.base.errors import InvalidArgument
from holdfast.broker.amqp_values import Long
from holdfast.broker.basic_properties import PERSISTENT_ONLY, Properties, decode_properties, encode_properties
from holdfast.broker.store_names import name_in_store
from holdfast.importers.rabbitmq import Found, RabbitImport, RabbitSource, broker_over, define, is_fresh
from holdfast.importers.rabbitmq_definitions import Management, Unreachable, fitting
from tests.amqp.internals import use_client
from tests.amqp.serving import Client as Publisher
from tests.amqp.serving import Served, eventually, served
from tests.cli.terminal import Result, Terminal

URL = "HOLDFAST_TEST_AMQP_URL"
RICH = Properties(
    "text/plain", "utf-8", {"n": Long(7), "list": [1, "two"], "none": None}, 2, 5, "c1", "back", "3600000", "m1",
    1_700_000_000, "kind", "guest", "app", "cluster",
)  # fmt: skip


UNKNOWN = b"\x20\x00" + b"\x00\x00\x00\x03" + b"\x01t" + b"?"
"""A header of a type that RabbitMQ has not."""


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Served]:
    """The broker to move away from."""
    with served(tmp_path / "old") as broker:
        yield broker


def url(broker: Served, vhost: str = "") -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.port}/{vhost}"


def exported(broker: Served, file: Path) -> Path:
    assert Terminal(broker.data)(f"definitions export {file}").code == 0
    return file


def move(broker: Served, tmp_path: Path, options: str = "") -> Result:
    """Import everything into the store `new`."""
    file = exported(broker, tmp_path / "definitions.json")
    return Terminal(tmp_path / "new")(f"import rabbitmq {url(broker)} --definitions {file} --json {options}")


@contextmanager
def channel(port: int, vhost: str = "/", user: str = "guest", password: str = "guest") -> Iterator[Client]:
    with Client(Address("127.0.0.1", port, user, password), vhost) as client:
        client.open_channel()
        yield client


def held(port: int, queue: str, vhost: str = "/") -> list[Got]:
    """All messages of a queue, which keeps them."""
    with channel(port, vhost) as client:
        found: list[Got | None] = []
        while None not in found:
            client.ask(queue, 500)
            found += client.answers(500)
        return [one._replace(tag=0) for one in found if one is not None]


def publish(client: Publisher, queue: str, *bodies: bytes, **options: Any) -> None:
    client.publish(queue, bodies, **options)
    client.call(m.QueueDeclare(queue="", exclusive=True), m.QueueDeclareOk)  # all before it has been seen


# Addresses.


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("amqp://h", Address("h", 5672)),
        ("amqps://h/", Address("h", 5671, secure=True)),
        ("amqp://u@h:1/%2F", Address("h", 1, "u", None, "/")),
        ("amqp://u%40x:p%2Fw@[::1]/my%20host", Address("::1", 5672, "u@x", "p/w", "my host")),
    ],
)
def test_an_address_says_where_and_as_whom(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["http://h", "amqp:///x", "amqp://u:secret@h:port", "localhost:5672"])
def test_what_is_no_address_is_said_without_its_password(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Address.parse(text)
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(Address.parse("amqp://u:secret@h"))


# The client.


def test_a_wrong_password_is_said(source: Served) -> None:
    with pytest.raises(ConnectionEnded, match=r"login as 'guest' at .* failed"):
        Client(Address("127.0.0.1", source.port, "guest", "wrong"))


def test_where_nobody_listens_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConnectionEnded, match=r"cannot connect to amqp://127\.0\.0\.1:1: "):
        Client(Address("127.0.0.1", 1))


def test_a_refused_request_leaves_the_connection_usable(source: Served) -> None:
    with channel(source.port) as client:
        with pytest.raises(ChannelClosed, match="no queue 'absent'"):
            client.look("absent")
        client.open_channel()
        with source.client() as other:
            other.declare("jobs")
        assert client.look("jobs") == (0, 0)


# What fits.


def test_what_has_no_place_here_is_left_out_and_told() -> None:
    good = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    document = {
        "vhosts": [{"name": "/"}],
        "users": [{"name": "old", "password_hash": "abc", "hashing_algorithm": "rabbit_password_hashing_md5"}],
        "permissions": [{"user": "old", "vhost": "/", "configure": "", "write": "", "read": ""}],
        "queues": [
            good | {"name": "jobs"},
            good | {"name": "events", "arguments": {"x-queue-type": "stream"}},
            good | {"name": "amq.gen-abc"},
            good | {"name": "short", "durable": False},
            good | {"name": "odd", "arguments": {"x-max-length": "many"}},
        ],
        "exchanges": [good | {"name": "hash", "type": "x-consistent-hash"}, good | {"name": "t", "type": "topic"}],
        "bindings": [
            {"vhost": "/", "source": one, "destination": to, "destination_type": "queue", "routing_key": "k"}
            for one, to in [("t", "jobs"), ("hash", "jobs"), ("t", "short"), ("amq.topic", "jobs"), ("", "jobs")]
        ],
        "policies": [{"vhost": "/", "name": "ttl"}],
    }
    fit = fitting(document)
    assert [one["name"] for one in fit.document["queues"]] == ["jobs"]
    assert [one["name"] for one in fit.document["exchanges"]] == ["t"]
    assert [one["source"] for one in fit.document["bindings"]] == ["t", "amq.topic"]
    assert fit.document["users"] == fit.document["permissions"] == []
    told = [line.split(":")[0] for line in fit.left_out]
    assert told == [
        "queue 'events'", "queue 'amq.gen-abc'", "queue 'short'", "queue 'odd'", "exchange 'hash'", "user 'old'",
        "policies",
    ]  # fmt: skip


def test_one_virtual_host_can_be_taken_alone() -> None:
    queue = {"name": "q", "durable": True, "arguments": {}}
    document = {"vhosts": [{"name": "/"}, {"name": "b"}], "queues": [queue | {"vhost": "/"}, queue | {"vhost": "b"}]}
    fit = fitting(document, "b")
    assert fit.document["vhosts"] == [{"name": "b"}]
    assert [one["vhost"] for one in fit.document["queues"]] == ["b"]


# Messages.


def test_messages_come_with_all_they_had_and_in_order(source: Served, tmp_path: Path) -> None:
    with source.client() as client:
        client.declare("jobs")
        client.call(m.ExchangeDeclare(exchange="news", type="topic", durable=True), m.ExchangeDeclareOk)
        client.call(m.QueueBind(queue="jobs", exchange="news", routing_key="#"), m.QueueBindOk)
        publish(client, "a.b", b"rich", exchange="news", raw=encode_properties(RICH))
        publish(client, "jobs", *[b"plain %d" % number for number in range(1200)])
        publish(client, "jobs", b"bare", b"", raw=b"\0\0")
        publish(client, "jobs", bytes(5 << 20))
        publish(client, "jobs", b"later", raw=encode_properties(Properties(headers={"x-delay": Long(3_600_000)})))
    before = held(source.port, "jobs")
    assert len(before) == 1204
    assert move(source, tmp_path).json["messages"] == 1204
    with served(tmp_path / "new") as target:
        after = held(target.port, "jobs")
        assert [one[1:4] for one in after] == [one[1:4] for one in before]
        assert after == before
        assert decode_properties(after[0].raw) == RICH
        with target.client() as client:  # the binding is there as well
            publish(client, "x.y", b"more", exchange="news")
            assert client.count("jobs") == 1205
    with source.client() as client:
        assert client.count("jobs") == 0


def test_kept_messages_are_in_both_places(source: Served, tmp_path: Path) -> None:
    with source.client() as client:
        client.declare("jobs")
        client.declare("voted", x_queue_type="quorum")
        for queue in ("jobs", "voted"):
            publish(client, queue, *[b"%d" % number for number in range(700)])
    assert move(source, tmp_path, "--keep").json["messages"] == 1400
    with served(tmp_path / "new") as target:
        for queue in ("jobs", "voted"):
            there = [got.body for got in held(source.port, queue)]
            here = [got.body for got in held(target.port, queue)]
            assert there == here == [b"%d" % number for number in range(700)]


def test_the_count_that_a_quorum_queue_adds_does_not_come_along(source: Served, tmp_path: Path) -> None:
    with source.client() as client:
        client.declare("voted", x_queue_type="quorum")
        publish(client, "voted", b"one", b"two")
        publish(client, "voted", b"three", raw=encode_properties(Properties(headers={"own": "header"})))
    for options, name in [("--queue voted", "named"), (f"--definitions {exported(source, tmp_path / 'd')}", "defined")]:
        terminal = Terminal(tmp_path / name)
        assert terminal(f"import rabbitmq {url(source)} --keep {options}").code == 0
        with terminal.store() as store:
            records = list(store.queue("voted").log.read())
            assert [record.payload for record in records] == [b"one", b"two", b"three"]
            assert [bool(record.headers) for record in records] == [False, False, True]


def test_a_priority_queue_stays_one(source: Served, tmp_path: Path) -> None:
    with source.client() as client:
        client.declare("jobs", x_max_priority=5)
        for priority in (0, 3, 9, 1, 4):
            publish(client, "jobs", b"%d" % priority, raw=encode_properties(Properties(priority=priority)))
    move(source, tmp_path)
    with served(tmp_path / "new") as target:
        assert [got.body for got in held(target.port, "jobs")] == [b"9", b"4", b"3", b"1", b"0"]


def test_every_virtual_host_comes(tmp_path: Path) -> None:
    old = Terminal(tmp_path / "old")
    old("vhost add b")
    old("user permit guest --vhost b --configure .* --write .* --read .*")
    with served(old.data) as again:
        for host in ("/", "b"):
            with again.client(vhost=host) as client:
                client.declare("q")
                publish(client, "q", host.encode())
        assert move(again, tmp_path).json["queues"] == [
            {"vhost": "/", "queue": "q", "messages": 1}, {"vhost": "b", "queue": "q", "messages": 1},
        ]  # fmt: skip
    with served(tmp_path / "new") as target:
        assert [got.body for host in ("/", "b") for got in held(target.port, "q", host)] == [b"/", b"b"]


# Safety.


class Watchful(Client):
    """Notes, at each ack, how many messages a power cut would leave in the store."""

    def __init__(self, port: int, store: Path, queue: str) -> None:
        super().__init__(Address("127.0.0.1", port))
        self._store = store
        self._queue = queue
        self.seen: list[tuple[int, int]] = []

    def ack(self, tag: int) -> None:
        with holdfast.open(self._store, read_only=True) as store:
            segments = store.log(self._queue).reader.segments(durable=True)
            self.seen.append((tag, (segments[-1].extent[1] or 0) if segments else 0))
        super().ack(tag)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_message_is_acknowledged_when_it_is_on_disk(source: Served, tmp_path: Path, kind: str) -> None:
    with source.client() as client:
        client.declare("jobs", x_queue_type=kind)
        publish(client, "jobs", *[b"%d" % number for number in range(3000)])
    document = json.loads(exported(source, tmp_path / "d.json").read_text())
    with (
        holdfast.open(tmp_path / "new") as store,
        broker_over(store) as broker,
        RabbitSource(Address("127.0.0.1", source.port)) as rabbit,
    ):
        define(broker, fitting(document).document, fresh=True)
        watchful = Watchful(source.port, tmp_path / "new", "jobs")
        use_client(rabbit, "/", watchful)
        [copied] = RabbitImport(rabbit, broker).run([Found("/", "jobs", 3000, 0, kind)])
        assert (copied.messages, copied.problem) == (3000, None)
    assert len(watchful.seen) > 3
    assert all(tag <= safe for tag, safe in watchful.seen), watchful.seen


class Spoiling(Client):
    """Gets each message with a header of a type that nobody knows."""

    def answers(self, count: int) -> Iterator[Got | None]:
        for got in super().answers(count):
            yield got and got._replace(raw=UNKNOWN)


def test_a_message_whose_properties_cannot_be_read_comes_with_them_all_the_same(source: Served, tmp_path: Path) -> None:
    with source.client() as client:
        client.declare("jobs")
        publish(client, "jobs", b"one", b"two")
    with (
        holdfast.open(tmp_path / "new") as store,
        broker_over(store) as broker,
        RabbitSource(Address("127.0.0.1", source.port)) as rabbit,
    ):
        broker.import_definitions(json.loads(exported(source, tmp_path / "d.json").read_text()))
        use_client(rabbit, "/", Spoiling(Address("127.0.0.1", source.port)))
        [copied] = RabbitImport(rabbit, broker).run([Found("/", "jobs", 2, 0)])
    assert copied.messages == 2
    assert copied.notes == ["2 with unreadable properties: expiration and priority have no effect"]
    with served(tmp_path / "new") as target:
        assert [(got.raw, got.body) for got in held(target.port, "jobs")] == [
            (UNKNOWN, b"one"),
            (UNKNOWN, b"two"),
        ]


def test_an_import_that_is_killed_loses_nothing(source: Served, tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(40_000)]
    with source.client() as client:
        client.declare("jobs")
        publish(client, "jobs", *bodies)
        terminal = Terminal(tmp_path / "new")
        with terminal.spawn(f"import rabbitmq {url(source)} --queue jobs") as importing:
            eventually(lambda: client.count("jobs") < 39_500)
            importing.kill()
            importing.wait()
        with terminal.store() as store:
            came = [record.payload for record in store.queue("jobs").log.read()]
        assert len(came) < len(bodies), "it was through before it was killed"
        eventually(lambda: client.count("jobs") + len(came) >= len(bodies))
    there = [got.body for got in held(source.port, "jobs")]
    assert {*came, *there} == {*bodies}
    assert terminal(f"import rabbitmq {url(source)} --queue jobs --json").json["messages"] == len(there)


def test_a_queue_that_is_full_leaves_the_rest_where_it_is(source: Served, tmp_path: Path) -> None:
    with source.client() as client:
        client.declare("jobs", x_max_length=100, x_overflow="reject-publish")
        publish(client, "jobs", *[b"%d" % number for number in range(100)])
        move(source, tmp_path, "--keep")
        with Terminal(tmp_path / "new").store() as store:
            store.queue("jobs").lease(40)
        terminal = Terminal(tmp_path / "new")
        file = tmp_path / "definitions.json"
        result = terminal(f"import rabbitmq {url(source)} --definitions {file} --json")
        assert result.code == 1
        assert "is full" in result.json["problems"][0]
        assert result.json["messages"] + client.count("jobs") == 100


# Users.


def test_users_come_with_their_passwords_and_guest_does_not_come_by_itself(source: Served, tmp_path: Path) -> None:
    digest = base64.b64encode(b"salt" + hashlib.sha256(b"salt" + b"s3cret").digest()).decode()
    file = tmp_path / "users.json"
    user = {"name": "ann", "password_hash": digest, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": []}
    rights = {"user": "ann", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    file.write_text(json.dumps({"vhosts": [{"name": "/"}], "users": [user], "permissions": [rights]}))
    terminal = Terminal(tmp_path / "new")
    assert terminal(f"import rabbitmq {url(source)} --definitions {file} --json").json["definitions"] == 2
    with served(tmp_path / "new") as target:
        with channel(target.port, user="ann", password="s3cret"):
            pass
        with pytest.raises(ConnectionEnded), channel(target.port):
            pass


def test_guest_stays_in_a_store_that_was_used_before(tmp_path: Path) -> None:
    document = fitting({"vhosts": [{"name": "/"}], "users": [{"name": "ann", "tags": ""}]}).document
    with holdfast.open(tmp_path / "new") as store:
        assert is_fresh(store)
        with broker_over(store):
            pass
        assert not is_fresh(store)
        with broker_over(store) as broker:
            define(broker, document, fresh=False)
            assert [user.name for user in broker.users.all()] == ["ann", "guest"]


# The command.


def test_a_queue_that_is_not_there_is_said_before_a_store_is_made(source: Served, tmp_path: Path) -> None:
    result = Terminal(tmp_path / "new")(f"import rabbitmq {url(source)} --queue absent")
    assert (result.code, "there is no queue 'absent'" in result.complaint) == (1, True)
    assert not (tmp_path / "new").exists()


def test_consumers_that_still_run_are_told(source: Served, tmp_path: Path) -> None:
    with source.client() as client:
        client.declare("jobs")
        client.call(m.BasicConsume(queue="jobs"), m.BasicConsumeOk)
        result = Terminal(tmp_path / "new")(f"import rabbitmq {url(source)} --queue jobs")
    assert [line.split() for line in result.lines[:-1]] == [["vhost", "queue", "messages"], ["/", "jobs", "0"]]
    assert result.lines[-1].startswith("imported 0 messages and 1 definition from amqp://127.0.0.1:")
    assert "'jobs' has 1 consumer:" in result.err


def test_a_store_that_is_served_is_not_imported_into(source: Served, tmp_path: Path) -> None:
    with source.client() as client:
        client.declare("jobs")
    result = Terminal(source.data)(f"import rabbitmq {url(source)} --queue jobs")
    assert (result.code, "is being written by process" in result.complaint) == (1, True)


def test_the_password_may_come_from_standard_input(source: Served, tmp_path: Path) -> None:
    with source.client() as client:
        client.declare("jobs")
    command = f"import rabbitmq amqp://guest@127.0.0.1:{source.port} --queue jobs"
    assert Terminal(tmp_path / "new")(command, b"guest\n").code == 0
    assert "login as" in Terminal(tmp_path / "new")(command, b"wrong\n").complaint


def test_tls_is_spoken_with_who_can_be_trusted(tmp_path: Path) -> None:
    certificates = pytest.importorskip("tests.interop.certificates")
    authority = certificates.Authority(tmp_path)
    own = authority.for_server()
    data = tmp_path / "old"
    with Terminal(data).spawn(
        f"serve --host localhost --set amqp_port=none --amqps-port 0 --set tls_certificate={own.chain} "
        f"--set tls_key={own.key} --json"
    ) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        context = authority.context()
        address = Address("localhost", port, secure=True)
        with Client(address, tls=context) as client:
            client.open_channel()
            client.declare("jobs")
        command = f"import rabbitmq amqps://guest:guest@localhost:{port} --queue jobs"
        assert Terminal(tmp_path / "new")(f"{command} --ca {authority.file}").code == 0
        assert "--ca" in Terminal(tmp_path / "other")(command).complaint


# The management API.


@contextmanager
def management(answers: dict[str, Any]) -> Iterator[str]:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            login = "Basic " + base64.b64encode(b"guest:guest").decode()
            status = 200 if self.headers["Authorization"] == login and self.path in answers else 401
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(self.path)).encode())

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_management_api_says_what_is_there(source: Served, tmp_path: Path) -> None:
    with source.client() as client:
        client.declare("jobs")
        publish(client, "jobs", b"one")
    document = json.loads(exported(source, tmp_path / "d.json").read_text())
    queues = [{"name": "jobs", "vhost": "/", "exclusive": False}, {"name": "mine", "vhost": "/", "exclusive": True}]
    with management({"/api/definitions": document, "/api/queues": queues}) as where:
        result = Terminal(tmp_path / "new")(f"import rabbitmq {url(source)} --management {where} --json").json
        assert (result["messages"], result["problems"]) == (1, [])
        assert result["left_out"] == ["queue 'mine': exclusive, it belongs to one connection"]


def test_a_management_api_that_does_not_answer_is_said_with_the_ways_around_it(source: Served, tmp_path: Path) -> None:
    with management({}) as where:
        with pytest.raises(Unreachable, match="rejects this user: use one with the tag administrator"):
            Management(where, "guest", "wrong").definitions()
        complaint = Terminal(tmp_path / "new")(f"import rabbitmq {url(source)} --management {where}").complaint
    assert "--definitions FILE" in complaint
    assert not (tmp_path / "new").exists()


# The real one.


@pytest.mark.skipif(URL not in os.environ, reason=f"needs a RabbitMQ server at {URL}")
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_messages_leave_a_rabbitmq_server_once_and_for_all(tmp_path: Path, kind: str) -> None:
    pika = pytest.importorskip("pika")
    where = os.environ[URL]
    queue = f"holdfast-import-{uuid.uuid4()}"
    connection = pika.BlockingConnection(pika.URLParameters(where))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        bodies = [b"%d" % number for number in range(1500)]
        for body in bodies:
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
        terminal = Terminal(tmp_path / "new")
        for options in ("--keep", ""):
            result = terminal(f"import rabbitmq {where} --queue {queue} --json {options}").json
            assert (result["messages"], result["problems"], result["notes"]) == (1500, [], [])
        assert channel.queue_declare(queue, passive=True).method.message_count == 0
        with terminal.store() as store:
            name = name_in_store(Address.parse(where).vhost or "/", queue)
            records = list(store.queue(name).log.read())
        assert [record.payload for record in records] == bodies * 2
        assert not any(record.headers for record in records), f"only {PERSISTENT_ONLY!r} was sent"
    finally:
        connection.channel().queue_delete(queue)
        connection.close()
