"""What tests of a table's changes share: models, and a table in every mode."""

from typing import Any, TypeVar

from hypothesis import strategies as st

from holdfast import Store
from holdfast.table import Add, Change, Delete, Model, Undelete, field
from holdfast.table.live.sync_updates import Addition, Alteration, InitialValues, OrderedKeys, Removal
from holdfast.table.live.watcher import Watcher
from holdfast.table.model.indexes import Each, Index, Words
from holdfast.table.operations import Operation

__all__ = [
    "MODES",
    "OPERATIONS",
    "Address",
    "Client",
    "Item",
    "Items",
    "Person",
    "Persons",
    "begun",
    "carry_out",
    "filled",
    "heard",
    "table_of",
]

M = TypeVar("M", bound=Model)

MODES: list[dict[str, bool]] = [
    {},
    {"keep_all_versions": True},
    {"keep_all_versions": True, "update_history": True},
]


class Address(Model):
    street: str | None = field(1, default=None)
    city: str = field(2)


class Item(Model, id=141):
    """Its number is its key, so that the order of keys is plain; its value can change."""

    number: int = field(1, final=True)
    value: int = field(2)
    text: str = field(3, default="haha")
    tags: set[str] | None = field(4, default=None)
    names: list[str] | None = field(5, default=None)
    limits: dict[str, int] | None = field(6, default=None)
    address: Address | None = field(7, default=None)
    homes: dict[int, Address] | None = field(8, default=None)
    __key__ = ("number",)
    __indexes__ = (Index("value"), Index(Each("tags")))


class Person(Model, id=142):
    surname: str = field(1)
    email: str | None = field(2, default=None, unique=True)
    __indexes__ = (Index(Words("surname"), name="words"), Index("surname"))


Items = Any
"""A table of items. Tests ask for records that they know to be there, and type checkers do not."""
Persons = Any


def table_of(store: Store, model: type[M], **settings: Any) -> Any:
    table: Any = store.table(model, **settings)
    return table


def filled(table: Items, values: tuple[int, ...] = (0, -10, 2, -5, 4)) -> list[bytes]:
    """Items whose keys ascend; their keys."""
    return [table.add(Item(number=number, value=value)).key for number, value in enumerate(values)]


def heard(watcher: Watcher[Any]) -> list[Any]:
    """All updates up to now, short: what, of which key, where."""
    found: list[Any] = []
    while (update := watcher.poll()) is not None:
        match update:
            case InitialValues(records):
                found.append(("initial", [record.key for record in records]))
            case OrderedKeys(keys):
                found.append(("ordered", list(keys)))
            case Addition():
                found.append(("addition", update.key, update.index))
            case Alteration():
                found.append(("change", update.key, update.from_index, update.index))
            case Removal():
                found.append((update.reason, update.key))
    return found


def begun(watcher: Watcher[Any]) -> Watcher[Any]:
    assert isinstance(watcher.poll(), InitialValues)
    return watcher


class Client:
    """One who is told of updates, and keeps nothing but the keys in their order."""

    def __init__(self, watcher: Watcher[Any]) -> None:
        self.watcher = watcher
        self.keys: list[bytes] = []

    def listen(self) -> None:
        """Take in all updates up to now; each must fit."""
        while (update := self.watcher.poll()) is not None:
            match update:
                case InitialValues(records):
                    self.keys = [record.key for record in records]
                case Addition(record, int(index)):
                    assert record.key not in self.keys
                    self.keys.insert(index, record.key)
                case Alteration(record, _, int(index), int(from_index)):
                    assert self.keys.pop(from_index) == record.key
                    self.keys.insert(index, record.key)
                case Removal(key, _, _, int(index)):
                    assert self.keys.pop(index) == key
                case _:
                    raise AssertionError(f"nobody asked for {update}")


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(("put", "put", "put", "delete", "undelete", "hard", "listen"))
        | st.lists(st.sampled_from(("put", "put", "delete", "undelete", "hard")), min_size=2, max_size=4).map(tuple),
        st.integers(0, 5),
        st.integers(0, 4),
        st.sampled_from(("haha0", "haha1")),
        st.sampled_from((None, {"a"}, {"b"}, {"a", "c"}, {"b", "c"})),
    ),
    max_size=40,
)


def carry_out(
    table: Items, what: str | tuple[str, ...], number: int, value: int, text: str, tags: set[str] | None
) -> None:
    """Do something to a record; several things are one request, in which what may not be is left out."""
    key = table.layout.key_of(Item(number=number, value=0))
    if isinstance(what, tuple):
        table.write(
            [
                operation
                for place, one in enumerate(what)
                for operation in _request(one, key, Item(number=number, value=value + place, text=text, tags=tags))
            ]
        )
        return
    there = table.get(key, include_deleted=True)
    if what == "put" and there is None:
        table.add(Item(number=number, value=value, text=text, tags=tags))
    elif there is None:
        return
    elif what == "put":
        table.change(key, {"value": value, "text": text, "tags": tags})
    elif what == "delete" and not there.deleted:
        table.delete(key)
    elif what == "undelete" and there.deleted:
        table.undelete(key)
    elif what == "hard":
        table.delete(key, hard=True)


def _request(what: str, key: bytes, item: Item) -> list[Operation]:
    match what:
        case "put":
            return [Add(item), Change(key, {"value": item.value, "text": item.text, "tags": item.tags})]
        case "undelete":
            return [Undelete(key)]
    return [Delete(key, hard=what == "hard")]
