"""Compatibility of columns: which types can be read as which others, by name."""

from holdfast.schemas.column_types import DataType, DecimalType, ListType, MapType, Scalar, StructType, ddl_of

__all__ = ["unreadable_columns"]

_WIDER = {
    "byte": ("short", "integer", "long", "float", "double"),
    "short": ("integer", "long", "float", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
}
"""As which other types a value can be read without a change. A LONG may not fit a DOUBLE exactly."""
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def unreadable_columns(reader: DataType, writer: DataType, where: str = "the payload") -> str | None:
    """Return why a reader with these columns cannot read what was written with others; None if it can.

    A column that was not written is null, so it must be nullable. A column that the reader does not have is skipped.
    """
    match reader, writer:
        case StructType(), StructType():
            return _structs(reader, writer)
        case ListType(item, nullable), ListType(of_writer, was_nullable):
            if was_nullable and not nullable:
                return f"items of {where} may be null, and are NOT NULL for the reader"
            return unreadable_columns(item, of_writer, f"an item of {where}")
        case MapType(key, value, nullable), MapType(of_key, of_value, was_nullable):
            if was_nullable and not nullable:
                return f"values of {where} may be null, and are NOT NULL for the reader"
            problem = unreadable_columns(key, of_key, f"a key of {where}")
            return problem or unreadable_columns(value, of_value, f"a value of {where}")
        case _ if _is_readable(reader, writer):
            return None
    return f"{where} is {ddl_of(writer)}, and {ddl_of(reader)} for the reader"


def _structs(reader: StructType, writer: StructType) -> str | None:
    written = {column.name: column for column in writer.columns}
    for column in reader.columns:
        was = written.get(column.name)
        if was is None:
            if not column.nullable:
                return f"the column {column.name!r} is missing, and is NOT NULL for the reader"
            continue
        if was.nullable and not column.nullable:
            return f"the column {column.name!r} may be null, and is NOT NULL for the reader"
        if problem := unreadable_columns(column.type, was.type, f"the column {column.name!r}"):
            return problem
    return None


def _is_readable(reader: DataType, writer: DataType) -> bool:
    if reader == writer:
        return True
    match reader, writer:
        case Scalar(name), Scalar(was):
            return name in _WIDER.get(was, ())
        case DecimalType(precision, scale), DecimalType(was_precision, was_scale):
            return scale >= was_scale and precision - scale >= was_precision - was_scale
        case DecimalType(precision, scale), Scalar(was):
            return precision - scale >= _DIGITS.get(was, 99)
    return False
