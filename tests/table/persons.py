"""Models and objects that tests of keys, indexes, filters and plans share."""

from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum

from holdfast.table.model.fields import field
from holdfast.table.model.indexes import Each, Index, Keys, Normalized, Reversed, TypeOf, Values, Words
from holdfast.table.model.model import Model, Ref

__all__ = ["Address", "Length", "Level", "Log", "Person", "Weight", "instant", "person"]


class Level(Enum):
    """How much it matters."""

    INFO = 1
    DEBUG = 2
    ERROR = 3


class Address(Model):
    """Where someone lives."""

    city: str = field(1)
    street: str | None = field(2, default=None)
    prefix: str | None = field(3, default=None)


class Weight(Model, tag=1):
    """How heavy."""

    kg: int = field(1)


class Length(Model, tag=2):
    """How long."""

    cm: int = field(1)


class Person(Model, id=101):
    """With an index of every kind."""

    email: str = field(1, unique=True)
    surname: str = field(2)
    first_name: str = field(3)
    age: int | None = field(4, default=None)
    balance: Decimal = field(5, default=Decimal(0))
    level: Level = field(6, default=Level.INFO)
    address: Address | None = field(7, default=None)
    tags: set[str] = field(8, default_factory=set)
    scores: list[int] = field(9, default_factory=list)
    limits: dict[str, int] = field(10, default_factory=dict)
    size: Weight | Length | int | None = field(11, default=None)
    boss: Ref["Person"] | None = field(12, default=None)
    score: float = field(13, default=0.0)
    seen: datetime | None = field(14, default=None)
    note: str | None = field(15, default=None)
    __indexes__ = [  # noqa: RUF012  (as users write it)
        Index("surname", "first_name"),
        Index("age"),
        Index(Reversed("level"), "first_name"),
        Index("address.city"),
        Index(Each("tags"), "surname"),
        Index(Keys("limits")),
        Index(Values("limits")),
        Index(Normalized("surname"), "first_name"),
        Index(Words("surname", "first_name"), name="name"),
        Index(TypeOf("size")),
        Index("size:Length.cm"),
        Index("size:int"),
        Index(Reversed("score")),
        Index("balance"),
    ]


class Log(Model, id=102):
    """With a key made of its fields."""

    at: datetime = field(1, final=True)
    level: Level = field(2, final=True)
    source: str = field(3, final=True)
    message: str = field(4)
    __key__ = (Reversed("at"), "level", "source")
    __indexes__ = [Index("level")]  # noqa: RUF012


def person(surname: str = "Mous", first_name: str = "Jurriaan", **fields: object) -> Person:
    """A person who may not say more."""
    given = {"email": f"{first_name}@{surname}", "surname": surname, "first_name": first_name, **fields}
    return Person(**given)  # type: ignore[arg-type]


def instant(minute: int) -> datetime:
    """A time of one day."""
    return datetime(2026, 7, 1, 12, minute, tzinfo=UTC)
