"""Validation of values against the rules of their fields: reports all violations; a valid value costs little.

A check is made once for each type. It returns nothing for a valid value, and otherwise violations whose paths begin at
that value; its caller prepends its own path. So paths are only written out when something is wrong.
"""

from __future__ import annotations

import datetime
import decimal
import re
import reprlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, Flag
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from holdfast.table.model.field_path import variant_types
from holdfast.table.model.types import HIDDEN, INT_MAX, INT_MIN, FieldType, Kind, Limits

if TYPE_CHECKING:
    from holdfast.table.model.fields import FieldSpec
    from holdfast.table.model.model import Model

__all__ = [
    "Check",
    "Violation",
    "check_of",
    "key_text",
    "object_check",
    "shown_of",
    "unknown_field",
    "validate",
    "validate_field",
]


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a value breaks, with the path of the value."""

    path: str
    """`name`, `address.city`, `tags[0]` in a list, `tags{vip}` in a set, `limits[key]` of a dict, `limits<key>`."""
    rule: str
    """required, type, enum, min, max, min_length, max_length, pattern, aware, unknown; of tables also final, unique,
    check, version, absent."""
    value: Any
    message: str
    owner: bytes | None = None
    """The key of the record that has a unique value already."""

    def __str__(self) -> str:
        return f"{self.path or 'it'} {self.message} ({self.rule})"


Found = list[Violation] | None
Check = Callable[[Any], Found]


def validate(obj: Model) -> list[Violation]:
    """Return every violation of a whole object; an empty list if it is valid."""
    found = obj.__spec__.check(obj)
    return [_placed("", violation) for violation in found] if found else []


def validate_field(spec: FieldSpec, value: Any, path: str | None = None) -> list[Violation]:
    """Return every violation of one field's value, which has this path (the field's name, if none is given)."""
    found = spec.check(value) if value is not None else [_required(value)] if spec.required else None
    if not found:
        return []
    return [_placed(spec.name if path is None else path, _shown(spec, violation)) for violation in found]


def unknown_field(path: str, value: Any, known: Iterable[str]) -> Violation:
    """Return the violation for a name that the model does not have."""
    return Violation(path, "unknown", value, f"is not a field of this model, which has {', '.join(known)}")


def object_check(fields: Iterable[FieldSpec]) -> Check:
    """Return the check of a whole object with these fields."""
    specs = tuple(fields)
    if not specs:
        return lambda obj: None
    plan = [(spec.check, spec) for spec in specs]
    get = _values_of([spec.name for spec in specs])

    def check(obj: Any) -> Found:
        found: Found = None
        for value, (check_value, spec) in zip(get(obj), plan, strict=True):
            if value is not None:
                bad = check_value(value)
                if not bad:
                    continue
            elif spec.required:
                bad = [_required(value)]
            else:
                continue
            found = found or []
            found += _under(f".{spec.name}", (_shown(spec, violation) for violation in bad))
        return found

    return check


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    get = attrgetter(*names)
    if len(names) == 1:  # then attrgetter returns the value itself
        return lambda obj: (get(obj),)
    return get


def check_of(ftype: FieldType) -> Check:
    """Return the check of a value of this type that is not None."""
    check = _of_type(ftype)
    return _with_limits(check, ftype.kind, ftype.limits) if ftype.limits else check


def key_text(key: Any) -> str:
    """Return a key of a dict or an item of a set as it is written in a path."""
    if isinstance(key, bytes):
        return urlsafe_b64encode(key).rstrip(b"=").decode()
    if isinstance(key, Enum):
        return key.name
    return str(key)


def _of_type(ftype: FieldType) -> Check:
    match ftype.kind:
        case Kind.INT:
            return _int
        case Kind.FLOAT:
            return _float
        case Kind.STR:
            return _str
        case Kind.DECIMAL:
            return _decimal
        case Kind.DATETIME:
            return _datetime
        case Kind.TIME:
            return _time
        case Kind.ENUM if ftype.enum is not None:
            return _enum(ftype.enum)
        case Kind.EMBEDDED if ftype.model is not None:
            return _embedded(ftype.model)
        case Kind.LIST | Kind.SET if ftype.item is not None:
            return _items(ftype.kind, check_of(ftype.item))
        case Kind.DICT if ftype.item is not None and ftype.key is not None:
            return _dict(check_of(ftype.key), check_of(ftype.item))
        case Kind.UNION:
            return _union(ftype)
    return _exactly(*variant_types(ftype))


def _exactly(kind: type) -> Check:
    def check(value: Any) -> Found:
        return None if type(value) is kind else _wrong_type(value, kind.__name__)

    return check


def _int(value: Any) -> Found:
    if type(value) is not int:
        return _wrong_type(value, "int")
    if INT_MIN <= value <= INT_MAX:
        return None
    rule, bound = ("min", "-2**63, the least") if value < 0 else ("max", "2**64 - 1, the greatest")
    return [Violation("", rule, value, f"is {_brief(value)}, beyond {bound} int that can be stored")]


def _float(value: Any) -> Found:
    if type(value) is float:
        return None
    return _int(value) if type(value) is int else _wrong_type(value, "float")


def _str(value: Any) -> Found:
    if type(value) is not str:
        return _wrong_type(value, "str")
    if value.isascii():
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return [
            Violation("", "type", value, f"is {_brief(value)}, which has an unpaired surrogate: it cannot be UTF-8")
        ]
    return None


def _decimal(value: Any) -> Found:
    if type(value) is not decimal.Decimal:
        return _wrong_type(value, "Decimal")
    return None if value.is_finite() else [Violation("", "type", value, f"is {value}, and must be a finite number")]


def _datetime(value: Any) -> Found:
    if type(value) is not datetime.datetime:
        return _wrong_type(value, "datetime")
    if value.tzinfo is not None and value.utcoffset() is not None:
        if 1 < value.year < 9999:
            return None
        try:
            value.astimezone(datetime.UTC)
            return None
        except OverflowError:
            rule, bound = ("min", "first") if value.year == 1 else ("max", "last")
            return [Violation("", rule, value, f"is {value}, which in UTC is beyond the {bound} possible year")]
    return [Violation("", "aware", value, f"is {value}, without a time zone: give one, as in datetime.now(UTC)")]


def _time(value: Any) -> Found:
    if type(value) is not datetime.time:
        return _wrong_type(value, "time")
    if value.tzinfo is None:
        return None
    return [Violation("", "aware", value, f"is {value}: a time of day must not have a time zone")]


def _enum(kind: type[Enum]) -> Check:
    combines = issubclass(kind, Flag)

    def check(value: Any) -> Found:
        if type(value) is kind and not (combines and value not in kind.__members__.values()):
            return None
        names = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        return [Violation("", "enum", value, f"is {_brief(value)}, and must be one of {names}")]

    return check


def _embedded(model: type[Model]) -> Check:
    def check(value: Any) -> Found:
        if type(value) is not model:
            return _wrong_type(value, model.__name__)
        return value.__spec__.check(value)

    return check


def _items(kind: Kind, check_item: Check) -> Check:
    python = list if kind is Kind.LIST else set

    def check(value: Any) -> Found:
        if type(value) is not python:
            return _wrong_type(value, python.__name__)
        found: Found = None
        for at, item in enumerate(value):
            bad = check_item(item)
            if bad:
                found = (found or []) + _under(f"[{at}]" if kind is Kind.LIST else f"{{{key_text(item)}}}", bad)
        return found

    return check


def _dict(check_key: Check, check_value: Check) -> Check:
    def check(value: Any) -> Found:
        if type(value) is not dict:
            return _wrong_type(value, "dict")
        found: Found = None
        for key, item in value.items():
            bad = check_key(key)
            if bad:
                found = (found or []) + _under(f"<{key_text(key)}>", bad)
            bad = check_value(item)
            if bad:
                found = (found or []) + _under(f"[{key_text(key)}]", bad)
        return found

    return check


def _union(ftype: FieldType) -> Check:
    checks: dict[type, Check] = {}
    for variant in ftype.variants:
        checks |= dict.fromkeys(variant_types(variant), check_of(variant))
    if float in checks:
        checks.setdefault(int, checks[float])

    def check(value: Any) -> Found:
        check_value = checks.get(type(value))
        return check_value(value) if check_value is not None else _wrong_type(value, str(ftype))

    return check


def _with_limits(check: Check, kind: Kind, limits: Limits) -> Check:
    """Return the check of the type and, if the type is right, of the limits."""
    least, most, shortest, longest = limits.min, limits.max, limits.min_length, limits.max_length
    matches = re.compile(limits.pattern).fullmatch if limits.pattern is not None else None
    unit = {Kind.STR: "characters", Kind.BYTES: "bytes"}.get(kind, "items")

    def check_limits(value: Any) -> Found:
        found = check(value)
        if found and any(not violation.path for violation in found):
            return found  # the limits do not apply to this type
        if least is not None and not value >= least:
            found = [*(found or []), Violation("", "min", value, f"is {_brief(value)}, and must be at least {least}")]
        if most is not None and not value <= most:
            found = [*(found or []), Violation("", "max", value, f"is {_brief(value)}, and must be at most {most}")]
        if shortest is not None and len(value) < shortest:
            message = f"has {len(value)} {unit}, and must have at least {shortest}"
            found = [*(found or []), Violation("", "min_length", value, message)]
        if longest is not None and len(value) > longest:
            message = f"has {len(value)} {unit}, and must have at most {longest}"
            found = [*(found or []), Violation("", "max_length", value, message)]
        if matches is not None and matches(value) is None:
            message = f"is {_brief(value)}, and must match {limits.pattern!r}"
            found = [*(found or []), Violation("", "pattern", value, message)]
        return found

    return check_limits


def _wrong_type(value: Any, wanted: str) -> list[Violation]:
    message = f"is {_brief(value)} of type {type(value).__name__}, and must be {wanted}"
    return [Violation("", "type", value, "is None, and must be " + wanted if value is None else message)]


def _required(value: Any) -> Violation:
    return Violation("", "required", value, "is required")


def _brief(value: Any) -> str:
    return reprlib.repr(value)


def _under(place: str, found: Iterable[Violation]) -> list[Violation]:
    return [Violation(place + one.path, one.rule, one.value, one.message) for one in found]


def _placed(place: str, violation: Violation) -> Violation:
    """Prepend the path of the containing value: a field's name at the very beginning has no dot before it."""
    path = place + violation.path
    return Violation(path.removeprefix("."), violation.rule, violation.value, violation.message)


def shown_of(spec: FieldSpec, violation: Violation) -> Violation:
    """Return a violation without sensitive values; its path is that of the field if the field is sensitive."""
    return _placed(spec.name, _shown(spec, violation)) if spec.sensitive else violation


def _shown(spec: FieldSpec, violation: Violation) -> Violation:
    """Return a violation without value, text and path if the field is sensitive, as all may quote its content."""
    if not spec.sensitive or violation.rule == "required":
        return violation
    return Violation("", violation.rule, HIDDEN, f"breaks the rule {violation.rule}; its value is hidden")
