"""Payloads as typed columns: a struct column `payload` in place of the binary `value`, and what is malformed.

A struct keeps names of payloads apart from `key`, `offset` and the others, as `from_json` does: `select("payload.*")`
flattens it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import holdfast
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.log.log import Log
from holdfast.schemas.arrow_types import arrow_type
from holdfast.schemas.formats import Read, payload_reader, payload_type
from holdfast.schemas.payload_schema import PayloadSchema, SchemaVersion
from holdfast.spark.log_rows import RecordSpan, Rows
from holdfast.spark.payload_options import PAYLOAD, PayloadOptions

__all__ = ["PayloadRows", "kept_schema", "payload_rows", "with_payload"]

_ROWS = 1 << 12
"""Payloads that are decoded at a time: so many objects stay in the processor's cache (measured: half as long as 300,000
in one block)."""
_UNFIT = (ValueError, TypeError, OverflowError)  # Arrow's errors are of the first two


def with_payload(schema: pa.Schema, options: PayloadOptions) -> pa.Schema:
    """Return the columns of a view with `payload` in the place of `value`, and the malformed payloads last."""
    assert options.schema is not None, "the schema of the log is looked up first"
    fields: list[pa.Field] = []
    for field in schema:
        if field.name != "value" or options.keep_value:
            fields.append(field)
        if field.name == "value":
            fields.append(pa.field(PAYLOAD, arrow_type(payload_type(options.schema))))
    if options.shows_corrupt:
        name = options.corrupt_column
        if name in (*schema.names, PAYLOAD):
            raise InvalidArgument(
                f"the option 'columnNameOfCorruptRecord' is {name!r}, but the view has a column of that name"
            )
        fields.append(pa.field(name, _corrupt_type(options.schema)))
    return pa.schema(fields)


def kept_schema(store: "holdfast.Store", logs: Sequence[str], options: PayloadOptions) -> PayloadOptions:
    """Return the options with the newest schema that is kept with these logs, which must be the same in all."""
    found: dict[str, PayloadSchema] = {}
    for name in logs:
        newest = store.log(name).schema.newest()
        if newest is None:
            raise NotFound(
                f"the log {name!r} has no schema: give one with the option 'valueSchema', or keep one with the log by "
                "holdfast schema set"
            )
        if options.format not in (None, newest.schema.format):
            raise InvalidArgument(
                f"the option 'valueFormat' is {options.format!r}, but the schema of the log {name!r} is in "
                f"{newest.schema.format}: use valueFormat=kept"
            )
        found[name] = PayloadSchema(newest.schema.format, newest.schema.text, newest.schema.message)
    if len(set(found.values())) > 1:
        first = next(iter(found))
        other = next(name for name, schema in found.items() if schema != found[first])
        raise InvalidArgument(
            f"the logs {first!r} and {other!r} have different schemas: read them one by one, or give the option "
            "'valueSchema'"
        )
    if not found:
        raise NotFound("no log matches yet, so there is no schema: give one with the option 'valueSchema'")
    return replace(options, schema=next(iter(found.values())))


def payload_rows(
    make: Callable[[list[str]], Rows], log: Log, columns: list[str], options: PayloadOptions, position: str
) -> Rows:
    """Return rows with the payloads of a log decoded. `make` makes rows of the columns that it is given.

    `position` is the column with the sequence of a record in the log.
    """
    assert options.schema is not None
    if options.shows_corrupt and not {PAYLOAD, options.corrupt_column} & set(columns):
        return make(columns)
    version = SchemaVersion(1, options.schema, 0, 0)
    versions = [version]
    if options.is_kept:
        versions = log.schema.versions()
        wanted = (options.schema.format, options.schema.text, options.schema.message)
        same = [one for one in versions if (one.schema.format, one.schema.text, one.schema.message) == wanted]
        if not same:
            raise InvalidArgument(
                f"the log {log.name!r} does not have the schema that this query began with: start the query again"
            )
        version = same[-1]
    inner = [name for name in columns if name not in (PAYLOAD, options.corrupt_column)]
    inner += [name for name in ("value", position) if name not in inner]
    return PayloadRows(make(inner), log.name, columns, options, versions, version, position)


class PayloadRows:
    """Rows of another view with the payloads decoded, for one log. Sent to tasks, where it makes its decoder."""

    def __init__(
        self,
        rows: Rows,
        log: str,
        columns: list[str],
        options: PayloadOptions,
        versions: Sequence[SchemaVersion],
        version: SchemaVersion,
        position: str,
    ) -> None:
        """`versions` are those that payloads may be written with; columns are those of `version`."""
        self.rows = rows
        self.log = log
        self.columns = columns
        self.options = options
        self.versions = list(versions)
        self.version = version
        self.position = position
        kind = arrow_type(payload_type(version.schema))
        fields = {PAYLOAD: pa.field(PAYLOAD, kind)}
        fields[options.corrupt_column] = pa.field(options.corrupt_column, _corrupt_type(version.schema))
        self.kind = kind
        self.schema = pa.schema([fields[name] if name in fields else rows.schema.field(name) for name in columns])

    def gather(self, pieces: Iterable[RecordSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all these records, without malformed ones if the mode is DROPMALFORMED."""
        read = payload_reader(self.versions, self.version)
        for batch in self.rows.gather(pieces):
            for at in range(0, batch.num_rows, _ROWS):
                yield self._batch(batch.slice(at, _ROWS), read)

    def _batch(self, batch: pa.RecordBatch, read: Read) -> pa.RecordBatch:
        # Through numpy: `to_pylist` makes an object of Arrow for each value, and takes as long as the decoding.
        values = batch.column("value").to_numpy(zero_copy_only=False).tolist()
        sequences = batch.column(self.position).to_numpy(zero_copy_only=False).tolist()
        malformed: dict[int, str] = {}
        try:
            decoded = list(map(read, values, sequences))  # nearly all batches: half as long as one by one
        except ValueError:
            decoded = _one_by_one(read, values, sequences, malformed)
        payloads = self._array(decoded, malformed)
        if malformed and self.options.mode == "FAILFAST":
            place = min(malformed)
            raise InvalidArgument(
                f"the payload of record {sequences[place]} of the log {self.log!r} is malformed: {malformed[place]}. "
                "To read the others, use the option mode=PERMISSIVE or mode=DROPMALFORMED"
            )
        made = pa.RecordBatch.from_arrays(
            [self._column(name, batch, payloads, values, malformed) for name in self.columns], schema=self.schema
        )
        if malformed and self.options.mode == "DROPMALFORMED":
            made = made.filter(pa.array([place not in malformed for place in range(len(values))]))
        return made

    def _array(self, decoded: list[Any], malformed: dict[int, str]) -> pa.Array:
        """Return the decoded payloads as a column; those whose values do not fit their columns are malformed."""
        if pa.types.is_list(self.kind):
            return self._tables(decoded)
        try:
            return pa.array(decoded, self.kind)
        except _UNFIT:
            for place, value in enumerate(decoded):
                try:
                    pa.array([value], self.kind)
                except _UNFIT as error:
                    malformed[place] = str(error)
                    decoded[place] = None
            return pa.array(decoded, self.kind)

    def _tables(self, decoded: list[pa.StructArray | None]) -> pa.Array:
        offsets = [0]
        for table in decoded:
            offsets.append(offsets[-1] + (0 if table is None else len(table)))
        tables = [table for table in decoded if table is not None]
        rows = pa.concat_arrays(tables) if tables else pa.array([], self.kind.value_type)
        absent = pa.array([table is None for table in decoded])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), rows, type=self.kind, mask=absent)

    def _column(
        self,
        name: str,
        batch: pa.RecordBatch,
        payloads: pa.Array,
        values: list[bytes],
        malformed: dict[int, str],
    ) -> pa.Array:
        if name == PAYLOAD:
            return payloads
        if name != self.options.corrupt_column or not self.options.shows_corrupt:
            return batch.column(name)
        kind = self.schema.field(name).type
        if not malformed:
            return pa.nulls(len(values), kind)
        if pa.types.is_binary(kind):
            bad = pa.array([place in malformed for place in range(len(values))])
            return pc.if_else(bad, batch.column("value"), pa.scalar(None, kind))
        return pa.array(
            [value.decode("utf-8", "replace") if place in malformed else None for place, value in enumerate(values)],
            kind,
        )


def _one_by_one(read: Read, values: list[bytes], sequences: list[int], malformed: dict[int, str]) -> list[Any]:
    """Return the decoded payloads, None for those that are malformed; note those by their places."""
    decoded: list[Any] = []
    for place, (value, sequence) in enumerate(zip(values, sequences, strict=True)):
        try:
            decoded.append(read(value, sequence))
        except ValueError as error:
            malformed[place] = str(error)
            decoded.append(None)
    return decoded


def _corrupt_type(schema: PayloadSchema) -> pa.DataType:
    """Return the type of the column with malformed payloads: text for JSON as in Spark, else the bytes."""
    return pa.string() if schema.format == "json" else pa.binary()
