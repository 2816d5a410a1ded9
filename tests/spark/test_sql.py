"""Does SQL show what is in a store, by table functions, and is what Spark cannot do refused with what to use?"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType
from pyspark.sql.udtf import AnalyzeArgument

import holdfast
from holdfast import Message, Roll
from holdfast.spark import table_functions
from holdfast.spark.table_functions import LogFunction, TableFunction
from holdfast.table import Model, field
from holdfast.testing import SimClock


class Account(Model, id=1):
    name: str = field(1)
    balance: int = field(2, default=0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log over an hour of 2026-01-01, a queue in which something happened, and a table with a past."""
    path, clock = tmp_path_factory.mktemp("sql") / "data", SimClock()
    with holdfast.open(path, clock=clock, background=False) as store:
        log = store.log("x", roll=Roll.count(100), index_interval=10)
        for number in range(36):
            log.append_many([Message(b"%d" % number, b"key %d" % (number % 3))] * 10)
            log.refresh()
            clock.advance(100)
        queue = store.queue("jobs")
        queue.put_many([Message(b"job", b"ann"), Message(b"job", b"bob")] * 10)
        queue.ack(queue.lease(5))
        accounts = store.table(Account)
        ann = accounts.add(Account(name="Ann"))
        clock.advance(60)
        accounts.change(ann.key, {"balance": 100})
    return path


def same(given: DataFrame, expected: DataFrame) -> bool:
    assert given.schema == expected.schema
    rows = given.collect()
    assert sorted(map(str, rows)) == sorted(map(str, expected.collect()))
    return bool(rows)


def test_a_log_is_a_table_function(spark: SparkSession, data: Path) -> None:
    assert same(spark.sql(f"SELECT * FROM holdfast_log('{data}', 'x')"), holdfast.spark.read(spark, data, log="x"))
    [named] = spark.sql(f"""
        SELECT count(*) AS n, min(offset) AS first, max(offset) AS last
        FROM holdfast_log(path => '{data}', log => 'x', since => '2026-01-01T00:15:00Z', key => 'key 1')
    """).collect()
    since = holdfast.spark.read(spark, data, log="x", since="2026-01-01T00:15:00Z", keys=["key 1"])
    assert 0 < named.n == since.count() < 120


def test_a_time_without_a_zone_is_in_that_of_the_session(spark: SparkSession, data: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        given = f"SELECT offset FROM holdfast_log('{data}', 'x', until => '2026-01-01T06:00:00')"
        assert spark.sql(given).count() == spark.sql(given.replace("06:00:00", "00:30:00Z")).count() == 180
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_messages_are_a_table_function(spark: SparkSession, data: Path) -> None:
    given = spark.sql(f"SELECT * FROM holdfast_messages('{data}', 'jobs')")
    assert same(given, holdfast.spark.read(spark, data, queue="jobs", view="messages"))
    assert given.where("state = 'acked'").count() == 5
    assert spark.sql(f"SELECT * FROM holdfast_messages('{data}', 'jobs', key => 'ann')").count() == 10


def test_a_table_is_a_table_function(spark: SparkSession, data: Path) -> None:
    given = spark.sql(f"SELECT * FROM holdfast_table('{data}', 'Account')")
    assert same(given, holdfast.spark.read(spark, data, table="Account"))
    past = spark.sql(f"SELECT * FROM holdfast_table('{data}', 'Account', view => 'history')")
    assert same(past, holdfast.spark.read(spark, data, table="Account", view="history"))
    (first,) = past.where("NOT is_current").collect()
    then = spark.sql(f"SELECT * FROM holdfast_table('{data}', 'Account', asOf => '{first.from_version}')")
    assert [row.balance for row in then.collect()] == [0]


def test_a_table_function_reads_again_at_each_query(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(1, 4):
        with holdfast.open(tmp_path) as store:
            store.log("x").append(b"one more")
        assert spark.sql(f"SELECT * FROM holdfast_log('{tmp_path}', 'x')").count() == number


def test_a_table_function_is_one_task(spark: SparkSession, data: Path) -> None:
    """The page says so: if Spark divides it one day, the page is wrong."""
    for call in (f"holdfast_log('{data}', 'x')", f"holdfast_table('{data}', 'Account')"):
        assert spark.sql(f"SELECT * FROM {call}").rdd.getNumPartitions() == 1
    with pytest.raises(PySparkException, match="LATERAL_JOIN_WITH_ARROW_UDTF_UNSUPPORTED"):
        spark.sql(f"SELECT * FROM VALUES ('x') AS t(name), LATERAL holdfast_log('{data}', t.name)").collect()


def test_a_log_is_yielded_in_batches_as_they_are_read(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("x", roll=Roll.count(50_000))
        for _ in range(4):
            log.append_many([b"x" * 100] * 50_000)
            log.refresh()
    batches: Iterator[pa.RecordBatch] = LogFunction().eval(pa.array([str(tmp_path)]), pa.array(["x"]))
    first = next(batches)
    assert first.num_rows <= 50_000
    for segment in sorted((tmp_path / "logs" / "x").rglob("*.data"))[1:]:
        segment.write_bytes(b"")  # what comes later was not read
    with pytest.raises(holdfast.Corrupt, match="the segment ends too early"):
        list(batches)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("holdfast_log('{data}', 'none')", "there is no log 'none' in .*; there are: 'jobs', 'x'"),
        ("holdfast_log('{data}', 5)", "the argument for 'log' must be a text, not int32"),
        ("holdfast_log('{data}', 'x', since => 'soon')", "'startingTimestamp' takes milliseconds since 1970"),
        ("holdfast_messages('{data}', 'none')", "there is no queue 'none'"),
        ("holdfast_table('{data}', 'none')", "there is no table 'none' in .*; there are: 'Account'"),
        ("holdfast_table('{data}', 'Account', view => 'all')", "'view' of a table must be one of now, history"),
        ("VALUES ('Account') AS t(name), LATERAL holdfast_table('{data}', t.name)", "must be a constant"),
    ],
)
def test_what_a_table_function_cannot_read_is_named(spark: SparkSession, data: Path, call: str, said: str) -> None:
    with pytest.raises(PySparkException, match=said) as error:
        spark.sql(f"SELECT * FROM {call.format(data=data)}").collect()
    assert "Traceback" not in str(error.value)


def test_a_large_table_is_refused_with_what_to_use(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(value: str) -> AnalyzeArgument:
        return AnalyzeArgument(StringType(), value, isTable=False, isConstantExpression=True)

    path, name = given(str(data)), given("Account")
    assert "balance" in TableFunction.analyze(path, name).schema.names
    monkeypatch.setattr(table_functions, "TABLE_BYTES_MAX", 10)
    with pytest.raises(holdfast.InvalidArgument, match=r"'Account' has a log of .* use CREATE TEMPORARY VIEW"):
        TableFunction.analyze(path, name)


# Tables of Spark's catalog


INSTEAD = "Use CREATE TEMPORARY VIEW name USING holdfast OPTIONS"


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE refused USING holdfast OPTIONS (path '{data}', log 'x')",
        "CREATE TABLE refused USING holdfast OPTIONS (log 'x') LOCATION '{data}'",
        "CREATE TABLE refused USING holdfast OPTIONS (path '{data}', log 'y') AS SELECT 'a' AS value",
    ],
)
def test_a_table_in_the_catalog_is_refused_with_what_to_use(spark: SparkSession, data: Path, statement: str) -> None:
    spark.sql("DROP TABLE IF EXISTS refused")
    try:
        with pytest.raises(PySparkException, match=INSTEAD):
            spark.sql(statement.format(data=data))
    finally:
        spark.sql("DROP TABLE IF EXISTS refused")


def test_a_table_with_columns_of_its_own_is_refused_when_it_is_read(spark: SparkSession, data: Path) -> None:
    """Spark does not ask the source when such a table is created."""
    spark.sql("DROP TABLE IF EXISTS described")
    spark.sql(f"CREATE TABLE described (value BINARY) USING holdfast OPTIONS (path '{data}', log 'x')")
    try:
        with pytest.raises(PySparkException, match=f"no options were given, not even 'path'; .*{INSTEAD}"):
            spark.sql("SELECT count(*) FROM described").collect()
    finally:
        spark.sql("DROP TABLE described")


def test_a_temporary_view_takes_every_option(spark: SparkSession, data: Path) -> None:
    spark.sql(f"""
        CREATE OR REPLACE TEMPORARY VIEW narrowed USING holdfast
        OPTIONS (path '{data}', log 'x', includeHeaders 'true', startingOffsets '{{"x": 350}}', minPartitions '2')
    """)
    try:
        assert [row.offset for row in spark.sql("SELECT offset, headers FROM narrowed ORDER BY 1").collect()] == list(
            range(350, 360)
        )
    finally:
        spark.catalog.dropTempView("narrowed")
