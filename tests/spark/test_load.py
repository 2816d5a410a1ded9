"""Do files become records? Each row once, with the payload, key and headers that were asked for."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast import Record
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.spark.pipelines.load import run


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A store that is not there yet."""
    return str(tmp_path / "data")


def records(data: str, log: str) -> list[Record]:
    with holdfast.open(data, read_only=True) as store:
        return list(store.log(log).read())


def test_rows_of_parquet_become_records_of_json_in_parallel(spark: SparkSession, data: str, tmp_path: Path) -> None:
    rows = spark.range(3000).select("id", F.concat(F.lit("customer "), F.col("id") % 7).alias("customer"))
    rows.repartition(4).write.parquet(str(tmp_path / "in"))
    result = run(spark, data, source=str(tmp_path / "in"), log="orders", key="customer")
    assert result.facts == {"files": 4, "rows": 3000, "added": 3000}
    found = records(data, "orders")
    assert sorted(json.loads(record.payload)["id"] for record in found) == list(range(3000))
    assert all(record.key == json.loads(record.payload)["customer"].encode() for record in found)


def test_the_same_files_are_loaded_once_and_changed_ones_again(spark: SparkSession, data: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text('{"n": 1}\n{"n": 2}\n')
    for added in (2, 0):
        result = run(spark, data, source=str(file), log="jobs")
        assert (result.facts["rows"], result.facts["added"]) == (2, added)
    assert result.title.startswith("nothing new")
    file.write_text('{"n": 3}\n')
    assert run(spark, data, source=str(file), log="jobs").facts["added"] == 1
    assert run(spark, data, source=str(file), log="jobs", again=True).facts["added"] == 1
    assert [json.loads(record.payload)["n"] for record in records(data, "jobs")] == [1, 2, 3, 3]


def test_columns_of_csv_become_payload_and_headers_of_messages(spark: SparkSession, data: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("url,tenant,zip code\nhttp://a,acme,01234\nhttp://b,,\n")
    source = str(tmp_path / "*.csv")
    run(spark, data, source=source, queue="jobs", value="url", headers=["tenant", "zip code"])
    with holdfast.open(data) as store:
        found = store.queue("jobs").lease(10)
    assert [(message.payload, message.headers) for message in found] == [
        (b"http://a", {"tenant": b"acme", "zip code": b"01234"}),
        (b"http://b", {}),
    ]


def test_values_of_any_type_become_text_and_bytes_stay_bytes(spark: SparkSession, data: str, tmp_path: Path) -> None:
    moment = datetime(2026, 11, 15, 12, tzinfo=UTC)
    rows = [(bytearray(b"\x00\xff"), 7, moment, {"a": 1})]
    spark.createDataFrame(rows, "raw BINARY, n INT, at TIMESTAMP, parts MAP<STRING, INT>").write.parquet(
        str(tmp_path / "in.parquet")
    )
    for log, value in (("raw", "raw"), ("n", "n"), ("at", "at"), ("parts", "parts")):
        run(spark, data, source=str(tmp_path / "in.parquet"), log=log, value=value)
    payloads = [records(data, log)[0].payload for log in ("raw", "n", "at", "parts")]
    assert payloads == [b"\x00\xff", b"7", b"2026-11-15 12:00:00", b'{"a":1}']


def test_what_makes_no_sense_is_refused_before_anything_is_written(
    spark: SparkSession, data: str, tmp_path: Path
) -> None:
    file = tmp_path / "in.json"
    file.write_text('{"n": 1}\n')
    (tmp_path / "in.txt").write_text("?")
    with pytest.raises(InvalidArgument, match="either the option 'log' or the option 'queue'"):
        run(spark, data, source=str(file))
    with pytest.raises(InvalidArgument, match="no column 'm'; there are: n"):
        run(spark, data, source=str(file), log="jobs", key="m")
    with pytest.raises(InvalidArgument, match="give the option 'format', one of parquet, orc, csv, json"):
        run(spark, data, source=str(tmp_path / "in.txt"), log="jobs")
    with pytest.raises(NotFound, match="there is no file or folder"):
        run(spark, data, source=str(tmp_path / "nothing"), log="jobs")
    assert not Path(data).exists()
