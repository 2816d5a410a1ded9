"""Content of the store that the browser tests use: messages of all kinds, bindings, tailers, tables with a history."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pika

import holdfast
from holdfast import Backoff, Message, Migration, Model, Roll, Store, field
from holdfast.pipeline_runs import Runs
from holdfast.table import Index, Partial, each_row
from holdfast.table.operations import Done
from tests.web.serving import Served

__all__ = ["SCRIPT", "Crowd", "Held", "fill", "prepare"]

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
"""A body that would run if it were inserted as markup."""


class Customer(Model, id=1, version="1.0"):
    """A customer of a shop."""

    name: str = field(1, max_length=80)
    email: str = field(2, unique=True)
    city: str | None = field(3)
    orders: int = field(4, default=0)
    tags: set[str] = field(5, default_factory=set)
    joined: datetime = field(6)

    __indexes__ = (Index("city"), Index("orders"))


def _parcel() -> Any:
    class Parcel(Model, id=2, version="1.0"):
        label: str = field(1)
        kilos: float = field(2)

    return Parcel


def _heavier_parcel() -> Any:
    """The same with a weight in grams, which needs a migration."""

    class Parcel(Model, id=2, version="2.0"):
        label: str = field(1)
        grams: int = field(3)

        __reserved__ = (2, "kilos")

    return Parcel


class Held:
    """A migration that returns partial results until it is released."""

    def __init__(self) -> None:
        self._go = threading.Event()
        self._model = _heavier_parcel()

    def release(self) -> None:
        """Let the migration complete."""
        self._go.set()

    def begin(self, store: Store) -> None:
        """Open the table with its new model."""
        migration = Migration(expand=self._expand, backfill=each_row(self._heavier))
        store.table(self._model, migration=migration, migration_budget=0.01)

    def _expand(self, step: Any) -> Partial | None:
        if self._go.wait(0.05):
            return None
        return Partial(int(step.cursor or 0) + 1)

    def _heavier(self, found: Any) -> Any:
        return self._model(label=found.old.label, grams=round(found.old.kilos * 1000))


def prepare(data: Path) -> None:
    """Create what must exist before the store is served: a table of an older model."""
    with holdfast.open(data) as store:
        parcels = store.table(_parcel())
        parcels.add_many({"label": f"parcel {number}", "kilos": number / 4} for number in range(20))


def fill(served: Served) -> Held:
    """Add objects of every kind to a store."""
    store = served.store
    _queues(store)
    _failures(store)
    _logs(store)
    held = _tables(store)
    _runs(store)
    _routes(served)
    return held


def _queues(store: Store) -> None:
    orders = store.queue("orders", lease=3600, backoff=Backoff(base=0), starvation=None, max_length=100_000)
    orders.put_many([_order(number) for number in range(40)])
    orders.put_many(
        [
            Message(SCRIPT.encode(), b"evil", {"<b>bold</b>": "<i>x</i>"}, priority=9),
            Message(bytes(range(256)) * 2, b"\xff\xfe", priority=8),
            Message(b"x" * 10_000, b"long", priority=7),
        ]
    )
    orders.put_many([Message(f"reminder {number}".encode(), delay=900 + (number * 97) % 3000) for number in range(60)])
    store.queue("emails").put_many(
        [Message(f"mail {number}".encode(), delay=600 + number * 240) for number in range(25)]
    )
    store.queue("invoices").put_many([f"invoice {number}".encode() for number in range(120)])
    store.queue("quiet")


def _order(number: int) -> Message:
    body = {
        "order": 1000 + number,
        "customer": f"c{number % 7}",
        "total": round(9.5 + number * 1.75, 2),
        "items": [{"sku": f"A-{number}", "quantity": 1 + number % 3}],
    }
    headers = {"source": "web", "trace": f"t-{number:04}"}
    return Message(json.dumps(body).encode(), f"c{number % 7}".encode(), headers, priority=number % 3)


def _failures(store: Store) -> None:
    payments = store.queue("payments", max_attempts=1, backoff=Backoff(base=0), lease=3600)
    payments.put_many(
        [json.dumps({"payment": number, "note": SCRIPT if number == 0 else "ok"}).encode() for number in range(12)]
    )
    taken = payments.lease(12)
    for number, reason in enumerate(("card refused", "timeout of the bank", "no such account")):
        payments.nack(taken[number::3], reason)
    shipping = store.queue("shipping", max_attempts=1, backoff=Backoff(base=0))
    shipping.put_many([b"a parcel", b"another"])
    shipping.nack(shipping.lease(2), "address unknown")


def _logs(store: Store) -> None:
    events = store.log("events", roll=Roll.count(50))
    for first in range(0, 320, 40):
        events.append_many(
            [
                Message(
                    json.dumps({"event": number, "kind": ("view", "cart", "buy")[number % 3]}).encode(),
                    key=f"u{number % 5}".encode(),
                )
                for number in range(first, first + 40)
            ]
        )
    events.sync()
    for name, place in (("mailer", 300), ("search-index", 140), ("archive", 20)):
        with events.tailer(name) as tailer:
            tailer.seek(place)
            tailer.commit()


def _runs(store: Store) -> None:
    """Add records of pipeline runs, without Spark: one of them follows a log."""
    checkpoint = store.path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "4").write_text('v1\n{}\n{"events": {"0": 250}}\n')
    runs = Runs(store.path)
    done = runs.begin("stream", {"log": "events", "checkpoint": str(checkpoint)})
    found = {"title": "250 records counted", "rows": [{"key": "u0", "count": 50}], "facts": {"records": 250}}
    runs.end(done, ok=True, outcome=found)


def _tables(store: Store) -> Held:
    customers = store.table(Customer, keep_all_versions=True)
    cities = ("Bergen", "Porto", "Graz", None)
    added = customers.add_many(
        Customer(
            name=f"Customer {number}",
            email=f"c{number}@example.org",
            city=cities[number % 4],
            orders=number % 9,
            joined=datetime(2026, 1, 1 + number % 28, tzinfo=UTC),
        )
        for number in range(30)
    )
    keys = [done.key for done in added if isinstance(done, Done)]
    customers.change(keys[0], {Customer.city: "Oslo"})
    customers.change(keys[0], {Customer.orders: 17, Customer.name: SCRIPT[:60]})
    customers.delete(keys[29])
    held = Held()
    held.begin(store)
    return held


def _routes(served: Served) -> None:
    # A token is checked at once; a password takes a good part of a second each time.
    token = served.post("/api/holdfast/login", {"username": "guest", "password": "guest"})["token"]

    def put(path: str, content: object = None) -> None:
        answer = served.ask("PUT", f"/api{path}", {} if content is None else content, token=token)
        assert answer.status < 300, (path, answer)

    def bind(source: str, target: str, content: dict[str, Any]) -> None:
        served.post(
            f"/api/bindings/%2F/e/{source}/{target}", {"routing_key": "", "arguments": {}, **content}, token=token
        )

    for name, kind in (("shop", "topic"), ("audit", "fanout"), ("billing", "direct"), ("by-region", "headers")):
        put(f"/exchanges/%2F/{name}", {"type": kind, "durable": True})
    for name in ("shop.orders", "shop.returns", "audit.all", "billing.cards", "billing.bank", "region.north"):
        put(f"/queues/%2F/{name}", {"durable": True})
    to_failed = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "failed", "x-message-ttl": 1}
    put("/queues/%2F/failing", {"durable": True, "arguments": to_failed})
    put("/queues/%2F/failed", {"durable": True})
    bind("shop", "q/shop.orders", {"routing_key": "order.#"})
    bind("shop", "q/shop.returns", {"routing_key": "return.*"})
    bind("shop", "e/audit", {"routing_key": "#"})
    bind("shop", "e/billing", {"routing_key": "order.paid"})
    bind("audit", "q/audit.all", {})
    bind("billing", "q/billing.cards", {"routing_key": "card"})
    bind("billing", "q/billing.bank", {"routing_key": "bank"})
    bind("by-region", "q/region.north", {"arguments": {"x-match": "all", "region": "north"}})
    put("/vhosts/staging")
    put("/users/reader", {"password": "reader", "tags": "monitoring"})
    put("/permissions/%2F/reader", {"configure": "", "write": "", "read": ".*"})


class Crowd:
    """Clients over AMQP: one consumes without acknowledging, one publishes."""

    def __init__(self, served: Served) -> None:
        self._open: list[Any] = []
        worker = self._connect(served, "worker")
        held = worker.channel()
        held.basic_qos(prefetch_count=5)
        publisher = self._connect(served, "shop front").channel()
        publisher.confirm_delivery()
        for number in range(8):
            publisher.basic_publish("shop", f"order.{number}", f"order {number}".encode())
        publisher.basic_publish("", "failing", b"too late", pika.BasicProperties(headers={"x": 1}))
        held.basic_consume("shop.orders", lambda *_: None, consumer_tag="packer")
        worker.process_data_events(0.2)

    def _connect(self, served: Served, name: str) -> Any:
        made = pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", served.amqp, client_properties={"connection_name": name}, heartbeat=600
            )
        )
        self._open.append(made)
        return made

    def channel(self, number: int) -> Any:
        """Open another channel of one connection."""
        return self._open[number].channel()

    def hear(self, number: int) -> str:
        """Read one connection until the broker closes it; return the reason."""
        try:
            while True:
                self._open[number].process_data_events(1)
        except pika.exceptions.ConnectionClosedByBroker as closed:
            return str(closed.reply_text)

    def leave(self) -> None:
        """Close all open connections."""
        for one in self._open:
            try:
                one.close()
            except Exception:  # some tests close it through the page
                continue
