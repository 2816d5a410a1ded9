"""Columns in DDL and in the JSON of a StructType: read as Spark reads them, and the same as Arrow types."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from holdfast import InvalidArgument
from holdfast.schemas.arrow_types import arrow_type
from holdfast.schemas.column_types import (
    Column,
    DataType,
    DecimalType,
    ListType,
    MapType,
    Scalar,
    StructType,
    ddl_of,
    parse_columns,
)
from tests.tiers import examples

SCALARS: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "byte": T.ByteType(),
    "short": T.ShortType(),
    "integer": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
}

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=5)
spark_types: st.SearchStrategy[T.DataType] = st.recursive(
    st.sampled_from([*SCALARS.values(), T.DecimalType(10, 2), T.DecimalType(38, 38)]),
    lambda inner: (
        st.builds(T.ArrayType, inner)
        | st.builds(T.MapType, st.just(T.StringType()), inner)
        | st.lists(st.tuples(names, inner), min_size=1, max_size=3, unique_by=lambda one: one[0]).map(
            lambda fields: T.StructType([T.StructField(name, kind) for name, kind in fields])
        )
    ),
    max_leaves=6,
)


@given(names, spark_types)
@settings(max_examples=examples(200), deadline=None)
def test_a_struct_type_of_spark_is_read_from_its_json_with_the_arrow_type_that_spark_expects(
    name: str, kind: T.DataType
) -> None:
    given = T.StructType([T.StructField(name, kind)])
    found = parse_columns(given.json())
    assert arrow_type(found).equals(to_arrow_type(given, timezone="UTC"), check_metadata=True)
    assert parse_columns(ddl_of(found)) == found


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a INT", Column("a", Scalar("integer"))),
        (" a  bigint not null ", Column("a", Scalar("long"), nullable=False)),
        ("`a b``c` string COMMENT 'it''s, one'", Column("a b`c", Scalar("string"))),
        ("a decimal", Column("a", DecimalType(10, 0))),
        ("a NUMERIC( 38 , 18 )", Column("a", DecimalType(38, 18))),
        ("a ARRAY<ARRAY<DATE>>", Column("a", ListType(ListType(Scalar("date"))))),
        ("a MAP<STRING, TINYINT>", Column("a", MapType(Scalar("string"), Scalar("byte")))),
        (
            "a STRUCT<b: REAL, c TIMESTAMP NOT NULL>",
            Column("a", StructType((Column("b", Scalar("float")), Column("c", Scalar("timestamp"), nullable=False)))),
        ),
    ],
)
def test_ddl_is_read(text: str, column: Column) -> None:
    assert parse_columns(text) == StructType((column,))
    assert parse_columns(f"STRUCT<{text}>") == StructType((column,))
    assert parse_columns(f"first INT, {text}").columns[1] == column


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "unknown type ''"),
        ("a INT b INT", "expected the end, found 'b'"),
        ("a VARCHAR(5)", "unknown type 'VARCHAR'"),
        (",", "the name of a column"),
        ("a ARRAY<INT", "expected '>'"),
        ("a DECIMAL(39, 0)", "38 digits"),
        ("a DECIMAL(5, 6)", "at most as many after"),
        ("a INT, a STRING", "'a' twice"),
        ("a INT; DROP", "expected the end"),
        ("a 'x'", "unknown type"),
        ('{"type": "struct"}', "StructType"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "uuid"}]}', "unknown type 'uuid'"),
        ('{"type": "array", "elementType": "long"}', "must be columns"),
        ("a " + "ARRAY<" * 70 + "INT" + ">" * 70, "nested 64 times"),
    ],
)
def test_what_is_not_a_schema_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        parse_columns(text)


def test_every_scalar_has_an_arrow_type() -> None:
    for name, kind in SCALARS.items():
        assert arrow_type(Scalar(name)) == to_arrow_type(kind, timezone="UTC")
    duration: DataType = Scalar("interval day to second")
    assert arrow_type(duration) == to_arrow_type(T.DayTimeIntervalType()) == pa.duration("us")
