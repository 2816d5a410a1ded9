"""Column types as Arrow types, exactly as Spark maps them: its Arrow readers compare the two. Needs pyarrow."""

from typing import TYPE_CHECKING

from holdfast.schemas.column_types import DataType, DecimalType, ListType, MapType, Scalar, StructType

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_type"]


def arrow_type(kind: DataType) -> "pa.DataType":
    """Return the Arrow type. Everything is nullable, as in Spark's own readers of data that others wrote."""
    import pyarrow as pa  # noqa: PLC0415 - only readers of columns have it

    match kind:
        case Scalar(name):
            return {
                "boolean": pa.bool_(),
                "byte": pa.int8(),
                "short": pa.int16(),
                "integer": pa.int32(),
                "long": pa.int64(),
                "float": pa.float32(),
                "double": pa.float64(),
                "string": pa.string(),
                "binary": pa.binary(),
                "date": pa.date32(),
                "timestamp": pa.timestamp("us", "UTC"),
                "timestamp_ntz": pa.timestamp("us"),
                "interval day to second": pa.duration("us"),
            }[name]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ListType(item):
            return pa.list_(pa.field("element", arrow_type(item)))
        case MapType(key, value):
            return pa.map_(arrow_type(key), pa.field("value", arrow_type(value)))
        case StructType(columns):
            return pa.struct([pa.field(one.name, arrow_type(one.type)) for one in columns])
