"""Clients of Queueber find what they know: scenarios of `queueber_client.py`, and what becomes of the queue."""

import socket
import struct
import time
from pathlib import Path

import pytest

from holdfast import Flush, InvalidArgument, Queue, Store
from holdfast.rpc import RpcServer, RpcSettings
from tests.rpc import queueber_client as does
from tests.rpc.conftest import PATIENCE_S, Start

CLIENT = "tests.rpc.queueber_client"
SCENARIOS = [
    does.an_item_that_is_added_is_polled_and_removed,
    does.ids_sort_as_items_were_added,
    does.leases_are_never_given_twice_and_ascend,
    does.adding_nothing_adds_nothing,
    does.adding_is_all_or_nothing,
    does.no_items_asked_for_is_one,
    does.a_poll_without_validity_is_refused,
    does.time_that_is_up_gives_no_items_and_no_lease,
    does.the_largest_numbers_are_only_long_times,
    does.what_is_not_held_is_not_removed,
    does.two_removals_at_once_succeed_once,
    does.a_lease_that_has_run_out_holds_nothing,
    does.a_lease_lasts_as_long_as_it_should,
    does.a_lease_of_another_size_is_refused,
    does.an_extended_lease_is_held_from_now_on,
    does.a_lease_can_be_shortened_and_wakes_who_waits,
    does.a_large_item_comes_back_whole,
    does.an_answer_is_not_larger_than_clients_take,
    does.large_items_that_come_faster_than_they_are_written_all_arrive,
    does.an_add_wakes_a_poll_of_another_client,
    does.a_delayed_item_comes_when_its_time_has_come,
    does.an_item_that_is_visible_sooner_wakes_a_poll_that_waits_for_a_later_one,
    does.a_lease_that_runs_out_wakes_a_poll,
    does.six_items_are_dealt_to_demands_of_five_three_and_one,
    does.a_thousand_polls_wait_on_four_connections,
    does.a_poll_that_hangs_up_takes_nothing,
    does.a_poll_that_is_cancelled_takes_nothing,
    does.many_clients_share_the_work_and_each_item_is_done_once,
]


def until(condition: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_client_finds_that(scenario: object, server: RpcServer, start: Start) -> None:
    code, output = start(CLIENT, scenario.__name__, server.address[1]).end()  # type: ignore[attr-defined]
    assert code == 0, output


@pytest.mark.parametrize(
    "scenario",
    [does.adding_is_all_or_nothing, does.many_clients_share_the_work_and_each_item_is_done_once],
    ids=lambda scenario: scenario.__name__,
)
def test_a_client_finds_in_a_queue_that_syncs_later_that(scenario: object, disk_store: Store, start: Start) -> None:
    later = disk_store.queue("later", flush=Flush.async_(), max_attempts=None)
    server = RpcServer(RpcSettings(), find=lambda vhost, name: later)
    server.start()
    try:
        code, output = start(CLIENT, scenario.__name__, server.address[1]).end()  # type: ignore[attr-defined]
    finally:
        server.stop()
    assert code == 0, output


def test_clients_that_die_while_they_wait_take_nothing(server: RpcServer, queue: Queue, start: Start) -> None:
    client = start(CLIENT, "die_while_polls_wait", server.address[1])
    assert client.line() == "waiting"
    client.go_on()
    client.end()
    until(lambda: not server.connections)
    queue.put_many([b"%d" % number for number in range(100)])
    time.sleep(0.2)
    stats = queue.stats()
    assert (stats.ready, stats.leased, stats.leases) == (100, 0, 0)
    assert all(message.attempt == 1 for message in queue.lease(100))


def test_a_server_that_stops_answers_who_waits_and_loses_nothing(server: RpcServer, queue: Queue, start: Start) -> None:
    client = start(CLIENT, "wait_until_the_server_ends", server.address[1])
    assert client.line() == "waiting"
    server.stop()
    code, output = client.end()
    assert code == 0, output
    assert len(output.splitlines()) == 20
    assert all("Closed" in line for line in output.splitlines())
    queue.put(b"a")
    assert (queue.stats().ready, queue.stats().leased) == (1, 0)
    server.stop()


def test_a_queue_is_made_anew_under_the_clients_that_use_it(disk_store: Store, start: Start) -> None:
    server = RpcServer(RpcSettings(), find=lambda vhost, name: disk_store.queue(name, max_attempts=None))
    server.start()
    try:
        for _ in range(2):
            code, output = start(CLIENT, "an_item_that_is_added_is_polled_and_removed", server.address[1]).end()
            assert code == 0, output
            disk_store.delete_queue("queueber")
    finally:
        server.stop()


def test_nobody_uses_queuebers_methods_where_that_is_set(queue: Queue, start: Start) -> None:
    server = RpcServer(RpcSettings(queueber_clients="nobody"), find=lambda vhost, name: queue)
    server.start()
    try:
        code, output = start(CLIENT, "is_turned_away", server.address[1]).end()
    finally:
        server.stop()
    assert code == 0, output
    assert "log in" in output
    assert queue.stats().ready == 0


def test_what_was_added_when_the_server_was_killed_is_there(tmp_path: Path, start: Start) -> None:
    serving = start("tests.rpc.serving", tmp_path / "data")
    client = start(CLIENT, "add_items_until_the_server_is_killed", serving.line())
    confirmed = [client.line() for _ in range(200)]
    serving.kill()
    serving.end()
    confirmed += [line for line in client.end()[1].splitlines() if line[:1].isdigit() and len(line.split()) == 2]
    assert len(confirmed) >= 200
    again = start("tests.rpc.serving", tmp_path / "data")
    code, output = start(CLIENT, "list_all", again.line()).end()
    assert code == 0, output
    assert set(confirmed) <= set(output.splitlines())


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_leases_go_on_and_removed_items_stay_away_after_a_restart(
    tmp_path: Path, start: Start, killed: bool, flush: str
) -> None:
    serving = start("tests.rpc.serving", tmp_path / "data", flush)
    client = start(CLIENT, "hold_two_and_remove_one", serving.line())
    names = client.line().split()
    assert client.end()[0] == 0
    if killed:
        serving.kill()
    assert serving.end()[0] == (-9 if killed else 0)
    again = start("tests.rpc.serving", tmp_path / "data", flush)
    code, output = start(CLIENT, "remove_what_was_held", again.line(), *names).end()
    assert code == 0, output


# Bytes that no client sends.


def _sent(server: RpcServer, data: bytes) -> bytes:
    """What comes back until the server hangs up."""
    with socket.create_connection(server.address, timeout=PATIENCE_S) as client:
        client.sendall(data)
        found = b""
        while part := client.recv(65536):
            found += part
        return found


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<II", 0, 0xFFFFFFFF),
        struct.pack("<II", 0, (64 << 20) // 8 + 1),
        struct.pack("<II", 0xFFFFFFFF, 1),
        struct.pack("<IIII", 2, 1 << 28, 1 << 28, 1 << 28),
        b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"AMQP\x00\x00\x09\x01" * 4,
        b"\xff" * 4096,
    ],
    ids=["four-gigawords", "over-the-limit", "segments", "three-segments", "http", "amqp", "ones"],
)
def test_a_message_that_is_too_large_or_none_at_all_ends_its_connection_only(
    server: RpcServer, start: Start, data: bytes
) -> None:
    _sent(server, data)
    until(lambda: not server.connections)
    code, output = start(CLIENT, "an_item_that_is_added_is_polled_and_removed", server.address[1]).end()
    assert code == 0, output


def test_connections_that_come_and_go_in_any_way_do_no_harm(server: RpcServer, start: Start) -> None:
    for turn in range(300):
        client = socket.create_connection(server.address)
        if turn % 5 == 1:
            client.send(b"\0\0")
        elif turn % 5 == 2:
            client.shutdown(socket.SHUT_WR)
        elif turn % 5 == 3:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif turn % 5 == 4:
            client.send(struct.pack("<II", 0, 100) + bytes(90))
        client.close()
    until(lambda: not server.connections)
    code, output = start(CLIENT, "an_item_that_is_added_is_polled_and_removed", server.address[1]).end()
    assert code == 0, output


def test_more_clients_than_may_come_are_turned_away(queue: Queue) -> None:
    server = RpcServer(RpcSettings(connection_max=2), find=lambda vhost, name: queue)
    server.start()
    try:
        with socket.create_connection(server.address), socket.create_connection(server.address):
            until(lambda: server.connections == 2)
            assert _sent(server, b"") == b""
    finally:
        server.stop()


def test_a_client_that_neither_logs_in_nor_calls_is_disconnected(queue: Queue) -> None:
    server = RpcServer(RpcSettings(login_timeout=0.5), find=lambda vhost, name: queue)
    server.start()
    try:
        with socket.create_connection(server.address, timeout=60) as silent:
            assert silent.recv(1) == b""
        until(lambda: not server.connections)
    finally:
        server.stop()


# Starting and stopping.


def test_a_port_that_is_taken_is_told(server: RpcServer, queue: Queue) -> None:
    other = RpcServer(RpcSettings(port=server.address[1]), find=lambda vhost, name: queue)
    with pytest.raises(InvalidArgument, match="cannot listen"):
        other.start()
    other.stop()


def test_a_server_can_be_started_again(queue: Queue, start: Start) -> None:
    server = RpcServer(RpcSettings(), find=lambda vhost, name: queue)
    for _ in range(2):
        server.start()
        with pytest.raises(InvalidArgument):
            server.start()
        code, output = start(CLIENT, "an_item_that_is_added_is_polled_and_removed", server.address[1]).end()
        assert code == 0, output
        server.stop()
        with pytest.raises(InvalidArgument):
            _ = server.address


@pytest.mark.parametrize("options", [{"queueber_clients": "all"}, {"connection_max": 0}, {"max_request": 0}])
def test_settings_that_cannot_work_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        RpcSettings(**options)  # type: ignore[arg-type]
