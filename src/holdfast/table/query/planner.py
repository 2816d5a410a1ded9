"""Scan planner: chooses keys, a unique value, an index or the whole table, with the ranges and order to read."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.table.model.field_path import always_there, is_sensitive, parse_path
from holdfast.table.model.indexes import (
    Each,
    Index,
    Keys,
    Normalized,
    Part,
    Reversed,
    TypeOf,
    Values,
    Words,
    part_code,
    part_of,
    part_type,
    paths_of,
)
from holdfast.table.model.path_expressions import model_and_steps
from holdfast.table.model.types import HIDDEN
from holdfast.table.query.expressions import And, Compare, Expression
from holdfast.table.query.ranges import Facts, Range, exact_value, facts_of, merged, narrowed
from holdfast.table.storage.order_preserving_encoding import complement, successor

if TYPE_CHECKING:
    from holdfast.table.model.model import ModelSpec

__all__ = ["BY_KEY", "Order", "Plan", "TableScanRefused", "order_key", "plan"]

BY_KEY = "$key"
"""The order of keys, as a part of an order."""
Order = Sequence[Any]
"""Paths, their texts (`name`, `-opened`), or parts such as Reversed("opened")."""
_RANGES_MAX = 1_000
_MANY = (Each, Keys, Values, Words)


class TableScanRefused(HoldfastError):
    """A scan would read the whole table to find or sort objects, and `allow_table_scan` was not given."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for a scan. The filter is tested again on every row that is read."""

    kind: Literal["key", "unique", "index", "table"]
    filter: Expression | None = None
    keys: tuple[bytes, ...] = ()
    """The keys to get, in the order wanted."""
    field: str = ""
    """The unique field, and the value that it must have."""
    value: Any = attribute(default=None, repr=False)
    hidden: bool = False
    """Whether the unique field is sensitive: `describe` and `explain` hide the value."""
    index: Index | None = None
    ranges: tuple[Range, ...] = ()
    """The ranges of an index or of the table's keys to read, always in ascending order; empty if nothing is read."""
    reverse: bool = False
    distinct: bool = False
    """Whether an object can be found more than once: only the first time counts."""
    sort: tuple[Part, ...] = ()
    """The order into which the objects found must be sorted; empty if they are read in the wanted order."""
    whole: bool = False
    """Whether no condition limits what is read: all of the table, or all entries of the index."""

    def describe(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.kind == "key":
            found["keys"] = [key.hex() for key in self.keys]
        elif self.kind == "unique":
            found |= {"field": self.field, "value": HIDDEN if self.hidden else self.value}
        else:
            if self.index is not None:
                found["index"] = self.index.name
            found["ranges"] = [[start.hex(), None if stop is None else stop.hex()] for start, stop in self.ranges]
            found |= {"reverse": self.reverse, "distinct": self.distinct, "whole": self.whole}
        found["sort"] = [str(part) for part in self.sort]
        found["filter"] = None if self.filter is None else str(self.filter)
        return found

    def explain(self) -> str:
        """Return the plan as a sentence."""
        match self.kind:
            case "key":
                text = f"get {_count(len(self.keys), 'object')} by key"
            case "unique":
                text = f"get by the unique {self.field} = {HIDDEN if self.hidden else repr(self.value)}"
            case _:
                where = "the table" if self.index is None else f"the index {self.index.name}"
                much = "all" if self.ranges == ((b"", None),) else _count(len(self.ranges), "range")
                text = f"read {much} of {where}{' backwards' if self.reverse else ''}"
        if self.distinct:
            text += ", each object once"
        if self.filter is not None:
            text += f", keep where {self.filter}"
        if self.sort:
            text += f", then sort by {', '.join(map(str, self.sort))}"
        return text


def plan(
    spec: "ModelSpec",
    where: Expression | None = None,
    order: Order | None = None,
    allow_table_scan: bool = False,
) -> Plan:
    """Choose how to find the objects that match an expression, in an order (None: any order).

    Raises `TableScanRefused`, and `InvalidArgument` for an order that only a missing index could give.
    """
    wanted = _wanted(spec, order)
    for name, value in _unique_values(spec, where):
        # More than one only if soft-deleted records are included.
        sort = () if any(isinstance(_bare(part), _MANY) for part in wanted) else tuple(wanted)
        return Plan("unique", where, field=name, value=value, hidden=spec.fields[name].sensitive, sort=sort)
    facts = facts_of(spec, where)
    texts = {_text(part) for part in wanted}
    constants = _constants(facts)
    table, *ways = [
        _AccessPath(track, facts, wanted, constants)
        for track in _tracks(spec)
        if track.index is None or track.first in facts.conditions or not texts.isdisjoint(track.texts)
    ]
    many = [part for part in wanted if isinstance(_bare(part), _MANY)]
    if table.is_key and not many:
        keys = [start for start, _ in table.ranges]
        sort = () if table.direction is not None or len(keys) < 2 else tuple(wanted)
        down = bool(table.direction)
        return Plan("key", where, keys=tuple(reversed(keys) if down else keys), reverse=down, sort=sort)
    usable = [way for way in (table, *ways) if way.complete and not (many and way.direction is None)]
    if not usable:
        raise InvalidArgument(
            f"only an index can give the order {many[0]}, in which an object can have several positions: "
            f"add Index({_written(many[0])}) to {spec.name}"
        )
    best = max(usable, key=lambda way: way.rank)
    sorts = bool(wanted) and best.direction is None
    if not best.reach and not allow_table_scan and (where is not None or sorts):
        raise TableScanRefused(_refusal(spec, where, wanted, facts, ways))
    return Plan(
        "table" if best.index is None else "index",
        where,
        index=best.index,
        ranges=tuple(best.ranges),
        reverse=bool(best.direction),
        distinct=best.distinct,
        sort=tuple(wanted) if sorts else (),
        whole=not best.reach,
    )


def order_key(spec: "ModelSpec", sort: Sequence[Part]) -> Callable[[Any, bytes], bytes]:
    """Return the function that gives the sort key of an object and its key; absent values come last, ties by key."""
    texts = [_text(part) for part in sort]
    end = texts.index(BY_KEY) if BY_KEY in texts else len(sort)  # the key decides all ties
    parts = [part_code(spec, part) for part in sort[:end]]
    down = end < len(sort) and isinstance(sort[end], Reversed)

    def key_of(record: Any, key: bytes) -> bytes:
        codes = [part(record) for part in parts]
        ranks = [b"\x01" if code is None else b"\x00" + code for code in codes]
        return b"".join([*ranks, complement(key) if down else key])

    return key_of


class _Spot(NamedTuple):
    """A part of an index or key, with the data that does not depend on the expression."""

    text: str
    down: bool
    many: bool
    path: str
    """The path whose value an object needs to be in the index; empty if every object has one."""


class _Track:
    """An index, or the keys of the table."""

    def __init__(self, spec: "ModelSpec", index: Index | None) -> None:
        self.index = index
        self.spots = [_spot(spec, part) for part in (_key_parts(spec) if index is None else index.parts)]
        self.texts = {spot.text for spot in self.spots}
        self.first = self.spots[0].text if self.spots else ""


@lru_cache(64)
def _tracks(spec: "ModelSpec") -> list[_Track]:
    """Return the keys of the table, and every index."""
    return [_Track(spec, index) for index in (None, *spec.indexes)]


def _spot(spec: "ModelSpec", part: Part) -> _Spot:
    bare = _bare(part)
    text, down = str(bare), isinstance(part, Reversed)
    if isinstance(bare, _MANY):
        return _Spot(text, down, True, text)
    path = bare.path if isinstance(bare, Normalized | TypeOf) else bare
    return _Spot(text, down, False, "" if always_there(spec, parse_path(path)) else path)


class _AccessPath:
    """A candidate plan: reading along a track, as far as the ranges are known."""

    def __init__(self, track: _Track, facts: Facts, wanted: list[Part], constants: set[str]) -> None:
        self.index = track.index
        self.spots = track.spots
        pinned = self._cover(facts)
        self.is_key = self.index is None and self.fixed == len(self.spots) > 0
        self.reach = 2 * self.fixed + self.ranged
        """How much the ranges are limited: 2 for each part with known values, 1 for a range; 0 if all is read."""
        self.distinct = any(spot.many and at not in pinned for at, spot in enumerate(self.spots))
        there = facts.present.union(map(_text, wanted)) if self.distinct else facts.present
        self.missing = [
            spot.text
            for spot in self.spots
            if spot.path and spot.path not in (there if spot.many else facts.present) and self.index is not None
        ]
        """Parts that a matching object may lack: then the track does not contain it."""
        self.complete = not self.missing
        self.direction = self._direction(wanted, pinned, constants) if wanted else False
        """Whether the order needs a backward scan; None if the track does not give the order."""
        # Ties: one that gives the order, then the table, which saves a look-up for every row, then the shortest.
        self.rank = (self.reach, self.direction is not None, self.index is None, -len(self.spots))

    def _cover(self, facts: Facts) -> set[int]:
        """Find the ranges; return the positions of parts that have one value in all of them."""
        prefixes, pinned = [b""], set()
        ends: list[Range] = [(b"", None)]
        self.fixed, self.ranged = 0, False
        for at, spot in enumerate(self.spots):
            conditions = facts.conditions.get(spot.text)
            if not conditions:
                break
            points, ends_here = narrowed(conditions, reverse=spot.down, many=spot.many)
            if points is None:
                if len(ends_here) * len(prefixes) <= _RANGES_MAX:
                    ends, self.ranged = ends_here, True
                break
            if at and len(points) * len(prefixes) > _RANGES_MAX:
                break
            prefixes = [prefix + code for prefix in prefixes for code in points]
            self.fixed += 1
            if len(points) == 1:
                pinned.add(at)
        joined = [(p + start, successor(p) if stop is None else p + stop) for p in prefixes for start, stop in ends]
        keys = self.index is None and self.fixed == len(self.spots) > 0
        self.ranges: list[Range] = sorted(joined) if keys else merged(joined)  # adjacent whole keys must not be merged
        return pinned

    def _direction(self, wanted: list[Part], pinned: set[int], constants: set[str]) -> bool | None:
        constants = constants.union(self.spots[at].text for at in pinned)
        here = [(spot.text, spot.down) for spot in self.spots if spot.text not in constants]
        here.append((BY_KEY, False))
        there = [(_text(part), isinstance(part, Reversed)) for part in wanted if _text(part) not in constants]
        turns = set()
        for (mine, down), (theirs, wanted_down) in zip(here, there, strict=False):
            if theirs == BY_KEY and (mine == BY_KEY or self.index is None):
                turns.add(wanted_down)
                break
            if mine == BY_KEY and self.index is None and self.spots:
                break  # the whole key is in order: there are no ties
            if mine != theirs:
                return None
            turns.add(down != wanted_down)
        return None if len(turns) > 1 else True in turns


def _wanted(spec: "ModelSpec", order: Order | None) -> list[Part]:
    if order is None:
        return []
    if not isinstance(order, Sequence) or isinstance(order, str):
        order = [order]
    wanted = [_renamed(spec, part_of(part)) for part in order]
    for part in wanted:
        if _text(part) != BY_KEY:
            part_type(spec, part)
    return wanted


def _renamed(spec: "ModelSpec", part: Part) -> Part:
    """Return the part with the present names of fields."""
    match part:
        case Reversed(inner):
            return Reversed(_renamed(spec, inner))
        case Words(paths):
            return Words(*(str(_renamed(spec, path)) for path in paths))
        case str():
            name = re.split("[.:]", part, maxsplit=1)[0]
            field = spec.find(name)
            return part if field is None else field.name + part[len(name) :]
    return type(part)(str(_renamed(spec, part.path)))


def _key_parts(spec: "ModelSpec") -> list[Part]:
    parts: list[Part] = [TypeOf(ref.path) if ref.type_of else ref.path for ref in spec.key or ()]
    return [Reversed(part) if ref.reversed else part for part, ref in zip(parts, spec.key or (), strict=True)]


def _bare(part: Part) -> Any:
    return part.part if isinstance(part, Reversed) else part


def _text(part: Part) -> str:
    return str(_bare(part))


def _constants(facts: Facts) -> set[str]:
    """Return the parts that have the same single value in every matching object, or that no object can match."""
    found = set()
    for text, conditions in facts.conditions.items():
        if not isinstance(part_of(text), _MANY):
            points, _ = narrowed(conditions, reverse=False, many=False)
            if points is not None and len(points) <= 1:
                found.add(text)
    return found


def _unique_values(spec: "ModelSpec", where: Expression | None) -> Iterator[tuple[str, Any]]:
    for part in where.parts if isinstance(where, And) else (where,):
        if isinstance(part, Compare) and part.op == "==":
            _, steps = model_and_steps(part.path)
            field = spec.fields.get(str(part.path)) if len(steps) == 1 else None
            if field is not None and field.unique:
                value = exact_value(field.type, part.value)
                if value is not None:
                    yield field.name, value


def _refusal(
    spec: "ModelSpec", where: Expression | None, wanted: list[Part], facts: Facts, ways: list["_AccessPath"]
) -> str:
    what = f"where {where}" if where is not None else f"in the order {', '.join(map(str, wanted))}"
    text = f"a scan of {spec.name} {what} would read the whole table"
    near = [way for way in ways if way.missing and (way.reach or (where is None and way.direction is not None))]
    if near:
        text += f"; the index {near[0].index} leaves out objects without {near[0].missing[0]}: require that it exists"
    exact = [name for name, conditions in facts.conditions.items() if any(one.exact for one in conditions)]
    ordered = [part for part in wanted if _text(part) not in (*exact, BY_KEY)]
    parts: list[Part] = [part_of(name) for name in exact]
    if exact or where is None:
        parts += ordered
    else:
        parts += [part_of(name) for name in list(facts.conditions)[:1]]
    sensitive = [path for part in parts for path in paths_of(part) if is_sensitive(spec, parse_path(path))]
    parts = [part for part in parts if not set(paths_of(part)).intersection(sensitive)]
    if sensitive and not parts:
        text += f"; {sensitive[0]} is sensitive, and cannot be indexed"
    elif parts and not near:
        text += f"; add Index({', '.join(map(_written, parts))}) to it"
    return f"{text}, or give allow_table_scan=True"


def _written(part: Part) -> str:
    """Return a part as it is written in a model."""
    match part:
        case str():
            return f'"{part}"'
        case Reversed(inner):
            return f"Reversed({_written(inner)})"
        case Words(paths):
            return f"Words({', '.join(map(_written, paths))})"
    return f'{type(part).__name__}("{part.path}")'


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
