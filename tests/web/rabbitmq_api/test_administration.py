"""Users, permissions, virtual hosts and definitions over RabbitMQ's API, while clients are connected."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.web.rabbitmq_api.conftest import Connect, add_user
from tests.web.serving import Served

Refused = pika.exceptions.ProbableAuthenticationError
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


def test_a_user_is_added_changed_and_deleted(broker: Served, connect: Connect) -> None:
    assert broker.ask("PUT", "/api/users/ann", {"password": "one", "tags": "management, extra"}).status == 201
    assert broker.get("/api/users/ann")["tags"] == ["management", "extra"]
    assert broker.get("/api/whoami", user="ann", password="one") == {"name": "ann", "tags": ["management", "extra"]}
    assert "ann" in {one["name"] for one in broker.get("/api/users/without-permissions")}
    assert broker.ask("PUT", "/api/users/ann", {"password": "two", "tags": ["monitoring"]}).status == 204
    assert broker.ask("GET", "/api/whoami", user="ann", password="one").status == 401
    assert broker.get("/api/whoami", user="ann", password="two")["tags"] == ["monitoring"]
    assert broker.ask("DELETE", "/api/users/ann").status == 204
    assert broker.ask("DELETE", "/api/users/ann").status == 404
    assert broker.ask("GET", "/api/whoami", user="ann", password="two").status == 401


def test_a_hash_of_rabbitmqs_lets_its_password_in(broker: Served, connect: Connect) -> None:
    salt = b"salt"
    hashed = base64.b64encode(salt + hashlib.sha256(salt + b"carried").digest()).decode()
    assert broker.ask("PUT", "/api/users/old", {"password_hash": hashed, "tags": ""}).status == 201
    assert broker.ask("PUT", "/api/permissions/%2F/old", EVERYTHING).status == 201
    assert connect("old", "carried").is_open
    assert broker.ask("PUT", "/api/users/old", {"password_hash": "zz", "tags": ""}).status == 400


@pytest.mark.parametrize("body", [{"password": "x"}, {"tags": 5}, {"tags": "", "password": 5}, None, []])
def test_users_that_make_no_sense_are_refused(broker: Served, body: object) -> None:
    assert broker.ask("PUT", "/api/users/nobody", body).status == 400
    assert broker.ask("GET", "/api/users/nobody").status == 404


def test_a_user_without_a_password_cannot_log_in(broker: Served, connect: Connect) -> None:
    broker.ask("PUT", "/api/users/blank", {"tags": "management"})
    broker.ask("PUT", "/api/permissions/%2F/blank", EVERYTHING)
    assert broker.ask("GET", "/api/whoami", user="blank", password="").status == 401
    with pytest.raises(Refused):
        connect("blank", "blank")


def test_many_users_are_deleted_or_none(broker: Served) -> None:
    for name in ("gone1", "gone2"):
        add_user(broker, name)
    assert broker.ask("POST", "/api/users/bulk-delete", {"users": ["gone1", "not-there"]}).status == 400
    assert broker.ask("GET", "/api/users/gone1").status == 200
    assert broker.ask("POST", "/api/users/bulk-delete", {"users": ["gone1", "gone2"]}).status == 204
    assert broker.ask("GET", "/api/users/gone2").status == 404
    assert broker.ask("POST", "/api/users/bulk-delete", {}).status == 400


def test_deleting_a_user_closes_the_connections_of_that_user(broker: Served, connect: Connect) -> None:
    add_user(broker, "leaver", "", "/")
    channel, other = connect("leaver").channel(), connect().channel()
    assert broker.ask("DELETE", "/api/users/leaver").status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        channel.queue_declare("never")
    assert caught.value.reply_code == 320
    assert "user 'leaver' was deleted" in caught.value.reply_text
    other.queue_declare("still")
    assert "leaver" not in {one["user"] for one in broker.get("/api/permissions")}


def test_a_changed_password_ends_no_session_and_holds_for_the_next(broker: Served, connect: Connect) -> None:
    add_user(broker, "changer", "", "/")
    channel = connect("changer").channel()
    broker.ask("PUT", "/api/users/changer", {"password": "other", "tags": ""})
    channel.queue_declare("goes-on")
    with pytest.raises(Refused):
        connect("changer", "changer")
    assert connect("changer", "other").is_open


def test_a_permission_that_is_taken_back_ends_publishing_at_once(broker: Served, connect: Connect) -> None:
    add_user(broker, "writer", "", "/")
    channel = connect("writer").channel()
    channel.queue_declare("written")
    channel.confirm_delivery()
    channel.basic_publish("", "written", b"may")
    channel.basic_publish("", "written", b"may")
    narrow = {"configure": ".*", "write": "^other", "read": ".*"}
    assert broker.ask("PUT", "/api/permissions/%2F/writer", narrow).status == 204
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_publish("", "written", b"may not")
    assert caught.value.reply_code == 403
    assert broker.get("/api/queues/%2F/written")["messages"] == 2
    assert broker.ask("PUT", "/api/permissions/%2F/writer", EVERYTHING).status == 204
    again = channel.connection.channel()
    again.confirm_delivery()
    again.basic_publish("", "written", b"may again")
    assert broker.ask("DELETE", "/api/permissions/%2F/writer").status == 204
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        again.basic_publish("", "written", b"may not")
    assert broker.get("/api/queues/%2F/written")["messages"] == 3
    assert broker.ask("DELETE", "/api/permissions/%2F/writer").status == 404


def test_permissions_are_shown_by_user_and_by_host(broker: Served) -> None:
    add_user(broker, "shown", "", "/", "^s")
    row = {"user": "shown", "vhost": "/", "configure": "^s", "write": "^s", "read": "^s"}
    assert broker.get("/api/permissions/%2F/shown") == row
    assert broker.get("/api/users/shown/permissions") == [row]
    assert row in broker.get("/api/vhosts/%2F/permissions")
    assert row in broker.get("/api/permissions")
    assert broker.get("/api/users/shown/topic-permissions") == broker.get("/api/topic-permissions") == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/permissions/%2F/guest", {"configure": ".*"}),
        ("/api/permissions/%2F/guest", {"configure": "(", "write": "", "read": ""}),
        ("/api/permissions/nowhere/guest", EVERYTHING),
        ("/api/permissions/%2F/nobody", EVERYTHING),
    ],
)
def test_permissions_that_make_no_sense_are_refused(broker: Served, path: str, body: object) -> None:
    assert broker.ask("PUT", path, body).status == 400
    assert broker.get("/api/permissions/%2F/guest")["configure"] == ".*"


def test_a_virtual_host_is_made_used_described_and_deleted_with_all_in_it(broker: Served, connect: Connect) -> None:
    assert broker.ask("PUT", "/api/vhosts/side", {"description": "second", "tags": "a,b"}).status == 201
    assert broker.ask("PUT", "/api/vhosts/side").status == 204
    shown = broker.get("/api/vhosts/side")
    assert (shown["description"], shown["tags"]) == ("second", ["a", "b"])
    assert broker.get("/api/vhosts/side/permissions")[0]["user"] == "guest"  # who made it may do everything there
    channel, other = connect(vhost="side").channel(), connect().channel()
    channel.queue_declare("kept", durable=True)
    channel.queue_declare("own", exclusive=True)
    channel.confirm_delivery()
    channel.basic_publish("", "kept", b"x", pika.BasicProperties(delivery_mode=2))
    assert broker.get("/api/vhosts/side")["messages"] == 1
    assert broker.ask("DELETE", "/api/vhosts/side").status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        channel.queue_declare("never")
    assert caught.value.reply_code == 320
    other.queue_declare("still")
    assert broker.ask("GET", "/api/vhosts/side").status == 404
    assert broker.ask("DELETE", "/api/vhosts/side").status == 404
    assert broker.ask("GET", "/api/queues/side").status == 404
    assert "side" not in {one["vhost"] for one in broker.get("/api/permissions")}
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        connect(vhost="side")
    # A new one of the same name has nothing of the old one.
    assert broker.ask("PUT", "/api/vhosts/side").status == 201
    assert broker.get("/api/queues/side") == []
    channel = connect(vhost="side").channel()
    assert channel.queue_declare("kept", durable=True).method.message_count == 0


def test_what_was_changed_while_it_ran_is_there_after_a_restart(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as one:
        one.ask("PUT", "/api/vhosts/kept", {"description": "stays"})
        one.ask("PUT", "/api/vhosts/dropped")
        one.ask("PUT", "/api/queues/dropped/q", {"durable": True})
        one.ask("DELETE", "/api/vhosts/dropped")
        add_user(one, "kept", "monitoring", "kept", "^k")
        add_user(one, "dropped", "", "kept")
        one.ask("DELETE", "/api/users/dropped")
        one.ask("PUT", "/api/queues/kept/q", {"durable": True})
        before = one.get("/api/definitions")
    with Served(tmp_path / "data") as again:
        assert again.get("/api/definitions") == before
        assert again.get("/api/vhosts/kept")["description"] == "stays"
        assert again.get("/api/whoami", user="kept")["tags"] == ["monitoring"]
        assert {one["name"] for one in again.get("/api/vhosts")} == {"/", "kept"}


def test_definitions_go_out_and_come_in_again(broker: Served, tmp_path: Path) -> None:
    broker.ask("PUT", "/api/exchanges/%2F/defined", {"type": "topic", "durable": True})
    broker.ask("PUT", "/api/queues/%2F/defined", {"durable": True, "arguments": {"x-max-length": 3}})
    broker.ask("PUT", "/api/queues/%2F/passing", {})
    broker.ask("POST", "/api/bindings/%2F/e/defined/q/defined", {"routing_key": "k", "arguments": {"n": 1}})
    broker.add_user("boss", tags=("administrator",))  # guest with its default password gets no hashes
    answer = broker.ask("GET", "/api/definitions?download=all.json", user="boss")
    assert answer.headers["Content-Disposition"] == "attachment; filename=all.json"
    document = answer.json
    with Served(tmp_path / "data") as other:
        other.add_user("ann", tags=("administrator",))
        assert other.ask("POST", "/api/definitions", document, user="ann").status == 204
        assert other.ask("DELETE", "/api/users/ann", user="ann").status == 204
        assert sorted_lists(other.get("/api/definitions", user="boss")) == sorted_lists(document)
        assert other.get("/api/bindings/%2F/e/defined/q/defined")[0]["arguments"] == {"n": 1}


def test_definitions_of_one_host_go_into_another(broker: Served) -> None:
    broker.ask("PUT", "/api/exchanges/%2F/moved", {"type": "fanout"})
    broker.ask("PUT", "/api/queues/%2F/moved", {"durable": True})
    broker.ask("POST", "/api/bindings/%2F/e/moved/q/moved", {})
    document = broker.get("/api/definitions/%2F")
    broker.ask("PUT", "/api/vhosts/copy")
    assert broker.ask("POST", "/api/definitions/copy", document).status == 204
    assert broker.get("/api/definitions/copy").keys() == document.keys()
    assert [one["destination"] for one in broker.get("/api/bindings/copy/e/moved/q/moved")] == ["moved"]


def test_a_user_with_a_plain_password_is_imported_hashed(broker: Served) -> None:
    document = {"users": [{"name": "plain", "password": "spoken", "tags": ["management"]}]}
    assert broker.ask("POST", "/api/definitions", document).status == 204
    assert broker.get("/api/whoami", user="plain", password="spoken")["name"] == "plain"
    assert broker.site.broker.users.get("plain").password_hash.startswith("$argon2id$")


@pytest.mark.parametrize(
    "document",
    [
        {"queues": [{"name": "d", "vhost": "nowhere", "durable": True}]},
        {"queues": [{"vhost": "/", "durable": True}]},
        {"queues": [{"name": "d", "vhost": "/", "durable": True}], "users": [{"name": 5}]},
        {"bindings": [{"source": "nope", "vhost": "/", "destination": "x", "destination_type": "queue"}]},
        {"exchanges": 5},
        [],
    ],
)
def test_definitions_that_make_no_sense_change_nothing(broker: Served, document: object) -> None:
    before = broker.get("/api/definitions")
    assert broker.ask("POST", "/api/definitions", document).status == 400
    assert broker.get("/api/definitions") == before


@pytest.fixture(scope="module")
def limited(broker: Served) -> dict[str, Any]:
    """One who manages a virtual host of his own and nothing else."""
    broker.ask("PUT", "/api/vhosts/own")
    broker.ask("PUT", "/api/queues/own/visible", {})
    broker.ask("PUT", "/api/queues/%2F/hidden", {})
    add_user(broker, "limited", "management", "own")
    add_user(broker, "watcher", "monitoring", "own")
    return {"user": "limited"}


def test_a_management_user_sees_only_hosts_that_he_may_use(broker: Served, limited: dict[str, Any]) -> None:
    assert [one["name"] for one in broker.get("/api/vhosts", **limited)] == ["own"]
    assert [one["name"] for one in broker.get("/api/queues", **limited)] == ["visible"]
    assert {one["vhost"] for one in broker.get("/api/exchanges", **limited)} == {"own"}
    assert {one["vhost"] for one in broker.get("/api/bindings", **limited)} == {"own"}
    overview = broker.get("/api/overview", **limited)
    assert overview["object_totals"]["queues"] == 1
    assert "listeners" not in overview
    for path in ("queues/%2F", "queues/%2F/hidden", "exchanges/%2F", "bindings/%2F", "vhosts/%2F", "consumers/%2F"):
        assert broker.ask("GET", f"/api/{path}", **limited).status == 401, path


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "users", None),
        ("GET", "permissions", None),
        ("GET", "definitions", None),
        ("GET", "nodes", None),
        ("PUT", "users/more", {"tags": ""}),
        ("PUT", "users/limited", {"tags": "administrator"}),
        ("DELETE", "users/guest", None),
        ("POST", "users/bulk-delete", {"users": ["guest"]}),
        ("PUT", "vhosts/more", None),
        ("DELETE", "vhosts/own", None),
        ("PUT", "permissions/%2F/limited", EVERYTHING),
        ("DELETE", "permissions/own/limited", None),
        ("POST", "definitions", {}),
        ("POST", "definitions/own", {}),
        ("GET", "vhosts/own/permissions", None),
        ("GET", "users/limited/permissions", None),
    ],
)
def test_what_is_for_administrators_is_for_them_alone(
    broker: Served, limited: dict[str, Any], method: str, path: str, body: object
) -> None:
    assert broker.ask(method, f"/api/{path}", body, **limited).status == 401
    if path != "nodes":
        assert broker.ask(method, f"/api/{path}", body, user="watcher").status == 401


def test_a_monitor_sees_all_and_changes_nothing(broker: Served, limited: dict[str, Any]) -> None:
    add_user(broker, "monitor", "monitoring")
    assert {one["name"] for one in broker.get("/api/queues", user="monitor")} >= {"visible", "hidden"}
    assert broker.ask("GET", "/api/queues/%2F/hidden", user="monitor").status == 200
    assert broker.ask("PUT", "/api/queues/%2F/more", {}, user="monitor").status == 401
    assert broker.ask("DELETE", "/api/queues/%2F/hidden", user="monitor").status == 401


def test_a_user_without_a_tag_is_rejected(broker: Served) -> None:
    add_user(broker, "client", "", "/")
    for path in ("overview", "queues", "whoami", "connections", "health/checks/alarms"):
        assert broker.ask("GET", f"/api/{path}", user="client").status == 401


def sorted_lists(document: dict[str, Any]) -> dict[str, Any]:
    """Definitions whose order says nothing."""
    return {name: sorted(value, key=str) if isinstance(value, list) else value for name, value in document.items()}
