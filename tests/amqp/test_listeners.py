"""Which addresses a served store listens on."""

import errno
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.amqp.listeners import listen_on, usable
from holdfast.amqp.settings import load
from holdfast.base.errors import InvalidArgument


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
PROTOCOLS = {"amqp", "http", "capnp"}


@contextmanager
def serving(folder: Path, *arguments: str, lines: int) -> Iterator[dict[str, set[tuple[str, int]]]]:
    """A served store; by protocol where it says that it listens."""
    command = [sys.executable, "-m", "holdfast", "serve", "--data", str(folder / "data"), "--json", *arguments]
    command += ["--amqp-port", "0", "--http-port", "0", "--rpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found: dict[str, set[tuple[str, int]]] = {}
            for _ in range(lines):
                one = json.loads(process.stdout.readline())
                found.setdefault(one["protocol"], set()).add((one["host"], one["port"]))
            yield found
        finally:
            process.terminate()
            process.wait(60)


def reached(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=60):
            return True
    except ConnectionRefusedError:
        return False


@needs_ipv6
def test_a_server_listens_on_both_loopbacks_by_default_with_every_protocol_on_one_port(tmp_path: Path) -> None:
    with serving(tmp_path, lines=6) as found:
        assert found.keys() == PROTOCOLS
        for places in found.values():
            assert {host for host, _ in places} == {"127.0.0.1", "::1"}
            assert len({port for _, port in places}) == 1
            assert all(reached(host, port) for host, port in places)


@needs_ipv6
def test_a_server_on_all_addresses_of_ipv6_serves_ipv4_as_well(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "::", lines=3) as found:
        assert found.keys() == PROTOCOLS
        for places in found.values():
            for _, port in places:
                assert reached("127.0.0.1", port) and reached("::1", port)


def test_several_addresses_can_be_given_by_flags_and_in_the_settings_file(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('host = ["127.0.0.2", "127.0.0.3"]\n')
    for arguments in (["--host", "127.0.0.2", "--host", "127.0.0.3"], ["--config", str(tmp_path / "holdfast.toml")]):
        with serving(tmp_path, *arguments, lines=6) as found:
            for places in found.values():
                assert {host for host, _ in places} == {"127.0.0.2", "127.0.0.3"}
                assert len({port for _, port in places}) == 1
                assert all(reached(host, port) for host, port in places)
                assert not any(reached("127.0.0.1", port) for _, port in places)


@needs_ipv6
@pytest.mark.parametrize("hosts", [["::", "::1"], ["::1", "127.0.0.1", "::"]])
def test_an_address_that_all_addresses_of_ipv6_cover_is_served_by_the_same_socket(hosts: list[str]) -> None:
    (one,) = listen_on(hosts, 0, 1)
    with closing(one):
        assert one.getsockname()[0] == "::"
        assert reached("127.0.0.1", one.getsockname()[1]) and reached("::1", one.getsockname()[1])


def test_an_address_that_all_addresses_of_ipv4_cover_is_served_by_the_same_socket(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", "--host", "127.0.0.1", lines=3) as found:
        assert all(reached("127.0.0.1", port) for places in found.values() for _, port in places)


@needs_ipv6
def test_all_addresses_of_both_kinds_may_be_listed_with_addresses_that_they_cover() -> None:
    sockets = listen_on(["0.0.0.0", "::", "127.0.0.1", "::1"], 0, 1)
    try:
        assert [one.getsockname()[0] for one in sockets] == ["0.0.0.0", "::"]
        (port,) = {one.getsockname()[1] for one in sockets}
        assert reached("127.0.0.1", port) and reached("::1", port)
    finally:
        for one in sockets:
            one.close()


@needs_ipv6
def test_all_addresses_of_ipv4_do_not_cover_one_of_ipv6() -> None:
    sockets = listen_on(["0.0.0.0", "::1"], 0, 1)
    assert [one.getsockname()[0] for one in sockets] == ["0.0.0.0", "::1"]
    for one in sockets:
        one.close()


def test_addresses_are_read_with_commas_and_none_at_all_is_refused(tmp_path: Path) -> None:
    assert load(None, {"HOLDFAST_HOST": "127.0.0.1, [::1],127.0.0.1"}, {}).hosts == ["127.0.0.1", "::1"]
    for bad in ("", " , "):
        with pytest.raises(InvalidArgument, match="list of addresses"):
            load(None, {"HOLDFAST_HOST": bad}, {})


def test_the_loopback_of_ipv6_is_left_out_where_there_is_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_ipv6(family: int = socket.AF_INET, *rest: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *rest)

    real = socket.socket
    monkeypatch.setattr("holdfast.amqp.listeners.socket.socket", no_ipv6)
    assert usable(["127.0.0.1", "::1"]) == ["127.0.0.1"]
    assert usable(["::1"]) == ["::1"]  # which cannot be listened on then, and that is said
    (one,) = listen_on(["127.0.0.1", "::1"], 0, 1)
    with closing(one):
        assert one.getsockname()[0] == "127.0.0.1"
