"""The demo's third part: a table of customers; each change is a version that can be read later."""

import time
from datetime import UTC, datetime
from pathlib import Path

import holdfast
from holdfast import Index, Model, field
from holdfast.base.units import format_count, plural
from holdfast.cli.demo.output import Stage
from holdfast.cli.demo.results import Figures

__all__ = ["TABLE", "run_table_part"]

TABLE = "Customer"
_CUSTOMERS = 500
_TOWNS = ("Bergen", "Cadiz", "Genoa", "Hull", "Kiel", "Lisbon", "Odesa", "Porto", "Riga", "Split")


class Customer(Model, id=1, version="1.0"):
    """A customer."""

    email: str = field(1, unique=True, max_length=200)
    name: str = field(2)
    town: str = field(3)
    since: datetime = field(4, final=True)
    orders: int = field(5, default=0)
    __indexes__ = (Index("town", "name"),)


def run_table_part(data: Path, figures: Figures, stage: Stage) -> None:
    """Add customers, change their towns, and read the table as of an earlier version."""
    stage.chapter(f"{plural(_CUSTOMERS, 'customer')} in a table: typed, indexed, and with all versions")
    with holdfast.open(data) as store:
        customers = store.table(Customer, keep_all_versions=True)
        now = datetime.now(UTC)
        began = time.perf_counter()
        added = [
            customers.add(
                Customer(email=f"c{number}@example.com", name=f"Customer {number}", town=_town(number), since=now)
            )
            for number in range(_CUSTOMERS)
        ]
        figures.customers = len(added)
        figures.customers_seconds = time.perf_counter() - began
        before = added[-1].version
        movers = [one.key for number, one in enumerate(added) if _town(number) == "Hull"]
        for key in movers:
            customers.change(key, {"town": "Riga", "orders": 1})
        now_there = sum(1 for _ in customers.scan(Customer.town == "Hull"))
        then_there = sum(1 for _ in customers.scan(Customer.town == "Hull", as_of=before))
    pace = format_count(_CUSTOMERS / figures.customers_seconds)
    stage.say(f"added one by one, each on disk before the next: {pace} per second")
    stage.say(f"{len(movers)} moved from Hull to Riga; customers in Hull: {now_there} now, {then_there} before")
    figures.promise(
        "a table can be read as it is, and as of an earlier version", (now_there, then_there) == (0, len(movers))
    )


def _town(number: int) -> str:
    return _TOWNS[number % len(_TOWNS)]
