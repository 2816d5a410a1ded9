"""Payloads in JSON and MessagePack with the columns of a schema, decoded by msgspec."""

from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Required, TypedDict

from holdfast.schemas.column_types import Column, DataType, DecimalType, ListType, MapType, Scalar, StructType

__all__ = ["record_reader"]

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
Convert = Callable[[Any], Any]


def record_reader(format: str, columns: StructType, *, strict: bool) -> Callable[[bytes, int], Any]:
    """Return a function that decodes the payload of a record to a dict, which Arrow takes; it raises ValueError.

    With `strict` columns that are NOT NULL must be there.
    """
    import msgspec  # noqa: PLC0415 - programs that do not use schemas load it only for tables

    codec = msgspec.json if format == "json" else msgspec.msgpack
    kind = _Types(msgspec.Meta, strict=strict).of(columns)
    decode = codec.Decoder(kind).decode
    convert = _converter(columns)
    errors = msgspec.MsgspecError, RecursionError  # a ValidationError is not a ValueError in all versions

    def read(payload: bytes, sequence: int) -> Any:
        try:
            return decode(payload) if convert is None else convert(decode(payload))
        except errors as error:
            raise ValueError(str(error)) from error

    return read


class _Types:
    """Types of Python that msgspec decodes to, with their limits."""

    def __init__(self, meta: Callable[..., Any], *, strict: bool) -> None:
        self._meta = meta
        self._strict = strict
        self._count = 0

    def of(self, kind: DataType) -> Any:
        match kind:
            case Scalar(name):
                return self._scalar(name)
            case DecimalType():
                return Decimal
            case ListType(item, nullable):
                return list[self._maybe(self.of(item), nullable)]  # type: ignore[misc]
            case MapType(key, value, nullable):
                return dict[self.of(key), self._maybe(self.of(value), nullable)]  # type: ignore[misc]
            case StructType(columns):
                self._count += 1
                fields = {column.name: self._column(column) for column in columns}
                return TypedDict(f"Columns{self._count}", fields, total=False)  # type: ignore[operator]

    def _column(self, column: Column) -> Any:
        found = self._maybe(self.of(column.type), column.nullable)
        return Required[found] if self._strict and not column.nullable else found

    def _maybe(self, kind: Any, nullable: bool) -> Any:
        return kind if self._strict and not nullable else kind | None

    def _scalar(self, name: str) -> Any:
        import datetime  # noqa: PLC0415 - as msgspec

        if name in _BITS:
            limit = 1 << (_BITS[name] - 1)
            return Annotated[int, self._meta(ge=-limit, le=limit - 1)]
        if name == "timestamp_ntz":
            return Annotated[datetime.datetime, self._meta(tz=False)]
        return {
            "boolean": bool,
            "float": float,
            "double": float,
            "string": str,
            "binary": bytes,
            "date": datetime.date,
            "timestamp": datetime.datetime,
        }[name]


def _converter(kind: DataType) -> Convert | None:
    """Return a function that prepares a decoded value for Arrow; None if Arrow takes it as it is."""
    match kind:
        case DecimalType(precision, scale):
            return lambda value: _fitting(value, precision, scale)
        case ListType(item):
            inner = _converter(item)
            return None if inner is None else lambda value: [None if one is None else inner(one) for one in value]
        case MapType(key, value):
            of_key, of_value = _converter(key), _converter(value)
            if of_key is None and of_value is None:
                return None
            of_key, of_value = of_key or _same, of_value or _same
            return lambda value: [(of_key(k), None if v is None else of_value(v)) for k, v in value.items()]
        case StructType(columns):
            parts = [(one.name, inner) for one in columns if (inner := _converter(one.type)) is not None]
            return _struct_converter(parts) if parts else None
    return None


def _struct_converter(parts: list[tuple[str, Convert]]) -> Convert:
    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, inner in parts:
            found = value.get(name)
            if found is not None:
                value[name] = inner(found)
        return value

    return convert


def _fitting(value: Decimal, precision: int, scale: int) -> Decimal:
    """Return a decimal that fits the type exactly; nothing is rounded."""
    if not value.is_finite():
        raise ValueError(f"{value} is not a number")
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if value and (value.adjusted() >= precision - scale or (exponent < -scale and any(digits[exponent + scale :]))):
        raise ValueError(f"{value} does not fit into DECIMAL({precision}, {scale})")
    return value.quantize(Decimal(1).scaleb(-scale)) if exponent < -scale else value


def _same(value: Any) -> Any:
    return value
