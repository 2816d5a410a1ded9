"""Index definitions: the parts of an index, and the entries that an object has in it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.field_path import Step, Variant, parse_path, path_text, type_at, variant_of
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.query.search import normalize, words
from holdfast.table.storage.order_preserving_encoding import complement, encoder

if TYPE_CHECKING:
    from holdfast.table.model.model import ModelSpec

__all__ = [
    "Each",
    "Index",
    "Keys",
    "Normalized",
    "Part",
    "Reversed",
    "TypeOf",
    "Values",
    "Words",
    "compile_index",
    "entries",
    "getter",
    "part_code",
    "part_of",
    "part_type",
    "paths_of",
]

Entries = Callable[[Any], list[bytes]]


@dataclass(frozen=True, slots=True)
class Each:
    """Every item of a list or set; each has an entry."""

    path: str

    def __str__(self) -> str:
        return f"each({self.path})"


@dataclass(frozen=True, slots=True)
class Keys:
    """Every key of a dict; each has an entry."""

    path: str

    def __str__(self) -> str:
        return f"keys({self.path})"


@dataclass(frozen=True, slots=True)
class Values:
    """Every value of a dict; each has an entry."""

    path: str

    def __str__(self) -> str:
        return f"values({self.path})"


@dataclass(frozen=True, slots=True)
class Normalized:
    """A text without case, accents, spaces and signs: `García-López` is `garcialopez`."""

    path: str

    def __str__(self) -> str:
        return f"normalized({self.path})"


@dataclass(frozen=True, slots=True, init=False)
class Words:
    """Every normalised word of one or more text fields; each has an entry, for `search`."""

    paths: tuple[str, ...]

    def __init__(self, *paths: str) -> None:
        if not paths:
            raise InvalidArgument('Words needs the fields whose words are searched: Words("surname", "first_name")')
        object.__setattr__(self, "paths", tuple(map(str, paths)))

    def __str__(self) -> str:
        return f"words({','.join(self.paths)})"


@dataclass(frozen=True, slots=True)
class TypeOf:
    """Which of its types the value of a union has."""

    path: str

    def __str__(self) -> str:
        return f"type({self.path})"


@dataclass(frozen=True, slots=True, init=False)
class Reversed:
    """A part from its greatest value down to its least."""

    part: "str | Each | Keys | Values | Normalized | Words | TypeOf"

    def __init__(self, part: Any) -> None:
        bare = part_of(part)
        if isinstance(bare, Reversed):
            raise InvalidArgument(f"{part} is reversed already: write the part itself for ascending order")
        object.__setattr__(self, "part", bare)

    def __str__(self) -> str:
        return f"-{self.part}"


Part = str | Each | Keys | Values | Normalized | Words | TypeOf | Reversed
"""A part of an index, a key or an order; a str is a path of fields: `name`, `address.city`, `size:Length.cm`."""

_PARTS: dict[str, type] = {
    "each": Each,
    "keys": Keys,
    "values": Values,
    "normalized": Normalized,
    "words": Words,
    "type": TypeOf,
}
_CALL = re.compile(r"([a-z]+)\(([^()]*)\)")
_SPLIT = re.compile(r",(?![^()]*\))")


def part_of(value: object) -> Any:
    """Return the part that a user wrote: a path, text such as `-opened` or `each(tags)`, or a part."""
    if isinstance(value, Each | Keys | Values | Normalized | Words | TypeOf | Reversed):
        return value
    text = str(value)
    if text.startswith("-"):
        return Reversed(text[1:])
    call = _CALL.fullmatch(text)
    if call is None:
        return text
    if call[1] not in _PARTS:
        raise InvalidArgument(f"{text!r} is not a part of an index: there are {', '.join(_PARTS)} and plain paths")
    return _PARTS[call[1]](*call[2].split(","))


@dataclass(frozen=True, slots=True, init=False)
class Index:
    """An order of a table's objects by one or more parts, with fast access to those with given values."""

    parts: tuple[Part, ...]
    name: str

    def __init__(self, *parts: Any, name: str | None = None) -> None:
        if not parts:
            raise InvalidArgument('an index needs at least one part, such as Index("name")')
        object.__setattr__(self, "parts", tuple(part_of(part) for part in parts))
        object.__setattr__(self, "name", name or self.canonical)

    @classmethod
    def parse(cls, canonical: str, name: str | None = None) -> "Index":
        """Return the index of a canonical text; `Index.parse(index.canonical, index.name) == index`."""
        return cls(*_SPLIT.split(canonical), name=name)

    @property
    def canonical(self) -> str:
        """Return its parts as one text, such as `-opened,name`: the same for the same parts, whatever its name."""
        return ",".join(map(str, self.parts))

    @property
    def id(self) -> bytes:
        """Return the four bytes under which its entries are kept; the first bit is set, lower ids are reserved."""
        digest = blake2b(self.canonical.encode(), digest_size=4).digest()
        return bytes((digest[0] | 0x80,)) + digest[1:]

    def __str__(self) -> str:
        return self.name


def paths_of(part: Part) -> tuple[str, ...]:
    """Return the paths whose values a part is made of."""
    match part:
        case str():
            return (part,)
        case Reversed(inner):
            return paths_of(inner)
        case Words(paths):
            return paths
    return (part.path,)


def entries(index: Index, record: Any) -> list[bytes]:
    """Return the values of an object in an index, as bytes; for many objects use `compile_index`."""
    model: Any = type(record)
    return _compiled(model, index)(record)


@lru_cache(256)
def _compiled(model: Any, index: Index) -> Entries:
    return compile_index(model.__spec__, index)


def compile_index(spec: "ModelSpec", index: Index) -> Entries:
    """Return the function that computes an object's index entries: none if a part is absent, one for each value."""
    parts = [_part(spec, part) for part in index.parts]
    if any(many for many, _ in parts):
        return _product([_listed(many, values) for many, values in parts])
    singles = [single for _, single in parts]
    if len(singles) == 1:
        (only,) = singles

        def one(record: Any) -> list[bytes]:
            code = only(record)
            return [] if code is None else [code]

        return one

    def several(record: Any) -> list[bytes]:
        codes = []
        for single in singles:
            code = single(record)
            if code is None:
                return []
            codes.append(code)
        return [b"".join(codes)]

    return several


def _listed(many: bool, values: Callable[[Any], Any]) -> Callable[[Any], Iterable[bytes]]:
    if many:
        return values

    def listed(record: Any) -> Iterable[bytes]:
        code = values(record)
        return () if code is None else (code,)

    return listed


def _product(parts: list[Callable[[Any], Iterable[bytes]]]) -> Entries:
    if len(parts) == 1:
        (only,) = parts
        return lambda record: sorted(set(only(record)))
    return lambda record: sorted({b"".join(codes) for codes in product(*(part(record) for part in parts))})


def part_type(spec: "ModelSpec", part: Part) -> FieldType:
    """Return the type of the values that a part has in an index; raises InvalidArgument if it cannot be indexed."""
    match part:
        case Reversed(inner):
            return part_type(spec, inner)
        case Each(path):
            found = _typed(spec, part, path, Kind.LIST, Kind.SET).item
        case Keys(path):
            found = _typed(spec, part, path, Kind.DICT).key
        case Values(path):
            found = _typed(spec, part, path, Kind.DICT).item
        case Normalized(path):
            found = _typed(spec, part, path, Kind.STR)
        case Words(paths):
            for path in paths:
                found = _typed(spec, part, path, Kind.STR)
        case TypeOf(path):
            _typed(spec, part, path, Kind.UNION)
            return FieldType(Kind.STR)
        case _:
            found = type_at(spec, parse_path(part))
    if found is None or not found.scalar:
        advice = {
            Kind.LIST: f'Each("{part}")',
            Kind.SET: f'Each("{part}")',
            Kind.DICT: f'Keys("{part}") or Values("{part}")',
            Kind.EMBEDDED: f'a field of it, as "{part}.name"',
            Kind.UNION: f'TypeOf("{part}") or one of its types, as "{part}:int"',
        }
        what = advice.get(found.kind, "") if found is not None else ""
        raise InvalidArgument(f"{part} of {spec.name} is {found}, which cannot be indexed: use {what}")
    return found


def _typed(spec: "ModelSpec", part: Part, path: str, *kinds: Kind) -> FieldType:
    found = type_at(spec, parse_path(path))
    if found.kind not in kinds:
        raise InvalidArgument(f"{part} of {spec.name} needs a {' or '.join(kinds)}, but {path} is {found}")
    return found


def _part(spec: "ModelSpec", part: Part) -> tuple[bool, Callable[[Any], Any]]:
    """Return whether a part has several values, and the function that gets them, or the single one or None."""
    if isinstance(part, Reversed):
        many, plain = _part(spec, part.part)
        return many, _reversed(many, plain)
    ftype = part_type(spec, part)
    code = encoder(ftype)
    match part:
        case Each(path) | Keys(path) | Values(path):
            get = getter(spec, parse_path(path))
            values = _values_of if isinstance(part, Values) else iter
            return True, lambda record: [code(item) for item in values(get(record) or ())]
        case Words(paths):
            gets = [getter(spec, parse_path(path)) for path in paths]
            return True, lambda record: [code(word) for get in gets for word in words(get(record) or "")]
        case Normalized(path):
            return False, _single(getter(spec, parse_path(path)), lambda text: code(normalize(text)))
        case TypeOf(path):
            name_of = variant_of(type_at(spec, parse_path(path)))
            return False, _single(getter(spec, parse_path(path)), lambda value: code(name_of(value)))
    return False, _single(getter(spec, parse_path(part)), code)


def part_code(spec: "ModelSpec", part: Part) -> Callable[[Any], bytes | None]:
    """Return the function that computes an object's bytes for a part with one value; None if it is absent."""
    many, single = _part(spec, part)
    if many:
        raise InvalidArgument(f"{part} of {spec.name} can have several values: it has no single position in an order")
    return single


def _values_of(value: Any) -> Iterable[Any]:
    return value.values() if value else ()


def _single(get: Callable[[Any], Any], code: Callable[[Any], bytes]) -> Callable[[Any], bytes | None]:
    def single(record: Any) -> bytes | None:
        value = get(record)
        return None if value is None else code(value)

    return single


def _reversed(many: bool, plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if many:
        return lambda record: [complement(code) for code in plain(record)]

    def single(record: Any) -> bytes | None:
        code = plain(record)
        return None if code is None else complement(code)

    return single


def getter(spec: "ModelSpec", steps: tuple[Step, ...]) -> Callable[[Any], Any]:
    """Return the function that gets the value at the end of a path of fields and types; None if it is absent."""
    type_at(spec, steps)
    gets = [_step(spec, steps[: at + 1]) for at in range(len(steps))]
    if len(gets) == 1:
        return gets[0]

    def get(record: Any) -> Any:
        for step in gets:
            record = step(record)
            if record is None:
                return None
        return record

    return get


def _step(spec: "ModelSpec", steps: tuple[Step, ...]) -> Callable[[Any], Any]:
    step = steps[-1]
    if isinstance(step, str):
        return attrgetter(step)
    if isinstance(step, Variant):
        name_of, name = variant_of(type_at(spec, steps[:-1])), step.name
        return lambda value: value if name_of(value) == name else None
    raise InvalidArgument(
        f"{path_text(steps)} of {spec.name} is not a plain path: write names of fields, separated by dots"
    )
