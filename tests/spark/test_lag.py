"""Is the lag of a stream true: in the progress of its query, in the listener, and where the listener stores it?"""

import json
import logging
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

import holdfast
from holdfast import InvalidArgument, NotFound, Retention, Roll
from holdfast.spark import LagListener
from holdfast.spark.lag import lags_of, without_credentials
from holdfast.spark.options import ReadOptions
from holdfast.spark.sources import view_schema
from holdfast.spark.stream import StreamReader
from tests.web.serving import Served

ID, RUN = uuid.uuid4(), uuid.uuid4()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def hundred(tmp_path: Path) -> Path:
    """A log of a hundred records, on disk."""
    with holdfast.open(tmp_path / "data") as store:
        store.log("x").append_many([b"%d" % number for number in range(100)])
    return tmp_path / "data"


def reader(path: Path, **options: object) -> StreamReader:
    given = {"path": str(path), "startingOffsets": "earliest"} | {name: str(value) for name, value in options.items()}
    return StreamReader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))


# In the progress


def test_the_latest_offset_says_how_many_records_are_behind_the_batch(hundred: Path) -> None:
    stream = reader(hundred, log="x", maxOffsetsPerTrigger=30)
    start = stream.initialOffset()
    assert "behind" not in stream.reportLatestOffset()["x"], "no batch is planned yet"
    for behind in (70, 40, 10, 0, 0):
        start = stream.latestOffset(start, ReadMaxRows(30))
        latest = stream.reportLatestOffset()
        assert latest["x"] == {**start["x"], "0": 100, "behind": behind, "store": str(hundred), "log": "x"}
    with holdfast.open(hundred) as store:
        store.log("x").append_many([b"more"] * 5)
    assert stream.reportLatestOffset()["x"]["behind"] == 5


def test_a_log_that_comes_after_the_batch_was_planned_is_behind_as_a_whole(hundred: Path) -> None:
    stream = reader(hundred, logPattern="*")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    with holdfast.open(hundred) as store:
        late = store.log("y", roll=Roll.count(10))
        for _ in range(4):
            late.append_many([b"late"] * 10)
        late.compact(retention=Retention(max_segments=2))
        kept = late.end - late.start
    latest = stream.reportLatestOffset()
    assert {label: entry["behind"] for label, entry in latest.items()} == {"x": 0, "y": kept}
    found = lags_of({"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)})
    assert {(one.label, one.position, one.latest, one.behind) for one in found} == {
        ("x", 100, 100, 0),
        ("y", 40 - kept, 40, kept),
    }


def test_the_tracks_of_a_lifecycle_are_told_apart(hundred: Path) -> None:
    with holdfast.open(hundred) as store:
        store.queue("jobs").put_many([b"a", b"b"])
    latest = reader(hundred, queue="jobs", view="lifecycle").reportLatestOffset()
    assert latest["jobs/log"]["log"] == "jobs"
    assert "log" not in latest["jobs/journal"], "a journal is not a log of the store"


def test_an_available_now_query_ends_where_it_did_before(hundred: Path) -> None:
    stream = reader(hundred, log="x")
    stream.prepareForTriggerAvailableNow()
    with holdfast.open(hundred) as store:
        store.log("x").append_many([b"more"] * 5)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert set(end["x"]) == {"0", "id"}, "an offset is kept in the checkpoint, without what is only reported"
    assert (end["x"]["0"], stream.reportLatestOffset()["x"]["behind"]) == (100, 5)


@pytest.mark.parametrize(
    "source",
    [
        {"endOffset": "None", "latestOffset": "None"},
        {"endOffset": "null", "latestOffset": "null"},
        {"endOffset": '{"topic": {"0": 5, "1": 7}}', "latestOffset": '{"topic": {"0": 9, "1": 9}}'},
        {"endOffset": "17", "latestOffset": "21"},
        {},
    ],
)
def test_other_sources_have_no_lag_here(source: dict[str, str]) -> None:
    assert lags_of(source) == []


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("/srv/data", "/srv/data"),
        ("s3://bucket/store", "s3://bucket/store"),
        ("https://user:secret@host:15672/prefix?token=secret#secret", "https://host:15672/prefix"),
    ],
)
def test_a_store_is_shown_without_credentials(place: str, shown: str) -> None:
    assert without_credentials(place) == shown


# In the listener


def entry(end: int, log: str = "x", **more: object) -> dict[str, object]:
    return {"0": end, "id": "ab" * 16, "store": "/srv/data", "log": log} | more


def progressed(name: str | None, *sources: tuple[object, object], batch: int = 0) -> QueryProgressEvent:
    """The event that Spark makes of a batch: for each source where it ends, and the latest offset."""
    figures: dict[str, Any] = {"numInputRows": 1, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
    made = [
        {
            "description": "a source",
            "startOffset": None,
            "endOffset": json.dumps(end),
            "latestOffset": json.dumps(latest),
            **figures,
        }
        for end, latest in sources
    ]
    progress = {
        "id": str(ID),
        "runId": str(RUN),
        "name": name,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "batchId": batch,
        "batchDuration": 1,
        "stateOperators": [],
        "sources": made,
        "sink": {"description": "a sink", "numOutputRows": 1},
        **figures,
    }
    return QueryProgressEvent.fromJson({"progress": progress})


def test_the_listener_keeps_the_lag_of_each_log(caplog: pytest.LogCaptureFixture) -> None:
    listener = LagListener()
    listener.onQueryStarted(QueryStartedEvent(ID, RUN, "q", "2026-01-31T12:00:00Z", set()))
    assert listener.lag("q") == {}
    kafka = ({"topic": {"0": 1}}, {"topic": {"0": 9}})
    both = ({"x": entry(40), "y": entry(10, "y")}, {"x": entry(100), "y": entry(10, "y"), "z": entry(7, "z", behind=3)})
    again = ({"x": entry(90)}, {"x": entry(100)})
    with caplog.at_level(logging.INFO, "holdfast.spark"):
        listener.onQueryProgress(progressed("q", kafka, both, again))
    assert listener.lag("q") == listener.lag(str(ID)) == listener.lag() == {"x": 60, "y": 0, "z": 3}
    assert "stream lag: query=q batch=0 log=x position=40 latest=100 behind=60" in caplog.messages
    listener.onQueryProgress(progressed("q", (both[0], None), batch=1))
    assert listener.lag("q") == {"x": 60, "y": 0, "z": 3}, "a batch that is run again has no latest offset"
    found = {
        (sample.name, *sorted(sample.labels.items()), sample.value)
        for family in parse_text(listener.prometheus())
        for sample in family.samples
    }
    assert ("holdfast_spark_lag_records", ("log", "x"), ("query", "q"), ("store", "/srv/data"), 60) in found
    assert ("holdfast_spark_batch_timestamp_seconds", ("query", "q"), 1769860800) in found
    listener.onQueryTerminated(QueryTerminatedEvent(ID, RUN, None, None))
    assert listener.lag("q") == {"x": 60, "y": 0, "z": 3}, "it can still be asked for"
    assert listener.lag() == {}
    assert "holdfast_spark_lag_records{" not in listener.prometheus()
    with pytest.raises(NotFound, match="'r' has reported to this listener; there are: 'q'"):
        listener.lag("r")


def test_a_listener_that_fails_says_so_once_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    listener = LagListener()
    for _ in range(3):
        listener.onQueryProgress(None)  # type: ignore[arg-type]
    assert len([one for one in caplog.messages if "lag listener could not read a progress" in one]) == 1


@pytest.mark.parametrize(
    ("positions", "token", "said"),
    [
        ("s3://key:secret@bucket/store", None, "cannot be stored at 's3://bucket/store'"),
        ("data", "hf_1_2", "a token is for a server"),
        ("http://", None, "http://host:15672"),
    ],
)
def test_a_place_that_takes_no_positions_is_refused(positions: str, token: str | None, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        LagListener(positions, token=token)


# Where it stores positions


def lagging(path: Path, position: int) -> tuple[object, object]:
    """The offsets of a query that has read so far in the real log."""
    latest = reader(path, log="x").reportLatestOffset()
    return {"x": {"0": position, "id": latest["x"]["id"]}}, latest


def test_positions_are_stored_in_the_folder(hundred: Path) -> None:
    listener = LagListener(hundred)
    for position in (30, 60):
        listener.onQueryProgress(progressed("q", lagging(hundred, position)))
    listener.close()
    with holdfast.open(hundred, read_only=True) as store:
        (tailer,) = store.log("x").stats().tailers
    assert (tailer.name, tailer.position, tailer.lag) == ("spark:q", 60, 40)


def test_positions_of_another_store_are_not_stored(hundred: Path, caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.open(hundred.parent / "other") as store:
        store.log("x").append_many([b"x"] * 100)
    listener = LagListener(hundred.parent / "other")
    listener.onQueryProgress(progressed("q", lagging(hundred, 30)))
    wait_until(lambda: "was not stored" in caplog.text)
    listener.onQueryProgress(progressed("q", lagging(hundred, 60)))
    listener.close()
    with holdfast.open(hundred.parent / "other", read_only=True) as store:
        assert store.log("x").stats().tailers == []
    (said,) = [one for one in caplog.messages if "was not stored" in one]
    assert "give the listener the store of the query" in said


def test_a_server_gets_positions_with_a_token_and_shows_the_lag(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Served(tmp_path / "data") as served:
        served.store.log("x").append_many([b"x"] * 100)
        served.store.log("x").sync()
        with holdfast.connect(served.url) as remote:
            token = remote.make_token("spark")["token"]
        listener = LagListener(served.url, token=token)
        listener.onQueryProgress(progressed("q", lagging(tmp_path / "data", 75)))
        listener.close()
        (tailer,) = served.get("/api/holdfast/logs/x")["tailers"]
        assert (tailer["name"], tailer["position"], tailer["lag"]) == ("spark:q", 75, 25)
        each = served.ask("GET", "/metrics/per-object").body.decode()
        assert 'holdfast_log_tailer_lag_records{log="x",tailer="spark:q",vhost="/"} 25.0' in each
        assert "holdfast_tailer_lag_records 25.0" in served.ask("GET", "/metrics", user=None).body.decode()

        other = {"x": {"0": 90, "id": "cd" * 16}}, {"x": entry(100, id="cd" * 16)}
        listener = LagListener(served.url, token=token)
        listener.onQueryProgress(progressed("q", other))
        listener.close()
        assert "the log 'x' that the query reads, in '/srv/data', is not the one in" in caplog.text
        assert served.get("/api/holdfast/logs/x")["tailers"][0]["position"] == 75
        caplog.clear()

        refused = LagListener(served.url, token="hf_0_wrong")
        for position in (80, 90):
            refused.onQueryProgress(progressed("q", lagging(tmp_path / "data", position)))
        refused.close()
    (said,) = [one for one in caplog.messages if "was not stored" in one]
    assert "hf_0_wrong" not in said


# With Spark


def test_spark_shows_the_lag_of_each_batch(spark: SparkSession, hundred: Path, tmp_path: Path) -> None:
    listener = LagListener()
    spark.streams.addListener(listener)
    try:
        stream = spark.readStream.format("holdfast").option("path", str(hundred)).option("log", "x")
        frame = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40).load()
        writer = frame.writeStream.format("noop").queryName("lagging").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        wait_until(lambda: not listener.query("lagging").running)
    finally:
        spark.streams.removeListener(listener)
    batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
    latest = [json.loads(batch["sources"][0]["latestOffset"])["x"] for batch in batches]
    assert [one["behind"] for one in latest] == [60, 20, 0]
    assert {(one["store"], one["log"]) for one in latest} == {(str(hundred), "x")}
    assert listener.lag("lagging") == {"x": 0}
    assert listener.query("lagging").id == str(query.id)


def test_a_query_goes_on_while_the_listener_reaches_nobody(
    spark: SparkSession, hundred: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = LagListener("http://127.0.0.1:9")
    spark.streams.addListener(listener)
    try:
        stream = spark.readStream.format("holdfast").option("path", str(hundred)).option("log", "x")
        frame = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10).load()
        writer = frame.writeStream.format("noop").queryName("alone").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        wait_until(lambda: not listener.query("alone").running)
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    assert query.exception() is None
    assert len([batch for batch in query.recentProgress if batch["numInputRows"]]) == 10
    assert listener.lag("alone") == {"x": 0}
    assert len([one for one in caplog.messages if "was not stored" in one]) == 1
