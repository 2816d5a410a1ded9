"""Users, permissions and virtual hosts are changed while the broker runs: durably, and for those who are in."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import InvalidArgument, NotFound
from holdfast.broker.administration import Administration, with_hashes
from holdfast.broker.basic_properties import PERSISTENT_ONLY
from holdfast.broker.broker import Broker
from holdfast.broker.definitions import open_definitions
from holdfast.broker.errors import AccessRefused, NotAllowed
from holdfast.broker.message import Content, instructions_in
from holdfast.broker.users import ARGON2, Cost
from holdfast.store import Store
from tests.broker.internals import after_each_check

CHEAP = Cost(memory_kib=8, passes=1)


class Door:
    """A broker without clients; `sent_away` are those whose connections it wanted closed, of those said to be in."""

    def __init__(self, folder: Path) -> None:
        self.store = holdfast.open(folder / "data")
        self._transient = holdfast.open(folder / "transient")
        self.broker = Broker(
            self.store, self._transient, post=lambda call: call(), soon=lambda call: call(), cost=CHEAP
        )
        self.inside: list[tuple[str, str]] = []
        self.sent_away: list[tuple[str, str, str]] = []
        self.administration = Administration(self.broker, self._disconnect)

    def _disconnect(self, which: Callable[[str, str], bool], reason: str) -> int:
        doomed = [one for one in self.inside if which(*one)]
        self.sent_away += [(*one, reason) for one in doomed]
        return len(doomed)

    def declare(self, vhost: str, queue: str, **about: object) -> None:
        """A durable queue with one message."""
        host = self.broker.hosts[vhost]
        broker_queue = host.declare_queue(
            queue, durable=True, exclusive=False, auto_delete=False, arguments=about, passive=False, owner=None
        )
        broker_queue.put(Content("", queue, PERSISTENT_ONLY), [b"body"], instructions_in(PERSISTENT_ONLY))

    def close(self) -> None:
        """End it."""
        self.broker.close()
        self._transient.close()
        self.store.close()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    one = Door(tmp_path)
    yield one
    one.close()


def kept(store: Store) -> dict[str, object]:
    """What the log says is defined."""
    return open_definitions(store).export()


def test_a_new_user_comes_in_and_a_changed_one_with_the_new_password(door: Door) -> None:
    users, administration = door.broker.users, door.administration
    assert administration.put_user("ann", users.hashed("one"), ARGON2, tags=["management"])
    assert users.authenticate("ann", "one", False).tags == ("management",)
    assert not administration.put_user("ann", users.hashed("two"), ARGON2)
    assert users.authenticate("ann", "two", False).tags == ()
    with pytest.raises(AccessRefused):
        users.authenticate("ann", "one", False)
    assert door.sent_away == []


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_names_of_users_have_a_length(door: Door, name: str) -> None:
    with pytest.raises(InvalidArgument):
        door.administration.put_user(name, "", tags=())


def test_a_deleted_user_is_sent_away_and_leaves_nothing(door: Door) -> None:
    door.administration.put_user("ann", "", tags=())
    door.administration.permit("ann", "/", ".*", ".*", ".*")
    door.inside = [("ann", "/"), ("guest", "/")]
    door.administration.delete_users(["ann"])
    assert door.sent_away == [("ann", "/", "user 'ann' was deleted")]
    assert door.administration.permissions("ann") == []
    with pytest.raises(NotFound):
        door.administration.delete_users(["ann"])


def test_every_change_of_permissions_makes_publishers_ask_again(door: Door) -> None:
    host, users = door.broker.hosts["/"], door.broker.users
    door.administration.put_user("ann", "", tags=())

    def changes(change: Callable[[], object]) -> bool:
        before = host.version
        change()
        return host.version != before

    assert changes(lambda: door.administration.permit("ann", "/", "", "^a", ""))
    assert users.allowed("ann", "/", "write", "a")
    assert changes(lambda: door.administration.permit("ann", "/", "", "^b", ""))
    assert not users.allowed("ann", "/", "write", "a")
    assert changes(lambda: door.administration.forbid("ann", "/"))
    assert not users.allowed("ann", "/", "write", "b")
    assert changes(lambda: users.permit("ann", "/", "", "^c", ""))  # whoever makes the change
    document = {"permissions": [{"user": "ann", "vhost": "/", "configure": "", "write": "^d", "read": ""}]}
    assert changes(lambda: door.administration.import_(document))
    assert not users.allowed("ann", "/", "write", "c")
    assert changes(lambda: door.administration.delete_users(["ann"]))


def test_an_answer_found_while_permissions_change_is_not_remembered(door: Door) -> None:
    users = door.broker.users
    door.administration.put_user("ann", "", tags=())
    door.administration.permit("ann", "/", "", "^a", "")
    with after_each_check(users, lambda: door.administration.forbid("ann", "/")):  # another thread was just as quick
        assert users.allowed("ann", "/", "write", "a")
    assert not users.allowed("ann", "/", "write", "a")


def test_permissions_need_a_host_and_something_to_take_back(door: Door) -> None:
    with pytest.raises(NotFound):
        door.administration.permit("guest", "nowhere", "", "", "")
    with pytest.raises(NotFound):
        door.administration.forbid("guest", "nowhere")
    with pytest.raises(InvalidArgument):
        door.administration.permit("guest", "/", "(", "", "")
    assert door.broker.users.allowed("guest", "/", "write", "anything")


def test_a_virtual_host_goes_with_its_queues_permissions_and_connections(door: Door, tmp_path: Path) -> None:
    assert door.administration.put_vhost("side", description="beside", tags=["a"], owner="guest")
    assert not door.administration.put_vhost("side")
    assert door.broker.definitions.vhost("side").description == "beside"
    door.declare("side", "orders", **{"x-dead-letter-exchange": ""})
    door.declare("/", "orders")
    door.inside = [("guest", "side"), ("guest", "/")]
    door.administration.delete_vhost("side")
    assert door.sent_away == [("guest", "side", "vhost 'side' was deleted")]
    assert list(door.broker.hosts) == ["/"]
    with pytest.raises(NotAllowed):
        door.broker.users.check_vhost("guest", "side")
    with pytest.raises(NotFound):
        door.administration.delete_vhost("side")
    assert door.broker.hosts["/"].broker_queues["orders"].ready() == 1
    door.administration.put_vhost("side", owner="guest")
    assert door.broker.hosts["side"].broker_queues == {}
    assert door.broker.definitions.vhost("side").description == ""
    door.declare("side", "orders")
    assert door.broker.hosts["side"].broker_queues["orders"].ready() == 1  # not that of the old one, too


def test_what_was_changed_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Door(tmp_path)
    first.administration.put_vhost("side", description="beside", tags=["a", "b"], owner="guest")
    first.administration.put_vhost("gone", owner="guest")
    first.administration.put_user("ann", first.broker.users.hashed("one"), ARGON2, tags=["monitoring"])
    first.administration.permit("ann", "side", "^c", "^w", "^r")
    first.declare("side", "orders")
    first.administration.delete_vhost("gone")
    before = first.administration.export()
    first.close()
    second = Door(tmp_path)
    assert second.administration.export() == before
    assert second.broker.definitions.vhost("side").tags == ("a", "b")
    assert second.broker.users.authenticate("ann", "one", False).tags == ("monitoring",)
    assert second.broker.hosts["side"].broker_queues["orders"].ready() == 1
    second.close()


def test_an_export_has_what_passes_too_but_nothing_of_a_connection(door: Door) -> None:
    host = door.broker.hosts["/"]
    for name, owner in (("passing", None), ("own", object())):
        host.declare_queue(
            name,
            durable=False,
            exclusive=owner is not None,
            auto_delete=False,
            arguments={},
            passive=False,
            owner=owner,
        )
        host.bind("amq.topic", "queue", name, "k", {}, owner)
    document = door.administration.export("/")
    assert [one["name"] for one in document["queues"]] == ["passing"]
    assert [one["destination"] for one in document["bindings"]] == ["passing"]
    assert "vhost" not in document["queues"][0]
    assert "users" not in document
    assert {one["name"] for one in door.administration.export()["vhosts"]} == {"/"}


def test_an_import_into_one_host_touches_no_other(door: Door) -> None:
    door.administration.put_vhost("side", owner="guest")
    document = {
        "queues": [{"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}],
        "users": [{"name": "ann", "password_hash": "", "tags": []}],
    }
    assert door.administration.import_(document, "side") == 1
    assert "q" in door.broker.hosts["side"].broker_queues
    assert "q" not in door.broker.hosts["/"].broker_queues
    with pytest.raises(NotFound):
        door.broker.users.get("ann")
    with pytest.raises(NotFound):
        door.administration.import_(document, "nowhere")


def test_an_import_keeps_what_is_said_of_a_host_and_all_that_is_in_it(door: Door) -> None:
    door.administration.put_vhost("side", description="beside", owner="guest")
    door.declare("side", "orders")
    door.administration.import_({"vhosts": [{"name": "side"}], "exchanges": []})
    assert door.broker.definitions.vhost("side").description == "beside"
    assert door.broker.hosts["side"].broker_queues["orders"].ready() == 1


@pytest.mark.parametrize(
    "document",
    [
        {"users": [{"name": 5}]},
        {"users": 5},
        {"users": ["ann"]},
        {"queues": [{"name": "q", "vhost": "/", "durable": True, "arguments": [1]}]},
        {"permissions": [{"user": "guest", "vhost": "/", "configure": 1, "write": "", "read": ""}]},
    ],
)
def test_an_import_of_the_wrong_kind_changes_nothing(door: Door, document: dict[str, object]) -> None:
    before = door.administration.export()
    with pytest.raises(InvalidArgument):
        door.administration.import_(document)
    assert door.administration.export() == before


def test_passwords_of_definitions_are_hashed_and_kept_nowhere(door: Door) -> None:
    document = with_hashes({"users": [{"name": "ann", "password": "spoken", "tags": ""}, 5]}, door.broker.users)
    assert "spoken" not in str(document)
    door.administration.import_({"users": document["users"][:1]})
    assert door.broker.users.authenticate("ann", "spoken", False).name == "ann"
    assert with_hashes({"queues": []}, door.broker.users) == {"queues": []}


def test_to_permit_says_whether_nothing_was_permitted_before(door: Door) -> None:
    door.administration.put_user("ann", "", tags=())
    assert door.administration.permit("ann", "/", "", "^a", "") is True
    assert door.administration.permit("ann", "/", "", "^b", "") is False
    door.administration.forbid("ann", "/")
    assert door.administration.permit("ann", "/", "", "^a", "") is True


def test_an_export_has_what_someone_declared_and_not_what_every_host_begins_with(door: Door) -> None:
    topology = door.broker.hosts["/"].topology
    topology.declare_exchange("orders", "topic", durable=True)
    topology.declare_queue("orders", durable=True)
    topology.declare_queue("own", exclusive_owner=door)
    topology.bind("orders", "queue", "orders", "new.#")
    topology.bind("orders", "queue", "own", "new.#", connection=door)
    document = door.administration.export("/")
    assert [one["name"] for one in document["exchanges"]] == ["orders"]
    assert [one["name"] for one in document["queues"]] == ["orders"]
    assert [one["destination"] for one in document["bindings"] if one["source"]] == ["orders"]
