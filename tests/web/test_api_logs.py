"""Logs under /api/holdfast, while another process or thread writes them."""

import threading
from pathlib import Path

import pytest

import holdfast
from holdfast import Roll
from tests.web.serving import Served, q

LOG = "/api/holdfast/logs/clicks"


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    """A store with a log of five segments, and a tailer that has read two of fifty records."""
    with holdfast.open(tmp_path / "data") as store:
        log = store.log("clicks", roll=Roll.count(10))
        for number in range(50):
            log.append(f"record {number}".encode(), key=b"k", headers={"n": str(number)})
        with log.tailer("audit") as tailer:
            tailer.read_many(2)
            tailer.commit()
    return tmp_path / "data"


def test_logs_are_shown_with_segments_and_tailers(clicks: Path) -> None:
    with Served(clicks) as served:
        names = [one["name"] for one in served.get("/api/holdfast/logs")["items"]]
        assert "clicks" in names and "holdfast.definitions" in names
        found = served.get(LOG)
        assert (found["stats"]["records"], len(found["segments"]), found["readable"]) == (50, 5, [0, 50])
        assert [(one["name"], one["position"], one["lag"]) for one in found["tailers"]] == [("audit", 2, 48)]
        assert found["queues"] == []
        assert served.ask("GET", "/api/holdfast/logs/none").status == 404


def test_records_are_read_by_sequence_by_time_and_backwards(clicks: Path) -> None:
    with Served(clicks) as served:
        found = served.get(LOG + "/records?start=10&count=2")
        assert [(one["sequence"], one["payload"], one["key"]) for one in found["records"]] == [
            (10, "record 10", "k"),
            (11, "record 11", "k"),
        ]
        assert found["records"][0]["headers"] == {"n": "10"}
        assert [one["sequence"] for one in served.get(LOG + "/records?reverse=true&count=2")["records"]] == [49, 48]
        middle = found["records"][0]["timestamp"]
        assert served.get(f"{LOG}/records?since={middle}&count=1")["records"][0]["sequence"] == 10
        assert [one["sequence"] for one in served.get(f"{LOG}/records?until={middle}")["records"]] == list(range(10))
        assert served.get(f"{LOG}/sequence_at?time={middle}") == {"sequence": 10}
        assert served.get(LOG + "/records?start=99")["records"] == []
        for wrong in ("start=-1", "count=0", "count=x", "since=soon", "wait=100"):
            assert served.ask("GET", f"{LOG}/records?{wrong}").status == 400, wrong


def test_records_that_come_are_waited_for(served: Served) -> None:
    served.post(LOG + "/records", {"records": [{"payload": "a", "headers": {"x": "y"}}]})
    late = threading.Timer(0.3, lambda: served.post(LOG + "/records", {"records": [{"payload_base64": "/w=="}]}))
    late.start()
    assert served.get(LOG + "/records?start=1&wait=30")["records"][0]["payload"] == {"base64": "/w=="}
    late.join()


def test_appended_records_are_on_disk_when_it_is_answered(served: Served, tmp_path: Path) -> None:
    assert served.post(LOG + "/records", {"records": [{"payload": "a"}, {"payload": "b"}]}) == {"first": 0, "count": 2}
    with holdfast.open(tmp_path / "data", read_only=True) as view:
        assert [one.payload for one in view.log("clicks").read()] == [b"a", b"b"]
    assert served.ask("POST", LOG + "/records", {"records": [{"payload": "fine"}, {}]}).status == 400
    assert served.get(LOG)["stats"]["end"] == 2


def test_a_queue_can_be_declared_on_a_log_that_a_request_has_opened(served: Served) -> None:
    served.post(LOG + "/records", {"records": [{"payload": "first"}]})
    assert served.ask("PUT", "/api/queues/%2F/clicks", {"durable": True}).status == 201
    served.post("/api/holdfast/queues/%2F/clicks/messages", {"messages": [{"payload": "second"}]})
    served.post(LOG + "/records", {"records": [{"payload": "third"}]})
    assert served.get("/api/queues/%2F/clicks")["messages_ready"] == 3


def test_old_segments_are_dropped_after_a_look_and_never_past_a_tailer(clicks: Path) -> None:
    with Served(clicks) as served:
        seen = served.post(LOG + "/compact", {"max_segments": 2, "dry_run": True, "force": True})
        assert (seen["removed"], seen["records"], seen["left"]["segments"]) == (3, 30, 5)
        kept = served.post(LOG + "/compact", {"max_segments": 2})
        assert (kept["removed"], kept["held_back"]) == (0, 3)
        assert served.ask("PUT", LOG + "/tailers/audit", {"position": 25}).status == 204
        assert served.post(LOG + "/compact", {"max_segments": 2})["removed"] == 2
        assert served.ask("DELETE", LOG + "/tailers/audit").status == 204
        assert served.ask("DELETE", LOG + "/tailers/audit").status == 404
        assert served.post(LOG + "/compact", {"max_segments": 2})["removed"] == 1
        assert served.ask("POST", LOG + "/compact", {}).status == 400
        assert served.post(LOG + "/clear", {"force": True})["end"] == 50
        assert served.get(LOG)["stats"]["records"] == 0


def test_damage_is_found_and_shown(clicks: Path) -> None:
    segment = sorted(clicks.glob("logs/clicks/**/*.data"))[1]
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"record 13", b"record XX"))
    with Served(clicks) as served:
        found = served.post(LOG + "/verify")
        assert not found["ok"] and found["damage"][0]["first_lost"] == 13
        shown = served.get(LOG + "/records?start=10&stop=20")
        assert [one["sequence"] for one in shown["records"]] == [10, 11, 12, 14, 15, 16, 17, 18, 19]
        assert shown["damage"]
        whole = served.get(LOG + "/inspect?sequence=12")
        assert (whole["what"], whole["record"]["payload"]) == ("payload", "record 12")


def test_a_log_with_any_name_can_be_asked_for(served: Served) -> None:
    path = "/api/holdfast/logs/" + q("a/b %ü")
    served.post(path + "/records", {"records": [{"payload": "x"}]})
    assert served.get(path)["stats"]["name"] == "a/b %ü"


def test_the_place_of_a_queue_is_not_forgotten_while_there_is_the_queue(served: Served) -> None:
    for number in range(3):
        served.post("/api/holdfast/queues", {"name": f"jobs{number}"})
    served.ask("PUT", "/api/vhosts/shop", {})
    served.post("/api/holdfast/queues", {"name": "jobs", "vhost": "shop"})
    served.post("/api/holdfast/queues/shop/jobs/messages", {"messages": [{"payload": "x"}]})
    log = "/api/holdfast/logs/" + q("shop\x1fjobs")
    (tailer,) = served.get(log)["tailers"]
    assert tailer["queue"] == {"vhost": "shop", "name": "jobs"}
    refused = served.ask("DELETE", f"{log}/tailers/{q(tailer['name'])}")
    assert refused.status == 400
    assert "delete the queue" in refused.json["reason"]
    assert [one["name"] for one in served.get(log)["tailers"]] == [tailer["name"]]


def test_a_queue_is_as_far_behind_in_its_log_as_it_is_now(served: Served) -> None:
    orders = "/api/holdfast/queues/%2F/orders"
    served.post("/api/holdfast/queues", {"name": "orders"})
    served.post(orders + "/messages", {"messages": [{"payload": "x"}] * 10})

    def seen() -> list[tuple[int, int]]:
        (row,) = served.get("/api/holdfast/logs?name=orders")["items"]
        listed, shown = row["tailers"], served.get("/api/holdfast/logs/orders")["tailers"]
        return [(one["position"], one["lag"]) for one in (*listed, *shown)]

    assert seen() == [(0, 10)] * 2
    held = served.post(orders + "/leases", {"count": 7})["messages"]
    served.post(orders + "/ack", {"messages": [{"id": one["id"], "lease": one["lease"]} for one in held]})
    assert served.get(orders)["lag"] == 3
    assert seen() == [(7, 3)] * 2


def test_logs_are_shown_a_page_at_a_time_with_their_virtual_hosts(served: Served) -> None:
    served.ask("PUT", "/api/vhosts/shop", {})
    for vhost, name in (("/", "mail"), ("shop", "jobs"), ("shop", "mail")):
        served.post("/api/holdfast/queues", {"name": name, "vhost": vhost})
    found = served.get("/api/holdfast/logs?name=mail")
    assert [(one["vhost"], one["label"], one["name"]) for one in found["items"]] == [
        ("/", "mail", "mail"),
        ("shop", "mail", "shop\x1fmail"),
    ]
    assert (found["filtered_count"], found["page_count"]) == (2, 1)
    second = served.get("/api/holdfast/logs?name=mail&page=2&page_size=1")
    assert [one["vhost"] for one in second["items"]] == ["shop"]
    assert served.get("/api/holdfast/logs/mail")["queues"] == [{"vhost": "/", "name": "mail"}]
