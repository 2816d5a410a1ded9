"""Two models with an index of every kind, what can be asked of them, and what the paper says to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from holdfast.table import (
    Add,
    Change,
    Delete,
    DictEdit,
    Each,
    Index,
    Keys,
    ListEdit,
    Model,
    Normalized,
    Reversed,
    SetEdit,
    Undelete,
    Words,
    field,
    search,
)
from holdfast.table.model.keys import KeyLayout
from holdfast.table.operations import Operation
from tests.table.model import Entry, PaperModel

__all__ = [
    "KEYS",
    "QUERIES",
    "SLOT",
    "SLOT_QUERIES",
    "THING",
    "Query",
    "Slot",
    "Thing",
    "operations",
    "slot_operations",
]

STEPS_MAX = 4


class Thing(Model, id=7):
    """With an index of every kind, and a field that is in none."""

    email: str | None = field(1, unique=True, default=None)
    code: int | None = field(2, unique=True, default=None)
    name: str = field(3, default="")
    rank: int = field(4, default=0, min=-3, max=3)
    tags: set[str] = field(5, default_factory=set)
    steps: list[int] = field(6, default_factory=list, max_length=STEPS_MAX)
    limits: dict[str, int] = field(7, default_factory=dict)
    note: str | None = field(8, default=None)
    plain: int = field(9, default=0)
    __indexes__ = [  # noqa: RUF012 - as users write it
        Index("name"),
        Index(Reversed("rank")),
        Index("rank", Reversed("name")),
        Index("note"),
        Index(Each("tags")),
        Index(Each("steps"), "rank"),
        Index(Keys("limits")),
        Index(Words("name", "note"), name="words"),
        Index(Normalized("name"), name="plain"),
    ]


class Slot(Model, id=8):
    """With a key of two fields, one of them reversed."""

    place: str = field(1, final=True)
    day: int = field(2, final=True)
    label: str | None = field(3, unique=True, default=None)
    left: int = field(4, default=0, min=0)
    plain: int = field(5, default=0)
    __key__ = ("place", Reversed("day"))
    __indexes__ = [Index("left")]  # noqa: RUF012


KEYS = [bytes((number,)) * 16 for number in (0, 1, 128, 255)]
"""Few, so that most operations meet a record; the first and last that there are among them."""
EMAILS = ["", "a", "ab", "b\0", "\x7f"]
NAMES = {"": [], "Ada Lovelace": ["ada", "lovelace"], "ÁDA": ["ada"], "bob": ["bob"], "Zoë-Ada": ["zoe", "ada"]}
"""With the words that are in them."""
NOTES = {"ada": ["ada"], "bob!": ["bob"], "": []}
TAGS = ["", "a", "b", "c\0"]
LIMITS = ["x", "y", "z"]
PLACES = ["", "a", "a\0", "b"]


def _wrong(name: str, value: Any) -> set[str]:
    if value is None:
        return {"required"} if name not in ("email", "code", "note") else set()
    if name == "rank":
        return {"min"} if value < -3 else {"max"} if value > 3 else set()
    if name == "steps":
        return {"max_length"} if len(value) > STEPS_MAX else set()
    return set()


def _wrong_in_slot(name: str, value: Any) -> set[str]:
    return {"min"} if name == "left" and value < 0 else set()


_SLOT_KEYS = KeyLayout(Slot.__spec__)

THING = PaperModel(
    ("email", "code"),
    _wrong,
    {
        "email": None,
        "code": None,
        "name": "",
        "rank": 0,
        "tags": set(),
        "steps": [],
        "limits": {},
        "note": None,
        "plain": 0,
    },
)
SLOT = PaperModel(
    ("label",),
    _wrong_in_slot,
    {"label": None, "left": 0, "plain": 0},
    key_of=lambda values: _SLOT_KEYS.key_of(Slot(**values)),
)

# What can be done

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "email": st.sampled_from([None, *EMAILS]),
    "code": st.sampled_from([None, -1, 0, 1 << 40]),
    "name": st.sampled_from(list(NAMES)),
    "rank": st.integers(-3, 3) | st.sampled_from([-4, 4]),
    "tags": st.sets(st.sampled_from(TAGS)),
    "steps": st.lists(st.integers(-1, 2), max_size=STEPS_MAX + 1),
    "limits": st.dictionaries(st.sampled_from(LIMITS), st.integers(0, 3)),
    "note": st.sampled_from([None, *NOTES]),
    "plain": st.integers(0, 2),
}
_THINGS = st.fixed_dictionaries({}, optional=_FIELDS)
_PATHS: dict[Any, st.SearchStrategy[Any]] = {
    **_FIELDS,
    "tags": _FIELDS["tags"]
    | st.builds(SetEdit, add=st.lists(st.sampled_from(TAGS)), remove=st.lists(st.sampled_from(TAGS))),
    "steps": _FIELDS["steps"]
    | st.builds(
        ListEdit,
        remove=st.lists(st.integers(-1, 2), max_size=2),
        insert=st.dictionaries(st.integers(0, 3), st.integers(-1, 2), max_size=2),
        append=st.lists(st.integers(-1, 2), max_size=2),
    ),
    "limits": _FIELDS["limits"]
    | st.builds(
        DictEdit,
        put=st.dictionaries(st.sampled_from(LIMITS), st.integers(0, 3)),
        remove=st.lists(st.sampled_from(LIMITS)),
    ),
    ("limits", "x"): st.none() | st.integers(0, 3),
    ("limits", "z"): st.none() | st.integers(0, 3),
    ("steps", 0): st.none() | st.integers(-1, 2),
    ("steps", 3): st.none() | st.integers(-1, 2),
}
_CHANGES = st.lists(st.sampled_from(list(_PATHS)), min_size=1, max_size=3, unique=True).flatmap(
    lambda paths: st.fixed_dictionaries({path: _PATHS[path] for path in paths})
)


def operations(there: Sequence[bytes], versions: Sequence[int]) -> st.SearchStrategy[Operation]:
    """Of things, mostly of those that are there; some only if their record has one of these versions."""
    keys = st.sampled_from([*there, *there, *KEYS])
    new = st.sampled_from([key for key in KEYS if key not in there] + KEYS[:1])
    expected = st.none() | st.sampled_from([0, *versions])
    checks: st.SearchStrategy[dict[str, int]] = st.just({}) | st.fixed_dictionaries({"rank": st.integers(-1, 1)})
    return st.one_of(
        st.builds(Add, st.fixed_dictionaries(_FIELDS), new),
        st.builds(Add, _THINGS, new),
        st.builds(Change, keys, _CHANGES),
        st.builds(Change, keys, _CHANGES),
        st.builds(Change, keys, _CHANGES),
        st.builds(Change, keys, _CHANGES, checks, expected, st.sampled_from([None, None, True, False])),
        st.builds(Delete, keys),
        st.builds(Delete, keys, st.booleans(), expected),
        st.builds(Undelete, keys),
    )


_SLOTS = st.fixed_dictionaries(
    {"place": st.sampled_from(PLACES), "day": st.integers(-1, 1)},
    optional={"label": st.sampled_from([None, "l", "m"]), "left": st.integers(-1, 3)},
)


def slot_operations() -> st.SearchStrategy[Operation]:
    """Of slots."""
    keys = st.builds(lambda place, day: _SLOT_KEYS.key_of(Slot(place=place, day=day)),
                     st.sampled_from(PLACES), st.integers(-1, 1))  # fmt: skip
    changes = st.fixed_dictionaries(
        {},
        optional={
            "label": st.sampled_from([None, "l", "m"]),
            "left": st.integers(-1, 3),
            "plain": st.integers(0, 2),
        },
    )
    return st.one_of(
        st.builds(Add, _SLOTS),
        st.builds(Add, _SLOTS),
        st.builds(Change, keys, changes),
        st.builds(Delete, keys, st.booleans()),
        st.builds(Undelete, keys),
    )


def for_table(model: type[Model], operation: Operation) -> Operation:
    """An operation of the paper, with paths of the model where the paper has tuples."""
    if not isinstance(operation, Change):
        return operation
    changes = {
        getattr(model, path[0])[path[1]] if isinstance(path, tuple) else path: value
        for path, value in operation.changes.items()
    }
    return Change(operation.key, changes, operation.check, operation.if_version, operation.delete)


# What can be asked

_THING: Any = Thing  # whose attributes are paths, and for type checkers values
_SLOT: Any = Slot


@dataclass(frozen=True)
class Query:
    """A scan, and how the paper answers it."""

    name: str
    matches: Callable[[dict[str, Any]], bool]
    where: Any = None
    order: tuple[Any, ...] = ()
    rank: Callable[[bytes, dict[str, Any]], Any] | None = None
    """By what the records must come in order, equal ones in any; None where there is none."""
    down: bool = False
    kind: str = "index"
    """The way that must be taken: a test of an index that a scan does not use tests nothing."""
    sorts: bool = False
    """Whether no index gives the order."""

    def answer(self, records: dict[bytes, Entry]) -> set[bytes]:
        """The keys of the records that must come."""
        return {key for key, entry in records.items() if self.matches(entry.values)}


def _all(values: dict[str, Any]) -> bool:
    return True


def _words(values: dict[str, Any]) -> list[str]:
    return [*NAMES[values["name"]], *NOTES.get(values["note"], [])]


def _plain(values: dict[str, Any]) -> str:
    return "".join(NAMES[values["name"]])


QUERIES = [
    Query("all", _all, order=("$key",), rank=lambda key, _: key, kind="table"),
    Query("all backwards", _all, order=("-$key",), rank=lambda key, _: key, down=True, kind="table"),
    Query("name", _all, order=("name",), rank=lambda _, values: values["name"]),
    Query("name backwards", _all, order=("-name",), rank=lambda _, values: values["name"], down=True),
    Query("rank", _all, order=("rank",), rank=lambda _, values: values["rank"]),
    Query("rank backwards", _all, order=("-rank",), rank=lambda _, values: values["rank"], down=True),
    Query(
        "one rank by name",
        lambda values: values["rank"] == 0,
        _THING.rank == 0,
        ("name",),
        lambda _, values: values["name"],
    ),
    Query(
        "some ranks backwards",
        lambda values: -2 <= values["rank"] <= 1,
        _THING.rank.between(-2, 1),
        ("-rank", "name"),
        lambda _, values: (-values["rank"], values["name"]),
    ),
    Query("names", lambda values: values["name"] in ("bob", "ÁDA"), _THING.name.isin(["bob", "ÁDA"])),
    Query("names from on", lambda values: values["name"] >= "Z", _THING.name >= "Z"),
    Query("note", lambda values: values["note"] == "ada", _THING.note == "ada"),
    Query(
        "notes",
        lambda values: values["note"] is not None,
        _THING.note.exists(),
        ("-note",),
        lambda _, values: values["note"],
        down=True,
    ),
    Query("tag", lambda values: "a" in values["tags"], _THING.tags.contains("a")),
    Query(
        "tags",
        lambda values: bool(values["tags"]),
        order=(Each("tags"),),
        rank=lambda _, values: min(values["tags"]),
    ),
    Query(
        "tags backwards",
        lambda values: bool(values["tags"]),
        order=(Reversed(Each("tags")),),
        rank=lambda _, values: max(values["tags"]),
        down=True,
    ),
    Query(
        "some tags by a field without an index",
        lambda values: any(tag >= "a" for tag in values["tags"]),
        _THING.tags.any_item >= "a",
        ("plain",),
        lambda _, values: values["plain"],
        sorts=True,
    ),
    Query(
        "beginnings of words by a field without an index",
        lambda values: any(word.startswith(("a", "b")) for word in _words(values)),
        search("a", index="words", prefix=True) | search("b", index="words", prefix=True),
        ("-plain",),
        lambda _, values: -values["plain"],
        sorts=True,
    ),
    Query("step", lambda values: 2 in values["steps"], _THING.steps.contains(2)),
    Query("limit", lambda values: "x" in values["limits"], _THING.limits.contains("x")),
    Query("word", lambda values: "ada" in _words(values), search("ada", index="words")),
    Query(
        "beginning of a word",
        lambda values: any(word.startswith("lo") for word in _words(values)),
        search("lo", index="words", prefix=True),
    ),
    Query("plain name", lambda values: _plain(values) == "zoeada", search("zoë ada", index="plain")),
    *(
        Query(f"email {email!r}", lambda values, email=email: values["email"] == email, _THING.email == email,  # type: ignore[misc]
              kind="unique")
        for email in EMAILS
    ),
    *(
        Query(f"code {code}", lambda values, code=code: values["code"] == code, _THING.code == code, kind="unique")  # type: ignore[misc]
        for code in (-1, 0, 1 << 40)
    ),
]  # fmt: skip

SLOT_QUERIES = [
    Query("all", _all, order=("place", "-day"), rank=lambda _, values: (values["place"], -values["day"]), kind="table"),
    Query("place", lambda values: values["place"] == "a", _SLOT.place == "a", kind="table"),
    Query(
        "one",
        lambda values: (values["place"], values["day"]) == ("a", 0),
        (_SLOT.place == "a") & (_SLOT.day == 0),
        kind="key",
    ),
    Query("left", lambda values: values["left"] >= 1, _SLOT.left >= 1, ("-left",), lambda _, values: values["left"],
          down=True),
    *(
        Query(f"label {label}", lambda values, label=label: values["label"] == label, _SLOT.label == label,  # type: ignore[misc]
              kind="unique")
        for label in ("l", "m")
    ),
]  # fmt: skip
