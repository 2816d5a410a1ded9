"""Queues and messages under /api/holdfast, with a real broker and over real HTTP."""

import base64
import contextlib
import http.client
import threading
from pathlib import Path
from typing import Any

import pika
import pytest

import holdfast
from holdfast.broker.amqp_values import LateTime
from holdfast.broker.basic_properties import Properties, encode_properties
from tests.amqp.serving import Client, eventually
from tests.web.serving import Served, q

ALL = "/api/holdfast/queues"
ORDERS = f"{ALL}/%2F/orders"


@pytest.fixture
def orders(served: Served) -> Served:
    """A served store with one empty queue."""
    served.post(ALL, {"name": "orders"})
    return served


def put(site: Served, *payloads: str, **directives: Any) -> list[int]:
    ids: list[int] = site.post(
        ORDERS + "/messages", {"messages": [{"payload": payload, **directives} for payload in payloads]}
    )["ids"]
    return ids


def payloads(site: Served, path: str = ORDERS + "/messages?count=1000") -> list[Any]:
    return [one["payload"] for one in site.get(path)["messages"]]


def lease(site: Served, count: int = 10, **how: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.post(ORDERS + "/leases", {"count": count, **how})["messages"]
    return found


def waiting_in(site: Served) -> int:
    """How many requests wait for a message."""
    return sum(len(polls) for polls in list(site.site.polls.values()))


def held(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"messages": [{"id": one["id"], "lease": one["lease"]} for one in messages]}


def test_messages_go_in_and_come_out_with_all_they_carry(orders: Served) -> None:
    message = {
        "payload_base64": base64.b64encode(b"\xff\x00").decode(),
        "key": "c1",
        "headers": {"source": "web"},
        "priority": 9,
    }
    assert put(orders, "first") == [0]
    assert orders.post(ORDERS + "/messages", {"messages": [message]})["ids"] == [1]
    seen = orders.get(ORDERS + "/messages")["messages"]
    assert [(one["id"], one["payload"], one["priority"]) for one in seen] == [
        (1, {"base64": "/wA="}, 9),
        (0, "first", 0),
    ]
    assert (seen[0]["key"], seen[0]["headers"], seen[0]["size"], seen[0]["truncated"]) == (
        "c1",
        {"source": "web"},
        2,
        False,
    )
    taken = lease(orders)
    assert [(one["id"], one["attempt"]) for one in taken] == [(1, 1), (0, 1)]
    assert orders.post(ORDERS + "/ack", held(taken)) == {"done": 2, "lost": []}
    assert sorted(orders.post(ORDERS + "/ack", held(taken))["lost"]) == [0, 1]
    assert payloads(orders) == []


def test_what_was_answered_survives_a_kill(orders: Served, tmp_path: Path) -> None:
    put(orders, "a", "b")
    taken = lease(orders, 1)
    orders.post(ORDERS + "/ack", held(taken))
    with holdfast.open(tmp_path / "data", read_only=True) as view:  # sees only what is on disk
        queue = view.queue("orders")
        assert [one.payload for one in queue.peek()] == [b"b"]


def test_a_put_is_all_or_nothing_and_says_which_one_is_wrong(orders: Served) -> None:
    for wrong in (
        {"payload": 7},
        {},
        {"payload": "x", "colour": "red"},
        "x",
        {"payload_base64": "?"},
        {"payload": "x", "delay": -1},
    ):
        answer = orders.ask("POST", ORDERS + "/messages", {"messages": [{"payload": "fine"}, wrong]})
        assert answer.status == 400, wrong
    assert "messages[1]" in orders.ask("POST", ORDERS + "/messages", {"messages": [{"payload": ""}, {}]}).json["reason"]
    assert payloads(orders) == []


def test_a_duplicate_is_answered_with_the_first_id(orders: Served) -> None:
    assert put(orders, "x", dedup="17") == [0]
    again = orders.post(ORDERS + "/messages", {"messages": [{"payload": "x", "dedup": "17"}]})
    assert again == {"ids": [0], "duplicates": 1}
    assert payloads(orders) == ["x"]


def test_a_duplicate_within_one_request_is_counted(orders: Served) -> None:
    messages = [{"payload": "x", "dedup": "17"}, {"payload": "y"}, {"payload": "x", "dedup": "17"}]
    assert orders.post(ORDERS + "/messages", {"messages": messages}) == {"ids": [0, 1, 0], "duplicates": 1}
    assert orders.post(ORDERS + "/messages", {"messages": messages}) == {"ids": [0, 2, 0], "duplicates": 2}
    assert payloads(orders) == ["x", "y", "y"]


def test_a_message_that_is_listed_twice_counts_once(orders: Served) -> None:
    put(orders, "a")
    for verb in ("release", "nack", "ack"):
        (taken,) = lease(orders)
        twice = held([taken, taken]) | ({"delay": 0} if verb == "nack" else {})
        assert orders.post(ORDERS + "/extend", held([taken, taken]) | {"lease": 60}) == {"done": 1, "lost": []}
        assert orders.post(f"{ORDERS}/{verb}", twice) == {"done": 1, "lost": []}
        assert orders.post(f"{ORDERS}/{verb}", twice) == {"done": 0, "lost": [0]}


def test_a_poll_waits_for_a_message_and_who_goes_away_takes_nothing(orders: Served) -> None:
    threading.Timer(0.3, lambda: put(orders, "late")).start()
    assert [one["payload"] for one in lease(orders, wait=30)] == ["late"]
    host, port = orders.url.removeprefix("http://").split(":")
    waiting = http.client.HTTPConnection(host, int(port))
    secret = base64.b64encode(b"guest:guest").decode()
    waiting.request(
        "POST",
        ORDERS + "/leases",
        b'{"wait": 30}',
        {"Content-Type": "application/json", "Authorization": f"Basic {secret}"},
    )
    eventually(lambda: waiting_in(orders) == 1)
    waiting.close()
    eventually(lambda: waiting_in(orders) == 0)
    put(orders, "for another")
    assert [one["payload"] for one in lease(orders, wait=30)] == ["for another"]


def test_many_wait_at_once_without_a_thread_each(orders: Served) -> None:
    before = threading.active_count()
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.extend(one["payload"] for one in lease(orders, 1, wait=60)))
        for _ in range(60)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: waiting_in(orders) == 60)
    assert threading.active_count() - before < 60 + 50
    put(orders, *[str(number) for number in range(60)])
    for thread in threads:
        thread.join(120)
    assert sorted(map(int, found)) == list(range(60))


def test_a_failed_message_comes_back_and_a_held_one_can_be_held_longer(orders: Served) -> None:
    put(orders, "a")
    taken = lease(orders, lease=60)
    assert orders.post(ORDERS + "/extend", held(taken) | {"lease": 600}) == {"done": 1, "lost": []}
    until = orders.get(ORDERS + "/leases")["leases"][0]
    assert until["expires_at"] - until["since_at"] > 500e9 and until["count"] == 1 and until["ids"] == [0]
    assert orders.post(ORDERS + "/nack", held(taken) | {"reason": "no stock", "delay": 0})["done"] == 1
    again = lease(orders)
    assert [one["attempt"] for one in again] == [2]
    assert orders.post(ORDERS + "/release", held(again))["done"] == 1
    assert orders.get(ORDERS + "/messages")["messages"][0]["attempts"] == 1


def test_a_lease_can_be_given_back_by_who_looks_after_the_queue(orders: Served) -> None:
    put(orders, "a", "b")
    taken = lease(orders, lease=600)
    number = orders.get(ORDERS + "/leases")["leases"][0]["lease"]
    assert orders.ask("DELETE", f"{ORDERS}/leases/{number}").json == {"returned": 2}
    assert orders.post(ORDERS + "/ack", held(taken))["lost"] == [0, 1]
    assert orders.ask("DELETE", f"{ORDERS}/leases/none").status == 400


def test_a_paused_queue_takes_and_does_not_give(orders: Served) -> None:
    assert orders.post(ORDERS + "/pause") == {"paused": True}
    put(orders, "a")
    assert lease(orders) == []
    assert orders.get(ORDERS)["state"] == "paused"
    assert orders.post(ORDERS + "/resume") == {"paused": False}
    assert len(lease(orders)) == 1


def test_a_paused_queue_gives_nothing_to_clients_of_amqp_either(orders: Served) -> None:
    orders.post(ORDERS + "/pause")
    put(orders, "a")
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", orders.amqp)) as connection:
        channel = connection.channel()
        assert channel.basic_get("orders")[0] is None
        got: list[bytes] = []
        channel.basic_consume("orders", lambda c, m, p, body: got.append(body), auto_ack=True)
        connection.process_data_events(0.3)
        assert got == []
        orders.post(ORDERS + "/resume")
        connection.process_data_events(2)
        assert got == [b"a"]


def test_delayed_messages_have_a_histogram_of_due_times(orders: Served) -> None:
    for delay in (100, 200, 300):
        put(orders, str(delay), delay=delay)
    found = orders.get(ORDERS + "/delayed?buckets=10")
    assert found["total"] == 3
    assert sum(one["count"] for one in found["buckets"]) == 3
    assert len(found["buckets"]) == 10
    assert [one["payload"] for one in found["messages"]] == ["100", "200", "300"]
    assert found["messages"][0]["due_at"] == found["first_due"]


def test_all_delayed_messages_are_counted_also_of_queues_that_are_not_shown(orders: Served) -> None:
    put(orders, "a", "b", "c", delay=100)
    for number in range(3):
        orders.store.queue(f"later-{number}").put_many([holdfast.Message(b"x", delay=60)] * (number + 1))
    found = orders.get("/api/holdfast/delayed?count=2&buckets=10")
    assert (found["total"], found["total_queues"]) == (9, 4)
    assert [(one["name"], one["total"]) for one in found["queues"]] == [("later-2", 3), ("orders", 3)]
    assert found["queues"][1]["buckets"] == orders.get(ORDERS + "/delayed?buckets=10")["buckets"]
    orders.site.on_broker(lambda: orders.site.broker.users.add("stranger", "stranger", tags=("management",)))
    assert orders.get("/api/holdfast/delayed", user="stranger")["total"] == 0


def test_a_replay_is_shown_before_it_is_done(orders: Served) -> None:
    put(orders, "a", "b", "c")
    orders.post(ORDERS + "/ack", held(lease(orders, 2)))
    seen = orders.post(ORDERS + "/seek", {"to": "start", "dry_run": True})
    assert (seen["delivered"], seen["waiting_now"], seen["dropped"], seen["dry_run"]) == (3, 1, 0, True)
    assert [one["payload"] for one in seen["sample"]] == ["a", "b", "c"]
    assert payloads(orders) == ["c"]
    assert orders.post(ORDERS + "/seek", {"to": 1})["dry_run"] is False
    assert payloads(orders) == ["b", "c"]
    assert orders.post(ORDERS + "/seek", {"time": "2001-01-01T00:00:00Z"})["position"] == 0
    assert orders.post(ORDERS + "/seek", {"to": "end", "dry_run": True})["dropped"] == 3
    for wrong in ({}, {"to": "middle"}, {"to": 99}, {"to": 1, "time": "2001-01-01T00:00:00Z"}, {"time": "soon"}):
        assert orders.ask("POST", ORDERS + "/seek", wrong).status == 400, wrong


def test_purging_and_deleting(orders: Served) -> None:
    put(orders, "a", "b")
    assert orders.post(ORDERS + "/purge") == {"purged": 2}
    assert payloads(orders) == []
    assert orders.ask("DELETE", ORDERS).status == 204
    assert orders.ask("GET", ORDERS).status == 404


def test_queues_come_in_pages_filtered_and_sorted(served: Served) -> None:
    for number in range(12):
        name = f"q{number:02d}"
        served.post(ALL, {"name": name})
        if number:
            messages = [{"payload": "x"}] * number
            served.post(f"{ALL}/%2F/{name}/messages", {"messages": messages})
    page = served.get(f"{ALL}?page=2&page_size=5&sort=ready&sort_reverse=true")
    assert [one["name"] for one in page["items"]] == ["q06", "q05", "q04", "q03", "q02"]
    assert (page["page_count"], page["total_count"], page["filtered_count"]) == (3, 12, 12)
    assert [one["name"] for one in served.get(f"{ALL}?name=Q1")["items"]] == ["q10", "q11"]
    assert [one["name"] for one in served.get(f"{ALL}?name=^q0[13]$&use_regex=true")["items"]] == ["q01", "q03"]
    assert served.get(f"{ALL}?sort=oldest_age&page_size=1")["items"][0]["name"] == "q00"
    assert served.ask("GET", f"{ALL}?sort=colour").status == 400
    assert served.ask("GET", f"{ALL}?name=(&use_regex=true").status == 400
    assert served.ask("GET", f"{ALL}?page=x").status == 400


def test_queues_that_only_programs_with_the_store_made_are_there_too(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        store.queue("embedded", dead_letter="embedded.dead", max_attempts=1).put(b"x")
    with Served(tmp_path / "data") as served:
        rows = {one["name"]: one for one in served.get(ALL)["items"]}
        assert (rows["embedded"]["ready"], rows["embedded"]["in_broker"]) == (1, False)
        one = served.get(f"{ALL}/%2F/embedded")
        assert one["settings"]["max_attempts"] == 1
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp)) as connection:
            # Who looked at it does not keep AMQP from declaring it its own way.
            connection.channel().queue_declare("embedded", durable=True)


@pytest.mark.parametrize("name", ["a/b", "50%", "ü ö", "..", "a?b#c", "x" * 200])
def test_any_name_can_be_asked_for(served: Served, name: str) -> None:
    served.post(ALL, {"name": name})
    path = f"{ALL}/%2F/{q(name)}"
    assert served.post(path + "/messages", {"messages": [{"payload": "x"}]})["ids"] == [0]
    assert served.get(path)["name"] == name


def test_consumers_and_bindings_of_amqp_are_shown(orders: Served) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", orders.amqp)) as connection:
        channel = connection.channel()
        channel.exchange_declare("events", "topic")
        channel.queue_bind("orders", "events", "order.*", {"x": 1})
        channel.basic_qos(prefetch_count=7)
        channel.confirm_delivery()
        channel.basic_publish("events", "order.new", b"<b>bold</b>", pika.BasicProperties(headers={"k": "v"}, type="t"))
        seen = orders.get(ORDERS + "/messages")["messages"][0]
        assert (seen["exchange"], seen["routing_key"], seen["headers"]) == ("events", "order.new", {"k": "v"})
        assert seen["properties"] == {"type": "t"}
        channel.basic_consume("orders", lambda *_: None, consumer_tag="me")
        connection.process_data_events(0.2)
        one = orders.get(ORDERS)
        assert {"source": "events", "routing_key": "order.*", "arguments": {"x": 1}} in one["bindings"]
        consumer = one["consumers_detail"][0]
        assert (consumer["tag"], consumer["prefetch"], consumer["unacked"], consumer["user"]) == ("me", 7, 1, "guest")


def test_a_time_after_the_year_9999_is_shown_as_its_number(orders: Served) -> None:
    client = Client(orders.amqp)
    with contextlib.closing(client):
        client.log_in()
        client.publish("orders", [b"x"], raw=encode_properties(Properties(headers={"late": LateTime(10**12)})))
        eventually(lambda: client.count("orders"))
    assert orders.get(ORDERS + "/messages")["messages"][0]["headers"] == {"late": 10**12}
    wanted = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert orders.post("/api/queues/%2F/orders/get", wanted)[0]["properties"]["headers"] == {"late": 10**12}


def test_a_body_can_be_cut_and_fetched_whole(orders: Served) -> None:
    put(orders, "ü" * 1000)
    cut = orders.get(ORDERS + "/messages?truncate=11")["messages"][0]
    assert (cut["payload"], cut["size"], cut["truncated"]) == ("ü" * 5, 2000, True)
    assert orders.get(ORDERS + "/messages?truncate=0")["messages"][0]["payload"] == "ü" * 1000
    assert orders.get(ORDERS + "/messages/0")["payload"] == "ü" * 1000
    assert orders.ask("GET", ORDERS + "/messages/99").status == 404


def test_a_request_that_crosses_the_deletion_of_its_queue_finds_none(
    orders: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, found = orders.site.store, threading.Event()
    kept = orders.site.broker.hosts["/"].broker_queues["orders"]
    state = type(kept.queue).stats

    def slow(queue: holdfast.Queue) -> object:
        if not found.is_set():  # the request has found the queue; now it is deleted
            found.set()
            store.delete_queue("orders")
        return state(queue)

    monkeypatch.setattr(type(kept.queue), "stats", slow)
    answers = [orders.ask("GET", ORDERS).status for _ in range(2)]  # the second finds what the broker did not drop yet
    assert (found.is_set(), answers) == (True, [404, 404])
