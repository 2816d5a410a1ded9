"""The OpenAPI description: every response has a schema, and a running server answers accordingly.

`Served.ask` checks each response of each test against the description. Here every route of Holdfast's own API, and
every route of RabbitMQ's that only reads, is requested once.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

import holdfast
from holdfast import Message, Model, field
from holdfast.log.batch_inbox import Manifest
from holdfast.log.part_buffer import PartBuffer
from holdfast.log.pending_block import PendingBlock, seal
from holdfast.pipeline_runs import Runs
from holdfast.web.openapi import described
from holdfast.web.rabbitmq_api.serializers import node_name
from holdfast.web.routes import Route
from holdfast.web.web_server import ROUTES
from tests.amqp.serving import Client
from tests.web.described import check_described
from tests.web.serving import Served, q

DOCUMENT = described(ROUTES)
OWN = [route for part in ROUTES for route in part.all if route.is_own]
READING = [route for part in ROUTES for route in part.all if not route.is_own and route.method == "GET"]
ELSEWHERE = {"POST /api/holdfast/pipelines/{name}/runs"}
"""Starts Spark: test_pipelines.py does that."""


class Account(Model, id=1, version="1.0"):
    """A table with something in it."""

    name: str = field(1)
    age: int | None = field(2)


def schemas(found: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each schema of the document with its path."""
    if isinstance(found, list):
        for number, one in enumerate(found):
            yield from schemas(one, f"{path}/{number}")
    elif isinstance(found, dict):
        for name, one in found.items():
            where = f"{path}/{name}"
            if name in ("schema", "items") or path.endswith(("/properties", "/schemas")):
                yield where, one
            yield from schemas(one, where)


def test_no_schema_is_empty() -> None:
    validate(DOCUMENT)
    found = dict(schemas(DOCUMENT))
    assert len(found) > 1000
    assert [where for where, schema in found.items() if schema == {}] == []


@pytest.mark.parametrize("part", ROUTES, ids=lambda part: str(part.tag))
def test_every_operation_describes_its_responses(part: Any) -> None:
    for route in part.all:
        responses = DOCUMENT["paths"][route.template][route.method.lower()]["responses"]
        assert route.answers or route.is_rabbitmqs, f"{route.template} never succeeds"
        for status, answer in route.answers.items():
            assert ("content" in responses[str(status)]) == (answer is not None), (route.template, status)
        assert {"400", "404", "default"} <= responses.keys()
        assert ("401" in responses) == (route.needs > 0)
    errors = [one["content"]["application/json"]["schema"] for one in DOCUMENT["components"]["responses"].values()]
    assert errors == [{"$ref": "#/components/schemas/Error"}] * len(errors)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [(b'{"purged": 1}', False), (b'{"purged": "1"}', True), (b"{}", True), (b'{"purged": 1, "more": 2}', True)],
)
def test_a_response_that_is_not_as_described_is_found(body: bytes, wrong: bool, served: Served) -> None:
    served.post("/api/holdfast/queues", {"name": "orders"})
    path = "/api/holdfast/queues/%2F/orders/purge"
    headers = served.ask("POST", path).headers
    if not wrong:
        check_described("POST", path, 200, headers, body)
        return
    with pytest.raises(AssertionError, match="is not as described"):
        check_described("POST", path, 200, headers, body)


class Requests:
    """Sends requests by route, and records which routes have succeeded."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.succeeded: set[str] = set()

    def send(self, route: str, content: object = None, *, query: str = "", **names: object) -> Any:
        """Send a request to a route such as `GET /api/queues/{vhost}`, with these names in its path."""
        method, _, template = route.partition(" ")
        path = template.format(**{name: q(str(value)) for name, value in names.items()})
        answer = self.served.ask(method, path + query, content, user="operator")
        assert answer.status < 300, (route, answer.status, answer.body)
        self.succeeded.add(route)
        return answer.json if answer.body and answer.headers.get_content_type() == "application/json" else None


@pytest.fixture
def requests(tmp_path: Path) -> Iterator[Requests]:
    """A served store with a queue, dead letters, a log, a table and a run of a pipeline."""
    with holdfast.open(tmp_path / "data") as store:
        store.table(Account, keep_all_versions=True).add(Account(name="Ada", age=36))
        Runs(store.path).begin("verify", {"log": "clicks"})
    with Served(tmp_path / "data", allowed_paths=(str(tmp_path),)) as served:
        served.add_user("operator", tags=("administrator",), permissions=(".*", ".*", ".*"))
        jobs = served.store.queue("jobs", max_attempts=1)
        jobs.put_many([b"one", b"two", Message(b"three", b"key", {"a": "b"}), Message(b"later", delay=3600)])
        jobs.nack(jobs.lease(2), "no")
        served.store.log("clicks").append_many([Message(b"x", b"\xff", {"a": "b"})] * 3)
        yield Requests(served)


def names(route: Route) -> str:
    return f"{route.method} {route.template}"


def test_every_route_of_the_own_api_answers_as_described(requests: Requests, tmp_path: Path) -> None:
    served, send = requests.served, requests.send
    sessions(requests)
    send("GET /api/holdfast/overview")
    send("GET /api/holdfast/history")
    send("GET /api/holdfast/replica")
    send("GET /api/holdfast/doctor")
    send("POST /api/holdfast/backup", {"to": str(tmp_path / "backup")})
    queues(requests)
    messages(requests)
    dead_letters(requests)
    logs(requests)
    batches(requests)
    tables(requests)
    send("GET /api/holdfast/pipelines/runs/{id}", id=send("GET /api/holdfast/pipelines")["runs"][0]["id"])
    with closing(Client(served.amqp)) as client:
        client.log_in(channels=2)
        name = served.get("/api/channels")[0]["name"]
        send("DELETE /api/holdfast/channels/{name}", name=name)
    assert {names(route) for route in OWN} - requests.succeeded == ELSEWHERE


def batches(requests: Requests) -> None:
    """Upload a batch of one block, commit it, and read the bytes of the segment to which it was added."""
    served, send = requests.served, requests.send
    log = str(send("GET /api/holdfast/batches", query="?log=sent&query=q")["log"])
    manifest = Manifest(log, None, "q", 0, 0)
    block = PendingBlock(0, 0, 0)
    block.payloads += [b"sent"]
    block.times += [0]

    def upload(name: str, content: bytes) -> None:
        path = f"/api/holdfast/batches/{name}?log=sent"
        sent = {"Content-Type": "application/octet-stream"}
        assert served.ask("PUT", path, raw=content, headers=sent, user="operator").status == 204
        requests.succeeded.add("PUT /api/holdfast/batches/{part}")

    def remove(names: list[str]) -> None:
        for name in names:
            send("DELETE /api/holdfast/batches/{part}", query="?log=sent", part=name)

    kept, left = (PartBuffer(manifest, 0, upload, remove) for _ in range(2))
    for buffer in (kept, left):
        buffer.put(seal(block, 0, None))
        buffer.finish()
    left.close_discarding()
    body = {"log": "sent", "query": "q", "batch": 0, "parts": [asdict(part) for part in kept.parts]}
    assert send("POST /api/holdfast/batches", body) == {"outcome": "adopted", "repeated": False}
    assert send("POST /api/holdfast/batches", body) == {"outcome": "adopted", "repeated": True}
    send("GET /api/holdfast/blocks")
    with holdfast.open(served.store.path, read_only=True) as store:
        (segment,) = store.log("sent").reader.segments()
        assert [record.payload for record in store.log("sent").read()] == [b"sent"]
        place = {"root": "logs", "folder": "sent", "log": segment.log_id.hex(), "segment": f"{segment.segment_id:016x}"}
    send("GET /api/holdfast/blocks/{root}/{folder}/{log}/{segment}", query="?start=0&stop=64", **place)


def sessions(requests: Requests) -> None:
    send = requests.send
    send("POST /api/holdfast/login", {"username": "operator", "password": "operator"})
    send("GET /api/holdfast/whoami")
    made = send("POST /api/holdfast/tokens", {"name": "ci"})
    send("GET /api/holdfast/tokens")
    send("DELETE /api/holdfast/tokens/{id}", id=made["id"])
    send("POST /api/holdfast/logout")
    send("GET /api/holdfast/may", query="?resource=queue&name=jobs")


def queues(requests: Requests) -> None:
    send = requests.send
    one = {"vhost": "/", "name": "jobs"}
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves", "x-message-ttl": 60_000}
    send("POST /api/holdfast/queues", {"name": "graves"})
    send("POST /api/holdfast/queues", {"name": "orders", "arguments": arguments})
    send("GET /api/holdfast/queues")
    for name in ("jobs", "orders"):
        send("GET /api/holdfast/queues/{vhost}/{name}", vhost="/", name=name)
    send("DELETE /api/holdfast/queues/{vhost}/{name}", vhost="/", name="orders")
    send("POST /api/holdfast/queues/{vhost}/{name}/pause", **one)
    send("POST /api/holdfast/queues/{vhost}/{name}/resume", **one)
    send("GET /api/holdfast/delayed")
    send("GET /api/holdfast/queues/{vhost}/{name}/delayed", **one)


def messages(requests: Requests) -> None:
    send = requests.send
    one = {"vhost": "/", "name": "jobs"}
    put = [{"payload": str(number), "priority": number} for number in range(8)]
    send("POST /api/holdfast/queues/{vhost}/{name}/messages", {"messages": put}, **one)
    found = send("GET /api/holdfast/queues/{vhost}/{name}/messages", **one)["messages"]
    send("GET /api/holdfast/queues/{vhost}/{name}/messages/{id}", id=found[0]["id"], **one)
    leased = send("POST /api/holdfast/queues/{vhost}/{name}/leases", {"count": 4}, **one)["messages"]
    send("GET /api/holdfast/queues/{vhost}/{name}/leases", **one)
    for number, action in enumerate(("extend", "ack", "nack", "release")):
        held = {"messages": [leased[number]]}
        send(f"POST /api/holdfast/queues/{{vhost}}/{{name}}/{action}", held, **one)
    (other,) = send("POST /api/holdfast/queues/{vhost}/{name}/leases", {}, **one)["messages"]
    send("DELETE /api/holdfast/queues/{vhost}/{name}/leases/{lease}", lease=other["lease"], **one)
    send("POST /api/holdfast/queues/{vhost}/{name}/seek", {"to": "start", "dry_run": True}, **one)
    send("POST /api/holdfast/queues/{vhost}/{name}/purge", **one)


def dead_letters(requests: Requests) -> None:
    send = requests.send
    one = {"vhost": "/", "name": "jobs"}
    send("GET /api/holdfast/dead")
    found = send("GET /api/holdfast/queues/{vhost}/{name}/dead", **one)
    send("GET /api/holdfast/queues/{vhost}/{name}/dead", query="?from=1", **one)
    first = found["letters"][0]["id"]
    send("GET /api/holdfast/queues/{vhost}/{name}/dead/{id}", id=first, **one)
    send("POST /api/holdfast/queues/{vhost}/{name}/redrive", {"ids": [first]}, **one)
    send("POST /api/holdfast/queues/{vhost}/{name}/dead/delete", {}, **one)


def logs(requests: Requests) -> None:
    send = requests.send
    one = {"name": "clicks"}
    send("POST /api/holdfast/logs/{name}/records", {"records": [{"payload": "x"}]}, **one)
    send("PUT /api/holdfast/logs/{name}/tailers/{tailer}", {"position": 1}, tailer="audit", **one)
    send("GET /api/holdfast/logs")
    for name in ("clicks", "jobs"):
        send("GET /api/holdfast/logs/{name}", name=name)
    send("GET /api/holdfast/logs/{name}/records", **one)
    send("GET /api/holdfast/logs/{name}/sequence_at", query="?time=2020-01-01T00:00:00Z", **one)
    send("GET /api/holdfast/logs/{name}/inspect", query="?sequence=1", **one)
    send("GET /api/holdfast/logs/{name}/inspect", query="?offset=3", **one)
    send("PUT /api/holdfast/logs/{name}/schema", {"format": "json", "text": "a INT"}, **one)
    send("GET /api/holdfast/logs/{name}/schema", **one)
    send("POST /api/holdfast/logs/{name}/schema/check", {"format": "json", "text": "a STRING"}, **one)
    send("POST /api/holdfast/logs/{name}/verify", **one)
    send("POST /api/holdfast/logs/{name}/compact", {"max_segments": 1, "dry_run": True}, **one)
    send("DELETE /api/holdfast/logs/{name}/tailers/{tailer}", tailer="audit", **one)
    send("POST /api/holdfast/logs/{name}/clear", {"force": True}, **one)


def tables(requests: Requests) -> None:
    send = requests.send
    one = {"name": "Account"}
    send("GET /api/holdfast/tables")
    send("GET /api/holdfast/tables/{name}", **one)
    added = send("POST /api/holdfast/tables/{name}/records", {"records": [{"name": "Bob"}, {"name": 7}]}, **one)
    record = {"key": added["outcomes"][0]["key"], **one}
    send("PATCH /api/holdfast/tables/{name}/records/{key}", {"changes": {"age": 5}}, **record)
    send("GET /api/holdfast/tables/{name}/records", **one)
    send("GET /api/holdfast/tables/{name}/records", query="?explain=true", **one)
    send("GET /api/holdfast/tables/{name}/records/{key}", **record)
    send("GET /api/holdfast/tables/{name}/records/{key}/history", **record)
    send("GET /api/holdfast/tables/{name}/changes", **one)
    send("GET /api/holdfast/tables/{name}/span", **one)
    send("DELETE /api/holdfast/tables/{name}/records/{key}", **record)
    send("POST /api/holdfast/tables/{name}/records/{key}/undelete", **record)
    send("GET /api/holdfast/migrations")
    send("POST /api/holdfast/migrations/{table}/{action}", table="Account", action="pause")


def test_every_other_route_that_reads_answers_as_described(requests: Requests) -> None:
    served = requests.served
    served.post("/api/holdfast/queues", {"name": "orders"})
    served.post("/api/bindings/%2F/e/amq.topic/q/orders", {"routing_key": "a.b"})
    served.post("/api/bindings/%2F/e/amq.topic/e/amq.fanout", {"routing_key": "a.b"})
    with closing(Client(served.amqp)) as client:
        client.log_in()
        client.publish("orders", [b"x"])
        next(client.consume("orders", 1, no_ack=False))
        given: dict[str, Any] = {
            "vhost": "/",
            "user": "guest",
            "file": "app.js",
            "port": served.amqp,
            "protocol": "amqp",
            "within": 1,
            "unit": "days",
            "source": "amq.topic",
            "properties": "a.b",
            "component": "shovel",
        }
        for route in READING:
            if not route.answers:
                continue
            kind = route.template.removeprefix("/api/").partition("/")[0]
            of_kind = {"queues": "orders", "exchanges": "amq.topic", "nodes": node_name()}
            if kind in ("connections", "channels"):
                of_kind[kind] = served.get(f"/api/{kind}")[0]["name"]
            destination = "orders" if "/q/" in route.template else "amq.fanout"
            requests.send(names(route), **given, name=of_kind.get(kind, ""), destination=destination)
    assert requests.succeeded == {names(route) for route in READING if route.answers}
