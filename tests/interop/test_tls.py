"""Who gets in over TLS, and who is turned away without anybody else noticing?"""

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pytest
from pika import frame
from pika.adapters.blocking_connection import BlockingChannel
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPConnectionError, AuthenticationError

from tests.interop.certificates import Authority, Certificate
from tests.interop.serving import DEADLINE_S, Door, Served

HEADER = b"AMQP\x00\x00\x09\x01"


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """An authority that the server does not know, nor its clients."""
    return Authority(tmp_path)


@pytest.fixture
def bystander(door: Door, name: Callable[..., str]) -> Iterator[Callable[[], None]]:
    """A client that was there before; it checks that all is well with it."""
    queue = name("bystander")
    with pika.BlockingConnection(door.parameters()) as connection:
        channel: BlockingChannel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, exclusive=True)

        def goes_on() -> None:
            body = os.urandom(10)
            channel.basic_publish("", queue, body, mandatory=True)
            assert channel.basic_get(queue, auto_ack=True)[2] == body

        goes_on()
        yield goes_on


def read_all(opened: socket.socket) -> bytes:
    """What comes until the other side hangs up: a deadline missed is an error."""
    found = b""
    with suppress(ConnectionError, ssl.SSLError):
        while part := opened.recv(4096):
            found += part
    return found


def connect(door: Door) -> socket.socket:
    return socket.create_connection((door.host, door.port), timeout=DEADLINE_S)


def test_a_certificate_in_the_name_of_a_user_is_enough_to_log_in(served: Served) -> None:
    certificate = served.authority.for_client("guest")
    parameters = served.tls.parameters(certificate, credentials=ExternalCredentials())
    with pika.BlockingConnection(parameters) as connection:
        queue = connection.channel().queue_declare("", exclusive=True).method.queue
        assert queue.startswith("amq.gen-")


def test_a_certificate_in_the_name_of_nobody_is_refused(served: Served) -> None:
    certificate = served.authority.for_client("nobody")
    with pytest.raises(AMQPConnectionError, match="ACCESS_REFUSED"):
        pika.BlockingConnection(served.tls.parameters(certificate, credentials=ExternalCredentials()))


def test_external_is_announced_to_who_shows_a_certificate_only(served: Served, door: Door) -> None:
    def announced(certificate: Certificate | None) -> bool:
        with connect(door) as opened:
            spoken = opened
            if door.authority is not None:
                spoken = door.authority.context(certificate).wrap_socket(opened, server_hostname="localhost")
            with spoken:
                spoken.sendall(HEADER)
                _, found = frame.decode_frame(spoken.recv(65536))
        return b"EXTERNAL" in found.method.mechanisms.split()

    assert not announced(None)
    assert announced(served.authority.for_client("guest")) == (door.authority is not None)


def test_pika_finds_no_way_in_by_external_without_a_certificate(door: Door) -> None:
    with pytest.raises(AuthenticationError, match="EXTERNAL"):
        pika.BlockingConnection(door.parameters(credentials=ExternalCredentials()))


def test_a_password_is_enough_with_a_certificate_of_another(served: Served) -> None:
    certificate = served.authority.for_client("nobody")
    with pika.BlockingConnection(served.tls.parameters(certificate)) as connection:
        assert connection.channel().is_open


def test_a_client_certificate_of_an_unknown_authority_is_refused(
    served: Served, stranger: Authority, bystander: Callable[[], None]
) -> None:
    context = served.authority.context(stranger.for_client("guest"))
    with connect(served.tls) as opened, suppress(ssl.SSLError, ConnectionError):
        secure = context.wrap_socket(opened, server_hostname="localhost")
        with secure:  # in TLS 1.3 the client learns of it when it reads
            secure.sendall(HEADER)
            assert read_all(secure) == b""
    bystander()


def test_a_client_that_does_not_trust_the_server_hangs_up_and_nobody_else_notices(
    served: Served, stranger: Authority, bystander: Callable[[], None]
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        pika.BlockingConnection(Door(served.tls.port, stranger).parameters())
    bystander()


@pytest.mark.parametrize("said", [HEADER, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\x00" * 100, b"\x00"])
def test_plain_bytes_on_the_tls_port_are_refused(served: Served, bystander: Callable[[], None], said: bytes) -> None:
    with connect(served.tls) as opened:
        opened.sendall(said)
        with suppress(OSError):  # it may be gone already
            opened.shutdown(socket.SHUT_WR)
        found = read_all(opened)
    assert b"AMQP" not in found
    assert len(found) <= 7, "more than one alert of TLS"
    bystander()


def test_plain_amqp_on_the_tls_port_fails_at_once(served: Served, bystander: Callable[[], None]) -> None:
    with pytest.raises(AMQPConnectionError):
        pika.BlockingConnection(Door(served.tls.port).parameters())
    bystander()


def test_tls_on_the_plain_port_is_told_what_is_spoken_there(served: Served, bystander: Callable[[], None]) -> None:
    with pytest.raises(ssl.SSLError):
        pika.BlockingConnection(Door(served.plain.port, served.authority).parameters())
    hello, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        served.authority.context().wrap_bio(hello, out, server_hostname="localhost").do_handshake()
    with connect(served.plain) as opened:
        opened.sendall(out.read())
        assert read_all(opened) == HEADER
    bystander()


def test_a_client_that_vanishes_in_the_middle_of_a_handshake_is_not_noticed(
    served: Served, bystander: Callable[[], None]
) -> None:
    hello, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        served.authority.context().wrap_bio(hello, out, server_hostname="localhost").do_handshake()
    for sent in (b"", out.read()[:20]):
        with connect(served.tls) as opened:
            opened.sendall(sent)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # a reset
    bystander()


def test_old_versions_of_tls_are_refused(served: Served) -> None:
    context = served.authority.context()
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with connect(served.tls) as opened, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(opened, server_hostname="localhost")
