"""The demo's third part: a table of customers; each change is a version that can be read later."""

import time
from datetime import UTC, datetime
from pathlib import Path

import holdfast
from holdfast import Index, field
from holdfast.base.units import format_count, plural
from holdfast.cli.demo.stage import Stage, pace

__all__ = ["CUSTOMERS", "TABLE", "run_table_part"]

TABLE = "Customer"
CUSTOMERS = 500
_TOWNS = ("Bergen", "Cadiz", "Genoa", "Hull", "Kiel", "Lisbon", "Odesa", "Porto", "Riga", "Split")


class Customer(holdfast.Model, id=1, version="1.0"):
    """A customer."""

    email: str = field(1, unique=True, max_length=200)
    name: str = field(2)
    town: str = field(3)
    since: datetime = field(4, final=True)
    orders: int = field(5, default=0)
    __indexes__ = (Index("town", "name"),)


def run_table_part(data: Path, stage: Stage) -> None:
    """Add customers, change their towns, and read the table as of an earlier version."""
    stage.chapter(f"{plural(CUSTOMERS, 'customer')} in a table: typed, indexed, and with all versions")
    now = datetime.now(UTC)
    people = [
        Customer(email=f"c{number}@example.com", name=f"Customer {number}", town=_TOWNS[number % 10], since=now)
        for number in range(CUSTOMERS)
    ]
    with holdfast.open(data) as store:
        customers = store.table(Customer, keep_all_versions=True)
        began = time.perf_counter()
        added = [customers.add(one) for one in people]
        seconds = time.perf_counter() - began
        movers = [done.key for one, done in zip(people, added, strict=True) if one.town == "Hull"]
        for key in movers:
            customers.change(key, {"town": "Riga", "orders": 1})
        now_there = customers.count(Customer.town == "Hull")
        then_there = customers.count(Customer.town == "Hull", as_of=added[-1].version)
    stage.say(f"added one by one, each on disk before the next: {format_count(CUSTOMERS / seconds)} per second")
    stage.say(f"{len(movers)} moved from Hull to Riga; customers in Hull: {now_there} now, {then_there} before")
    kept = (now_there, then_there) == (0, len(movers))
    stage.promise("a table can be read as it is, and as of an earlier version", kept)
    stage.note(customers=CUSTOMERS, customers_seconds=seconds)
    stage.line()
    stage.line("records in a table", format_count(CUSTOMERS), pace(CUSTOMERS, seconds))
