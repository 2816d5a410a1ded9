"""Byte ranges of an index part for which an expression can be true: never too narrow, perhaps too wide.

The ranges only limit what is read: the expression itself is tested again on every row.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from holdfast.table.model.field_path import Any_, At, Normal, Step, Variant, path_text, type_at
from holdfast.table.model.path_expressions import model_and_steps
from holdfast.table.model.types import FieldType, Kind, is_nan
from holdfast.table.query.expressions import (
    And,
    Between,
    Compare,
    Contains,
    Exists,
    Expression,
    IsA,
    IsIn,
    Or,
    Prefix,
    Regex,
    Search,
)
from holdfast.table.query.search import search_part, terms_of
from holdfast.table.storage.order_preserving_encoding import complement, encode, successor, text_prefix

if TYPE_CHECKING:
    from holdfast.table.model.model import ModelSpec

__all__ = ["Condition", "Facts", "Range", "Span", "exact_value", "facts_of", "literal_prefix", "merged", "narrowed"]

Range = tuple[bytes, bytes | None]
"""From these bytes up to, but not including, those; None is the end."""

_TEXT = FieldType(Kind.STR)
_LITERALS = re.compile(r"\^?([\w \-@,;:=!#%&<>/'\"~]*)(.?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Span:
    """Range of codes; a bound is a prefix, and whether codes with it are included. None is no bound."""

    low: tuple[bytes, bool] | None = None
    high: tuple[bytes, bool] | None = None

    def range(self, reverse: bool) -> Range | None:
        """Return the byte range of these codes, or of their complements; None if it is empty."""
        low, high = self.low, self.high
        if reverse:
            low, high = high and (complement(high[0]), high[1]), low and (complement(low[0]), low[1])
        start = b"" if low is None else low[0] if low[1] else successor(low[0])
        stop = None if high is None else successor(high[0]) if high[1] else high[0]
        if start is None or (stop is not None and start >= stop):
            return None
        return start, stop


ALL = Span()


@dataclass(frozen=True, slots=True)
class Condition:
    """A part has a code in one of these spans; with `exact` each span is a single code."""

    spans: tuple[Span, ...]
    exact: bool = False


@dataclass(slots=True)
class Facts:
    """Conditions that an expression implies for parts of indexes, by their text."""

    conditions: dict[str, list[Condition]] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    """Parts with at least one value."""

    def add(self, part: str, condition: Condition | None = None) -> None:
        """Note that a part has a value, which meets a condition if one is given."""
        self.present.add(part)
        if condition is not None:
            self.conditions.setdefault(part, []).append(condition)


def facts_of(spec: "ModelSpec", expression: Expression | None) -> Facts:
    """Return the conditions that an expression implies."""
    facts = Facts()
    match expression:
        case And(parts):
            for inner in (facts_of(spec, part) for part in parts):
                facts.present |= inner.present
                for name, conditions in inner.conditions.items():
                    facts.conditions.setdefault(name, []).extend(conditions)
        case Or(parts):
            branches = [facts_of(spec, part) for part in parts]
            facts.present = set.intersection(*(branch.present for branch in branches))
            for name in branches[0].conditions:
                if all(name in branch.conditions for branch in branches):
                    chosen = [_tightest(branch.conditions[name]) for branch in branches]
                    spans = tuple(span for condition in chosen for span in condition.spans)
                    facts.add(name, Condition(spans, all(condition.exact for condition in chosen)))
        case Search():
            _search_facts(spec, expression, facts)
        case Compare() | Exists() | Prefix() | Between() | Regex() | IsIn() | Contains() | IsA():
            _leaf_facts(expression, facts)
    return facts


def narrowed(conditions: list[Condition], *, reverse: bool, many: bool) -> tuple[list[bytes] | None, list[Range]]:
    """Return the codes that meet all conditions, if these are enumerable, and the ranges that contain them.

    In a part with many values each condition may be met by another value, so only one condition is used.
    """
    if many:
        conditions = [_tightest(conditions)]
    ranges: list[Range] = [(b"", None)]
    points: list[bytes] | None = None
    for condition in conditions:
        found = merged(range_ for span in condition.spans if (range_ := span.range(reverse)) is not None)
        ranges = _intersection(ranges, found)
        if condition.exact:
            codes = {complement(span.low[0]) if reverse else span.low[0] for span in condition.spans if span.low}
            points = sorted(codes if points is None else codes.intersection(points))
    if points is not None:
        points = [code for code in points if any(_within(code, range_) for range_ in ranges)]
    return points, ranges


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the same bytes as sorted ranges that neither overlap nor touch."""
    result: list[Range] = []
    for start, stop in sorted(ranges, key=lambda one: one[0]):
        if result and (result[-1][1] is None or start <= result[-1][1]):
            before, end = result[-1]
            result[-1] = before, None if end is None or stop is None else max(end, stop)
        else:
            result.append((start, stop))
    return result


def exact_value(ftype: FieldType, value: Any) -> Any:
    """Return the value of a type that equals the compared value; None if there is none."""
    kinds: dict[Kind, type] = {Kind.INT: int, Kind.FLOAT: float, Kind.DECIMAL: Decimal}
    kind = kinds.get(ftype.kind)
    if kind is None:
        return value
    try:
        found = kind(value)
        return found if found == value or (is_nan(found) and is_nan(value)) else None
    except (OverflowError, ValueError):
        return None


def literal_prefix(pattern: re.Pattern[str]) -> str:
    """Return the text with which every match begins; empty if that is not obvious."""
    source = pattern.pattern
    if "|" in source or "(?" in source or pattern.flags & (re.IGNORECASE | re.VERBOSE):
        return ""
    found = _LITERALS.match(source)
    assert found is not None
    text, then = found.groups()
    return text[:-1] if then in "*?{" and then else text


def _intersection(one: list[Range], other: list[Range]) -> list[Range]:
    result = []
    for start, stop in one:
        for begin, end in other:
            low = max(start, begin)
            high = end if stop is None else stop if end is None else min(stop, end)
            if high is None or low < high:
                result.append((low, high))
    return result


def _within(code: bytes, range_: Range) -> bool:
    return range_[0] <= code and (range_[1] is None or code < range_[1])


def _tightest(conditions: list[Condition]) -> Condition:
    return min(conditions, key=lambda condition: (not condition.exact, ALL in condition.spans, len(condition.spans)))


def _search_facts(spec: "ModelSpec", search: Search, facts: Facts) -> None:
    part = search_part(spec, search)
    terms = terms_of(part, search)
    if search.regex:
        prefix = literal_prefix(re.compile(terms[0]))
        facts.add(str(part), _prefixed(prefix) if prefix else None)
        return
    for term in sorted(terms, key=len, reverse=True):  # the longest word is likely the rarest
        facts.add(str(part), _prefixed(term) if search.prefix else _points(_TEXT, [term]))


def _leaf_facts(leaf: Any, facts: Facts) -> None:
    model, steps = model_and_steps(leaf.path)
    spec = model.__spec__
    plain = next((at for at, step in enumerate(steps) if not isinstance(step, str | Variant)), len(steps))
    base, rest = path_text(steps[:plain]), steps[plain:]
    for at in range(1, plain + 1):
        facts.add(path_text(steps[:at]))
    ftype = type_at(spec, steps)
    if isinstance(leaf, Contains) and not rest:
        inner = ftype.key if ftype.kind is Kind.DICT else ftype.item
        assert inner is not None
        part = "keys" if ftype.kind is Kind.DICT else "each"
        facts.add(f"{part}({base})", _points(inner, [leaf.item]) if inner.scalar else None)
    elif isinstance(leaf, IsA) and not rest:
        facts.add(f"type({base})", _points(_TEXT, [leaf.name]))
    elif not rest:
        facts.add(base, _condition(leaf, ftype))
    else:
        _collection_facts(leaf, facts, spec, steps[:plain], rest)


def _collection_facts(
    leaf: Any, facts: Facts, spec: "ModelSpec", steps: tuple[Step, ...], rest: tuple[Step, ...]
) -> None:
    """Note conditions of a path through the items, keys or values of a collection, or through normalised text."""
    base, holder = path_text(steps), type_at(spec, steps)
    at_end = len(rest) == 1 and not isinstance(leaf, Contains | IsA)
    inner = holder.key if rest[0] is Any_.KEY else holder.item
    condition = _condition(leaf, inner) if at_end and inner is not None else None
    match rest[0]:
        case Normal():
            facts.add(f"normalized({base})", _condition(leaf, _TEXT))
        case Any_.ITEM:
            facts.add(f"each({base})", condition)
        case Any_.KEY:
            facts.add(f"keys({base})", condition)
        case Any_.VALUE:
            facts.add(f"values({base})", condition)
        case At(key) if holder.kind is Kind.DICT:
            assert holder.key is not None
            facts.add(f"keys({base})", _points(holder.key, [key]))
            facts.add(f"values({base})", condition)
        case At():
            facts.add(f"each({base})", condition)


def _condition(leaf: Any, ftype: FieldType) -> Condition | None:
    if not ftype.scalar:
        return None
    match leaf:
        case Exists():
            return Condition((ALL,))
        case Compare(_, "==", value):
            return _points(ftype, [value])
        case IsIn(_, values):
            return _points(ftype, values)
        case Compare(_, op, value):
            bound = _bound(ftype, value, op in ("<=", ">="))
            if bound is None:
                return None
            return Condition((Span(high=bound) if op[0] == "<" else Span(low=bound),))
        case Between(_, low, high):
            return Condition((Span(_bound(ftype, low, True), _bound(ftype, high, True)),))
        case Prefix(_, value):
            return _prefixed(value)
        case Regex(_, pattern):
            prefix = literal_prefix(pattern)
            return _prefixed(prefix) if prefix else None
    return None


def _points(ftype: FieldType, values: Iterable[Any]) -> Condition:
    # A value without a code cannot equal a stored value.
    bounds = [bound for value in values if (bound := _point(ftype, value)) is not None]
    return Condition(tuple(Span(bound, bound) for bound in bounds), exact=True)


def _point(ftype: FieldType, value: Any) -> tuple[bytes, bool] | None:
    """Return the code of a value to be equal to. NaN equals NaN, and is neither above nor below any value."""
    if is_nan(value) and ftype.kind in (Kind.FLOAT, Kind.DECIMAL):
        return encode(ftype, Decimal("NaN") if ftype.kind is Kind.DECIMAL else math.nan), True
    return _bound(ftype, value, True)


def _prefixed(value: str | bytes) -> Condition | None:
    try:
        bound = text_prefix(value), True
    except UnicodeEncodeError:
        return None
    return Condition((Span(bound, bound),))


def _bound(ftype: FieldType, value: Any, inclusive: bool) -> tuple[bytes, bool] | None:
    """Return a value as a bound; None if it has no code. A value between two codes becomes one of them, inclusive."""
    try:
        if ftype.kind is Kind.INT and not isinstance(value, int):
            whole = math.floor(value)
            return encode(ftype, whole), inclusive or whole != value
        if ftype.kind is Kind.FLOAT:
            near = float(value)
            return None if math.isnan(near) else (encode(ftype, near), inclusive or near != value)
        if ftype.kind is Kind.DECIMAL and Decimal(value).is_nan():
            return None
        return encode(ftype, value), inclusive
    except (AttributeError, OverflowError, ValueError, KeyError, TypeError):
        return None
