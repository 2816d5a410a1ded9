"""Our own interface: scenarios of `holdfast_client.py`, with users of the broker."""

from collections.abc import Iterator

import pytest

from holdfast import NotFound, Queue, Store
from holdfast.broker.errors import AccessRefused
from holdfast.broker.users import Kind, Users
from holdfast.rpc import Access, RpcServer, RpcSettings
from tests.rpc import holdfast_client as does
from tests.rpc.conftest import Start

CLIENT = "tests.rpc.holdfast_client"
SCENARIOS = [
    does.a_user_logs_in_by_password_or_token,
    does.a_wrong_password_or_token_is_refused,
    does.calls_can_be_made_on_a_session_that_is_still_on_its_way,
    does.a_message_keeps_all_that_was_put_with_it,
    does.acked_messages_are_gone_and_others_are_told,
    does.a_message_that_is_listed_twice_is_done_or_lost_once,
    does.failed_messages_come_back_when_they_should,
    does.released_messages_were_never_tried,
    does.fractions_of_seconds_count,
    does.a_put_wakes_a_lease_that_waits,
    does.the_same_message_is_put_once,
    does.peeking_takes_nothing_and_stats_count,
    does.what_makes_no_sense_is_refused,
    does.a_queue_that_is_not_there_is_not_found,
    does.permissions_are_kept_to,
    does.queuebers_methods_are_there_too,
]


@pytest.fixture
def server(disk_store: Store) -> Iterator[RpcServer]:
    users = Users()
    for name, write, read in (("worker", ".*", ".*"), ("reader", "", "^orders$"), ("writer", "^orders$", "")):
        users.add(name, "secret")
        users.permit(name, "/", "", write, read)
    users.add("stranger", "secret")

    def login(user: str, password: str, is_loopback: bool) -> str:
        if password == "broken":
            raise RuntimeError("a secret thing of the server")
        return users.authenticate(user, password, is_loopback).name

    def enter(token: str, is_loopback: bool) -> str:
        if token != "hf_good":
            raise AccessRefused("the token is unknown, expired or revoked: make another")
        return "worker"

    def check(user: str, vhost: str, kind: Kind, name: str) -> None:
        users.check(user, vhost, kind, "queue", name)

    def find(vhost: str, name: str) -> Queue:
        if vhost != "/" or name not in ("orders", "queueber"):
            raise NotFound(f"there is no queue {name!r} in {vhost!r}")
        return disk_store.queue(name, max_attempts=None)

    server = RpcServer(RpcSettings(), find=find, access=Access(login, enter, check))
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_client_finds_that(scenario: object, server: RpcServer, start: Start) -> None:
    code, output = start(CLIENT, scenario.__name__, server.address[1]).end()  # type: ignore[attr-defined]
    assert code == 0, output


def test_a_queue_that_is_made_anew_is_found_by_who_holds_it(server: RpcServer, disk_store: Store, start: Start) -> None:
    client = start(CLIENT, "a_queue_that_is_made_anew_is_found_by_who_holds_it", server.address[1])
    assert client.line() == "put"
    disk_store.delete_queue("orders")
    client.go_on()
    code, output = client.end()
    assert code == 0, output


def test_nobody_logs_in_where_there_are_no_users(queue: Queue, start: Start) -> None:
    server = RpcServer(RpcSettings(), find=lambda vhost, name: queue)
    server.start()
    try:
        code, output = start(CLIENT, "a_user_logs_in_by_password_or_token", server.address[1]).end()
    finally:
        server.stop()
    assert code != 0
    assert "started without users" in output
