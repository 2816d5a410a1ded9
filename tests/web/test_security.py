"""Authentication, tokens and rejected requests, over real HTTP, with the requests that an attacker would send."""

import base64
import http.client
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from holdfast import Model, Ref, field
from holdfast.testing import SimClock
from holdfast.web.auth import check_host, check_same_site, is_loopback
from holdfast.web.responses import Refused
from holdfast.web.tokens import Tokens
from tests.web.serving import Served

WHO = "/api/holdfast/whoami"


class Account(Model, id=1, version="1.0"):
    secret: str = field(1)


class Parcel(Model, id=2, version="1.0"):
    sender: Ref[Account] = field(1)
    receiver: Ref[Account] | None = field(2)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Served(tmp_path_factory.mktemp("web") / "data") as served:
        users = served.site.broker.users
        served.site.on_broker(lambda: users.add("reader", "reader", tags=("monitoring",)))
        served.site.on_broker(lambda: users.add("clerk", "clerk", tags=("management",)))
        served.site.on_broker(lambda: users.add("worker", "worker"))
        served.site.on_broker(lambda: users.permit("worker", "/", "", "^orders$", "^orders$"))
        served.post("/api/holdfast/queues", {"name": "orders"})
        served.post("/api/holdfast/queues", {"name": "secret"})
        yield served


def status(site: Served, method: str, path: str, content: object = None, **how: Any) -> int:
    return site.ask(method, path, content, **how).status


def test_nobody_a_wrong_password_and_a_wrong_scheme_are_401(site: Served) -> None:
    assert status(site, "GET", WHO, user=None) == 401
    assert status(site, "GET", WHO, user="guest", password="wrong") == 401
    assert status(site, "GET", WHO, user="nobody", password="nobody") == 401
    for header in (
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"guest").decode(),
        "Digest x",
        "Bearer",
        "Bearer x",
    ):
        assert status(site, "GET", WHO, user=None, headers={"Authorization": header}) == 401
    assert status(site, "GET", WHO) == 200


def test_a_browser_is_asked_for_a_password_only_where_no_script_asks(site: Served) -> None:
    assert "Basic" in site.ask("GET", WHO, user=None).headers["WWW-Authenticate"]
    asked = site.ask("GET", WHO, user=None, headers={"Sec-Fetch-Mode": "cors"})
    assert asked.status == 401
    assert "WWW-Authenticate" not in asked.headers


def test_a_token_is_good_until_it_is_withdrawn(site: Served) -> None:
    made = site.post("/api/holdfast/tokens", {"name": "ci", "lifetime": "1h"})
    assert site.get(WHO, token=made["token"])["name"] == "guest"
    listed = site.get("/api/holdfast/tokens")["tokens"]
    assert made["id"] in [one["id"] for one in listed]
    assert "token" not in listed[0] and "digest" not in listed[0]
    for spoilt in (made["token"][:-1], made["token"] + "x", made["token"].replace("hf_", "hf"), made["id"]):
        assert status(site, "GET", WHO, token=spoilt) == 401
    assert status(site, "DELETE", f"/api/holdfast/tokens/{made['id']}") == 204
    assert status(site, "GET", WHO, token=made["token"]) == 401


def test_an_expired_token_is_401(site: Served) -> None:
    made = site.post("/api/holdfast/tokens", {"name": "brief", "lifetime": 0.05})
    time.sleep(0.1)
    answer = site.ask("GET", WHO, token=made["token"])
    assert (answer.status, "expired" in answer.json["reason"]) == (401, True)


def test_an_expired_token_is_listed_no_more(site: Served) -> None:
    made = site.post("/api/holdfast/tokens", {"name": "soon over", "lifetime": 0.05})
    time.sleep(0.1)
    assert made["id"] not in [one["id"] for one in site.get("/api/holdfast/tokens")["tokens"]]


def test_a_token_makes_none_that_outlives_it(site: Served) -> None:
    brief = site.post("/api/holdfast/tokens", {"name": "brief", "lifetime": 60})
    refused = site.ask("POST", "/api/holdfast/tokens", {"name": "long", "lifetime": "90d"}, token=brief["token"])
    assert refused.status == 400
    assert "cannot outlive it" in refused.json["reason"]
    made = site.post("/api/holdfast/tokens", {"name": "heir"}, token=brief["token"])
    assert made["expires_at"] <= brief["expires_at"]
    session = site.post("/api/holdfast/login", {"username": "guest", "password": "guest"})
    assert site.post("/api/holdfast/tokens", {"name": "ci", "lifetime": "90d"}, token=session["token"])


@pytest.mark.parametrize(
    "path", ["/%0A", "/api/holdfast/whoami%0A", "/api%0d%0a", "/%0Aapi/queues", "/%00", "//", "/%"]
)
def test_no_path_bypasses_authentication(site: Served, path: str) -> None:
    for method in ("GET", "POST", "TRACE", "NONSENSE"):
        answer = site.ask(method, path)
        assert answer.status in (404, 405), method
        assert answer.headers["Content-Type"] == "application/json"
        assert "Content-Security-Policy" in answer.headers
        assert answer.json["reason"]


def test_another_password_ends_a_users_tokens_and_deletion_too(site: Served) -> None:
    users = site.site.broker.users
    site.site.on_broker(lambda: users.add("leaver", "one", tags=("management",)))
    made = site.post("/api/holdfast/tokens", {"name": "x"}, user="leaver", password="one")
    assert site.get(WHO, token=made["token"])["name"] == "leaver"
    site.site.on_broker(lambda: users.change_password("leaver", "two"))
    assert status(site, "GET", WHO, token=made["token"]) == 401
    again = site.post("/api/holdfast/tokens", {"name": "x"}, user="leaver", password="two")
    site.site.on_broker(lambda: users.delete("leaver"))
    assert status(site, "GET", WHO, token=again["token"]) == 401


def test_nobody_sees_or_ends_the_tokens_of_another(site: Served) -> None:
    made = site.post("/api/holdfast/tokens", {"name": "mine"}, user="reader")
    assert [one["user"] for one in site.get("/api/holdfast/tokens", user="clerk")["tokens"]] == []
    assert status(site, "DELETE", f"/api/holdfast/tokens/{made['id']}", user="clerk") == 404
    assert site.get(WHO, token=made["token"])["name"] == "reader"


def test_the_default_user_sees_no_hashes_and_no_tokens_of_others(site: Served) -> None:
    site.add_user("boss", tags=("administrator",))
    made = site.post("/api/holdfast/tokens", {"name": "bosses"}, user="boss")
    mine = site.post("/api/holdfast/tokens", {"name": "mine"})
    for path in ("/api/definitions", "/api/users", "/api/users/boss", "/api/users/without-permissions"):
        answer = site.ask("GET", path)
        assert answer.status == 200 and b"boss" in answer.body
        assert b"password_hash" not in answer.body and b"argon2id$" not in answer.body
        assert b"$argon2id$" in site.ask("GET", path, user="boss").body
    own = "/api/holdfast/logs/holdfast.definitions"
    for how in ({}, {"token": mine["token"]}):
        for what in ("/records", "/records?reverse=true", "/inspect?sequence=0"):
            answer = site.ask("GET", own + what, **how)
            assert answer.status == 403 and b"argon2id" not in answer.body
            assert site.ask("GET", own + what, user="boss").status == 200
        assert {one["user"] for one in site.get("/api/holdfast/tokens", **how)["tokens"]} == {"guest"}
        assert site.ask("DELETE", f"/api/holdfast/tokens/{made['id']}", **how).status == 404
    assert site.get(WHO, token=made["token"])["name"] == "boss"
    assert {one["user"] for one in site.get("/api/holdfast/tokens", user="boss")["tokens"]} >= {"boss", "guest"}
    assert status(site, "DELETE", f"/api/holdfast/tokens/{mine['id']}", user="boss") == 204


def test_definitions_without_hashes_leave_the_passwords_as_they_are(site: Served) -> None:
    site.add_user("carl", tags=("management",))
    document = site.get("/api/definitions")
    assert site.ask("POST", "/api/definitions", document).status == 204  # nothing in it is a change
    assert site.get(WHO, user="carl")["tags"] == ["management"]
    changed = {"users": [{"name": "carl", "tags": ["monitoring"]}]}
    assert site.ask("POST", "/api/definitions", changed).status == 204
    assert site.get(WHO, user="carl")["tags"] == ["monitoring"]
    assert site.ask("POST", "/api/definitions", {"users": [{"name": "new", "tags": ""}]}).status == 204
    assert site.ask("GET", WHO, user="new", password="").status == 401


def test_tokens_are_kept_as_digests_for_the_owner_alone_and_outlive_a_restart(tmp_path: Path) -> None:
    clock = SimClock()
    credentials = {"ada": "hash"}
    tokens = Tokens(tmp_path, credentials.get, clock)
    token, text = tokens.make("ada", "ci", 60)
    kept = (tmp_path / "tokens.json").read_text()
    assert text.split("_", 2)[2] not in kept and "hash" not in kept
    assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0
    again = Tokens(tmp_path, credentials.get, clock)
    assert again.find(text) == token
    clock.advance(59)
    assert again.find(text) == token
    clock.advance(1)
    assert again.find(text) is None


def test_guest_comes_in_from_this_machine_only() -> None:
    assert (
        is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("::ffff:127.0.0.1") and is_loopback("127.9.9.9")
    )
    assert not is_loopback("10.0.0.1") and not is_loopback("testclient") and not is_loopback("::ffff:10.0.0.1")


def test_behind_a_proxy_nobody_counts_as_on_this_machine(site: Served) -> None:
    for header in ("X-Forwarded-For", "Forwarded"):
        assert status(site, "GET", WHO, headers={header: "203.0.113.9"}) == 401
        assert status(site, "GET", WHO, user="reader", headers={header: "203.0.113.9"}) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_post_of_another_site_is_refused_with_the_right_password(site: Served, headers: dict[str, str]) -> None:
    answer = site.ask("POST", "/api/holdfast/queues/%2F/orders/purge", {}, headers=headers)
    assert (answer.status, answer.json["error"]) == (403, "cross_site")


def test_our_own_page_and_programs_may_post(site: Served) -> None:
    own = {"Origin": site.url, "Sec-Fetch-Site": "same-origin"}
    assert status(site, "POST", "/api/holdfast/queues/%2F/orders/purge", {}, headers=own) == 200
    assert status(site, "POST", "/api/holdfast/queues/%2F/orders/purge", {}) == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_that_a_form_could_send_is_no_json(site: Served, kind: str) -> None:
    answer = site.ask("POST", "/api/holdfast/tokens", raw=b'{"name": "x"}', headers={"Content-Type": kind})
    assert answer.status == 415


def test_preflights_of_other_sites_get_no_permission(site: Served) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"}
    answer = site.ask("OPTIONS", "/api/queues/%2F/orders", user=None, headers=asked)
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_an_unknown_host_header_is_rejected(site: Served) -> None:
    assert status(site, "GET", WHO, headers={"Host": "evil.example"}) == 421
    assert status(site, "GET", WHO, headers={"Host": "localhost:15672"}) == 200
    check_host({"host": "mq.example.com"}, frozenset(["mq.example.com"]))
    with pytest.raises(Refused, match="http_hosts"):
        check_host({"host": "mq.example.com"}, frozenset())


def test_looking_is_allowed_from_anywhere_as_it_changes_nothing() -> None:
    check_same_site("GET", {"origin": "https://evil.example", "host": "here"})
    with pytest.raises(Refused):
        check_same_site("DELETE", {"origin": "https://evil.example", "host": "here"})


def raw(site: Served, line: bytes) -> int:
    """The status of a request whose path no client would send like this."""
    host, port = site.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        secret = base64.b64encode(b"guest:guest")
        connection.sendall(
            line + b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic " + secret + b"\r\nConnection: close\r\n\r\n"
        )
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        answer.read()
        return answer.status


@pytest.mark.parametrize(
    "path",
    [
        b"/../../../../etc/passwd",
        b"/page/../../../../etc/passwd",
        b"/page/..%2f..%2f..%2fetc%2fpasswd",
        b"/page/%2e%2e/%2e%2e/pyproject.toml",
        b"/page/..%5c..%5ctokens.json",
        b"/page/index.html%00.js",
        b"/page//index.html",
        b"//etc/passwd",
        b"/page/",
        b"/tokens.json",
        b"/api/holdfast/logs/..%2f..%2ftokens.json",
        b"/api/holdfast/logs/%2e%2e",
        b"/api/holdfast/queues/%2F/..%2f..%2ftokens.json",
        b"/api/holdfast/tables/..%2F..%2Fetc",
        b"/api/holdfast/pipelines/runs/..%2F..%2Ftokens",
        b"/api/%2e%2e/metrics/per-object",
        b"/api/queues/%2F%2Forders",
    ],
)
def test_tricks_with_paths_lead_nowhere(site: Served, path: bytes) -> None:
    assert raw(site, b"GET " + path) in (400, 404)


def test_names_in_paths_never_become_paths(site: Served, tmp_path: Path) -> None:
    before = sorted(str(path) for path in site.store.path.parent.iterdir())
    trick = "%2e%2e%2f%2e%2e%2fescaped"
    status(site, "POST", f"/api/holdfast/logs/{trick}/records", {"records": [{"payload": "x"}]})
    site.ask("POST", "/api/holdfast/queues", {"name": "../../escaped"})
    assert sorted(str(path) for path in site.store.path.parent.iterdir()) == before
    assert site.get(f"/api/holdfast/logs/{trick}/records")["records"][0]["payload"] == "x"


def test_what_a_user_may_do_is_what_the_broker_permits(site: Served) -> None:
    orders, secret = "/api/holdfast/queues/%2F/orders", "/api/holdfast/queues/%2F/secret"
    put = {"messages": [{"payload": "x"}]}
    assert status(site, "POST", orders + "/messages", put, user="worker") == 201
    assert status(site, "GET", orders + "/messages", user="worker") == 200
    for method, path, content in (
        ("POST", secret + "/messages", put),
        ("GET", secret + "/messages", None),
        ("GET", secret, None),
        ("POST", secret + "/leases", {}),
        ("POST", orders + "/pause", None),
        ("DELETE", orders, None),
        ("POST", orders + "/seek", {"to": "start"}),
        ("GET", "/api/holdfast/queues", None),
        ("GET", "/api/holdfast/overview", None),
        ("GET", "/api/holdfast/logs", None),
        ("GET", "/api/holdfast/tables", None),
        ("GET", "/metrics/per-object", None),
    ):
        assert status(site, method, path, content, user="worker") == 403, (method, path)
    # Without any permission in the virtual host even what the tag shows is empty.
    assert site.get("/api/holdfast/queues", user="clerk")["items"] == []
    assert status(site, "GET", orders, user="clerk") == 403
    shown = {one["name"] for one in site.get("/api/holdfast/queues", user="reader")["items"]}
    assert {"orders", "secret"} <= shown


def test_an_error_names_nothing_that_the_caller_may_not_see(site: Served) -> None:
    site.site.on_broker(lambda: site.site.broker.users.permit("worker", "/", "", "^orders$", "^(orders|public.*)$"))
    for path in ("/logs/public.x", "/tables/public.x", "/logs/public.x/records", "/tables/public.x/records"):
        answer = site.ask("GET", f"/api/holdfast{path}", user="worker")
        assert answer.status == 404
        assert "secret" not in answer.json["reason"] and "there are" not in answer.json["reason"]
    assert "secret" in site.ask("GET", "/api/holdfast/logs/public.x", user="reader").json["reason"]


def test_only_an_administrator_changes_what_belongs_to_nobody(site: Served) -> None:
    for method, path, content in (
        ("POST", "/api/holdfast/logs/orders/clear", {}),
        ("POST", "/api/holdfast/logs/orders/records", {"records": [{"payload": "x"}]}),
        ("POST", "/api/holdfast/backup", {"to": "/tmp/x"}),
        ("POST", "/api/holdfast/pipelines/verify/runs", {}),
        ("PUT", "/api/users/x", {"password": "x", "tags": ""}),
        ("GET", "/api/holdfast/doctor", None),
    ):
        assert status(site, method, path, content, user="reader") in (401, 403), (method, path)


def test_the_servers_own_logs_are_not_for_writing(site: Served) -> None:
    for name in ("holdfast.definitions", "holdfast.history"):
        path = f"/api/holdfast/logs/{name}"
        assert status(site, "POST", path + "/records", {"records": [{"payload": "x"}]}) == 403
        assert status(site, "POST", path + "/clear", {"force": True}) == 403
        assert status(site, "POST", path + "/compact", {"max_segments": 1}) == 403


def test_every_answer_tells_a_browser_to_run_nothing_but_our_own(site: Served) -> None:
    for path, user in (("/", None), (WHO, "guest"), ("/nowhere", None), ("/metrics", None)):
        headers = site.ask("GET", path, user=user).headers
        policy = headers["Content-Security-Policy"]
        assert "script-src 'self';" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Server" not in headers


def test_a_body_with_a_script_comes_back_as_json_and_nothing_else(site: Served) -> None:
    script = "<script>alert(1)</script>"
    site.post("/api/holdfast/queues/%2F/orders/messages", {"messages": [{"payload": script, "headers": {"x": script}}]})
    answer = site.ask("GET", "/api/holdfast/queues/%2F/orders/messages?count=100")
    assert answer.headers["Content-Type"] == "application/json"
    assert script in [one["payload"] for one in answer.json["messages"]]
    mirrored = site.ask("GET", "/api/holdfast/" + "%3Cscript%3E")
    assert mirrored.headers["Content-Type"] == "application/json"


def test_a_request_that_is_too_large_or_no_json_is_said_so(site: Served) -> None:
    kind = {"Content-Type": "application/json"}
    for spoilt in (b"{", b"[" * 100_000, b"\xff", b'{"a":NaN}'):
        assert site.ask("POST", "/api/holdfast/tokens", raw=spoilt, headers=kind).status == 400
    assert site.ask("POST", "/api/holdfast/tokens", [1, 2]).status == 400
    assert site.ask("POST", "/api/holdfast/tokens", {"name": 7}).status == 400
    assert site.ask("POST", "/api/holdfast/tokens").status == 400


def test_a_path_with_another_method_is_405_and_says_which(site: Served) -> None:
    answer = site.ask("DELETE", "/api/holdfast/overview")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, OPTIONS")
    assert site.ask("HEAD", "/api/holdfast/overview").status == 200


def test_who_watches_sees_figures_and_no_bodies(site: Served) -> None:
    site.post("/api/holdfast/logs/ledger/records", {"records": [{"payload": "secret"}]})
    log = "/api/holdfast/logs/ledger"
    assert site.get(log, user="reader")["stats"]["records"] == 1
    for path in (f"{log}/records", f"{log}/inspect?sequence=0"):
        assert status(site, "GET", path, user="reader") == 403
    site.site.on_broker(lambda: site.site.broker.users.permit("reader", "/", "", "^ledger$", "^ledger$"))
    assert site.get(f"{log}/records", user="reader")["records"][0]["payload"] == "secret"
    assert status(site, "POST", f"{log}/records", {"records": [{"payload": "x"}]}, user="reader") == 201
    assert status(site, "POST", f"{log}/clear", {}, user="reader") == 403
    assert status(site, "GET", "/api/holdfast/logs/holdfast.definitions/records", user="reader") == 403
    assert status(site, "GET", "/api/holdfast/tables/ledger2/records", user="reader") == 403
    site.site.on_broker(lambda: site.site.broker.users.forbid("reader", "/"))


def test_a_filter_follows_references_only_into_tables_that_the_caller_may_read(site: Served) -> None:
    ada = site.store.table(Account).add(Account(secret="hush")).key
    site.store.table(Parcel).add(Parcel(sender=ada, receiver=ada))
    users = site.site.broker.users
    site.site.on_broker(lambda: users.add("carrier", "carrier"))
    site.site.on_broker(lambda: users.permit("carrier", "/", "", "", "^Parcel$"))
    own = "sender.exists()"
    assert len(site.get(f"/api/holdfast/tables/Parcel/records?where={own}", user="carrier")["records"]) == 1
    paths = ("sender.follow().secret.prefix('h')", f"{own} and not receiver.follow().secret == 'x'")
    for where in map(quote, paths):
        for view in ("records", "changes"):
            path = f"/api/holdfast/tables/Parcel/{view}?where={where}"
            assert status(site, "GET", path, user="carrier") == 403
            assert len(site.get(path)["records"]) == 1
    site.site.on_broker(lambda: users.permit("carrier", "/", "", "", "^(Parcel|Account)$"))
    path = f"/api/holdfast/tables/Parcel/records?where={quote(paths[0])}"
    assert len(site.get(path, user="carrier")["records"]) == 1


def test_a_queue_that_belongs_to_one_connection_is_only_looked_at(site: Served) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", site.amqp)) as connection:
        connection.channel().queue_declare("mine", exclusive=True)
        path = "/api/holdfast/queues/%2F/mine"
        assert status(site, "GET", path) == 200
        for method, action in (("POST", "/purge"), ("POST", "/leases"), ("POST", "/pause"), ("DELETE", "")):
            answer = site.ask(method, path + action)
            assert (answer.status, answer.json["error"]) == (409, "resource_locked")


def test_who_was_here_before_does_not_wait_for_a_hash(site: Served) -> None:
    users = site.site.broker.users
    site.get(WHO)
    assert users.remembers("guest", "guest")
    assert not users.remembers("guest", "other") and not users.remembers("nobody", "guest")
    site.site.on_broker(lambda: users.add("mover", "one", tags=("management",)))
    site.get(WHO, user="mover", password="one")
    site.site.on_broker(lambda: users.change_password("mover", "two"))
    assert not users.remembers("mover", "one")
    assert status(site, "GET", WHO, user="mover", password="one") == 401
