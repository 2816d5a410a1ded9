"""Pipelines from a terminal: options are checked, results shown, failures reported in one line."""

import inspect
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pyspark.sql import Row, SparkSession

from holdfast import open as open_store
from holdfast.cli.options import UsageError
from holdfast.cli.pipeline.failures import reason_of
from holdfast.cli.pipeline.options import options_of, parse_pairs
from holdfast.cli.pipeline.output import result_json, show_result
from holdfast.replica import open_bucket
from holdfast.spark.pipelines import PIPELINES, Result, load_pipeline
from tests.cli.terminal import Terminal, damage_segment


def sample(
    spark: SparkSession,
    data: str,
    *,
    log: str,
    limit: int | None = None,
    share: float = 0.5,
    out: Annotated[Path | None, "Where it goes."] = None,
    since: datetime | None = None,
    window: timedelta = timedelta(minutes=1),
    form: Literal["parquet", "csv"] = "parquet",
    columns: list[str] | None = None,
    dry_run: bool = False,
) -> Result:
    """Do something."""
    raise NotImplementedError


def parse(*pairs: str) -> dict[str, Any]:
    return parse_pairs("sample", options_of(sample), pairs)


def test_every_option_is_converted_by_its_annotation() -> None:
    assert parse(
        "log=orders",
        "limit=10",
        "share=0.25",
        "out=/tmp/x",
        "since=2026-11-15T12:00:00Z",
        "window=1h30m",
        "form=csv",
        "columns=a",
        "columns=b",
        "dry-run=yes",
    ) == {
        "log": "orders",
        "limit": 10,
        "share": 0.25,
        "out": Path("/tmp/x"),
        "since": datetime(2026, 11, 15, 12, tzinfo=UTC),
        "window": timedelta(minutes=90),
        "form": "csv",
        "columns": ["a", "b"],
        "dry_run": True,
    }


def test_what_is_not_given_is_left_to_the_pipeline() -> None:
    assert parse("log=orders=1") == {"log": "orders=1"}
    assert options_of(sample)["out"].help == "Where it goes."


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        (["log=a", "nix=1"], "sample has no option 'nix'; its options are: log, limit, share, out, since,"),
        (["log=a", "limit=ten"], "--limit takes a whole number, not 'ten'"),
        (["log=a", "dry_run=maybe"], "--dry-run takes true or false, not 'maybe'"),
        (["log=a", "form=xml"], "--form takes parquet or csv, not 'xml'"),
        (["log=a", "since=noon"], "--since: 'noon' is not a time"),
        (["log=a", "window=long"], "--window: 'long' is not a duration"),
        (["log=a", "log=b"], "the option 'log' is given twice"),
        (["log"], "an option is written key=value, not 'log'"),
        ([], "sample needs the option 'log'"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_what_would(pairs: list[str], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(*pairs)
    assert reason in str(caught.value)


def test_every_pipeline_there_is_keeps_to_the_convention() -> None:
    for name in PIPELINES:
        run = load_pipeline(name)
        first, second, *rest = inspect.signature(run).parameters.values()
        assert (first.name, second.name) == ("spark", "data"), name
        assert len(options_of(run)) == len([each for each in rest if each.kind is not each.VAR_KEYWORD])
        assert run.__doc__


def test_the_list_names_every_pipeline(holdfast: Terminal) -> None:
    shown = holdfast("pipeline list")
    assert [line.split()[0] for line in shown.lines[1:]] == list(PIPELINES)
    listed = holdfast("pipeline list --json").json["pipelines"]
    assert [(each["name"], each["description"]) for each in listed] == [
        (name, pipeline.description) for name, pipeline in PIPELINES.items()
    ]


@pytest.mark.parametrize("name", PIPELINES)
def test_each_pipeline_is_a_command_that_explains_its_options(holdfast: Terminal, name: str) -> None:
    shown = holdfast(f"pipeline {name} --help")
    assert shown.code == 0
    for spelled in (
        "--data",
        "--master",
        "--json",
        *(each.spelled for each in options_of(load_pipeline(name)).values()),
    ):
        assert spelled in shown.out, spelled


def test_what_the_command_line_cannot_mean_is_a_usage_error(holdfast: Terminal) -> None:
    for command, code, reason in (
        ("pipeline run nix", 1, "there is no pipeline 'nix'; there are: archive, "),
        ("pipeline run verify -o logs=1", 2, "verify has no option 'logs'; its options are: log"),
        ("pipeline run verify --conf a=b", 2, "--conf 'a=b' is not a Spark setting"),
        ("pipeline verify --logs x", 2, "No such option: --logs"),
        ("pipeline verify --log", 2, "requires an argument (see holdfast pipeline verify --help)"),
    ):
        result = holdfast(command)
        assert result.code == code
        assert reason in result.complaint


def test_spark_is_not_needed_to_see_what_there_is(tmp_path: Path) -> None:
    code = f"""
import sys
for name in ("pyspark", "py4j", "pyarrow", "pandas"):
    sys.modules[name] = None
from holdfast.cli import main
for command in (["pipeline", "list"], ["pipeline", "--help"], ["--help"]):
    assert main(command) == 0
print("---", flush=True)
sys.exit(max(main(["pipeline", "verify", "--data", {str(tmp_path)!r}]), main(["pipeline", "run", "verify"])))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith("---\n")
    first, second = done.stderr.splitlines()
    assert first.startswith('holdfast: pipelines need Spark: pip install "holdfast[spark]"')
    assert second == first


def test_help_does_not_import_spark() -> None:
    code = "import sys; from holdfast.cli import main; main(['pipeline', '--help']); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0


def test_a_pipeline_shows_its_facts_and_as_json_the_same(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    shown = holdfast("pipeline verify --master local[2]")
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines[0] == "no damage found"
    assert ["records", "50"] in [line.split() for line in shown.lines]
    found = holdfast("pipeline run verify --option log=orders --json").json
    assert (found["pipeline"], found["ok"], found["rows"], found["facts"]["records"]) == ("verify", True, [], 50)


def test_a_pipeline_that_finds_something_bad_exits_with_1(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    path = damage_segment(holdfast.data, "orders", 1, b"record 13")
    shown = holdfast("pipeline verify")
    assert shown.code == 1
    assert any(path.name in line and "checksum" in line for line in shown.lines)
    found = holdfast("pipeline verify --json")
    assert found.code == 1
    assert found.json["rows"][0]["first lost"] == 13


def test_what_is_not_there_is_told_in_one_line(holdfast: Terminal) -> None:
    missing = holdfast("pipeline verify")
    assert missing.code == 1
    assert str(holdfast.data) in missing.complaint
    holdfast.fill("orders", 5)
    unknown = holdfast("pipeline verify --log clicks")
    assert unknown.code == 1
    assert unknown.complaint.startswith("there is no log 'clicks' in ")


def test_report_writes_both_reports_and_says_where_they_are(holdfast: Terminal, tmp_path: Path) -> None:
    holdfast.fail("orders", b"a", b"b", reason="no such customer")
    found = holdfast(f"pipeline report --out {tmp_path / 'reports'} --json").json
    assert [row["report"] for row in found["rows"]] == ["lifecycle", "deadletters"]
    pages = [Path(row["file"]).read_text() for row in found["rows"]]
    assert all("<html" in page and "orders" in page for page in pages)
    assert "no such customer" in pages[1]


def test_data_may_be_the_url_of_a_replica_or_its_folder(holdfast: Terminal, tmp_path: Path) -> None:
    holdfast.fail("orders", b"a", b"b", reason="no such customer")
    replica = tmp_path / "replica"
    with open_store(holdfast.data) as store:
        store.ship_to(open_bucket(replica.as_uri()))
        store.replica.ship()
    objects = sorted(replica.iterdir())
    holdfast.data.rename(tmp_path / "elsewhere")
    for where in (replica.as_uri(), str(replica)):
        found = holdfast(f"pipeline deadletters --data {where} --out {tmp_path / 'dead'} --json").json
        assert found["facts"]["failures"] == 4  # each message twice
    assert sorted(replica.iterdir()) == objects  # no run is noted there
    refused = holdfast("pipeline verify --data s3://bucket/prefix --url http://localhost:15672")
    assert refused.code == 2 and "choose one" in refused.err


def test_a_stream_runs_until_it_is_interrupted_and_then_says_nothing(holdfast: Terminal, tmp_path: Path) -> None:
    holdfast.fill("orders", 50)
    commits = tmp_path / "checkpoint" / "parquet" / "commits" / "0"
    words = f"--log orders --out {tmp_path / 'out'} --checkpoint {tmp_path / 'checkpoint'} --master local[1]"
    with holdfast.spawn(f"pipeline stream {words}") as process:
        while not commits.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Result]], None]:
    """Puts another pipeline in the place of verify."""

    def put(run: Callable[..., Result]) -> None:
        monkeypatch.setattr("holdfast.cli.pipeline.command.load_pipeline", lambda name: run)

    return put


def test_an_error_in_a_worker_is_told_by_its_last_line(
    holdfast: Terminal, failing: Callable[[Callable[..., Result]], None]
) -> None:
    def broken(batches: Any) -> Any:
        raise ZeroDivisionError("the third row\nis zero")

    def run(spark: SparkSession, data: str) -> Result:
        return Result.of("never", spark.range(3).mapInArrow(broken, "id LONG"))

    failing(run)
    result = holdfast("pipeline verify")
    assert (result.code, result.complaint) == (1, "verify: ZeroDivisionError: the third row")


def test_an_error_of_ours_in_a_worker_reads_as_anywhere(
    holdfast: Terminal, failing: Callable[[Callable[..., Result]], None]
) -> None:
    def run(spark: SparkSession, data: str) -> Result:
        frame = spark.read.format("holdfast").option("path", data).option("log", "clicks").load()
        return Result.of("never", frame)

    failing(run)
    holdfast.fill("orders", 5)
    complaint = holdfast("pipeline verify").complaint
    assert complaint.startswith("verify: there is no log 'clicks' in ") and complaint.endswith("there are: 'orders'")


def test_an_error_of_spark_itself_is_told_without_a_stack(
    holdfast: Terminal, failing: Callable[[Callable[..., Result]], None]
) -> None:
    def run(spark: SparkSession, data: str) -> Result:
        return Result.of("never", spark.sql("SELECT * FROM nowhere"))

    failing(run)
    complaint = holdfast("pipeline verify").complaint
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in complaint and "\tat " not in complaint and len(complaint) < 400

    def overflow(spark: SparkSession, data: str) -> Result:
        return Result.of("never", spark.sql("SELECT 1 / id FROM range(3)"))

    failing(overflow)
    assert "DIVIDE_BY_ZERO" in holdfast("pipeline verify").complaint


def test_a_reason_is_found_in_a_nested_traceback() -> None:
    text = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in main
    raise ValueError("inner: {}")
holdfast.base.errors.NotFound: there is no log 'x' in 'data'; there are: none

\tat org.apache.spark.Foo.bar(Foo.scala:12)
Caused by: java.lang.IllegalStateException: another
"""
    assert reason_of(RuntimeError(text)) == "there is no log 'x' in 'data'; there are: none"
    assert reason_of(RuntimeError("org.apache.spark.SparkException: Job aborted: disk is full\n\tat x")) == (
        "Job aborted: disk is full"
    )
    assert reason_of(RuntimeError("")) == "Spark failed with RuntimeError"


def test_a_result_is_shown_as_people_and_machines_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    moment = datetime(2026, 11, 15, 12, tzinfo=UTC)
    result = Result(
        "what was found",
        ["name", "count", "offset", "share", "at", "waited", "raw", "nested"],
        [
            ("a\x1b[2J", 12345, 12345, 0.5, moment, timedelta(seconds=90), b"\xff", Row(x=1)),
            (None, None, None, None, None, None, None, None),
        ],
        {"out_path": Path("/x"), "done": True, "bytes": 2048},
    )
    show_result("sample", result, as_json=False)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "what was found"
    assert shown[3].split("  ")[0] == "a\\x1b[2J"
    assert shown[3].split()[1:6] == ["12,345", "12345", "0.5", "2026-11-15", "12:00:00"]
    assert shown[4].split() == ["-"] * 8
    assert [line.split() for line in shown[6:]] == [["out", "path", "/x"], ["done", "yes"], ["bytes", "2.0", "KiB"]]
    content = json.loads(json.dumps(result_json("sample", result)))
    assert content["rows"][0] == {
        "name": "a\x1b[2J",
        "count": 12345,
        "offset": 12345,
        "share": 0.5,
        "at": "2026-11-15T12:00:00Z",
        "waited": 90.0,
        "raw": {"base64": "/w=="},
        "nested": {"x": 1},
    }
    assert content["facts"] == {"out_path": "/x", "done": True, "bytes": 2048}
