"""What happens when the way to a server fails? Said in one sentence, tried again only where that does no harm."""

import contextlib
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Closed, HoldfastError, NotFound, RemoteStore
from holdfast.remote import OutcomeUnknown, Refused, ServerFailed, Unreachable
from tests.web.serving import Served

Answer = Callable[[socket.socket, bytes], bool]
"""Answers one request; says whether the connection is kept."""


def json_answer(content: object, status: str = "200 OK") -> bytes:
    body = json.dumps(content).encode()
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        status.encode(),
        len(body),
        body,
    )


@contextlib.contextmanager
def server(*answers: Answer, context: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers so, one request after the other, and then no more; its URL, and what it was asked."""
    asked: list[bytes] = []
    left = list(answers)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def serve() -> None:
            while left:
                with contextlib.suppress(OSError), listening.accept()[0] as plain:
                    plain.settimeout(20)
                    with context.wrap_socket(plain, server_side=True) if context is not None else plain as connection:
                        kept = True
                        while left and kept and (request := _request(connection)):
                            asked.append(request)
                            kept = left.pop(0)(connection, request)
                        if kept and not left:
                            connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http{'s' if context else ''}://127.0.0.1:{listening.getsockname()[1]}", asked
        left.clear()
        with contextlib.suppress(OSError), socket.create_connection(listening.getsockname(), 1):
            pass
        thread.join(20)


def _request(connection: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        part = connection.recv(65536)
        if not part:
            return b""
        got += part
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-l")), 0
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def says(content: object, status: str = "200 OK") -> Answer:
    def answer(connection: socket.socket, request: bytes) -> bool:
        connection.sendall(json_answer(content, status))
        return True

    return answer


def hangs_up(connection: socket.socket, request: bytes) -> bool:
    """Ends the connection after a request came, without a word."""
    return False


def says_half(connection: socket.socket, request: bytes) -> bool:
    """Ends the connection in the midst of its answer."""
    connection.sendall(json_answer({"logs": []})[:-3])
    return False


def says_and_hangs_up(content: object) -> Answer:
    def answer(connection: socket.socket, request: bytes) -> bool:
        connection.sendall(json_answer(content))
        return False

    return answer


NO_LOGS: dict[str, object] = {"items": [], "page_count": 1}


@pytest.mark.parametrize("trouble", [hangs_up, says_half])
def test_a_question_is_asked_again_after_a_lost_connection(trouble: Answer) -> None:
    with server(trouble, says(NO_LOGS)) as (url, asked), holdfast.connect(url) as remote:
        assert remote.logs() == []
        assert len(asked) == 2 and asked[0] == asked[1]


def test_a_question_is_asked_twice_and_no_more() -> None:
    with server(hangs_up, hangs_up, says(NO_LOGS)) as (url, asked), holdfast.connect(url) as remote:
        with pytest.raises(Unreachable, match=r"lost twice during GET /api/holdfast/logs .* running"):
            remote.logs()
        assert len(asked) == 2


def test_a_change_is_not_tried_again_and_it_is_said_that_nobody_knows() -> None:
    with server(hangs_up, says({"removed": 1})) as (url, asked), holdfast.connect(url) as remote:
        with pytest.raises(OutcomeUnknown, match="may have been carried out; check before you retry"):
            remote.log("x").clear()
        assert len(asked) == 1


def test_a_put_is_tried_again_only_with_an_id(served: Served) -> None:
    known = {"name": "q", "log": "q"}
    with server(says(known), hangs_up, says({"ids": [7], "duplicates": 0})) as (url, asked):
        with holdfast.connect(url) as remote:
            assert remote.queue("q").put(b"x", dedup="once") == 7
        assert len(asked) == 3 and asked[1] == asked[2]
    with server(says(known), hangs_up, says({"ids": [7]})) as (url, asked), holdfast.connect(url) as remote:
        with pytest.raises(OutcomeUnknown):
            remote.queue("q").put(b"x")
        assert len(asked) == 2


def test_a_connection_is_kept_for_the_next_request(served: Served) -> None:
    opened: set[int] = set()

    def answer(connection: socket.socket, request: bytes) -> bool:
        opened.add(connection.getpeername()[1])
        connection.sendall(json_answer(NO_LOGS))
        return True

    with server(answer, answer, answer) as (url, _), holdfast.connect(url) as remote:
        for _ in range(3):
            remote.logs()
    assert len(opened) == 1


def test_a_connection_that_the_server_let_go_is_no_loss_even_for_a_change() -> None:
    with server(says_and_hangs_up(NO_LOGS), says({"removed": 3})) as (url, asked), holdfast.connect(url) as remote:
        remote.logs()
        threading.Event().wait(1)  # until the end of the connection has come
        assert remote.log("x").clear() == 3
        assert len(asked) == 2


def test_nobody_there_is_said_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with holdfast.connect(f"http://ann:s3cret@127.0.0.1:{port}") as remote, pytest.raises(Unreachable) as caught:
        remote.logs()
    assert str(caught.value).startswith(f"cannot reach http://127.0.0.1:{port}: Connection refused. Check that ")
    assert "s3cret" not in str(caught.value)


def test_an_unknown_name_and_another_protocol_are_told_apart(served: Served) -> None:
    with holdfast.connect(f"http://{'x' * 70}.ü") as remote, pytest.raises(Unreachable, match="cannot reach"):
        remote.logs()
    with holdfast.connect("http://no-such-machine.invalid") as remote, pytest.raises(Unreachable, match="unknown host"):
        remote.logs()
    with (
        holdfast.connect(f"http://127.0.0.1:{served.amqp}") as remote,
        pytest.raises(Unreachable, match="does not speak HTTP: check the port"),
    ):
        remote.logs()
    with holdfast.connect(served.url.replace("http", "https")) as remote, pytest.raises(Unreachable, match="by TLS"):
        remote.logs()


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    def waits(connection: socket.socket, request: bytes) -> bool:
        connection.recv(1)
        return False

    with (
        server(waits, waits) as (url, _),
        holdfast.connect(url, timeout=0.2) as remote,
        pytest.raises(Unreachable, match="the response timed out"),
    ):
        remote.logs()


def test_a_wrong_password_and_a_bad_token_are_told_apart(served: Served) -> None:
    wrong = r"did not accept the user 'guest' .*: check the URL"
    with holdfast.connect(served.url, user="guest", password="no") as remote, pytest.raises(Refused, match=wrong):
        remote.logs()
    bad = r"did not accept the token .*: create another one with holdfast token create"
    with holdfast.connect(served.url, token="hf_0_0") as remote, pytest.raises(Refused, match=bad):
        remote.logs()


def test_a_token_lets_in_until_it_is_deleted(remote: RemoteStore, served: Served) -> None:
    made = remote.make_token("for the nightly job", lifetime=3600)
    with holdfast.connect(served.url, token=made["token"]) as other:
        assert other.whoami()["name"] == "guest" and other.whoami()["expires_at"] == made["expires_at"]
        assert made["id"] in [one["id"] for one in remote.tokens()]
        remote.delete_token(made["id"])
        with pytest.raises(Refused):
            other.logs()
    with pytest.raises(NotFound):
        remote.delete_token(made["id"])


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (says({"error": "queue_full", "reason": "it is full"}, "409 Conflict"), holdfast.QueueFull, "it is full"),
        (says({"error": "conflict", "reason": "changed"}, "409 Conflict"), holdfast.Conflict, "changed"),
        (says({"error": "locked", "reason": "mine"}, "409 Conflict"), holdfast.Locked, "mine"),
        (says({"error": "disk_full", "reason": "no room"}, "503 Unavailable"), holdfast.DiskFull, "no room"),
        (says({"error": "bad_request", "reason": "no"}, "400 Bad Request"), holdfast.InvalidArgument, "no"),
        (says({"error": "already_exists", "reason": "there"}, "500 Oh"), holdfast.AlreadyExists, "there"),
        (says({"error": "validation_failed", "reason": "bad"}, "500 Oh"), holdfast.ValidationFailed, "bad"),
        (says({"error": "access_refused", "reason": "not you"}, "403 No"), Refused, "not you"),
        (says(None, "404 Not Found"), NotFound, "check that it is a Holdfast server"),
        (says("oops", "500 Oh"), ServerFailed, "see the server's log"),
        (says({}, "302 Found"), ServerFailed, "redirects GET /api/holdfast/logs"),
    ],
)
def test_an_answer_becomes_the_error_of_a_folder(answer: Answer, kind: type[HoldfastError], text: str) -> None:
    with server(answer) as (url, _), holdfast.connect(url) as remote:
        with pytest.raises(kind, match=text) as caught:
            remote.logs()
        assert type(caught.value) is kind


def test_what_is_no_json_is_no_holdfast() -> None:
    def page(connection: socket.socket, request: bytes) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")
        return True

    with server(page) as (url, _), holdfast.connect(url) as remote, pytest.raises(ServerFailed, match="is not JSON"):
        remote.logs()


def test_a_prefix_of_a_proxy_stands_before_every_path() -> None:
    with server(says(NO_LOGS)) as (url, asked), holdfast.connect(f"{url}/holdfast/") as remote:
        remote.logs()
    assert asked[0].startswith(b"GET /holdfast/api/holdfast/logs?page=1&")


def test_names_are_encoded_whole() -> None:
    with server(says({"sequence": 1})) as (url, asked), holdfast.connect(url) as remote:
        remote.log("../a b/%ü?#").sequence_at(0)
    assert asked[0].startswith(b"GET /api/holdfast/logs/..%2Fa%20b%2F%25%C3%BC%3F%23/sequence_at?time=0 ")


def test_a_closed_store_says_so(remote: RemoteStore) -> None:
    remote.logs()
    remote.close()
    remote.close()
    with pytest.raises(Closed, match="connect again"):
        remote.logs()


def test_closing_ends_what_another_thread_waits_for(served: Served) -> None:
    remote = holdfast.connect(served.url)
    queue = remote.queue("closing")
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            queue.get(wait=None)
        except HoldfastError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    threading.Event().wait(0.5)
    remote.close()
    thread.join(30)
    assert not thread.is_alive() and isinstance(errors[0], Closed)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody signed, for 127.0.0.1, with its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    try:
        subprocess.run([*command.split(), "-keyout", folder / "key", "-out", folder / "cert"], check=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl")
    (folder / "pem").write_bytes((folder / "key").read_bytes() + (folder / "cert").read_bytes())
    return folder / "pem"


def test_a_certificate_must_be_trusted(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with server(says(NO_LOGS), says(NO_LOGS), context=context) as (url, asked):
        with holdfast.connect(url) as remote, pytest.raises(Unreachable, match=r"not trusted .*SSL_CERT_FILE"):
            remote.logs()
        trusting = ssl.create_default_context(cafile=certificate)
        with holdfast.connect(url, context=trusting) as remote:
            assert remote.logs() == [] and remote.logs() == []
        assert len(asked) == 2
