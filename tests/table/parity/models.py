"""The models of the shared suite, as far as Python has their types, and records of them."""

from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Annotated, Any, Optional

from holdfast import (
    Each,
    Index,
    Keys,
    Limits,
    Model,
    Normalized,
    Ref,
    Reversed,
    TypeOf,
    Words,
    field,
)

__all__ = [
    "ByCount",
    "ByItem",
    "ByKey",
    "Complete",
    "Complex",
    "Counted",
    "Embedded",
    "Length",
    "Log",
    "Mail",
    "Measurement",
    "Named",
    "Option",
    "Person",
    "Sample",
    "Severity",
    "Simple",
    "Weight",
    "logs",
    "measurements",
    "named",
    "persons",
    "sample",
]


class Option(Enum):
    V1 = 1
    V2 = 2


class Severity(Enum):
    INFO = 1
    DEBUG = 2
    ERROR = 3


class Embedded(Model):
    value: str | None = field(1, default=None)
    model: Optional["Embedded"] = field(2, default=None)


class Sample(Model, id=201):
    """The suite's `Test`: a composed key, indexes over what changes, and collections with limits."""

    string: str = field(1, default="haha", pattern="ha.*", names=("str", "string_value"))
    value: int = field(2, max=6)
    number: int = field(3, final=True, min=0)
    double: float = field(4, default=0.0)
    at: datetime = field(5)
    flag: bool = field(6, final=True)
    option: Option = field(7, final=True, default=Option.V1)
    numbers: list[int] | None = field(8, default=None)
    dates: set[date] | None = field(9, default=None, max_length=5, items=Limits(max=date(2100, 12, 31)))
    times: dict[time, str] | None = field(
        10, default=None, max_length=5, keys=Limits(max=time(23)), values=Limits(max_length=10)
    )
    embedded: Embedded | None = field(12, default=None)
    multi: str | int | Embedded | None = field(13, default=None)
    reference: Ref["Sample"] | None = field(14, default=None)
    names: list[str] | None = field(15, default=None, min_length=1, max_length=6, items=Limits(max_length=10))
    words: set[str] | None = field(17, default=None)
    counted: dict[int, str] | None = field(18, default=None, auto_key=True)
    __key__ = ("number", "flag", "option")
    __indexes__ = (
        Index(Reversed("at"), "option", "value"),
        Index("value"),
        Index(Reversed("double")),
        Index(TypeOf("multi")),
        Index("number"),
    )
    __reserved__ = (99, "reserved")


class Simple(Model, id=202):
    value: str = field(1, default="haha", pattern="ha.*")


class Complex(Model, id=203):
    multi: str | Annotated[int, Limits(max=2000)] | Embedded | list[str] | None = field(1, default=None)
    texts: dict[str, str] | None = field(2, default=None, min_length=1, max_length=3)
    parts: dict[int, Embedded] | None = field(3, default=None)
    mixed: dict[int, str | int | Embedded] | None = field(4, default=None)
    lists: dict[str, list[str]] | None = field(5, default=None)
    sets: dict[str, set[str]] | None = field(6, default=None)
    maps: dict[str, dict[str, str]] | None = field(7, default=None)
    counted: dict[int, Embedded] | None = field(8, default=None, auto_key=True)


class Log(Model, id=204):
    message: str = field(1)
    severity: Severity = field(2, final=True, default=Severity.INFO)
    at: datetime = field(3, final=True)
    __key__ = (Reversed("at"), "severity")
    __indexes__ = (Index("severity"),)


class Complete(Model, id=205):
    """With defaults, which a selection must not fill in."""

    string: str = field(1, default="string", unique=True)
    number: int = field(2, default=42)
    flag: bool = field(3, default=True)
    part: Embedded = field(4, default_factory=lambda: Embedded(value="a value"))
    items: list[str] = field(5, default_factory=lambda: ["ha1", "ha2"])


class Mail(Model, id=206):
    email: str = field(1, unique=True)


class Counted(Model, id=207):
    """The suite's `ModelV2ExtraIndex`: an index over a value that changes."""

    value: str = field(1, default="haha")
    number: int = field(2)
    __indexes__ = (Index("number"),)


class Person(Model, id=208):
    first_name: str = field(1, min_length=1, max_length=100)
    surname: str = field(2, min_length=1, max_length=100)
    __indexes__ = (Index("surname", "first_name"),)


class Weight(Model, tag=1):
    kg: int = field(1)


class Length(Model, tag=2):
    cm: int = field(1)


class Measurement(Model, id=209):
    at: datetime = field(1, final=True)
    measured: Weight | Length | int = field(2, final=True)
    serial: int = field(3, final=True)
    __key__ = (Reversed("at"), TypeOf("measured"), "serial")
    __indexes__ = (Index("measured:Length.cm"), Index("measured:int"))


class ByKey(Model, id=210):
    name: str = field(1)
    places: dict[str, str] | None = field(2, default=None)
    __indexes__ = (Index(Keys("places")),)


class ByCount(Model, id=211):
    name: str = field(1)
    places: dict[int, str] | None = field(2, default=None, auto_key=True)
    __indexes__ = (Index(Keys("places")),)


class ByItem(Model, id=212):
    name: str = field(1)
    places: set[str] | None = field(2, default=None)
    __indexes__ = (Index(Each("places")),)


class Named(Model, id=213):
    """The suite's `CaseInsensitivePerson`."""

    surname: str = field(1)
    first_name: str = field(2)
    __indexes__ = (
        Index(Normalized("surname"), "first_name", name="surname"),
        Index(Words("surname", "first_name"), name="name"),
    )


def sample(number: int = 1, **fields: Any) -> Sample:
    """A sample that says no more than it must."""
    given = {"value": 5, "at": datetime(2018, 3, 29, tzinfo=UTC), "flag": True, **fields}
    return Sample(number=number, **given)


def logs() -> list[Log]:
    """Four, the oldest first; their keys have the newest first."""
    day = datetime(2018, 11, 14, tzinfo=UTC)
    return [
        Log(message="Something happened", severity=Severity.INFO, at=day.replace(hour=11, minute=22, second=33)),
        Log(message="Something else happened", severity=Severity.DEBUG, at=day.replace(hour=12)),
        Log(message="Something REALLY happened", severity=Severity.INFO, at=day.replace(hour=12, minute=33)),
        Log(message="WRONG", severity=Severity.ERROR, at=day.replace(hour=13)),
    ]


def persons() -> list[Person]:
    """Four, in no order."""
    names = [("Jurriaan", "Mous"), ("Karel", "Kastens"), ("Ariel", "Kastens"), ("Ti", "Tockle")]
    return [Person(first_name=first, surname=last) for first, last in names]


def measurements() -> list[Measurement]:
    """Two weights, a length and a plain number, the oldest first."""
    values: list[Weight | Length | int] = [Weight(kg=78), Length(cm=175), Weight(kg=77), 220]
    return [
        Measurement(at=datetime(2020, 3, 30, hour, tzinfo=UTC), measured=value, serial=hour)
        for hour, value in enumerate(values)
    ]


def named() -> list[Named]:
    """Eight, with all that spelling can do."""
    names = [
        ("Mous", "Jurriaan"),
        ("Kastens", "Karel"),
        ("kAstens", "Ariël"),
        ("Tockle", "Ti"),
        ("García-López", "José"),
        ("van   der  Waals", "Marie"),
        ("Verhoeven", "Mila"),
        ("Rijnders", "Mila"),
    ]
    return [Named(surname=surname, first_name=first) for surname, first in names]
