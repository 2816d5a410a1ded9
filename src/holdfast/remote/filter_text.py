"""Text form of filters, paths and orders, as a server's API takes them; `filter_parser` reads it back."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.field_path import Any_, At, Follow, Normal, Step, Variant, path_text, type_at
from holdfast.table.model.json_codec import json_value
from holdfast.table.model.model import Model
from holdfast.table.model.path_expressions import Path, model_and_steps
from holdfast.table.model.types import FieldType, Kind
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
)

__all__ = ["filter_text", "names_text"]

_ANY = {Any_.ITEM: ".any_item", Any_.KEY: ".any_key", Any_.VALUE: ".any_value"}


def filter_text(where: Any) -> str | None:
    """Return a filter as text: of an expression, or a text as it is; raise `InvalidArgument` for anything else."""
    if where is None or isinstance(where, str):
        return where
    if isinstance(where, Expression):
        return _test(where)
    raise InvalidArgument(
        "the filter of a remote table must be an expression such as Account.age >= 18, or a string such as "
        f"'age >= 18', not {type(where).__name__}"
    )


def names_text(names: Sequence[Any] | None, what: str) -> str | None:
    """Return paths, or parts of an order, separated by commas."""
    if names is None or isinstance(names, str):
        return names
    texts = [path_text(model_and_steps(one)[1]) if isinstance(one, Path) else str(one) for one in names]
    for one in texts:
        if "," in one:
            raise InvalidArgument(f"{what} of a remote table cannot be {one!r}: it must not contain a comma")
    return ",".join(texts)


def _test(where: Expression) -> str:
    match where:
        case Compare(path, op, value):
            return f"{_path(path)} {op} {_of(path, value)}"
        case Exists(path):
            return f"{_path(path)}.exists()"
        case Prefix(path, value):
            return f"{_path(path)}.prefix({_of(path, value)})"
        case Between(path, low, high):
            return f"{_path(path)}.between({_of(path, low)}, {_of(path, high)})"
        case Regex(path, pattern):
            if re.compile(pattern.pattern).flags != pattern.flags:
                raise InvalidArgument(f"{path}: write the flags into the regular expression, as in (?i)...")
            return f"{_path(path)}.regex({pattern.pattern!r})"
        case IsIn(path, values):
            return f"{_path(path)}.isin([{', '.join(_of(path, one) for one in values)}])"
        case Contains(path, item):
            ftype = _type(path)
            return f"{_path(path)}.contains({_literal(ftype.key if ftype.kind is Kind.DICT else ftype.item, item)})"
        case IsA(path, name):
            return f"{_path(path)}.is_a({name!r})"
        case Search(text, index, prefix, regex):
            options = {"index": index, "prefix": prefix, "regex": regex}
            given = "".join(f", {name}={value!r}" for name, value in options.items() if value)
            return f"search({text!r}{given})"
        case And(parts):
            return " and ".join(f"({_test(part)})" for part in parts)
        case Or(parts):
            return " or ".join(f"({_test(part)})" for part in parts)
        case Not(part):
            return f"not ({_test(part)})"
        case NoneOf(parts):
            return f"not ({_test(Or(parts))})"
    raise InvalidArgument(f"a remote table cannot filter by {type(where).__name__}: {where}")


def _path(path: Path) -> str:
    model, steps = model_and_steps(path)
    return "".join(_step(model, steps[:place], step) for place, step in enumerate(steps))


def _step(model: type[Model], before: tuple[Step, ...], step: Step) -> str:
    match step:
        case str():
            return f".{step}" if before else step
        case Any_():
            return _ANY[step]
        case Normal():
            return ".normalized"
        case At(key):
            ftype = type_at(model.__spec__, before)
            return f"[{_literal(ftype.key, key) if ftype.kind is Kind.DICT else key}]"
        case Follow():
            return ".follow()"
        case Variant(name):
            return f".as_({name!r})"


def _type(path: Path) -> FieldType:
    model, steps = model_and_steps(path)
    return type_at(model.__spec__, steps)


def _of(path: Path, value: Any) -> str:
    return _literal(_type(path), value)


def _literal(ftype: FieldType | None, value: Any) -> str:
    """Return a value as the parser reads it for this type."""
    assert ftype is not None
    match ftype.kind:
        case Kind.LIST | Kind.SET:
            return f"[{', '.join(_literal(ftype.item, one) for one in value)}]"
        case Kind.DICT:
            entries = (f"{_literal(ftype.key, key)}: {_literal(ftype.item, one)}" for key, one in value.items())
            return f"{{{', '.join(entries)}}}"
        case Kind.UNION if type(value) not in (bool, int, float, str, bytes):
            raise InvalidArgument(
                f"a remote table cannot compare {ftype} with a {type(value).__name__}: use .as_({type(value).__name__})"
            )
        case Kind.EMBEDDED:
            raise InvalidArgument(f"a remote table cannot compare a whole {ftype}: compare fields of it")
    written = value if ftype.kind is Kind.UNION or type(value) in (int, float, bytes) else json_value(ftype, value)
    if isinstance(written, Decimal):
        return str(written)
    if isinstance(written, float) and not math.isfinite(written):
        raise InvalidArgument(f"a remote table cannot compare with {written}")
    return repr(written)
