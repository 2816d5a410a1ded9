"""Dead letters under /api/holdfast: listed, redriven and deleted."""

from pathlib import Path
from typing import Any

import pika
import pytest

import holdfast
from holdfast.broker.dead_letter_browser import put_back
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.vhost import VirtualHostRuntime
from holdfast.queue import DeadLetter
from tests.web.serving import Served

ALL = "/api/holdfast/queues"


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    """A store in which a program's queue has three dead letters, for two reasons."""
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue("orders", dead_letter="orders.dead", max_attempts=1)
        queue.put_many([b"a", b"b", b"c", b"fine"])
        for message in queue.lease(3):
            message.nack("no stock" if message.payload != b"c" else "no customer")
    return tmp_path / "data"


def test_the_dead_letters_of_a_programs_queue_are_grouped_put_back_and_deleted(embedded: Path) -> None:
    with Served(embedded) as served:
        path = f"{ALL}/%2F/orders"
        found = served.get(path + "/dead")
        assert [(one["reason"], one["count"]) for one in found["groups"]] == [("no stock", 2), ("no customer", 1)]
        assert found["total"] == 3 and len(found["letters"]) == 3
        assert served.get("/api/holdfast/dead")["queues"][0]["count"] == 3
        assert len(served.get(path + "/dead?reason=no%20stock")["letters"]) == 2
        assert served.post(path + "/redrive", {"reason": "no stock"}) == {"redriven": 2}
        assert served.get(path)["ready"] == 3
        last = served.get(path + "/dead")["letters"]
        assert [one["payload"] for one in last] == ["c"]
        assert served.post(path + "/dead/delete", {"ids": [last[0]["id"]]}) == {"deleted": 1}
        assert served.get(path + "/dead")["total"] == 0
        assert served.post(path + "/redrive", {}) == {"redriven": 0}
        assert served.ask("POST", path + "/redrive", {"ids": ["x"]}).status == 400


def test_the_dead_letters_of_a_programs_queue_are_listed_also_once_it_is_declared_over_amqp(embedded: Path) -> None:
    with Served(embedded) as served:
        before = served.get("/api/holdfast/dead")
        assert [(one["name"], one["count"]) for one in before["queues"]] == [("orders", 3)]
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp)) as connection:
            connection.channel().queue_declare("orders", durable=True)
        assert served.get("/api/holdfast/dead") == before
        assert served.get(f"{ALL}/%2F/orders/dead")["groups"] == before["queues"][0]["groups"]


@pytest.mark.parametrize("declared", [False, True])
def test_dead_letters_of_a_programs_queue_need_read_on_the_dead_letter_queue(embedded: Path, declared: bool) -> None:
    with Served(embedded) as served:
        if declared:
            served.post(ALL, {"name": "orders"})
        both = "^orders(.dead)?$"
        for name, permissions in (
            ("near", ("^orders$", "^orders$", "^orders$")),
            ("far", ("", "^orders.dead$", "^orders.dead$")),
            ("looks", ("", "", both)),
            ("redrives", ("", "^orders$", "^orders.dead$")),
        ):
            served.add_user(name, tags=("management",), permissions=permissions)
        allowed = {"near": "", "far": "", "looks": "look one list delete", "redrives": "redrive"}
        letter = served.get(f"{ALL}/%2F/orders/dead")["letters"][0]["id"]
        for user, may in allowed.items():
            path = f"{ALL}/%2F/orders"
            for operation, method, where, content in (
                ("look", "GET", path + "/dead", None),
                ("one", "GET", f"{path}/dead/{letter}", None),
                ("delete", "POST", path + "/dead/delete", {"ids": [1000]}),
                ("redrive", "POST", path + "/redrive", {"ids": [1000]}),
            ):
                status = served.ask(method, where, content, user=user).status
                assert status == (200 if operation in may.split() else 403), (user, operation)
            listed = served.get("/api/holdfast/dead", user=user)["queues"]
            assert bool(listed) == ("list" in may.split()), user


@pytest.fixture
def dying(served: Served) -> Served:
    """A broker with two dead letters, routed to a dead-letter queue over AMQP."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("dlx", "fanout", durable=True)
        channel.queue_declare("graves", durable=True)
        channel.queue_bind("graves", "dlx")
        channel.queue_declare("work", durable=True, arguments={"x-dead-letter-exchange": "dlx"})
        for body in (b"one", b"two"):
            properties = pika.BasicProperties(delivery_mode=2, headers={"k": "v"}, content_type="text/plain")
            channel.basic_publish("", "work", body, properties)
        for _ in range(2):
            method, _, _ = channel.basic_get("work")
            channel.basic_reject(method.delivery_tag, requeue=False)
        while channel.queue_declare("graves", passive=True).method.message_count < 2:
            connection.process_data_events(0.05)
    return served


def test_the_dead_letters_of_amqp_need_read_on_the_queue_where_they_are(dying: Served) -> None:
    for name, read in (("near", "^work$"), ("both", "^(work|graves)$")):
        dying.add_user(name, tags=("management",), permissions=("", "^work$", read))
    for method, what, content in (
        ("GET", "/dead", None),
        ("GET", "/dead/0", None),
        ("POST", "/dead/delete", {"ids": [1000]}),
        ("POST", "/redrive", {"ids": [1000]}),
    ):
        path = f"{ALL}/%2F/work{what}"
        assert dying.ask(method, path, content, user="near").status == 403, path
        assert dying.ask(method, path, content, user="both").status == 200, path


def test_the_dead_letters_of_amqp_are_found_from_both_ends_and_put_back_where_they_died(dying: Served) -> None:
    for name in ("work", "graves"):
        found = dying.get(f"{ALL}/%2F/{name}/dead")
        assert [(one["reason"], one["origin"], one["count"]) for one in found["groups"]] == [("rejected", "work", 2)], (
            name
        )
    letters: list[dict[str, Any]] = dying.get(f"{ALL}/%2F/graves/dead")["letters"]
    assert letters[0]["payload"] == "one" and letters[0]["headers"]["k"] == "v"
    assert dying.post(f"{ALL}/%2F/graves/redrive", {"ids": [letters[0]["id"]]}) == {"redriven": 1}
    assert dying.get(f"{ALL}/%2F/graves/dead")["total"] == 1
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", dying.amqp)) as connection:
        method, properties, body = connection.channel().basic_get("work", auto_ack=True)
        assert (body, properties.content_type, method.routing_key) == (b"one", "text/plain", "work")
        assert properties.headers["x-redriven"] == 1 and properties.headers["k"] == "v"
    groups = dying.get(f"{ALL}/%2F/graves/dead")["groups"]
    assert dying.get("/api/holdfast/dead")["queues"] == [
        {"vhost": "/", "name": "graves", "count": 1, "more": False, "groups": groups}
    ]
    assert dying.post(f"{ALL}/%2F/work/dead/delete", {}) == {"deleted": 1}
    assert dying.get("/api/holdfast/dead")["queues"] == []


def test_putting_back_needs_the_permission_to_write_where_it_goes(dying: Served) -> None:
    users = dying.site.broker.users
    dying.site.on_broker(lambda: users.add("clerk", "clerk", tags=("management",)))
    dying.site.on_broker(lambda: users.permit("clerk", "/", "", "^graves$", "^graves$"))
    answer = dying.ask("POST", f"{ALL}/%2F/graves/redrive", {}, user="clerk")
    assert answer.status == 403
    assert dying.get(f"{ALL}/%2F/graves/dead")["total"] == 2


def group(found: dict[str, Any]) -> list[tuple[str, str, str, int]]:
    return sorted((one["origin"], one["reason"], one["cause"], one["count"]) for one in found["groups"])


def test_a_group_is_meant_by_its_origin_its_reason_and_its_cause(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue("orders", max_attempts=1)
        queue.put_many([b"unsaid", b"unsaid", b"tried", b"refused"])
        *unsaid, tried, refused = queue.lease(4)
        queue.nack(unsaid)
        tried.nack("no stock")
        queue.reject_ids({refused.lease: [refused.id]}, "no stock")
    with Served(tmp_path / "data") as served:
        path = f"{ALL}/%2F/orders"
        assert group(served.get(path + "/dead")) == [
            ("orders", "", "attempts", 2),
            ("orders", "no stock", "attempts", 1),
            ("orders", "no stock", "rejected", 1),
        ]
        shown = served.get(path + "/dead?reason=&cause=attempts&origin=orders")
        assert ([one["payload"] for one in shown["letters"]], shown["total"]) == (["unsaid", "unsaid"], 4)
        chosen = {"origin": "orders", "reason": "no stock", "cause": "rejected"}
        assert served.post(path + "/redrive", chosen) == {"redriven": 1}
        assert served.post(path + "/dead/delete", {**chosen, "reason": "", "cause": "attempts"}) == {"deleted": 2}
        assert [one["payload"] for one in served.get(path + "/dead")["letters"]] == ["tried"]
        assert [one["payload"] for one in served.get(path + "/messages")["messages"]] == ["refused"]


def test_all_dead_letters_are_counted_put_back_and_deleted_however_many(tmp_path: Path) -> None:
    many = 21_000
    with holdfast.open(tmp_path / "data") as store:
        for name in ("orders", "bills"):
            queue = store.queue(name, max_attempts=1)
            queue.put_many([b"x"] * many)
            queue.nack(queue.lease(many), "no stock")
    with Served(tmp_path / "data") as served:
        assert [(one["count"], one["more"]) for one in served.get("/api/holdfast/dead")["queues"]] == [
            (many, False), (many, False),
        ]  # fmt: skip
        assert served.get(f"{ALL}/%2F/orders/dead?count=1")["total"] == many
        assert served.post(f"{ALL}/%2F/orders/redrive", {}) == {"redriven": many}
        assert served.post(f"{ALL}/%2F/bills/dead/delete", {}) == {"deleted": many}
        assert served.get("/api/holdfast/dead")["queues"] == []
        assert served.get(f"{ALL}/%2F/orders")["ready"] == many


def test_a_look_that_does_not_see_all_says_that_there_is_more(embedded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.api.dead_letters.LOOKED_AT", 2)
    with Served(embedded) as served:
        (row,) = served.get("/api/holdfast/dead")["queues"]
        assert (row["count"], row["more"]) == (2, True)
        path = f"{ALL}/%2F/orders/dead"
        seen = served.get(path)
        assert (seen["total"], seen["more"], len(seen["letters"])) == (2, True, 2)
        rest = served.get(f"{path}?from={seen['next']}")
        assert (rest["total"], rest["more"], rest["next"]) == (None, False, None)
        assert [one["payload"] for one in rest["letters"]] == ["c"]
        one = served.get(path + "?count=1&reason=no%20customer")
        assert (one["letters"], one["next"]) == ([], seen["next"])


@pytest.fixture
def shared(served: Served) -> Served:
    """A broker where 1,001 dead letters of the queue `a` lie in front of three of `b`."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp)) as connection:
        channel = connection.channel()
        channel.queue_declare("graves", durable=True)
        to = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves", "x-message-ttl": 1}
        lying = 0
        for name, count in (("a", 1001), ("b", 3)):
            channel.queue_declare(name, durable=True, arguments=to)
            for _ in range(count):
                channel.basic_publish("", name, b"late")
            lying += count
            while channel.queue_declare("graves", passive=True).method.message_count < lying:
                connection.process_data_events(0.05)
    return served


def test_dead_letters_are_found_behind_a_thousand_of_another_queue(shared: Served) -> None:
    found = shared.get(f"{ALL}/%2F/b/dead")
    assert (group(found), found["total"], found["more"]) == ([("b", "expired", "expired", 3)], 3, False)
    assert group(shared.get(f"{ALL}/%2F/graves/dead")) == [
        ("a", "expired", "expired", 1001),
        ("b", "expired", "expired", 3),
    ]
    assert shared.post(f"{ALL}/%2F/graves/dead/delete", {"origin": "b", "reason": "expired"}) == {"deleted": 3}
    assert shared.post(f"{ALL}/%2F/a/dead/delete", {}) == {"deleted": 1001}
    assert shared.get(f"{ALL}/%2F/graves")["ready"] == 0


def test_dead_letters_are_put_back_a_few_at_a_time_and_each_once_also_if_it_dies_again(
    shared: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def counting(host: VirtualHostRuntime, letters: list[DeadLetter]) -> list[tuple[DeadLetter, BrokerQueue]]:
        sizes.append(len(letters))
        return put_back(host, letters)

    monkeypatch.setattr("holdfast.web.api.dead_letters.put_back", counting)
    assert shared.post(f"{ALL}/%2F/graves/redrive", {"origin": "a"}) == {"redriven": 1001}
    assert sizes == [500, 500, 1]


def test_what_a_look_did_not_reach_is_put_back_all_the_same(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.api.dead_letters.LOOKED_AT", 1000)
    unseen = shared.get(f"{ALL}/%2F/b/dead")
    assert (unseen["total"], unseen["more"]) == (0, True)
    assert shared.post(f"{ALL}/%2F/b/redrive", {}) == {"redriven": 3}


def test_a_dead_letter_is_shown_whole_by_its_id_and_only_to_its_queue(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        for name in ("orders", "bills"):
            queue = store.queue(name, max_attempts=1, dead_letter="dead")
            queue.put(name.encode() * 10_000)
            queue.nack(queue.lease(1), "no stock")
    with Served(tmp_path / "data") as served:
        path = f"{ALL}/%2F/orders/dead"
        (cut,) = served.get(path)["letters"]
        assert cut["truncated"] and len(cut["payload"]) == 4096
        whole = served.get(f"{path}/{cut['id']}")
        assert (whole["payload"], whole["truncated"], whole["reason"]) == ("orders" * 10_000, False, "no stock")
        (other,) = served.get(f"{ALL}/%2F/bills/dead")["letters"]
        assert served.ask("GET", f"{path}/{other['id']}").status == 404
        assert served.ask("GET", f"{path}/999").status == 404


def test_a_dead_letter_of_amqp_is_shown_whole_too(dying: Served) -> None:
    (first, _) = dying.get(f"{ALL}/%2F/work/dead?truncate=1")["letters"]
    assert (first["payload"], first["truncated"]) == ("o", True)
    for name in ("work", "graves"):
        assert dying.get(f"{ALL}/%2F/{name}/dead/{first['id']}")["payload"] == "one"
