"""Attacks on the server: each of these was possible once."""

import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pika
import pytest
from starlette.applications import Starlette

import holdfast
from holdfast.amqp.settings import Settings
from holdfast.base.errors import Closed, StorageError
from holdfast.broker.dead_letter_browser import letter_of, put_back
from holdfast.broker.message import PROPERTIES
from holdfast.broker.users import Users
from holdfast.web.api import messages
from holdfast.web.context import ServerContext
from holdfast.web.tokens import SESSIONS_MAX, Tokens
from holdfast.web.uvicorn_thread import UvicornThread
from tests.web.serving import CHEAP, Served

ALL = "/api/holdfast/queues"
ORDERS = f"{ALL}/%2F/orders"
PATIENCE_S = 60


def add_user(
    served: Served, name: str, permissions: tuple[str, str, str], tags: Sequence[str] = (), vhost: str = "/"
) -> None:
    """A user whose password is the name."""
    users = served.site.broker.users
    hashed = Users(cost=CHEAP).add(name, name, tags=tags)

    def work() -> None:
        users.put(hashed)
        users.permit(name, vhost, *permissions)

    served.site.on_broker(work)


def sent(served: Served, text: str) -> socket.socket:
    """A connection on which this was sent."""
    host, port = served.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), PATIENCE_S)
    connection.sendall(text.encode("latin-1"))
    return connection


def status_of(served: Served, text: str) -> int:
    with sent(served, text) as connection, connection.makefile("rb") as answer:
        return int(answer.readline().split()[1])


# Who may what.


def test_a_queue_of_another_vhost_is_not_reached_by_its_name_in_the_store(served: Served) -> None:
    served.site.on_broker(lambda: served.site.broker.add_vhost("other"))
    add_user(served, "owner", (".*", ".*", ".*"), ("management",), "other")
    add_user(served, "bob", (".*", ".*", ".*"))
    served.post(ALL, {"vhost": "other", "name": "secret"}, user="owner")
    served.post(f"{ALL}/other/secret/messages", {"messages": [{"payload": "x"}]}, user="owner")
    disguised = f"{ALL}/%2F/other%1Fsecret"
    assert served.ask("GET", disguised + "/messages", user="bob").status == 404
    assert served.ask("POST", disguised + "/leases", {}, user="bob").status == 404
    assert served.ask("DELETE", disguised, user="bob").status == 404
    assert len(served.get(f"{ALL}/other/secret/messages", user="owner")["messages"]) == 1


def test_the_hashes_of_passwords_are_for_administrators_only(served: Served) -> None:
    add_user(served, "watcher", ("", "", ""), ("monitoring",))
    path = "/api/holdfast/logs/holdfast.definitions"
    assert served.ask("GET", path + "/records", user="watcher").status == 403
    assert served.ask("GET", path + "/inspect?offset=64", user="watcher").status == 403
    assert served.ask("GET", path, user="watcher").status == 200
    assert served.ask("GET", path + "/records").status == 403  # anybody on this machine can log in so
    add_user(served, "boss", ("", "", ""), ("administrator",))
    assert served.ask("GET", path + "/records", user="boss").status == 200


def test_a_queue_is_not_declared_with_dead_letters_for_an_exchange_that_its_maker_may_not_use(served: Served) -> None:
    add_user(served, "eve", ("^mine", "^mine", "^mine"), ("management",))
    wanted = {"name": "mine", "arguments": {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 1}}
    assert served.ask("POST", ALL, wanted, user="eve").status == 403
    assert served.ask("POST", ALL, {"name": "mine"}, user="eve").status == 201


# Dead letters.


@pytest.fixture
def dying(served: Served) -> Served:
    """A broker with forty dead letters of the queue `work` in `graves`."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("graves", durable=True)
        to = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
        channel.queue_declare("work", durable=True, arguments=to)
        for number in range(40):
            channel.basic_publish("", "work", str(number).encode())
            method, _, _ = channel.basic_get("work")
            channel.basic_reject(method.delivery_tag, requeue=False)
        while channel.queue_declare("graves", passive=True).method.message_count < 40:
            connection.process_data_events(0.05)
    return served


def test_who_may_only_put_messages_deletes_no_dead_letters(dying: Served) -> None:
    add_user(dying, "writer", ("", ".*", ""))
    assert dying.ask("POST", f"{ALL}/%2F/graves/dead/delete", {}, user="writer").status == 403
    assert dying.ask("POST", f"{ALL}/%2F/work/dead/delete", {}, user="writer").status == 403
    assert dying.ask("POST", f"{ALL}/%2F/work/redrive", {}, user="writer").status == 403
    assert dying.get(f"{ALL}/%2F/graves")["ready"] == 40


def test_two_who_put_back_the_same_dead_letters_do_not_double_them(dying: Served) -> None:
    counts: list[int] = []

    def redrive() -> None:
        counts.append(dying.post(f"{ALL}/%2F/graves/redrive", {})["redriven"])

    threads = [threading.Thread(target=redrive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == [0, 0, 0, 40]
    assert dying.get(f"{ALL}/%2F/work")["ready"] == 40
    assert dying.get(f"{ALL}/%2F/graves")["ready"] == 0


def test_a_spoilt_dead_letter_does_not_hide_that_others_were_put_back(dying: Served) -> None:
    host = dying.site.host("/")
    graves = host.broker_queues["graves"]
    good, other = (letter_of(graves, message) for message in graves.queue.peek(2))
    assert good is not None and other is not None
    spoilt = other._replace(headers={**other.headers, PROPERTIES: b"\xff\xff"})
    done = dying.site.on_broker(lambda: put_back(host, [good, spoilt]))
    assert [letter for letter, _ in done] == [good]
    with pytest.raises(holdfast.InvalidArgument, match="malformed"):
        dying.site.on_broker(lambda: put_back(host, [spoilt]))


# Strangers.


def test_strangers_who_guess_passwords_do_not_keep_others_from_an_answer(tmp_path: Path) -> None:
    with Served(tmp_path / "data", login_delay=float(PATIENCE_S)) as served:
        token = served.post("/api/holdfast/tokens", {"name": "t"})["token"]
        body = '{"username":"x","password":"y"}'
        head = "Host: localhost\r\nContent-Type: application/json\r\n"
        guesses = [
            f"POST /api/holdfast/login HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}",
            f"GET /api/holdfast/whoami HTTP/1.1\r\n{head}Authorization: Basic eDp5\r\n\r\n",
        ]
        strangers = [sent(served, guesses[number % 2]) for number in range(60)]
        assert served.ask("GET", "/health/live", user=None).status == 200
        assert served.ask("GET", "/api/holdfast/whoami", token=token).status == 200
        for one in strangers:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
            one.close()


def test_a_stranger_sends_only_little(served: Served) -> None:
    large = {"username": "x", "password": "y" * 100_000}
    assert served.ask("POST", "/api/holdfast/login", large, user=None).status == 413


@pytest.mark.parametrize("host", ["[::1", "a]b", "a[b"])
def test_a_host_that_is_none_is_said_so(served: Served, host: str) -> None:
    assert status_of(served, f"GET /health/live HTTP/1.1\r\nHost: {host}\r\n\r\n") == 400


@pytest.mark.parametrize("origin", ["http://[::1", "null", "http://a]b"])
@pytest.mark.parametrize("host", ["Host: localhost\r\n", ""])
def test_an_origin_that_is_none_is_a_foreign_one(served: Served, origin: str, host: str) -> None:
    version = "1.1" if host else "1.0"
    text = f"POST /api/holdfast/login HTTP/{version}\r\n{host}Origin: {origin}\r\nContent-Length: 0\r\n\r\n"
    assert status_of(served, text) == 403


# What no request should say.

NINES = "9" * 5000
LOG = "/api/holdfast/logs/l"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{ORDERS}/messages/{NINES}", None),
        ("GET", f"{ORDERS}/messages/%C2%B2", None),
        ("GET", f"{ORDERS}/leases?count={'9' * 30}", None),
        ("DELETE", f"{ORDERS}/leases/{NINES}", None),
        ("GET", f"{ALL}/other/%ff", None),
        ("POST", f"{ORDERS}/seek", {"time": NINES}),
        ("GET", f"{LOG}/records?wait=soon", None),
        ("GET", f"{LOG}/records?since={NINES}", None),
        ("POST", f"{LOG}/records", {"records": [{"payload": "x", "headers": [1]}]}),
        ("POST", "/api/holdfast/pipelines/archive/runs", {"options": {"logs": "a\0b"}}),
    ],
)
def test_nonsense_is_refused_and_breaks_nothing(served: Served, method: str, path: str, body: Any) -> None:
    served.site.on_broker(lambda: served.site.broker.add_vhost("other"))
    add_user(served, "guest", (".*", ".*", ".*"), ("administrator",), "other")
    served.post(ALL, {"name": "orders"})
    served.post(f"{LOG}/records", {"records": [{"payload": "x"}]})
    user = "ann" if "pipelines" in path else "guest"
    if user == "ann":
        served.add_user("ann", tags=("administrator",))
    assert served.ask(method, path, body, user=user).status == 400


def test_an_answer_holds_no_more_than_fits_into_memory(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.post(ALL, {"name": "orders"})
    for _ in range(4):
        served.post(f"{ORDERS}/messages", {"messages": [{"payload": "x" * 100_000}] * 25})
    assert len(served.get(f"{ORDERS}/messages?count=100")["messages"]) == 100
    monkeypatch.setattr(messages, "SHOWN_BYTES_MAX", 250_000)
    assert len(served.get(f"{ORDERS}/messages?count=100")["messages"]) == 16
    assert 1 <= len(served.post(f"{ORDERS}/leases", {"count": 100})["messages"]) < 100


def test_nothing_is_put_while_the_disk_is_almost_full(tmp_path: Path) -> None:
    with Served(tmp_path / "data", disk_free_limit=1 << 60) as served:
        served.post(ALL, {"name": "orders"})
        served.site.on_broker(served.site.broker.memory.look)
        answer = served.ask("POST", f"{ORDERS}/messages", {"messages": [{"payload": "x"}]})
        assert (answer.status, answer.json["error"]) == (503, "blocked")
        assert served.get(ORDERS)["ready"] == 0


# Sessions.


def test_sessions_do_not_heap_up(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path, lambda _: "hash")
    first = tokens.make("ada", "page", 100, session=True)[1]
    others = [tokens.make("ada", "page", 100, session=True)[1] for _ in range(SESSIONS_MAX)]
    assert tokens.find(first) is None
    assert all(tokens.find(one) is not None for one in others)


def test_one_can_log_in_though_the_disk_takes_nothing(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path, lambda _: "hash")
    known = tokens.make("ada", "mine", 100)[0]
    (tmp_path / "tokens.json").unlink()
    (tmp_path / "tokens.json").mkdir()
    assert tokens.find(tokens.make("ada", "page", 100, session=True)[1]) is not None
    with pytest.raises(StorageError, match="free some space"):
        tokens.make("ada", "for a program", 100)
    with pytest.raises(StorageError):
        tokens.remove(known.id, "ada")
    assert known.id not in [one.id for one in tokens.of("ada")]  # it is good no more, whatever the disk says


# Stopping.


def test_a_request_that_waits_for_a_message_fails_when_the_server_stops(tmp_path: Path) -> None:
    answers: list[tuple[int, Any]] = []
    with Served(tmp_path / "data") as served:
        served.post(ALL, {"name": "orders"})

        def wait() -> None:
            answer = served.ask("POST", f"{ORDERS}/leases", {"wait": 60})
            answers.append((answer.status, answer.json["error"]))

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not any(len(polls) for polls in list(served.site.polls.values())):
            waiting.join(0.01)
    waiting.join()
    assert answers == [(503, "closed")]


def test_a_request_to_a_broker_that_has_stopped_fails(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as served:
        site: ServerContext = served.site
    with pytest.raises(Closed):
        site.on_broker(lambda: None)


def test_what_was_said_to_be_not_done_is_not_done_later(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.context.PATIENCE_S", 0.5)
    held, done = threading.Event(), threading.Event()
    served.server.post(lambda: held.wait(PATIENCE_S))
    with pytest.raises(StorageError, match="nothing was done"):
        served.site.on_broker(done.set)
    held.set()
    monkeypatch.undo()
    served.site.on_broker(lambda: None)
    assert not done.is_set()


def test_a_web_whose_tls_files_cannot_be_used_does_not_start_without_them(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing.pem")
    settings = Settings(http_port=None, https_port=0, tls_certificate=nothing, tls_key=nothing)
    with pytest.raises(holdfast.InvalidArgument, match=r"nothing\.pem"):
        UvicornThread(Starlette(), settings).start()
