"""The permission table, cell by cell: every operation, by every protocol, for users with every mix of permissions."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from holdfast import Model, field
from holdfast.broker.users import Cost, Users
from holdfast.table import text_of_key
from holdfast.web.api import OWN
from holdfast.web.routes import Needs
from tests.permissions.table import GUEST, IN_ITSELF, TABLE, USERS, Row, allowed
from tests.web.serving import CHEAP, Served

ROOT = Path(__file__).parent.parent.parent
FREE = {
    "/api/holdfast/logout",
    "/api/holdfast/whoami",
    "/api/holdfast/may",
    "/api/holdfast/tokens",
    "/api/holdfast/tokens/{id}",
    "/api/holdfast/blocks",
}
"""What every user may do with what is the user's own, or what lists only what the user may read."""


class Account(Model, id=1, version="1.0"):
    secret: str = field(1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A store with one of each, and all users; passwords cost little, as there are many."""
    folder = tmp_path_factory.mktemp("permissions")
    with Served(folder / "data", rpc_port=0, allowed_paths=(str(folder),)) as one:
        hasher = Users(cost=Cost(CHEAP.memory_kib, CHEAP.passes))
        users = one.site.broker.users
        made = [user for user in USERS if user is not GUEST]
        hashed = {user.name: hasher.hashed(user.name) for user in made}

        def add() -> None:
            for user in made:
                tags = () if user.tag is None else (user.tag,)
                one.server.administration.put_user(user.name, hashed[user.name], "argon2id", tags=tags)
                users.permit(user.name, "/", *user.patterns)

        one.site.on_broker(add)
        one.store.log("clicks").append_many([b"x"] * 3)
        one.store.table(Account).add(Account(secret="s"))
        one.store.queue("program", dead_letter="program.dead", max_attempts=1)
        yield one


def furnish(served: Served) -> dict[str, str]:
    """All that an operation needs to be there, whatever the one before it did; and the key of a record."""
    host = served.site.host("/")

    def declare() -> None:
        for name in ("orders",):
            host.declare_queue(
                name, durable=True, exclusive=False, auto_delete=False, arguments={}, passive=False, owner=None
            )
        for name in ("news", "other"):
            host.declare_exchange(
                name, "topic", durable=True, auto_delete=False, internal=False, arguments={}, passive=False
            )
        host.bind("news", "queue", "orders", "k", {}, None)
        host.bind("news", "exchange", "other", "k", {}, None)

    served.site.on_broker(declare)
    served.site.on_broker(lambda: served.server.administration.put_user("boss", "", tags=("administrator",)))
    program = served.store.queue("program")
    if not list(program.dead_letters()):
        program.put(b"x")
        for message in program.lease(1000):
            message.nack("it cannot be done")
    log = served.store.log("clicks")
    if log.end == log.start:
        log.append(b"x")
    table = served.store.table(Account)
    found = next(iter(table.scan(limit=1, allow_table_scan=True)), None)
    key = table.add(Account(secret="s")).key if found is None else found.key
    return {"key": text_of_key(key), "folder": str(served.store.path.parent)}


def filled(content: Any, values: dict[str, str]) -> Any:
    if isinstance(content, dict):
        return {name: filled(one, values) for name, one in content.items()}
    return re.sub(r"\{(key|folder)\}", lambda found: values[found[1]], content) if isinstance(content, str) else content


def rows(protocol: str) -> list[Row]:
    return [row for row in TABLE if getattr(row, protocol)]


def named(row: Row) -> str:
    return f"{row.operation} {row.resource}"


@pytest.mark.parametrize("row", [*rows("http"), *IN_ITSELF], ids=named)
def test_http_lets_those_do_it_whom_the_table_lets(served: Served, row: Row) -> None:
    for user in USERS:
        for method, path, content in row.http:
            values = furnish(served)
            shutil.rmtree(served.store.path.parent / "backup", ignore_errors=True)
            answer = served.ask(method, filled(path, values), filled(content, values), user=user.name)
            assert (answer.status != 403) == allowed(user, row, "http"), (method, path, user.name, answer.body)
            assert answer.status not in (401, 500), answer.body


@pytest.mark.parametrize("row", rows("rabbit"), ids=named)
def test_the_management_api_of_rabbitmq_lets_those_do_it_whom_the_table_lets(served: Served, row: Row) -> None:
    for user in USERS:
        for method, path, content in row.rabbit:
            furnish(served)
            answer = served.ask(method, path, content, user=user.name)
            # RabbitMQ's API says 401 for both.
            assert (answer.status < 400) == allowed(user, row, "rabbit"), (method, path, user.name, answer.body)
            assert answer.status < 400 or answer.json["error"] == "not_authorised"


def _consume(channel: Any) -> None:
    channel.basic_cancel(channel.basic_consume("orders", lambda *_: None))


def _publish(channel: Any) -> None:
    channel.confirm_delivery()
    channel.basic_publish("news", "k", b"x")


AMQP: dict[str, Callable[[Any], object]] = {
    "queue.declare": lambda channel: channel.queue_declare("orders", durable=True),
    "queue.delete": lambda channel: channel.queue_delete("orders"),
    "queue.bind": lambda channel: channel.queue_bind("orders", "news", "k"),
    "queue.unbind": lambda channel: channel.queue_unbind("orders", "news", "k"),
    "queue.purge": lambda channel: channel.queue_purge("orders"),
    "basic.get": lambda channel: channel.basic_get("orders"),
    "basic.consume": _consume,
    "exchange.declare": lambda channel: channel.exchange_declare("news", "topic", durable=True),
    "exchange.delete": lambda channel: channel.exchange_delete("news"),
    "exchange.bind": lambda channel: channel.exchange_bind("other", "news", "k"),
    "exchange.unbind": lambda channel: channel.exchange_unbind("other", "news", "k"),
    "basic.publish": _publish,
}


def test_amqp_lets_those_do_it_whom_the_table_lets(served: Served) -> None:
    assert {call for row in TABLE for call in row.amqp} == AMQP.keys()
    for user in USERS:
        login = pika.PlainCredentials(user.name, user.name)
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp, credentials=login))
        for row in rows("amqp"):
            for call in row.amqp:
                furnish(served)
                channel = connection.channel()
                code = 0
                try:
                    AMQP[call](channel)
                    channel.close()
                except pika.exceptions.ChannelClosedByBroker as closed:
                    code = closed.reply_code
                assert code == (0 if allowed(user, row, "amqp") else 403), (call, user.name)
        connection.close()


def test_capnproto_lets_those_do_it_whom_the_table_lets(served: Served) -> None:
    furnish(served)
    (port,) = {one["port"] for one in served.site.listeners if one["protocol"] == "capnp"}
    client = [sys.executable, "-m", "tests.permissions.capnp_client", str(port), *(user.name for user in USERS)]
    done = subprocess.run(client, check=False, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, bool]] = json.loads(done.stdout)
    calls = {call: row for row in TABLE for call in row.capnp}
    for user in USERS:
        assert found[user.name].keys() == calls.keys()
        for call, row in calls.items():
            assert found[user.name][call] == allowed(user, row, "capnp"), (call, user.name)


def test_every_route_of_a_queue_a_log_or_a_table_is_in_the_table() -> None:
    """A route that is added without a row here fails this test."""
    tried = {(method, path.partition("?")[0]) for row in TABLE for method, path, _ in row.http}
    missing = []
    for route in (route for part in OWN for route in part.all):
        if route.needs in (Needs.NOTHING, Needs.LOGIN) or route.template in FREE or route.template in LISTS:
            continue
        pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.template)))
        if not any(method == route.method and pattern.fullmatch(path) for method, path in tried):
            missing.append(f"{route.method} {route.template}")
    assert missing == []


LISTS = {
    "/api/holdfast/pipelines",
    "/api/holdfast/pipelines/runs/{id}",
    "/api/holdfast/doctor",
    "/api/holdfast/replica",
}
"""Routes about the server as a whole, which need a tag that the table of routes says."""


def test_the_documented_table_is_the_one_that_is_tested() -> None:
    text = (ROOT / "docs" / "permissions.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| Operation")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    documented = {(cell[0], cell[1]): cell for cell in cells}
    assert list(documented) == [(row.operation, row.resource) for row in TABLE]
    for row in TABLE:
        _, _, permission, tag, http, rabbit, amqp, capnp = documented[row.operation, row.resource]
        assert tuple(re.findall(r"\b(configure|write|read)\b", permission)) == tuple(kind for kind, _ in row.needs)
        assert ("⁴" in tag) == row.not_default
        assert re.sub(r"[^a-z]", "", tag) == (row.tag or "")
        assert (bool(http), bool(amqp), bool(capnp)) == (bool(row.http), bool(row.amqp), bool(row.capnp))
        assert not row.rabbit or rabbit
        assert set(re.findall(r"`(\w+\.\w+)`", amqp)) == set(row.amqp)
        assert set(re.findall(r"`(\w+)`", capnp)) == set(row.capnp)
        assert ("¹" in http) == (bool(row.http) and "http" in row.tagged)
