"""Overview, OpenAPI description, and rejection of unknown fields."""

import inspect
import re
import sys

import pytest
from openapi_spec_validator import validate

import holdfast
from holdfast.web.api import OWN
from holdfast.web.api.queue_summary import page_of
from holdfast.web.routes import Media, Routes
from tests.amqp.serving import eventually
from tests.web.serving import Served


def totals_of(served: Served) -> tuple[int, int]:
    """Ready and delayed messages, counted now."""
    served.site.figures.look(fresh=True)
    totals = served.get("/api/holdfast/overview")["totals"]
    return totals["ready"], totals["delayed"]


def test_the_overview_counts_what_there_is(served: Served) -> None:
    served.post("/api/holdfast/queues", {"name": "orders"})
    served.post(
        "/api/holdfast/queues/%2F/orders/messages", {"messages": [{"payload": "x"}, {"payload": "y", "delay": 99}]}
    )
    eventually(lambda: totals_of(served) == (1, 1))  # a message counts as ready until the queue has read its delay
    found = served.get("/api/holdfast/overview")
    assert found["version"] == holdfast.__version__
    assert found["counts"]["queues"] == 1
    assert found["memory"]["alarm"] is None and found["memory"]["resident"] > 0
    assert {one["protocol"] for one in found["listeners"]} == {"amqp", "http"}


def test_the_description_is_valid_openapi_and_names_every_route(served: Served) -> None:
    document = served.ask("GET", "/api/openapi.json", user=None).json
    validate(document)
    assert {"/api/holdfast/queues/{vhost}/{name}", "/api/queues", "/metrics", "/health/live", "/"} <= document[
        "paths"
    ].keys()
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert all(one["summary"].endswith((".", "?")) for one in operations)
    ids = [one["operationId"] for one in operations]
    assert len(ids) == len(set(ids))


_READ = re.compile(r"""(?:call\.(?:field|number|flag)|(?:call\.)?query\.get|_texts)\((?:call, )?"(\w+)\"""")


@pytest.mark.parametrize("part", OWN, ids=lambda part: str(part.tag))
def test_every_field_that_is_read_is_described(part: Routes) -> None:
    sources = {inspect.getsource(sys.modules[route.work.__module__]) for route in part.all}
    if part.tag == "queues":
        sources.add(inspect.getsource(page_of))
    taken = {route.says: route.takes for route in part.all if not isinstance(route.takes, Media)}
    described = {name for route in part.all for name in route.query}
    described |= {name for one in taken.values() if one is not None for name in one.get("properties", ())}
    read = {name for source in sources for name in _READ.findall(source)}
    assert read <= described
    assert all(one is None or one["additionalProperties"] is False for one in taken.values())


@pytest.mark.parametrize(
    ("path", "content", "named"),
    [
        ("/queues/%2F/orders/seek", {"to": "end", "preview": True}, "'preview'"),
        ("/queues/%2F/orders/seek", {"to": "end", "dry_rum": True}, "'dry_rum'"),
        ("/queues/%2F/orders/purge", {"dry_run": True}, "must be empty"),
        ("/queues/%2F/orders/leases", {"cuont": 1}, "count, lease, wait"),
        (
            "/queues/%2F/orders/messages",
            {"messages": [{"payload": "x", "delays": 5}]},
            "messages[0] has the unknown field 'delays'",
        ),
        ("/logs/orders/compact", {"max_segments": 1, "preview": True}, "'preview'"),
        (
            "/logs/orders/records",
            {"records": [{"payload": "x", "priority": 1}]},
            "records[0] has the unknown field 'priority'",
        ),
        ("/queues", {"name": "x", "durable": False}, "'durable'"),
        ("/tokens?lifetime=1h", {"name": "x"}, "the query has the unknown parameter 'lifetime'"),
    ],
)
def test_what_is_not_known_is_refused_and_named(served: Served, path: str, content: object, named: str) -> None:
    served.post("/api/holdfast/queues", {"name": "orders"})
    served.post("/api/holdfast/queues/%2F/orders/messages", {"messages": [{"payload": "a"}]})
    answer = served.ask("POST", f"/api/holdfast{path}", content)
    assert answer.status == 400
    assert named in answer.json["reason"]
    assert served.get("/api/holdfast/queues/%2F/orders")["ready"] == 1


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (b'{"payload": "x", "dedup": 5}', "messages[0].dedup must be text"),
        (b'{"payload": "x", "delay": "soon"}', "messages[0].delay must be a number"),
        (b'{"payload": "\\ud800"}', "surrogate"),
    ],
)
def test_what_makes_no_message_is_said_in_words_of_json(served: Served, message: bytes, named: str) -> None:
    served.post("/api/holdfast/queues", {"name": "orders"})
    answer = served.ask(
        "POST",
        "/api/holdfast/queues/%2F/orders/messages",
        raw=b'{"messages": [' + message + b"]}",
        headers={"Content-Type": "application/json"},
    )
    assert answer.status == 400
    assert named in answer.json["reason"]
