"""The topology of a virtual host: RabbitMQ's rules, code by code, and what goes with what."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.errors import (
    AccessRefused,
    BrokerError,
    CommandInvalid,
    NoSuch,
    PreconditionFailed,
    ResourceLocked,
    no_such_vhost,
)
from holdfast.broker.topology import Change, Removed, Topology


@pytest.fixture
def host() -> Topology:
    return Topology("/")


def text(error: pytest.ExceptionInfo[BrokerError]) -> str:
    return error.value.text


def names(things: Sequence[Any]) -> list[str]:
    return sorted(thing.name for thing in things)


def test_each_virtual_host_begins_with_the_same_exchanges(host: Topology) -> None:
    assert {one.name: one.type for one in host.exchanges.values()} == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.topic": "topic",
        "amq.headers": "headers",
        "amq.match": "headers",
        "amq.rabbitmq.trace": "topic",
    }
    assert all(one.durable for one in host.exchanges.values())
    assert [one.name for one in host.exchanges.values() if one.internal] == ["amq.rabbitmq.trace"]


def test_passive_finds_and_never_makes(host: Topology) -> None:
    with pytest.raises(NoSuch) as caught:
        host.declare_queue("x", passive=True)
    assert text(caught) == "NOT_FOUND - no queue 'x' in vhost '/'"
    with pytest.raises(NoSuch) as caught:
        host.declare_exchange("x", passive=True)
    assert text(caught) == "NOT_FOUND - no exchange 'x' in vhost '/'"
    assert not host.queues
    made = host.declare_queue("x", durable=True)
    assert host.declare_queue("x", passive=True) is made
    assert host.declare_exchange("amq.topic", passive=True).type == "topic"


def test_declaring_the_same_again_is_the_same(host: Topology) -> None:
    queue = host.declare_queue("q", durable=True, arguments={"x-max-length": 5, "mine": 1})
    assert host.declare_queue("q", durable=True, arguments={"x-max-length": 5, "mine": 2}) is queue
    exchange = host.declare_exchange("x", "topic", arguments={"mine": 1})
    assert host.declare_exchange("x", "topic") is exchange
    assert host.declare_exchange("amq.direct", "direct", durable=True).name == "amq.direct"


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"durable": True}, {}, "'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"),
        ({}, {"auto_delete": True}, "'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'"),
        (
            {},
            {"arguments": {"x-message-ttl": 20}},
            "'x-message-ttl' for queue 'q' in vhost '/': "
            "received the value '20' of type 'signedint' but current is none",
        ),
        (
            {"arguments": {"x-overflow": "drop-head"}},
            {},
            "'x-overflow' for queue 'q' in vhost '/': "
            "received none but current is the value 'drop-head' of type 'longstr'",
        ),
    ],
)
def test_declaring_a_queue_differently_is_406(
    host: Topology, first: dict[str, Any], second: dict[str, Any], said: str
) -> None:
    host.declare_queue("q", **first)
    with pytest.raises(PreconditionFailed) as caught:
        host.declare_queue("q", **second)
    assert text(caught) == f"PRECONDITION_FAILED - inequivalent arg {said}"


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"type": "fanout"}, "'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'"),
        ({"durable": True}, "'durable' for exchange 'x' in vhost '/': received 'true' but current is 'false'"),
        ({"internal": True}, "'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'"),
        (
            {"arguments": {"alternate-exchange": "y"}},
            "'alternate-exchange' for exchange 'x' in vhost '/': received the",
        ),
    ],
)
def test_declaring_an_exchange_differently_is_406(host: Topology, second: dict[str, Any], said: str) -> None:
    host.declare_exchange("x")
    with pytest.raises(PreconditionFailed, match=re.escape(f"inequivalent arg {said}")):
        host.declare_exchange("x", **second)


def test_to_say_classic_is_to_say_nothing(host: Topology) -> None:
    made = host.declare_queue("q")
    assert host.declare_queue("q", arguments={"x-queue-type": "classic"}) is made
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-queue-type'"):
        host.declare_queue("q", arguments={"x-queue-type": "quorum"})


def test_names_of_the_broker_are_refused(host: Topology) -> None:
    with pytest.raises(AccessRefused) as caught:
        host.declare_queue("amq.x")
    assert text(caught) == "ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix 'amq.*'"
    with pytest.raises(AccessRefused, match=r"exchange name 'amq\.x' contains reserved prefix"):
        host.declare_exchange("amq.x")


def test_a_queue_without_a_name_gets_one_that_may_be_declared_again(host: Topology) -> None:
    first, second = host.declare_queue(), host.declare_queue()
    assert first.name.startswith("amq.gen-") and first.name != second.name
    assert host.declare_queue(first.name) is first


def test_line_ends_in_names_are_left_out(host: Topology) -> None:
    assert host.declare_queue("a\r\nb").name == "ab"


def test_a_name_that_no_client_could_send_is_refused(host: Topology) -> None:
    with pytest.raises(PreconditionFailed, match="longer than 255 bytes"):
        host.declare_queue("ä" * 128)


def test_nothing_is_done_to_the_default_exchange(host: Topology) -> None:
    host.declare_queue("q")
    for deed in (
        lambda: host.declare_exchange(""),
        lambda: host.declare_exchange("", passive=True),
        lambda: host.delete_exchange(""),
        lambda: host.bind("", "queue", "q", "k"),
        lambda: host.unbind("", "queue", "q", "q"),
        lambda: host.bind("amq.topic", "exchange", ""),
    ):
        with pytest.raises(AccessRefused) as caught:
            deed()
        assert text(caught) == "ACCESS_REFUSED - operation not permitted on the default exchange"


def test_system_exchanges_are_not_deleted(host: Topology) -> None:
    with pytest.raises(AccessRefused, match=r"deletion of system exchange 'amq\.topic' in vhost '/' not allowed"):
        host.delete_exchange("amq.topic")


def test_an_unknown_type_ends_the_connection_with_503(host: Topology) -> None:
    with pytest.raises(CommandInvalid) as caught:
        host.declare_exchange("x", "post")
    assert text(caught) == "COMMAND_INVALID - unknown exchange type 'post'"
    assert (caught.value.code, caught.value.closes_connection) == (503, True)


def test_a_delayed_exchange_routes_as_it_says(host: Topology) -> None:
    host.declare_exchange("x", "x-delayed-message", arguments={"x-delayed-type": "topic"})
    host.declare_queue("q")
    host.bind("x", "queue", "q", "a.*")
    assert host.route("x", "a.b") == ("q",)
    with pytest.raises(PreconditionFailed, match="x-delayed-type"):
        host.declare_exchange("y", "x-delayed-message")


def test_an_alternate_must_be_a_name(host: Topology) -> None:
    with pytest.raises(PreconditionFailed, match="invalid type 'signedint' for arg 'alternate-exchange'"):
        host.declare_exchange("x", arguments={"alternate-exchange": 1})


def test_a_quorum_queue_is_durable_and_nobodys_own(host: Topology) -> None:
    quorum = {"x-queue-type": "quorum"}
    for wrong, said in (({}, "non-durable"), ({"durable": True, "auto_delete": True}, "auto-delete")):
        with pytest.raises(PreconditionFailed, match=f"invalid property '{said}' for queue 'q' in vhost '/'"):
            host.declare_queue("q", arguments=quorum, **wrong)
    with pytest.raises(PreconditionFailed, match="exclusive"):
        host.declare_queue("q", durable=True, exclusive_owner=object(), arguments=quorum)
    assert host.declare_queue("q", durable=True, arguments=quorum).kept


def test_an_exclusive_queue_is_locked_to_others(host: Topology) -> None:
    mine, other = object(), object()
    queue = host.declare_queue("q", exclusive_owner=mine)
    assert host.declare_queue("q", exclusive_owner=mine) is queue
    assert host.declare_queue("q", passive=True, connection=mine) is queue
    for deed in (
        lambda: host.declare_queue("q", exclusive_owner=other),
        lambda: host.declare_queue("q", connection=other),
        lambda: host.declare_queue("q", connection=mine),
        lambda: host.declare_queue("q", passive=True, connection=other),
        lambda: host.queue("q", other),
        lambda: host.delete_queue("q", connection=other),
        lambda: host.bind("amq.topic", "queue", "q", connection=other),
        lambda: host.unbind("amq.topic", "queue", "q", connection=other),
    ):
        with pytest.raises(ResourceLocked) as caught:
            deed()
        assert text(caught).startswith(
            "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be"
        )
    host.declare_queue("shared")
    with pytest.raises(ResourceLocked):
        host.declare_queue("shared", exclusive_owner=mine)
    assert host.owned_by(mine) == [queue]
    assert host.delete_queue("q", connection=mine).queues == (queue,)


def test_binding_needs_both_ends(host: Topology) -> None:
    with pytest.raises(NoSuch, match="no exchange 'x' in vhost '/'"):
        host.bind("x", "queue", "q")
    with pytest.raises(NoSuch, match="no queue 'q' in vhost '/'"):
        host.bind("amq.topic", "queue", "q")
    with pytest.raises(NoSuch, match="no exchange 'q' in vhost '/'"):
        host.bind("amq.topic", "exchange", "q")


def test_what_is_not_there_can_be_deleted_and_unbound(host: Topology) -> None:
    assert host.delete_queue("q") == host.delete_exchange("x") == host.unbind("x", "queue", "q") == Removed()


def test_a_headers_binding_says_how_it_matches(host: Topology) -> None:
    host.declare_queue("q")
    with pytest.raises(PreconditionFailed, match='Invalid x-match field value <<"some">>; expected all, any'):
        host.bind("amq.headers", "queue", "q", arguments={"x-match": "some"})
    with pytest.raises(PreconditionFailed, match="Invalid x-match field type signedint"):
        host.bind("amq.headers", "queue", "q", arguments={"x-match": 1})
    host.bind("amq.direct", "queue", "q", arguments={"x-match": "some"})


def test_a_duplicate_is_one_binding_and_other_arguments_another(host: Topology) -> None:
    host.declare_queue("q")
    for arguments in ({}, {}, {"a": 1}):
        host.bind("amq.direct", "queue", "q", "k", arguments)
    assert len(list(host.bindings())) == 2
    assert len(host.unbind("amq.direct", "queue", "q", "k").bindings) == 1
    assert [one.arguments for one in host.bindings_to("queue", "q")] == [{"a": 1}]
    assert host.route("amq.direct", "k") == ("q",)


def test_publishing_to_an_internal_exchange_is_refused(host: Topology) -> None:
    host.declare_exchange("in", internal=True)
    with pytest.raises(AccessRefused, match="cannot publish to internal exchange 'in' in vhost '/'"):
        host.check_publish("in")
    with pytest.raises(NoSuch):
        host.check_publish("nowhere")
    host.check_publish("")


def test_an_exchange_in_use_stays_if_asked_for_unused(host: Topology) -> None:
    host.declare_exchange("x", "fanout")
    host.declare_exchange("y", "fanout")
    host.bind("x", "exchange", "y")
    with pytest.raises(PreconditionFailed) as caught:
        host.delete_exchange("x", if_unused=True)
    assert text(caught) == "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"
    assert names(host.delete_exchange("y", if_unused=True).exchanges) == ["y"]
    assert names(host.delete_exchange("x", if_unused=True).exchanges) == ["x"]


def test_a_deleted_queue_takes_its_bindings_and_routes(host: Topology) -> None:
    host.declare_queue("q")
    host.bind("amq.fanout", "queue", "q")
    assert host.route("amq.fanout", "k") == host.route("", "q") == ("q",)
    gone = host.delete_queue("q")
    assert (names(gone.queues), len(gone.bindings), gone.exchanges) == (["q"], 1, ())
    assert host.route("amq.fanout", "k") == host.route("", "q") == ()
    host.declare_queue("q")
    assert (host.route("amq.fanout", "k"), host.route("", "q")) == ((), ("q",))


def test_auto_delete_exchanges_go_with_their_last_binding_one_after_another(host: Topology) -> None:
    for name in ("a", "b", "stays"):
        host.declare_exchange(name, "fanout", auto_delete=name != "stays")
    host.declare_queue("q")
    host.declare_queue("r")
    host.bind("stays", "exchange", "a")
    host.bind("a", "exchange", "b")
    host.bind("b", "queue", "q")
    host.bind("b", "queue", "q", "again")
    host.bind("b", "queue", "r")
    assert host.delete_queue("q").exchanges == ()
    gone = host.unbind("b", "queue", "r")
    assert names(gone.exchanges) == ["a", "b"]
    assert len(gone.bindings) == 3
    assert "stays" in host.exchanges and not list(host.bindings())


def test_auto_delete_exchanges_in_a_circle_go_together(host: Topology) -> None:
    for name in "ab":
        host.declare_exchange(name, "fanout", auto_delete=True)
    host.bind("a", "exchange", "b")
    host.bind("b", "exchange", "a")
    assert names(host.unbind("a", "exchange", "b").exchanges) == ["a", "b"]
    assert not list(host.bindings())


def test_an_auto_delete_exchange_that_was_never_bound_stays(host: Topology) -> None:
    host.declare_exchange("x", auto_delete=True)
    host.declare_queue("q")
    host.delete_queue("q")
    assert "x" in host.exchanges


def test_only_what_is_durable_is_told() -> None:
    told: list[Change] = []
    host = Topology("/", told.extend)
    host.declare_queue("transient")
    host.declare_queue("own", durable=True, exclusive_owner=host)
    host.declare_exchange("fleeting")
    for queue in ("transient", "own"):
        host.bind("amq.topic", "queue", queue, connection=host)
    host.delete_queue("own", connection=host)
    host.declare_exchange("fleeting")
    assert told == []

    queue_, exchange = host.declare_queue("q", durable=True), host.declare_exchange("x", durable=True)
    binding = host.bind("x", "queue", "q")
    host.bind("x", "queue", "q")
    host.bind("fleeting", "queue", "q")
    predeclared = host.bind("amq.topic", "exchange", "x")
    assert told == [(queue_, True), (exchange, True), (binding, True), (predeclared, True)]
    told.clear()
    host.delete_queue("q")
    assert told == [(binding, False), (queue_, False)]


def test_the_listener_learns_of_everything_that_goes_with_a_queue() -> None:
    told: list[Change] = []
    host = Topology("/", told.extend)
    host.declare_exchange("brief", "fanout", durable=True, auto_delete=True)
    host.declare_queue("q", durable=True)
    host.bind("brief", "queue", "q")
    made, told[:] = dict(told), []
    assert set(made.values()) == {True}
    host.delete_queue("q")
    assert "brief" not in host.exchanges
    assert dict(told) == dict.fromkeys(made, False)


def test_where_the_listener_fails_nothing_has_changed() -> None:
    full = False

    def listen(_: Sequence[Change]) -> None:
        if full:
            raise OSError("no room")

    host = Topology("/", listen)
    host.declare_queue("q", durable=True)
    host.declare_exchange("x", durable=True)
    host.bind("x", "queue", "q", "k")
    full = True
    for deed in (
        lambda: host.delete_queue("q"),
        lambda: host.delete_exchange("x"),
        lambda: host.unbind("x", "queue", "q", "k"),
        lambda: host.declare_queue("new", durable=True),
        lambda: host.declare_exchange("new", durable=True),
        lambda: host.bind("x", "queue", "q", "other"),
    ):
        with pytest.raises(OSError, match="no room"):
            deed()
    assert (list(host.queues), host.route("x", "k"), host.route("x", "other")) == (["q"], ("q",), ())
    assert "new" not in host.exchanges


def test_texts_of_virtual_hosts() -> None:
    assert no_such_vhost("x").text == "NOT_ALLOWED - vhost x not found"
    assert no_such_vhost("x").code == 530


steps = st.lists(
    st.tuples(
        st.sampled_from(["exchange", "queue", "bind", "unbind", "delete exchange", "delete queue"]),
        st.sampled_from("ab"),
        st.sampled_from("abpq"),
        st.booleans(),
    ),
    max_size=40,
)


@given(steps)
def test_what_was_told_puts_the_durable_part_back(taken: list[tuple[str, str, str, bool]]) -> None:
    kept: dict[object, None] = {}

    def listen(changes: Sequence[Change]) -> None:
        for thing, there in changes:
            if there:
                assert thing not in kept
                kept[thing] = None
            else:
                del kept[thing]

    host = Topology("/", listen)
    for deed, exchange, other, flag in taken:
        kind: Any = "exchange" if other in "ab" else "queue"
        try:
            if deed == "exchange":
                host.declare_exchange(exchange, "fanout", durable=flag, auto_delete=exchange == "a")
            elif deed == "queue":
                host.declare_queue("q" if flag else "p", durable=other in "aq")
            elif deed == "delete exchange":
                host.delete_exchange(exchange)
            elif deed == "delete queue":
                host.delete_queue(other)
            elif deed == "bind":
                host.bind(exchange, kind, other)
            else:
                host.unbind(exchange, kind, other)
        except (NoSuch, PreconditionFailed):
            continue
        alive: list[Any] = [*host.exchanges.values(), *host.queues.values(), *host.bindings()]
        assert set(kept) == {one for one in alive if host.is_kept(one)}
        for binding in host.bindings():
            assert binding.source in host.exchanges
            assert binding.destination in (host.queues if binding.destination_kind == "queue" else host.exchanges)
        for name in host.exchanges:
            assert set(host.route(name, "k")) <= set(host.queues)
