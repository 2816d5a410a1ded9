"""Model fields as Arrow columns: their types, and the conversion of many records at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from holdfast.base.errors import InvalidArgument
from holdfast.spark.schemas import TIME
from holdfast.table.migration.lenient_decoder import lenient_images
from holdfast.table.model.definition import model_from
from holdfast.table.model.field_path import variant_name, variant_of
from holdfast.table.model.fields import FieldSpec
from holdfast.table.model.model import Model, text_of_key
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.storage.field_encryption import sealed_images
from holdfast.table.storage.keyring import Keyring
from holdfast.table.storage.row_codec import plain_images

__all__ = ["Column", "Fields", "columns_of", "model_of"]

DECIMAL = pa.decimal128(38, 18)
BIG = pa.decimal128(20, 0)
"""For integers whose maximum in the model exceeds a LONG."""
LONG_MAX = 2**63 - 1

_PLAIN: dict[Kind, pa.DataType] = {
    Kind.BOOL: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.STR: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.ENUM: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.string(),
    Kind.DATETIME: TIME,
    Kind.UUID: pa.string(),
    Kind.TIMEDELTA: pa.duration("us"),
    Kind.REFERENCE: pa.binary(),
}

Convert = Callable[[Any], Any]
_raw_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_anything = msgspec.msgpack.Decoder()


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a model as a column."""

    name: str
    number: int
    type: pa.DataType
    convert: Convert | None
    """Converts a value for Arrow; None if Arrow accepts it unchanged."""
    sealed: bool = False
    """Whether the column shows the ciphertext, as on disk."""


@lru_cache(16)
def model_of(definition: str) -> type[Model]:
    """Return the model that a table's stored definition, as JSON, describes."""
    return model_from(msgspec.json.decode(definition))


def columns_of(model: type[Model], *, opened: bool, text_decimals: bool) -> list[Column]:
    """Return the columns of a model, in the order of its fields; `opened` if sensitive fields can be decrypted."""
    return [_column(spec, opened=opened, text_decimals=text_decimals) for spec in model.__spec__.fields.values()]


def _column(spec: FieldSpec, *, opened: bool, text_decimals: bool) -> Column:
    if spec.sensitive and not opened:
        return Column(spec.name, spec.number, pa.binary(), None, sealed=True)
    kind, convert = _typed(spec.type, text_decimals, ())
    return Column(spec.name, spec.number, kind, convert)


def _typed(ftype: FieldType, text: bool, within: tuple[type[Model], ...]) -> tuple[pa.DataType, Convert | None]:
    """Return the Arrow type of a field's type, and a function that converts a value to it."""
    match ftype.kind:
        case Kind.INT if ftype.limits.max is not None and ftype.limits.max > LONG_MAX:
            return BIG, None
        case Kind.DECIMAL:
            return (pa.string(), str) if text else (DECIMAL, None)
        case Kind.ENUM:
            return pa.string(), attrgetter("name")
        case Kind.TIME:
            return pa.string(), lambda value: value.isoformat()
        case Kind.UUID:
            return pa.string(), str
        case Kind.EMBEDDED if ftype.model is not None:
            return _embedded(ftype.model, text, within)
        case Kind.LIST | Kind.SET if ftype.item is not None:
            item, convert = _typed(ftype.item, text, within)
            return pa.list_(item), _items(convert, ordered=ftype.kind is Kind.SET)
        case Kind.DICT if ftype.item is not None and ftype.key is not None:
            key, of_key = _typed(ftype.key, text, within)
            value, of_value = _typed(ftype.item, text, within)
            return pa.map_(key, value), _pairs(of_key or _same, of_value or _same)
        case Kind.UNION:
            return _union(ftype, text, within)
    return _PLAIN[ftype.kind], None


def _embedded(model: type[Model], text: bool, within: tuple[type[Model], ...]) -> tuple[pa.DataType, Convert]:
    if model in within:  # Spark has no recursive types
        return pa.string(), lambda value: value.to_json()
    fields = [(spec.name, *_typed(spec.type, text, (*within, model))) for spec in model.__spec__.fields.values()]
    parts = [(name, attrgetter(name), convert) for name, _, convert in fields]

    def convert(value: Any) -> dict[str, Any]:
        return {
            name: found if inner is None or found is None else inner(found)
            for name, get, inner in parts
            for found in (get(value),)
        }

    return pa.struct([(name, kind) for name, kind, _ in fields]), convert


def _union(ftype: FieldType, text: bool, within: tuple[type[Model], ...]) -> tuple[pa.DataType, Convert]:
    """Return a struct with a field for each type that the value can have, of which one is not null."""
    variants = {variant_name(one): _typed(one, text, within) for one in ftype.variants}
    name_of = variant_of(ftype)

    def convert(value: Any) -> dict[str, Any]:
        name = name_of(value) or ""
        inner = variants[name][1]
        return {name: value if inner is None else inner(value)}

    return pa.struct([(name, kind) for name, (kind, _) in variants.items()]), convert


def _items(convert: Convert | None, *, ordered: bool) -> Convert | None:
    """Return a converter of lists. A set is sorted, so that equal sets become equal arrays."""
    if ordered:
        return lambda value: sorted(value if convert is None else map(convert, value))
    return None if convert is None else lambda value: [convert(item) for item in value]


def _pairs(of_key: Convert, of_value: Convert) -> Convert:
    return lambda value: [(of_key(key), of_value(item)) for key, item in value.items()]


def _same(value: Any) -> Any:
    return value


class Fields:
    """Decodes record images into columns. Used inside a task."""

    def __init__(self, model: type[Model], columns: Sequence[Column], keyring: str | None) -> None:
        self._model = model
        self._columns = columns
        images = plain_images(model)
        if keyring is not None:
            # The log also has values from before a field became sensitive.
            images = sealed_images(model, Keyring.load(keyring), accept_unsealed=True)
        self._decode = lenient_images(images, model).decode
        self._sealed = [column for column in columns if column.sealed]
        self._plain = any(not column.sealed for column in columns)
        self._hidden = (
            {str(spec.number) for spec in model.__spec__.fields.values() if spec.sensitive}
            if keyring is None
            else set()
        )

    def arrays(self, keys: Sequence[bytes], images: Sequence[bytes]) -> list[pa.Array]:
        """Return the columns of these records; null in all of them if an image is empty."""
        raws: list[dict[str, msgspec.Raw]] = []
        if self._hidden:
            raws = [_raw_map.decode(image) if image else {} for image in images]
        objects: list[Any] = []
        if self._plain:
            objects = self._objects(keys, images, raws)
        return [
            self._ciphertexts(column, raws) if column.sealed else self._values(column, keys, objects)
            for column in self._columns
        ]

    def _objects(self, keys: Sequence[bytes], images: Sequence[bytes], raws: list[dict[str, msgspec.Raw]]) -> list[Any]:
        decode = self._decode
        if raws:  # sealed values cannot be decoded
            hidden, encode = self._hidden, msgspec.msgpack.encode
            images = [
                encode({name: raw for name, raw in one.items() if name not in hidden}) if one else b"" for one in raws
            ]
        return [decode(key, image) if image else None for key, image in zip(keys, images, strict=True)]

    def _values(self, column: Column, keys: Sequence[bytes], objects: list[Any]) -> pa.Array:
        name, convert = column.name, column.convert
        values = [None if one is None else getattr(one, name) for one in objects]
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        try:
            return pa.array(values, column.type)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            raise self._unfit(column, keys, values) from error

    def _unfit(self, column: Column, keys: Sequence[bytes], values: list[Any]) -> InvalidArgument:
        for key, value in zip(keys, values, strict=True):
            try:
                pa.array([value], column.type)
            except (pa.ArrowException, OverflowError, ValueError, TypeError):
                where = f"the field {column.name!r} of {self._model.__name__} {text_of_key(key)}"
                return InvalidArgument(
                    f"{where} is {value!r}, which does not fit into a column of type {column.type}: read decimals as "
                    "text with the option decimalAsString=true, give integers beyond 2**63 a max in the model, or "
                    "leave the column out with a schema"
                )
        return InvalidArgument(f"the field {column.name!r} of {self._model.__name__} cannot be read as {column.type}")

    @staticmethod
    def _ciphertexts(column: Column, raws: list[dict[str, msgspec.Raw]]) -> pa.Array:
        name = str(column.number)
        found = [None if (raw := one.get(name)) is None else _anything.decode(raw) for one in raws]
        # Values from before the field became sensitive are not sealed, and not shown.
        return pa.array(
            [bytes(one.data) if isinstance(one, msgspec.msgpack.Ext) else None for one in found], pa.binary()
        )
