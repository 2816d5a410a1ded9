"""Payloads that are Arrow IPC streams: each is a table, shown as an array with a struct for each of its rows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import is_interrupt
from holdfast.schemas.arrow_types import arrow_type
from holdfast.schemas.column_types import StructType
from holdfast.schemas.libraries import load

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_reader"]


def arrow_reader(columns: StructType, *, strict: bool) -> Callable[[bytes, int], "pa.StructArray"]:
    """Return a function that decodes the payload of a record to a struct array; it raises ValueError.

    Columns are matched by name. One that is missing is null, and values must fit: nothing is rounded or cut. With
    `strict`, columns that are NOT NULL must be there.
    """
    pa = load("pyarrow", "arrow")
    wanted = arrow_type(columns)
    required = [one.name for one in columns.columns if strict and not one.nullable]

    def read(payload: bytes, sequence: int) -> Any:
        try:
            with pa.ipc.open_stream(payload) as stream:
                table = stream.read_all()
            table.validate(full=True)
            found = [_column(table, field) for field in wanted]
        except Exception as error:
            if is_interrupt(error):
                raise
            raise ValueError(f"it is not an Arrow stream of this schema: {error}") from error
        for name in required:
            if name not in table.column_names or table.column(name).null_count:
                raise ValueError(f"the column {name!r} is missing, or has nulls")
        if not found:
            return pa.array([{}] * table.num_rows, wanted)
        return pa.StructArray.from_arrays(found, fields=list(wanted))

    def _column(table: Any, field: Any) -> Any:
        if field.name not in table.column_names:
            return pa.nulls(table.num_rows, field.type)
        found = table.column(field.name).combine_chunks()
        return found if found.type == field.type else found.cast(field.type)

    return read
