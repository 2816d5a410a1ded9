"""Compilation of filter expressions into functions, made once and called for every row."""

import operator
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.field_path import Any_, At, Follow, Normal, Step, Variant, parse_path, type_at, variant_of
from holdfast.table.model.indexes import Normalized, Words, getter
from holdfast.table.model.object_access import same
from holdfast.table.model.path_expressions import Path, model_and_steps
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
    NoneOf,
    Not,
    Or,
    Prefix,
    Regex,
    Search,
    none_of,
)
from holdfast.table.query.search import normalize, search_part, terms_of, words

if TYPE_CHECKING:
    from holdfast.table.model.model import ModelSpec

__all__ = ["Fetch", "Test", "compile_filter", "none_of"]

Test = Callable[[Any], bool]
Fetch = Callable[[str, bytes], Any]
"""Returns the object with a model's name and a key; None if there is none."""

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compile_filter(expression: Expression | None, fetch: Fetch | None = None) -> Test:
    """Return the function that tests an expression on an object; None is true of every one."""
    match expression:
        case None:
            return lambda record: True
        case And(parts):
            return reduce(_both, [compile_filter(part, fetch) for part in parts])
        case Or(parts):
            return reduce(_either, [compile_filter(part, fetch) for part in parts])
        case Not(part):
            wrong = compile_filter(part, fetch)
            return lambda record: not wrong(record)
        case NoneOf(parts):
            one = reduce(_either, [compile_filter(part, fetch) for part in parts])
            return lambda record: not one(record)
        case Search():
            return _search(expression)
        case Compare() | Exists() | Prefix() | Between() | Regex() | IsIn() | Contains() | IsA():
            return _of_path(expression, fetch)
    raise InvalidArgument(
        f"{expression!r} is not an expression: compare fields of a model, as in (Account.name == 'Ada')"
    )


def _both(first: Test, second: Test) -> Test:
    return lambda record: first(record) and second(record)


def _either(first: Test, second: Test) -> Test:
    return lambda record: first(record) or second(record)


_Leaf = Compare | Exists | Prefix | Between | Regex | IsIn | Contains | IsA


def _of_path(leaf: _Leaf, fetch: Fetch | None) -> Test:
    model, steps = model_and_steps(leaf.path)
    test = _test(leaf)
    if len(steps) == 1 and isinstance(leaf, Compare) and leaf.op == "==":
        get, value = operator.attrgetter(str(steps[0])), leaf.value
        if _has_nan(value):
            equal = _equals(type_at(model.__spec__, steps), value)
            return lambda record: equal(get(record))
        return lambda record: bool(get(record) == value)
    for at in range(len(steps) - 1, -1, -1):
        test = _through(model.__spec__, steps, at, test, fetch, leaf.path)
    return test


def _through(spec: "ModelSpec", steps: tuple[Step, ...], at: int, test: Test, fetch: Fetch | None, path: Path) -> Test:
    """Return a test of the value at the end of a step, as a test of the value where the step begins."""
    match steps[at]:
        case str(name):
            get = operator.attrgetter(name)

            def field(record: Any) -> bool:
                value = get(record)
                return value is not None and test(value)

            return field
        case Any_.VALUE:
            return lambda value: any(map(test, value.values()))
        case Any_():
            return lambda value: any(map(test, value))
        case Normal():
            return lambda value: test(normalize(value))
        case At(key):
            if type_at(spec, steps[:at]).kind is Kind.LIST:
                return lambda value: key < len(value) and test(value[key])
            return lambda value: key in value and test(value[key])
        case Variant(name):
            name_of = variant_of(type_at(spec, steps[:at]))
            return lambda value: name_of(value) == name and test(value)
        case Follow(model):
            if fetch is None:
                raise InvalidArgument(f"{path!r} follows a reference, which is not possible here")
            target = model.__name__

            def followed(key: bytes) -> bool:
                record = fetch(target, key)
                return record is not None and test(record)

            return followed
    raise InvalidArgument(f"{path!r} has a step that does not exist")


def _test(leaf: _Leaf) -> Test:
    """Return a test of the value at the end of a path."""
    model, steps = model_and_steps(leaf.path)
    ftype = type_at(model.__spec__, steps)
    kind = ftype.kind
    match leaf:
        case Exists():
            return lambda value: True
        case Compare(_, "==", operand):
            return _equals(ftype, operand)
        case Compare(_, op, operand):
            return _compared(kind, op, operand)
        case Between(_, low, high):
            above, below = _compared(kind, ">=", low), _compared(kind, "<=", high)
            return lambda value: above(value) and below(value)
        case Prefix(_, prefix):
            return lambda value: bool(value.startswith(prefix))
        case Regex(_, pattern):
            return _matches(pattern)
        case IsIn(_, values):
            return _one_of(values)
        case Contains(_, item):
            return (lambda value: any(map(is_nan, value))) if is_nan(item) else lambda value: item in value
        case IsA(_, name):
            name_of = variant_of(type_at(model.__spec__, steps))
            return lambda value: name_of(value) == name


def _equals(ftype: FieldType, operand: Any) -> Test:
    """Return a test for equality. NaN is equal to NaN, also inside of lists, sets, dicts and models."""
    if is_nan(operand):
        return is_nan
    if _has_nan(operand):
        return lambda value: type(value) is type(operand) and same(ftype, value, operand)
    return lambda value: bool(value == operand)


def _has_nan(value: Any) -> bool:
    """Return whether a value is NaN, or contains one."""
    if isinstance(value, dict):
        return any(map(_has_nan, value)) or any(map(_has_nan, value.values()))
    if isinstance(value, list | set):
        return any(map(_has_nan, value))
    if isinstance(value, msgspec.Struct):
        return any(_has_nan(getattr(value, name)) for name in value.__struct_fields__)
    return is_nan(value)


def _compared(kind: Kind, op: str, operand: Any) -> Test:
    compare = _OPERATORS[op]
    if kind is Kind.ENUM:
        raw = operand.value
        return lambda value: compare(value.value, raw)
    if kind is Kind.UNION:

        def comparable(value: Any) -> bool:
            try:
                return compare(value, operand)
            except (TypeError, InvalidOperation):  # a value of another type of the union, or NaN
                return False

        return comparable
    if kind is Kind.DECIMAL or isinstance(operand, Decimal):

        def numbers(value: Any) -> bool:
            try:
                return compare(value, operand)
            except InvalidOperation:  # a float NaN, which cannot be compared with a Decimal
                return False

        return numbers
    return lambda value: compare(value, operand)


def _matches(pattern: re.Pattern[str]) -> Test:
    match = pattern.fullmatch
    return lambda text: match(text) is not None


def _one_of(values: tuple[Any, ...]) -> Test:
    if any(map(is_nan, values)):
        others = _one_of(tuple(value for value in values if not is_nan(value)))
        return lambda value: is_nan(value) or others(value)
    try:
        known = frozenset(values)
        return lambda value: value in known
    except TypeError:  # lists, sets, dicts and embedded objects have no hash
        return lambda value: value in values


def _search(search: Search) -> Test:
    """Return a test that resolves the index once for each model of its objects: an expression has no table."""
    tests: dict[type, Test] = {}

    def found(record: Any) -> bool:
        model = type(record)
        test = tests.get(model)
        if test is None:
            test = tests[model] = _search_of(search, model.__spec__)
        return test(record)

    return found


def _search_of(search: Search, spec: "ModelSpec") -> Test:
    part = search_part(spec, search)
    match part:
        case Normalized(path):
            gets = [getter(spec, parse_path(path))]
            split: Callable[[str], list[str]] = lambda text: [normalize(text)]  # noqa: E731
        case Words(paths):
            gets = [getter(spec, parse_path(path)) for path in paths]
            split = words
    terms = terms_of(part, search)
    if search.regex:
        tests = [re.compile(term).fullmatch for term in terms]

    def found(record: Any) -> bool:
        own = {word for get in gets for word in split(get(record) or "")}
        if search.regex:
            return all(any(test(word) for word in own) for test in tests)
        if search.prefix:
            return all(any(word.startswith(term) for word in own) for term in terms)
        return own.issuperset(terms)

    return found
