"""Models of one table through its versions."""

from typing import Any

from holdfast.table.model.fields import field
from holdfast.table.model.indexes import Each, Index, Reversed
from holdfast.table.model.model import Model


def person_1() -> Any:
    class Person(Model, id=1, version="1.0"):
        name: str = field(1)
        age: str = field(2)
        tags: set[str] = field(3, default_factory=set)
        __indexes__ = (
            Index("name"),
            Index("age"),
        )

    return Person


def person_2() -> Any:
    """`age` has become a number."""

    class Person(Model, id=1, version="2.0"):
        name: str = field(1)
        age: int = field(2)
        tags: set[str] = field(3, default_factory=set)
        __indexes__ = (
            Index("name"),
            Index("age"),
        )

    return Person


def counted_1() -> Any:
    class Counted(Model, id=2, version="1.0"):
        name: str = field(1)
        count: int = field(2)
        tags: list[str] = field(3, default_factory=list)

    return Counted


def counted_2() -> Any:
    """Two indexes more."""

    class Counted(Model, id=2, version="1.1"):
        name: str = field(1)
        count: int = field(2)
        tags: list[str] = field(3, default_factory=list)
        __indexes__ = (
            Index(Reversed("count"), "name"),
            Index(Each("tags")),
        )

    return Counted


def counted_unique() -> Any:
    """The name is unique, and indexed beside the count."""

    class Counted(Model, id=2, version="1.2"):
        name: str = field(1, unique=True)
        count: int = field(2)
        tags: list[str] = field(3, default_factory=list)
        __indexes__ = (Index("count"),)

    return Counted
