"""Definitions: what is durable comes back, whatever was cut off where; and RabbitMQ's own form of them."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Corrupt, Flush, InvalidArgument, Roll, Store
from holdfast.broker.amqp_values import LateTime
from holdfast.broker.definitions import LOG_NAME, Definitions, HostDefinition, open_definitions
from holdfast.broker.errors import BrokerError, NoSuch, PreconditionFailed
from holdfast.broker.users import SHA256, Cost
from holdfast.testing import SimClock, SimFiles, crash_points

CHEAP = Cost(memory_kib=8, passes=1)

EXPORTED = {
    "rabbit_version": "3.13.1",
    "users": [
        {
            "name": "ann",
            "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
            "hashing_algorithm": SHA256,
            "tags": ["administrator"],
            "limits": {},
        },
        {"name": "old", "password_hash": "", "hashing_algorithm": SHA256, "tags": "monitoring, management"},
    ],
    "vhosts": [{"name": "/"}, {"name": "shop"}],
    "permissions": [{"user": "ann", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"}],
    "topic_permissions": [],
    "policies": [],
    "queues": [
        {
            "name": "orders",
            "vhost": "shop",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum", "x-max-length": 10},
        },
        {"name": "passing", "vhost": "shop", "durable": False, "auto_delete": True, "arguments": {}},
    ],
    "exchanges": [
        {
            "name": "in",
            "vhost": "shop",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "amq.fanout"},
        }
    ],
    "bindings": [
        {
            "source": "in",
            "vhost": "shop",
            "destination": "orders",
            "destination_type": "queue",
            "routing_key": "order.#",
            "arguments": {},
        },
        {
            "source": "in",
            "vhost": "shop",
            "destination": "passing",
            "destination_type": "queue",
            "routing_key": "#",
            "arguments": {},
        },
    ],
}


@pytest.fixture
def definitions(store: Store) -> Definitions:
    made = open_definitions(store)
    made.begin(CHEAP)
    return made


def test_they_survive_on_a_real_disk(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        definitions = Definitions(store.log("holdfast.definitions", flush=Flush.sync()))
        assert definitions.is_new
        definitions.begin(CHEAP)
        host, users = definitions.vhosts()["/"], definitions.users(CHEAP)
        users.add("ann", "secret", tags=["monitoring"])
        users.permit("ann", "/", "", "^out", "")
        host.declare_exchange("x", "topic", durable=True, arguments={"alternate-exchange": "amq.fanout"})
        host.declare_queue("q", durable=True, arguments={"x-max-length": 5})
        host.bind("x", "queue", "q", "a.*", {"n": 1})
        host.declare_queue("transient")
        host.declare_queue("own", durable=True, exclusive_owner=host)
        host.declare_queue("deleted", durable=True)
        host.delete_queue("deleted")
    with holdfast.open(tmp_path / "data") as store:
        definitions = Definitions(store.log("holdfast.definitions", flush=Flush.sync()))
        assert not definitions.is_new
        host, users = definitions.vhosts()["/"], definitions.users(CHEAP)
        assert list(host.queues) == ["q"]
        assert host.queues["q"].settings.max_length == 5
        assert host.exchanges["x"].alternate == "amq.fanout"
        assert host.route("x", "a.b") == ("q",)
        assert [one.arguments for one in host.bindings()] == [{"n": 1}]
        assert users.authenticate("ann", "secret", False).tags == ("monitoring",)
        assert users.allowed("ann", "/", "write", "out-1") and not users.allowed("ann", "/", "read", "out-1")
        host.unbind("x", "queue", "q", "a.*", {"n": 1})
    with holdfast.open(tmp_path / "data") as store:
        assert not list(open_definitions(store).vhosts()["/"].bindings())


def test_arguments_of_every_kind_come_back(store: Store, definitions: Definitions) -> None:
    arguments = {
        "int": 1 << 40,
        "text": "ä",
        "bytes": b"\x00\xff",
        "flag": True,
        "none": None,
        "float": 0.5,
        "decimal": Decimal("1.50"),
        "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "late": LateTime(1_800_000_000_000),
        "list": [1, {"$bytes": "not bytes"}, b"x"],
        "table": {"$table": {"$time": 1}},
    }
    host = definitions.vhosts()["/"]
    host.declare_queue("q", durable=True, arguments=arguments)
    host.bind("amq.headers", "queue", "q", "", arguments)
    again = Definitions(store.log(LOG_NAME)).vhosts()["/"]
    assert again.queues["q"].arguments == arguments
    assert list(again.bindings()) == list(host.bindings())
    again.unbind("amq.headers", "queue", "q", "", arguments)
    assert not list(Definitions(store.log(LOG_NAME)).vhosts()["/"].bindings())


def test_a_deleted_virtual_host_takes_all_that_was_in_it(store: Store, definitions: Definitions) -> None:
    host = definitions.add_vhost("shop")
    definitions.users(CHEAP).permit("guest", "shop", "", "", "")
    host.declare_queue("q", durable=True)
    host.bind("amq.topic", "queue", "q")
    before = definitions.all()
    definitions.delete_vhost("shop")
    assert len(before) - len(definitions.all()) == 4
    assert list(Definitions(store.log(LOG_NAME)).vhosts()) == ["/"]


def test_a_long_history_is_compacted_by_itself(store: Store) -> None:
    definitions = Definitions(store.log(LOG_NAME, flush=Flush.sync(), roll=Roll.size(8 << 10)))
    definitions.begin(CHEAP)
    host = definitions.vhosts()["/"]
    host.declare_queue("stays", durable=True)
    for _ in range(1500):
        host.declare_queue("comes and goes", durable=True)
        host.delete_queue("comes and goes")
    log = store.log(LOG_NAME)
    assert log.end > 3000
    assert log.end - log.start < 1500
    again = Definitions(log)
    assert again.all() == definitions.all()
    assert list(again.vhosts()["/"].queues) == ["stays"]


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@pytest.mark.parametrize("more", range(5))
def test_compacting_changes_nothing_but_the_length(
    store: Store, monkeypatch: pytest.MonkeyPatch, chunk: int, more: int
) -> None:
    """Wherever in a segment the new statement begins, and however many segments it spans."""
    monkeypatch.setattr("holdfast.broker.definitions.CHUNK", chunk)
    definitions = Definitions(store.log(LOG_NAME, flush=Flush.sync(), roll=Roll.count(5)))
    definitions.begin(CHEAP)
    host = definitions.vhosts()["/"]
    for n in range(30):
        host.declare_queue(f"q{n}", durable=True)
    for n in range(more):
        definitions.add_vhost(f"host {n}")
    for n in range(25):
        host.delete_queue(f"q{n}")
    before = store.log(LOG_NAME).start
    definitions.compact()
    assert store.log(LOG_NAME).start > before
    host.declare_queue("after", durable=True)
    again = Definitions(store.log(LOG_NAME))
    assert set(map(repr, again.all())) == set(map(repr, definitions.all()))
    assert sorted(again.vhosts()["/"].queues) == ["after", "q25", "q26", "q27", "q28", "q29"]


class Work:
    """Declares, deletes, compacts; notes what was confirmed after each step and what the step in pending commit would
    make."""

    def __init__(self) -> None:
        self.allowed: list[set[str]] = [set()]

    def open(self, files: SimFiles) -> Definitions:
        store = holdfast.open("data", files=files, clock=SimClock(), background=False)
        self.log = store.log(LOG_NAME, flush=Flush.sync(), roll=Roll.count(4))
        return Definitions(self.log)

    def run(self, files: SimFiles) -> None:
        definitions = self.open(files)
        self.step({"/"}, lambda: definitions.record([(HostDefinition("/"), True)]))
        host = definitions.vhosts()["/"]
        there = {"/"}
        for name in "abc":
            there = there | {name}
            self.step(there, lambda name=name: host.declare_queue(name, durable=True))  # type: ignore[misc]
        there = there | {"binding"}
        self.step(there, lambda: host.bind("amq.topic", "queue", "a"))
        self.step(there, definitions.compact)
        there = there - {"a", "binding"}
        self.step(there, lambda: host.delete_queue("a"))
        self.step(there, definitions.compact)
        there = there | {"d"}
        self.step(there, lambda: host.declare_queue("d", durable=True))

    def step(self, after: set[str], deed: Callable[[], object]) -> None:
        self.allowed = [self.allowed[-1], after]
        deed()
        self.allowed = [after]

    def check(self, files: SimFiles) -> None:
        definitions = self.open(files)
        found = {getattr(one, "name", "binding") for one in definitions.all()}
        assert found in self.allowed
        definitions.compact()
        definitions.record([(HostDefinition("more"), True)])
        again = Definitions(self.log)
        assert {getattr(one, "name", "binding") for one in again.all()} == found | {"more"}


def test_a_crash_anywhere_leaves_the_old_or_the_new_state() -> None:
    assert crash_points(Work, seeds=(0,)) > 100


def test_the_crash_test_fails_when_fsync_does_nothing() -> None:
    with pytest.raises(AssertionError):
        crash_points(Work, files=lambda seed: SimFiles(seed, lose_syncs=True), seeds=(0, 1))


def test_a_record_of_something_else_is_said(store: Store) -> None:
    log = store.log(LOG_NAME, flush=Flush.sync())
    log.append(b"{}", key=b'["planet", "mars"]')
    with pytest.raises(Corrupt, match=r"record 0 of the log .holdfast\.definitions. is not a definition"):
        Definitions(log)


def test_rabbitmqs_export_is_taken_over(store: Store, definitions: Definitions) -> None:
    added = definitions.import_(EXPORTED)
    assert len(added) == 9
    again = Definitions(store.log(LOG_NAME))
    host, users = again.vhosts()["shop"], again.users(CHEAP)
    assert users.authenticate("ann", "test12", False).tags == ("administrator",)
    assert users.get("old").tags == ("monitoring", "management")
    assert host.queues["orders"].settings.max_length == 10
    assert host.route("in", "order.new") == ("orders",)
    assert list(host.queues) == ["orders"], "what is not durable is returned and not kept"
    live = definitions.vhosts()["shop"]
    live.restore(one for one in added if getattr(one, "vhost", None) == "shop" and hasattr(one, "arguments"))  # type: ignore[misc]
    assert set(live.route("in", "order.new")) == {"orders", "passing"}


def test_an_import_leaves_what_is_there_and_replaces_users(store: Store, definitions: Definitions) -> None:
    definitions.import_(EXPORTED)
    changed: dict[str, Any] = json.loads(json.dumps(EXPORTED))
    changed["queues"] = [{**changed["queues"][0], "arguments": {}}]
    changed["bindings"] = changed["bindings"][:1]
    changed["permissions"][0]["read"] = ""
    changed["users"] = [{"name": "ann", "password": "by hand", "tags": ""}]
    assert {type(one).__name__ for one in definitions.import_(changed, CHEAP)} == {"User", "Permission"}
    again = Definitions(store.log(LOG_NAME))
    assert again.vhosts()["shop"].queues["orders"].settings.max_length == 10
    assert again.users(CHEAP).authenticate("ann", "by hand", False).tags == ()
    assert definitions.import_({**changed, "users": []}) == []


def test_what_is_exported_can_be_imported_elsewhere(definitions: Definitions, tmp_path: Path) -> None:
    definitions.import_(EXPORTED)
    document = json.loads(json.dumps(definitions.export()))
    with holdfast.open(tmp_path / "other") as store:
        other = open_definitions(store)
        other.import_(document)
        assert set(map(repr, other.all())) == set(map(repr, definitions.all()))
        assert other.export() == document
        assert other.users(CHEAP).authenticate("guest", "guest", True).name == "guest"


@pytest.mark.parametrize(
    ("document", "error", "said"),
    [
        ([], InvalidArgument, "must be a JSON object"),
        ({"vhosts": [{}]}, InvalidArgument, "a vhost in the definitions cannot be imported: 'name'"),
        ({"queues": ["q"]}, InvalidArgument, "a queue in the definitions cannot be imported"),
        ({"queues": [{"name": "q", "vhost": "x", "durable": True}]}, InvalidArgument, "virtual host 'x'"),
        (
            {"queues": [{"name": "q", "vhost": "/", "durable": True, "arguments": {"x-expires": 0}}]},
            PreconditionFailed,
            "x-expires",
        ),
        ({"exchanges": [{"name": "x", "vhost": "/", "durable": True, "type": "post"}]}, BrokerError, "type 'post'"),
        (
            {
                "bindings": [
                    {
                        "source": "amq.topic",
                        "vhost": "/",
                        "destination": "q",
                        "destination_type": "queue",
                        "routing_key": "",
                    }
                ]
            },
            NoSuch,
            "no queue 'q'",
        ),
        ({"queues": [{"name": "q", "vhost": "/", "durable": "x"}]}, InvalidArgument, "durable must be true or false"),
        (
            {"exchanges": [{"name": "x", "vhost": "/", "type": "topic", "durable": True, "internal": 1}]},
            InvalidArgument,
            "internal must be true or false, not 1",
        ),
        (
            {"queues": [{"name": "q", "vhost": "/", "durable": True, "arguments": {"x-max-length": 2**80}}]},
            InvalidArgument,
            "must fit into 64 bits",
        ),
        ({"users": [{"name": "\udcff"}]}, InvalidArgument, "must be valid UTF-8"),
        ({"vhosts": [{"name": "\udcff"}]}, InvalidArgument, "bytes in UTF-8"),
        ({"queues": [{"name": "", "vhost": "/", "durable": True}]}, InvalidArgument, "a queue's name must have"),
        ({"queues": [{"name": "n" * 256, "vhost": "/", "durable": True}]}, InvalidArgument, "a queue's name must have"),
        (
            {"exchanges": [{"name": "n" * 256, "vhost": "/", "type": "topic", "durable": True}]},
            InvalidArgument,
            "an exchange's name must have",
        ),
        (
            {"permissions": [{"user": "guest", "vhost": "/", "configure": "(", "write": "", "read": ""}]},
            InvalidArgument,
            "not a regular expression",
        ),
        (
            {"users": [{"name": "a", "password_hash": "x", "hashing_algorithm": "rot13"}]},
            InvalidArgument,
            "rot13",
        ),
    ],
)
def test_an_import_with_something_wrong_changes_nothing(
    store: Store, definitions: Definitions, document: Any, error: type[Exception], said: str
) -> None:
    before, end = definitions.all(), store.log(LOG_NAME).end
    if isinstance(document, dict):
        document = {"vhosts": [{"name": "new"}], **document}
    with pytest.raises(error, match=said.replace("(", r"\(")):
        definitions.import_(document)
    assert (definitions.all(), store.log(LOG_NAME).end) == (before, end)
