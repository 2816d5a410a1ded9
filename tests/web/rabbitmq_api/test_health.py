"""Health checks, the overview, and unsupported features of RabbitMQ's API."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import InvalidArgument
from holdfast.web.rabbitmq_api.certificates import not_after
from tests.interop.certificates import Authority
from tests.web.rabbitmq_api.conftest import add_user, until
from tests.web.serving import Served


@pytest.mark.parametrize(
    "check",
    [
        "alarms",
        "local-alarms",
        "virtual-hosts",
        "node-is-quorum-critical",
        "node-is-mirror-sync-critical",
        "protocol-listener/amqp",
        "protocol-listener/AMQP091",
        "protocol-listener/http",
        "certificate-expiration/100/years",
    ],
)
def test_all_is_well(broker: Served, check: str) -> None:
    assert broker.get(f"/api/health/checks/{check}")["status"] == "ok"


@pytest.mark.parametrize(
    ("check", "status"),
    [
        ("port-listener/1", 503),
        ("port-listener/x", 400),
        ("protocol-listener/mqtt", 503),
        ("certificate-expiration/x/days", 400),
        ("certificate-expiration/1/moons", 400),
    ],
)
def test_all_is_not_well(broker: Served, check: str, status: int) -> None:
    assert broker.ask("GET", f"/api/health/checks/{check}").status == status


def test_an_alarm_fails_the_check_and_blocks_publishing_here_too(tmp_path: Path) -> None:
    with Served(tmp_path / "data", disk_free_limit=1 << 60) as broker:
        until(lambda: broker.ask("GET", "/api/health/checks/alarms").status == 503, "the alarm")
        answer = broker.ask("GET", "/api/health/checks/alarms")
        assert answer.json["alarms"][0]["resource"] == "disk"
        assert broker.get("/api/nodes")[0]["disk_free_alarm"]
        sent = {"properties": {}, "routing_key": "x", "payload": "x", "payload_encoding": "string"}
        assert broker.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent).status == 503


def test_hosts_with_queues_that_could_not_be_opened_are_named_to_who_sees_them(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as broker:
        for vhost in ("shared", "secret"):
            assert broker.ask("PUT", f"/api/vhosts/{vhost}").status == 201
            assert broker.ask("PUT", f"/api/queues/{vhost}/q", {"durable": True}).status == 201
        add_user(broker, "small", "management", "shared")
    for folder in (tmp_path / "data" / "journals").iterdir():
        shutil.rmtree(folder)
        folder.write_text("no folder")
    with Served(tmp_path / "data") as broker:
        answers = [broker.ask("GET", "/api/health/checks/virtual-hosts", user=user) for user in ("guest", "small")]
        assert [answer.status for answer in answers] == [503, 503]
        assert [sorted(answer.json["virtual-hosts"]) for answer in answers] == [["secret", "shared"], ["shared"]]


def test_a_message_goes_through_each_host(broker: Served) -> None:
    assert broker.get("/api/aliveness-test/%2F") == {"status": "ok"}
    assert broker.get("/api/aliveness-test/%2F") == {"status": "ok"}
    assert broker.ask("GET", "/api/aliveness-test/nowhere").status == 404


def test_the_end_of_a_certificate_is_read_from_its_file(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).for_server()
    left = not_after(Path(certificate.chain)) - datetime.now(UTC)
    assert timedelta(0) < left < timedelta(days=4000)
    no_certificate = tmp_path / "no.pem"
    for text in ("", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        no_certificate.write_text(text)
        with pytest.raises(InvalidArgument):
            not_after(no_certificate)


def test_the_broker_says_what_it_is(broker: Served) -> None:
    overview = broker.get("/api/overview")
    assert overview["product_name"] == "Holdfast"
    assert {one["port"] for one in overview["listeners"]} >= {broker.amqp}
    node = broker.get("/api/nodes")[0]
    assert node["running"]
    assert 0 < node["mem_used"] < node["mem_limit"]
    assert node["name"] == overview["node"]
    assert broker.get("/api/overview?columns=node,object_totals.queues").keys() == {"node", "object_totals"}
    assert broker.ask("GET", "/api/nodes/rabbit@elsewhere").status == 404
    assert broker.ask("POST", "/api/rebalance/queues", {}).status == 204
    assert broker.get("/api/extensions") == broker.get("/api/feature-flags") == []


@pytest.mark.parametrize(
    ("lists", "one"),
    [
        (["policies", "policies/%2F"], "policies/%2F/p"),
        (["operator-policies", "operator-policies/%2F"], "operator-policies/%2F/p"),
        (["parameters", "parameters/shovel", "parameters/shovel/%2F"], "parameters/shovel/%2F/p"),
        (["global-parameters"], "global-parameters/p"),
        (["topic-permissions"], "topic-permissions/%2F/guest"),
        (["vhost-limits", "vhost-limits/%2F"], "vhost-limits/%2F/max-queues"),
        (["user-limits", "user-limits/guest"], "user-limits/guest/max-channels"),
    ],
)
def test_what_is_not_supported_is_empty_and_says_why(broker: Served, lists: list[str], one: str) -> None:
    for path in lists:
        assert broker.get(f"/api/{path}") == []
    refused = broker.ask("PUT", f"/api/{one}", {"pattern": ".*", "definition": {"max-length": 5}, "value": 1})
    assert refused.status == 400
    assert "not supported: " in refused.json["reason"]
    assert broker.ask("DELETE", f"/api/{one}").status == 404
