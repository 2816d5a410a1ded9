"""What holds in a virtual host whatever fails? What is not there is not defined; what was deleted stays away."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Store
from holdfast.base.errors import InvalidArgument, StorageError
from holdfast.base.files import UnsyncedFiles
from holdfast.broker.basic_properties import PERSISTENT_ONLY
from holdfast.broker.broker import Broker
from holdfast.broker.errors import NoSuch
from holdfast.broker.message import Content, instructions_in
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.users import Cost
from holdfast.broker.vhost import VirtualHostRuntime

Open = Callable[..., Broker]


@pytest.fixture
def open_broker(tmp_path: Path) -> Iterator[Open]:
    """Opens a broker over the same folder, after the one before was closed."""
    opened: list[Broker] = []

    def close() -> None:
        if opened:
            broker = opened.pop()
            broker.close()
            broker.store.close()
            broker.transient.close()

    def again(*taken: str) -> Broker:
        """`taken`: queues that the program has opened in its own way before."""
        close()
        transient = tmp_path / f"transient{len(list(tmp_path.iterdir()))}"
        store, other = holdfast.open(tmp_path / "data"), holdfast.open(transient, files=UnsyncedFiles())
        for name in taken:
            store.queue(name, flush=Flush.sync())
        broker = Broker(store, other, post=lambda call: call(), soon=lambda call: call(), cost=Cost(8, 1))
        opened.append(broker)
        return broker

    yield again
    close()


def declared(host: VirtualHostRuntime, name: str, **arguments: object) -> BrokerQueue:
    return host.declare_queue(
        name, durable=True, exclusive=False, auto_delete=False, arguments=arguments, passive=False, owner=None
    )


def put(broker_queue: BrokerQueue, *bodies: bytes) -> int:
    return broker_queue.put(
        Content("", broker_queue.name, PERSISTENT_ONLY), [*bodies], instructions_in(PERSISTENT_ONLY)
    )


def test_a_queue_that_cannot_be_made_is_not_defined(open_broker: Open) -> None:
    broker = open_broker()
    broker.store.queue("taken", flush=Flush.sync())
    host = broker.host("/")
    with pytest.raises(InvalidArgument, match="open with another flush"):
        declared(host, "taken")
    with pytest.raises(NoSuch):
        host.broker_queue("taken", None)
    assert host.fixed_targets("", "taken") == []
    assert "taken" not in open_broker().host("/").broker_queues


def test_what_is_left_of_a_queue_that_could_not_be_made_is_no_programs_queue(
    open_broker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object, **__: object) -> None:
        raise StorageError("no room for it")

    broker = open_broker()
    host = broker.host("/")

    def declare() -> BrokerQueue:
        return host.declare_queue(
            "orders", durable=True, exclusive=False, auto_delete=True, arguments={}, passive=False, owner=None
        )

    with monkeypatch.context() as failing, pytest.raises(StorageError):
        failing.setattr("holdfast.queue_registry.Queue", cut_off)
        declare()
    assert broker.store.queues() == ["orders"]  # what is left: its settings
    assert declare().definition.auto_delete


def test_a_queue_that_cannot_be_opened_this_time_stays_defined_with_its_bindings(open_broker: Open) -> None:
    host = open_broker().host("/")
    put(declared(host, "work"), b"kept")
    host.bind("amq.fanout", "queue", "work", "", {}, None)
    with pytest.raises(InvalidArgument, match="open with another flush"):
        declared(open_broker("work").host("/"), "work")
    host = open_broker().host("/")
    assert [one.name for one in host.route("amq.fanout", [""], {})] == ["work"]
    assert host.broker_queues["work"].ready() == 1


def test_a_delete_that_is_cut_off_leaves_an_empty_queue_and_no_message(
    open_broker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = open_broker()
    host = broker.host("/")
    put(declared(host, "orders"), b"old")

    def cut_off(*_: object, **__: object) -> None:
        raise StorageError("the power went")

    monkeypatch.setattr(host.topology, "delete_queue", cut_off)
    with pytest.raises(StorageError):
        host.delete_queue("orders", None)
    again = open_broker().host("/")
    assert again.broker_queues["orders"].ready() == 0


def test_what_was_under_way_comes_back_after_a_restart_as_delivered_before(open_broker: Open) -> None:
    broker_queue = declared(open_broker().host("/"), "orders")
    put(broker_queue, b"a", b"b")
    first = broker_queue.get()
    assert first is not None
    assert (first.payload, first.attempt) == (b"a", 1)
    broker_queue.queue.sync()
    again = open_broker().host("/").broker_queues["orders"]
    found = [again.get(), again.get()]
    assert [(one.payload, one.attempt) for one in found if one is not None] == [(b"a", 2), (b"b", 1)]


def test_a_message_that_was_put_without_the_broker_is_a_message_of_the_queue(open_broker: Open) -> None:
    broker = open_broker()
    broker_queue = declared(broker.host("/"), "orders")
    store: Store = broker.store
    store.queue("orders").put(b"embedded", headers={"source": "a program"})
    found = broker_queue.get()
    assert found is not None
    assert (found.payload, dict(found.headers)) == (b"embedded", {"source": "a program"})


def test_a_full_queue_that_refuses_takes_the_first_that_fit(open_broker: Open) -> None:
    broker_queue = declared(open_broker().host("/"), "small", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    assert put(broker_queue, b"a", b"b", b"c") == 2
    assert broker_queue.ready() == 2
