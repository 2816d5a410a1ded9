"""Conversion of objects, by field names: to dicts of Python values, to JSON, and back."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.base.errors import InvalidArgument
from holdfast.table.errors import ValidationFailed
from holdfast.table.model.field_path import variant_name, variant_of
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.model.validation import Violation, check_of, key_text, unknown_field, validate

if TYPE_CHECKING:
    from holdfast.table.model.model import Model

__all__ = ["bytes_of", "from_dict", "from_json", "json_value", "python_value", "to_dict", "to_json"]

M = TypeVar("M", bound="Model")
TYPE = "$type"
"""The JSON key that names the model of a value in a union."""

_Convert = Callable[[FieldType, Any], Any]


def to_dict(obj: Model) -> dict[str, Any]:
    """Return names and Python values, also of embedded models."""
    return _named(obj, lambda _, value: value)


def to_json(obj: Model) -> str:
    """Return JSON with names, on one line."""
    return json.dumps(_named(obj, _scalar_to_json), ensure_ascii=False)


def from_dict(model: type[M], given: Mapping[str, Any]) -> M:
    """Return an object from names and Python values; embedded models may be dicts or objects."""
    return _checked(model, given, lambda _, value: value)


def from_json(model: type[M], text: str | bytes) -> M:
    """Return an object from JSON with names."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"this is not JSON of {model.__name__}: {error}") from error
    except RecursionError as error:
        raise InvalidArgument(f"this is not JSON of {model.__name__}: it is nested too deeply") from error
    return _checked(model, given, _scalar_from_json)


def json_value(ftype: FieldType, value: Any) -> Any:
    """Return one value in JSON form."""
    return _out(ftype, value, _scalar_to_json)


def python_value(ftype: FieldType, value: Any) -> Any:
    """Return the value of a JSON value; an unreadable one is returned as it is, for validation to report it."""
    return _in(ftype, value, _scalar_from_json, "", [])


def bytes_of(text: str) -> bytes:
    """Return the bytes of base64url text, as keys and bytes are written; raises `InvalidArgument` if it is not."""
    try:
        raw = text.encode("ascii")
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise InvalidArgument(
            f"{text!r} is not base64url: it may have only the characters A-Z, a-z, 0-9, - and _"
        ) from error


def _named(obj: Model, convert: _Convert) -> dict[str, Any]:
    return {
        name: None if (value := getattr(obj, name)) is None else _out(spec.type, value, convert)
        for name, spec in obj.__spec__.fields.items()
    }


def _out(ftype: FieldType, value: Any, convert: _Convert) -> Any:
    match ftype.kind:
        case Kind.EMBEDDED:
            return _named(value, convert)
        case Kind.UNION:
            variant = _variant(ftype, value)
            written = _out(variant, value, convert)
            return {TYPE: str(variant), **written} if variant.kind is Kind.EMBEDDED else written
        case Kind.LIST if ftype.item is not None:
            return [_out(ftype.item, item, convert) for item in value]
        case Kind.SET if ftype.item is not None:
            items = [_out(ftype.item, item, convert) for item in value]
            if convert is not _scalar_to_json:
                return set(value)
            return sorted(items, key=lambda item: (isinstance(item, str), item))  # nan and inf are texts among floats
        case Kind.DICT if ftype.item is not None and ftype.key is not None:
            return {_key_out(ftype.key, key, convert): _out(ftype.item, item, convert) for key, item in value.items()}
    return convert(ftype, value)


def _variant(ftype: FieldType, value: Any) -> FieldType:
    """Return which variant of a union a value is."""
    name = variant_of(ftype)(value)
    return next(variant for variant in ftype.variants if variant_name(variant) == name)


def _scalar_to_json(ftype: FieldType, value: Any) -> Any:
    match ftype.kind:
        case Kind.BYTES | Kind.REFERENCE:
            return key_text(value)
        case Kind.FLOAT if not math.isfinite(value):
            return str(value)
        case Kind.ENUM:
            return value.value
        case Kind.DECIMAL | Kind.UUID:
            return str(value)
        case Kind.DATE | Kind.TIME | Kind.DATETIME | Kind.TIMEDELTA:
            return msgspec.to_builtins(value)
    return value


def _key_out(ftype: FieldType, key: Any, convert: _Convert) -> Any:
    """Return a key of a dict as text, the only type of key in JSON."""
    if convert is not _scalar_to_json:
        return key
    written = convert(ftype, key)
    return written if isinstance(written, str) else json.dumps(written)


_TEXTUAL: dict[Kind, Any] = {
    Kind.DATE: datetime.date,
    Kind.TIME: datetime.time,
    Kind.DATETIME: datetime.datetime,
    Kind.TIMEDELTA: datetime.timedelta,
    Kind.UUID: uuid.UUID,
}


def _scalar_from_json(ftype: FieldType, value: Any) -> Any:
    """Return the value that a JSON value represents; the JSON value itself if there is none."""
    try:
        match ftype.kind:
            case Kind.BYTES | Kind.REFERENCE if type(value) is str:
                return bytes_of(value)
            case Kind.DECIMAL if type(value) is str or type(value) is int:
                return Decimal(value)
            case Kind.FLOAT if type(value) is str and value in ("nan", "inf", "-inf"):
                return float(value)
            case Kind.ENUM if ftype.enum is not None and type(value) in (int, str):
                return ftype.enum(value)
            case Kind.DATE | Kind.TIME | Kind.DATETIME | Kind.TIMEDELTA | Kind.UUID if type(value) is str:
                return msgspec.convert(value, _TEXTUAL[ftype.kind])
    except (ValueError, InvalidOperation):
        pass
    return value


def _key_in(ftype: FieldType, key: Any, convert: _Convert) -> Any:
    if convert is not _scalar_from_json:
        return key
    number = ftype.kind in (Kind.INT, Kind.FLOAT, Kind.BOOL) or (
        ftype.kind is Kind.ENUM and ftype.enum is not None and type(next(iter(ftype.enum)).value) is int
    )
    if number and key not in ("nan", "inf", "-inf"):
        try:
            key = json.loads(key)
        except ValueError:
            return key
    return convert(ftype, key)


def _checked(model: type[M], given: Any, convert: _Convert) -> M:
    strangers: list[Violation] = []
    obj = _object(model, given, convert, "", strangers)
    if not isinstance(obj, msgspec.Struct):
        raise InvalidArgument(f"{model.__name__} needs a mapping of names to values, not {type(given).__name__}")
    found = [*strangers, *validate(obj)]  # type: ignore[arg-type]
    if found:
        raise ValidationFailed(model.__name__, found)
    return obj  # type: ignore[return-value]


def _object(model: type[Model], given: Any, convert: _Convert, path: str, strangers: list[Violation]) -> Any:
    """Return an unchecked object of a mapping; anything but a mapping is returned as it is."""
    if not isinstance(given, Mapping):
        return given
    spec = model.__spec__
    values: dict[str, Any] = {}
    for word, value in given.items():
        one = spec.find(word) if isinstance(word, str) else None
        place = f"{path}.{word}" if path else str(word)
        if one is None:
            strangers.append(unknown_field(place, value, spec.fields))
        elif one.name in values:
            strangers.append(
                Violation(place, "unknown", value, f"repeats {one.name}, which is given under another name")
            )
        else:
            values[one.name] = None if value is None else _in(one.type, value, convert, place, strangers)
    return spec.make(**values)


def _in(ftype: FieldType, value: Any, convert: _Convert, path: str, strangers: list[Violation]) -> Any:
    match ftype.kind:
        case Kind.EMBEDDED if ftype.model is not None:
            return _object(ftype.model, value, convert, path, strangers)
        case Kind.UNION:
            return _union_in(ftype, value, convert, path, strangers)
        case Kind.LIST if ftype.item is not None and type(value) is list:
            return [_in(ftype.item, item, convert, f"{path}[{at}]", strangers) for at, item in enumerate(value)]
        case Kind.SET if ftype.item is not None and type(value) is list and convert is _scalar_from_json:
            items = [convert(ftype.item, item) for item in value]
            try:
                return set(items)
            except TypeError:
                return value
        case Kind.DICT if ftype.item is not None and ftype.key is not None and type(value) is dict:
            return {
                _key_in(ftype.key, key, convert): _in(ftype.item, item, convert, f"{path}[{key}]", strangers)
                for key, item in value.items()
            }
    return convert(ftype, value)


def _union_in(ftype: FieldType, value: Any, convert: _Convert, path: str, strangers: list[Violation]) -> Any:
    """Return a value of a union: one variant for each JSON type, and models that carry their name."""
    if isinstance(value, Mapping):
        name = value.get(TYPE)
        models = [one for one in ftype.variants if one.kind is Kind.EMBEDDED and (name is None or str(one) == name)]
        if len(models) == 1:
            rest = {key: item for key, item in value.items() if key != TYPE}
            return _in(models[0], rest, convert, path, strangers)
    for variant in ftype.variants:
        if variant.kind is Kind.EMBEDDED:
            continue
        found: list[Violation] = []
        read = _in(variant, value, convert, path, found)
        if not check_of(variant)(read):
            strangers += found
            return read
    return value
