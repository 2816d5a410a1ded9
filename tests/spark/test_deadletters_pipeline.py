"""Are failures grouped as a person would group them, counted rightly, and shown with what is needed to mend them?"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast import Backoff, Flush
from holdfast.spark.pipelines import Result, deadletters
from holdfast.spark.schemas import LIFECYCLE
from holdfast.testing import SimClock

START = 1_767_225_600_000_000  # microseconds
HOUR = 3_600_000_000
EVIL = "<script>alert(1)</script>"

ALIKE = {
    "order 4711: no customer 'Ann'": "order <n>: no customer <text>",
    'order 12: no customer "Bob O\'Neil"': "order <n>: no customer <text>",
    "KeyError: 'address'": "KeyError: <text>",
    "b'\\x00' is not JSON": "<text> is not JSON",
    "can't parse what doesn't fit": "can't parse what doesn't fit",
    "timed out after 30.5 s": "timed out after <n> s",
    "took 1,250ms, 3e-7 left": "took <n>ms, <n> left",
    "job 550e8400-e29b-41d4-a716-446655440000 is gone": "job <uuid> is gone",
    "object at 0x7f3A9c is dead": "object at <hex> is dead",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 broke it": "commit <hex> broke it",
    "cannot open /var/spool/orders/17.json": "cannot open <path>",
    "cannot open C:\\spool\\17.json or ~/x": "cannot open <path> or <path>",
    "either/or is no path": "either/or is no path",
    "at 2026-11-15T12:00:00.123Z it failed": "at <time> it failed",
    "at 2026-11-15 12:00:00,5 +02:00 and 12:30:59": "at <time> and <time>",
    "valid until 2026-11-15": "valid until <date>",
    "no mailbox ann.b+c@mail.example.org": "no mailbox <email>",
    "GET https://example.org/a?b=1 gave 503": "GET <url> gave <n>",
    "10.0.0.7:5432 refused; so did fe80::1 and ::1": "<ip> refused; so did <ip> and <ip>",
    "std::bad_alloc in utf8 with sha256": "std::bad_alloc in utf8 with sha256",
    "order10023 failed": "order<n> failed",
    "line one\n\n   line two": "line one line two",
    EVIL: "<script>alert(<n>)</script>",
}


@pytest.fixture(scope="module")
def normalised(spark: SparkSession) -> dict[str, tuple[str, str]]:
    frame = spark.createDataFrame([(text,) for text in ALIKE], "text string")
    once = deadletters.normalised(F.col("text"))
    rows = frame.select("text", once.alias("once")).withColumn("twice", deadletters.normalised(F.col("once"))).collect()
    return {row["text"]: (row["once"], row["twice"]) for row in rows}


@pytest.mark.parametrize(("text", "wanted"), ALIKE.items())
def test_what_differs_from_failure_to_failure_is_taken_out(
    normalised: dict[str, tuple[str, str]], text: str, wanted: str
) -> None:
    once, twice = normalised[text]
    assert once == wanted
    assert twice == once, "what is normal stays as it is"


class Failures:
    """Random failures of known kinds, and what is to be found out about them."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.rows: list[dict[str, Any]] = []
        self.known: dict[tuple[str, str], list[dict[str, Any]]] = {}
        kinds: dict[str, Callable[[], str | None]] = {
            "no customer <text> in order <n>": lambda: (
                f"no customer 'c{dice.random()}' in order {dice.randrange(10**6)}"
            ),
            "host <ip> is down": lambda: f"host 10.0.{dice.randrange(256)}.{dice.randrange(256)} is down",
            "no reason given": lambda: dice.choice(["", "  ", None]),
        }
        for _ in range(600):
            queue, kind = dice.choice(["orders", "mail"]), dice.choice([*kinds, "the lease ran out"])
            event = "expired" if kind == "the lease ran out" else dice.choice(["nacked", "nacked", "dead-lettered"])
            row = {
                "queue": queue,
                "message": dice.randrange(80),
                "event": event,
                "time": START + dice.randrange(5 * HOUR),
                "reason": kinds[kind]() if kind in kinds else None,
                "cause": "attempts" if event == "dead-lettered" else None,
                "target": f"{queue}.dead" if event == "dead-lettered" else None,
            }
            self.rows.append(row)
            self.known.setdefault((queue, kind), []).append(row)
        self.rows += [row | {"event": "acked", "reason": "not a failure"} for row in self.rows[:50]]
        self.rows.append({"queue": "mail", "message": 1, "event": "dropped", "time": START, "cause": "ttl"})
        self.known["mail", "its time to live was over"] = self.rows[-1:]


@pytest.fixture(scope="module")
def made() -> Failures:
    return Failures(5)


@pytest.fixture(scope="module")
def failed(spark: SparkSession, made: Failures) -> DataFrame:
    table = pa.Table.from_pylist(made.rows, schema=LIFECYCLE)
    return deadletters.failures(spark.createDataFrame(table)).cache()


@pytest.fixture(scope="module")
def groups(failed: DataFrame) -> DataFrame:
    return deadletters.reasons(failed, hours=5).cache()


def test_each_kind_of_failure_is_counted(made: Failures, groups: DataFrame) -> None:
    times = {name: F.unix_micros(name) for name in ("first_seen", "last_seen")}
    found = {(row["queue"], row["reason"]): row for row in groups.withColumns(times).collect()}
    assert set(found) == set(made.known)
    in_queue = Counter(
        {queue: sum(len(r) for (q, _), r in made.known.items() if q == queue) for queue in ("orders", "mail")}
    )
    for key, rows in made.known.items():
        row = found[key]
        dead = [each for each in rows if each["event"] in ("dead-lettered", "dropped")]
        assert row["failures"] == len(rows)
        assert row["messages"] == len({each["message"] for each in rows})
        assert row["dead"] == len({each["message"] for each in dead})
        assert row["first_seen"] == min(each["time"] for each in rows)
        assert row["last_seen"] == max(each["time"] for each in rows)
        assert row["per_hour"] == pytest.approx(len(rows) / 5)
        assert row["share"] == pytest.approx(len(rows) / in_queue[key[0]])
        assert row["targets"] == sorted({each["target"] for each in dead if each.get("target")})
        last = {each["message"]: each["time"] for each in sorted(rows, key=lambda each: each["time"])}
        newest = sorted(last, key=lambda message: (last[message], message), reverse=True)
        assert [example["message"] for example in row["examples"]] == newest[: deadletters.EXAMPLES]


def test_the_most_frequent_come_first_with_a_strip_of_when(
    made: Failures, groups: DataFrame, failed: DataFrame
) -> None:
    found = deadletters.top_reasons(groups, failed, START, START + 5 * HOUR, most=3)
    most = sorted(made.known.items(), key=lambda item: (-len(item[1]), item[0]))[:3]
    assert [(row["queue"], row["reason"]) for row in found] == [key for key, _ in most]
    for row, (_, rows) in zip(found, most, strict=True):
        slots = Counter((each["time"] - START) * deadletters.SLOTS // (5 * HOUR) for each in rows)
        assert row["strip"] == [slots[place] for place in range(deadletters.SLOTS)]


def test_payloads_are_shown_as_text_where_they_are_text(spark: SparkSession) -> None:
    long = "é" * 200
    cases = {
        b"": "",
        b'{"a": 1}': '{"a": 1}',
        "zwölf".encode(): "zwölf",
        long.encode(): "é" * (deadletters.EXCERPT // 2),
        b"x" + long.encode(): "x" + "é" * (deadletters.EXCERPT // 2 - 1),  # the cut goes through a character
        b"\xff\xfe\x00": "0xfffe00",
        b"caf\xc3": "0x636166c3",  # torn itself, not by us
        b"\x1b[31mred": "0x1b5b33316d726564",
        b"\x00" * 999: "0x" + "00" * (deadletters.EXCERPT // 4),
    }
    frame = spark.createDataFrame([(value,) for value in cases], "value binary")
    rows = frame.select("value", deadletters.excerpt(F.col("value")).alias("text")).collect()
    assert {bytes(row["value"]): row["text"] for row in rows} == cases


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, clock = tmp_path_factory.mktemp("real") / "data", SimClock()
    with holdfast.open(path, clock=clock, background=False) as hf:
        options: Any = {"max_attempts": 2, "backoff": Backoff(base=0, cap=0), "flush": Flush.async_()}
        jobs, mail = hf.queue("jobs, or <b>", log="all", **options), hf.queue("mail", **options)
        hf.queue("quiet").put(b"fine")
        for number in range(10):
            jobs.put(f"payload {number} {EVIL}".encode())
            mail.put(b"\xff\x00\xfe")
        for _ in range(2):
            for delivery in jobs.lease(10):
                delivery.nack(f"order {delivery.id}: {EVIL}")
                clock.advance(1)
        for delivery in mail.lease(4):
            delivery.nack("no mailbox")
        hf.tick()
    return path


@pytest.fixture(scope="module")
def result(spark: SparkSession, data: Path) -> Result:
    return deadletters.run(spark, str(data))


def test_a_run_tells_why_with_examples_from_the_log(spark: SparkSession, data: Path, result: Result) -> None:
    rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    assert [(row["queue"], row["reason"], row["failures"], row["messages"], row["dead"]) for row in rows] == [
        ("jobs, or <b>", "order <n>: <script>alert(<n>)</script>", 20, 10, 10),
        ("mail", "no mailbox", 4, 4, 0),
    ]
    assert [row["goes to"] for row in rows] == [["jobs, or <b>.dead"], []]
    assert result.facts["when it is mended"] == "holdfast redrive 'jobs, or <b>' --all"
    kept = spark.read.parquet(str(result.facts["reasons"])).collect()
    assert sorted(row["failures"] for row in kept) == [4, 20]
    html = Path(str(result.facts["report"])).read_text()
    assert html.startswith("<!doctype html>") and "<script" not in html
    assert "24 deliveries failed, for 2 reasons; 20 of them because" in html
    assert "payload 9 &lt;script&gt;alert(1)&lt;/script&gt;" in html and "0xff00fe" in html


def test_payloads_can_be_left_out(spark: SparkSession, data: Path, tmp_path: Path, result: Result) -> None:
    assert result.rows
    private = deadletters.run(spark, str(data), queues="mail,quiet", out=str(tmp_path), payload=False)
    html = (tmp_path / "report.html").read_text()
    assert "0xff00fe" not in html and "for example message" in html
    assert private.facts["failures"] == 4


def test_where_nothing_failed_the_report_says_so(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    assert deadletters.run(spark, str(data), queues="quiet", out=str(tmp_path)).rows == []
    assert "No delivery failed in 1 queue" in (tmp_path / "report.html").read_text()
