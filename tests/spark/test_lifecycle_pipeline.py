"""Does the lifecycle pipeline tell the truth? Against lives that a simple simulation made up, and real queues."""

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast import Backoff, Flush, Message
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.spark.pipelines import Result, lifecycle
from holdfast.spark.pipelines.output_folder import Folder, chosen_queues
from holdfast.spark.schemas import LIFECYCLE
from holdfast.testing import SimClock

START = 1_767_225_600_000_000  # microseconds
MINUTE = 60_000_000
Row = dict[str, Any]


@dataclass
class Life:
    """What the simulation knows of a message."""

    put: int
    due: int
    state: str = ""
    spans: list[list[int | None]] = field(default_factory=list)
    """From when to when it was open."""
    leases: list[int] = field(default_factory=list)
    lease: int = 0
    acked: int | None = None
    attempts: int = 0
    retries: int = 0
    busy: int | None = None

    def become(self, state: str, now: int) -> None:
        was_open, is_open = (each in ("waiting", "leased") for each in (self.state, state))
        if is_open and not was_open:
            self.spans.append([now, None])
        if was_open and not is_open:
            self.spans[-1][1] = now
        self.state = state

    def is_open_at(self, moment: int) -> bool:
        return any(start <= moment and (end is None or moment < end) for start, end in self.spans)  # type: ignore[operator]


class World:
    """A queue as simple as can be, that does random things, writes them down, and remembers what became of each."""

    def __init__(self, queue: str, seed: int, steps: int) -> None:
        self.queue, self.random = queue, random.Random(seed)
        self.now, self.position, self.next, self.leases = START + seed * 7_000_001, 0, 0, 0
        self.rows: list[Row] = []
        self.lives: dict[int, Life] = {}
        self.tell("sought", None, upto=0)
        deeds = {
            self.put: 60,
            self.take: 60,
            self.end: 90,
            self.extend: 6,
            self.drop: 4,
            self.redrive: 2,
            self.order: 3,
        }
        for step in range(steps):
            # Some things happen within one microsecond; once there is a long silence, so that minutes must be filled.
            self.now += 0 if self.random.random() < 0.1 else self.random.randrange(1, 20_000_000)
            self.now += 3 * 60 * MINUTE if step == steps // 2 else 0
            self.random.choices(list(deeds), list(deeds.values()))[0]()

    def tell(self, event: str, message: int | None, **more: Any) -> None:
        row = {"queue": self.queue, "message": message, "event": event, "time": self.now, "priority": 0}
        self.rows.append(row | {"position": message if event == "put" else self.position} | more)
        self.position += event != "put"

    def some(self, state: str) -> tuple[int, Life] | tuple[None, None]:
        found = [(message, life) for message, life in self.lives.items() if life.state == state]
        return self.random.choice(found) if found else (None, None)

    def put(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            delay = self.random.choice([0, 0, 0, 5_000_000])
            self.lives[self.next] = Life(self.now, self.now + delay)
            self.lives[self.next].become("waiting", self.now)
            self.tell("put", self.next, until=self.now + delay if delay else None)
            self.next += 1

    def take(self) -> None:
        message, life = self.some("waiting")
        if life is not None:
            self.now = max(self.now, life.due)
            self.leases += 1
            life.become("leased", self.now)
            life.leases.append(self.now)
            life.lease, life.busy = self.leases, None
            life.attempts += 1
            self.tell("leased", message, lease=self.leases, attempt=life.attempts)

    def end(self) -> None:
        message, life = self.some("leased")
        if life is None:
            return
        ends = {"acked": 60, "nacked": 14, "expired": 8, "released": 5, "dead-lettered": 6, "dropped": 2}
        how = self.random.choices(list(ends), list(ends.values()))[0]
        life.busy = self.now - life.leases[-1]
        life.attempts -= how == "released"
        life.retries += how in ("nacked", "expired")
        cause = "attempts" if how in ("dead-lettered", "dropped") else None
        self.tell(how, message, lease=None if how == "dropped" else life.lease, reason="why", cause=cause)
        life.become({"acked": "acked", "dead-lettered": "dead", "dropped": "dropped"}.get(how, "waiting"), self.now)
        if how == "acked" and life.acked is None:
            life.acked = self.now
        if how == "dead-lettered":
            self.now += self.random.randrange(3)
            self.tell("moved", message, cause="moved")

    def extend(self) -> None:
        self.tell("extended", None, lease=self.leases)

    def drop(self) -> None:
        message, life = self.some("waiting")
        if life is not None:
            self.tell("dropped", message, cause="ttl")
            life.become("dropped", self.now)

    def redrive(self) -> None:
        message, life = self.some("waiting")
        if life is not None:
            self.tell("redriven", message, target="home", cause="redriven")
            self.tell("moved", message, cause="moved")
            life.become("redriven", self.now)

    def order(self) -> None:
        """What befalls all at once: a purge, a seek, or a crash that took the last messages."""
        self.now += 1
        how = self.random.choice(["purged", "sought", "cut"])
        upto = self.next if how == "purged" else self.random.randrange(max(0, self.next - 8), self.next + 1)
        self.tell(how, None, upto=upto)
        for message, life in list(self.lives.items()):
            if how == "purged" and life.state == "waiting":
                life.become("purged", self.now)
            elif how == "sought" and message >= upto:
                life.become("waiting", self.now)
            elif how == "sought" and life.state in ("waiting", "leased"):
                life.become("skipped", self.now)
            elif how == "cut" and message >= upto:  # the log lost it, and its number will be given again
                del self.lives[message]
                self.rows = [row for row in self.rows if (row["event"], row["message"]) != ("put", message)]
        self.next = upto if how == "cut" else self.next
        self.now += 1


def frame_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=LIFECYCLE))


def in_micros(frame: DataFrame) -> list[Row]:
    times = [name for name, kind in frame.dtypes if kind == "timestamp"]
    return [row.asDict(recursive=True) for row in frame.withColumns({t: F.unix_micros(t) for t in times}).collect()]


def nearest_rank(values: list[float], quantile: float) -> float:
    return sorted(values)[math.ceil(quantile * len(values)) - 1]


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    return {name: World(name, seed, 500) for seed, name in enumerate(("orders", "mail", "$<b>"))}


@pytest.fixture(scope="module")
def events(spark: SparkSession, worlds: dict[str, World]) -> DataFrame:
    rows = [row for world in worlds.values() for row in world.rows]
    random.Random(1).shuffle(rows)  # Spark promises no order
    return frame_of(spark, rows).cache()


@pytest.fixture(scope="module")
def lives(events: DataFrame) -> DataFrame:
    return lifecycle.messages(events).cache()


@pytest.fixture(scope="module")
def told(lives: DataFrame) -> dict[tuple[str, int], Row]:
    return {(row["queue"], row["message"]): row for row in in_micros(lives)}


def test_the_simulation_meets_every_end(worlds: dict[str, World]) -> None:
    """Else the tests below would prove less than they seem to."""
    ends = Counter(life.state for world in worlds.values() for life in world.lives.values())
    assert set(ends) == set(lifecycle.OUTCOMES) - {"unknown"}
    assert any(len(life.spans) > 1 for world in worlds.values() for life in world.lives.values())
    assert {row["event"] for world in worlds.values() for row in world.rows} >= {"purged", "sought", "cut"}


def test_every_message_is_told_of_once_and_truly(worlds: dict[str, World], told: dict[tuple[str, int], Row]) -> None:
    assert set(told) == {(name, message) for name, world in worlds.items() for message in world.lives}
    for (queue, message), row in told.items():
        life = worlds[queue].lives[message]
        known = {
            "outcome": life.state,
            "put_at": life.put,
            "first_leased_at": life.leases[0] if life.leases else None,
            "acked_at": life.acked,
            "ended_at": life.spans[-1][1],
            "attempts": life.attempts,
            "retries": life.retries,
            "wait_s": (life.leases[0] - life.due) / 1e6 if life.leases else None,
            "ack_s": None if life.acked is None else (life.acked - life.put) / 1e6,
            "busy_s": None if life.busy is None else life.busy / 1e6,
        }
        assert {name: row[name] for name in known} == known, (queue, message, life)
        assert len(row["gaps"]) == len(life.spans) - 1


def test_minutes_have_no_holes_and_every_figure_is_right(
    worlds: dict[str, World], events: DataFrame, lives: DataFrame
) -> None:
    rows = in_micros(lifecycle.minutes(events, lives, 60))
    last = max(row["time"] for world in worlds.values() for row in world.rows) // MINUTE
    for name, world in worlds.items():
        found = {row["minute"] // MINUTE: row for row in rows if row["queue"] == name}
        first = min(row["time"] for row in world.rows) // MINUTE
        assert sorted(found) == list(range(first, last + 1))
        happened = Counter((row["event"], row["time"] // MINUTE) for row in world.rows)
        kept = world.lives.values()
        for minute, row in found.items():
            for event in ("put", "leased", "acked", "dropped"):
                assert row[event] == happened[event, minute]
            assert row["retries"] == happened["nacked", minute] + happened["expired", minute]
            assert row["dead"] == happened["dead-lettered", minute]
            assert row["throughput"] == pytest.approx(happened["acked", minute] / 60)
            assert row["backlog"] == sum(life.is_open_at((minute + 1) * MINUTE - 1) for life in kept)
            acks = [(life.acked - life.put) / 1e6 for life in kept if life.acked and life.acked // MINUTE == minute]
            begun = [life for life in kept if life.leases and life.leases[0] // MINUTE == minute]
            waits = [(life.leases[0] - life.due) / 1e6 for life in begun]
            for kind, values in (("ack", acks), ("wait", waits)):
                for percent in (50, 95, 99):
                    known = nearest_rank(values, percent / 100) if values else None
                    assert row[f"{kind}_p{percent}_s"] == known


def test_the_summary_counts_each_queue_and_all_of_them(worlds: dict[str, World], lives: DataFrame) -> None:
    rows = {row["queue"]: row for row in in_micros(lifecycle.summary(lives, ["mail"])) if not row["is_total"]}
    assert set(rows) == set(worlds)
    totals = {row["is_letters"]: row for row in in_micros(lifecycle.summary(lives, ["mail"])) if row["is_total"]}
    for name, world in worlds.items():
        kept = list(world.lives.values())
        ends = Counter(life.state for life in kept)
        assert {end: rows[name][end] for end in lifecycle.OUTCOMES} == {end: ends[end] for end in lifecycle.OUTCOMES}
        assert rows[name]["messages"] == len(kept)
        assert rows[name]["retries"] == sum(life.retries for life in kept)
        tries = Counter(min(life.attempts, lifecycle.ATTEMPTS) for life in kept)
        assert rows[name]["by_attempts"] == [tries[number] for number in range(1, lifecycle.ATTEMPTS + 1)]
        acks = [(life.acked - life.put) / 1e6 for life in kept if life.acked is not None]
        assert rows[name]["ack"] == [nearest_rank(acks, quantile) for quantile in (0.5, 0.95, 0.99)]
        took = max(life.acked for life in kept if life.acked is not None) - min(life.put for life in kept)
        assert rows[name]["throughput"] == pytest.approx(len(acks) / took * 1e6)
    assert totals[True]["messages"] == len(worlds["mail"].lives)
    assert totals[False]["messages"] == len(worlds["orders"].lives) + len(worlds["$<b>"].lives)


def test_what_retention_and_history_have_taken_is_not_guessed(spark: SparkSession) -> None:
    def row(message: int | None, event: str, second: int, position: int, **more: Any) -> Row:
        time = START + second * 1_000_000
        return {"queue": "q", "message": message, "event": event, "time": time, "position": position} | more

    events = frame_of(
        spark,
        [
            row(7, "put", 0, 7),  # its end was in the part of the journal that is gone
            row(8, "leased", 10, 41, lease=1, attempt=1),  # its put was in the part of the log that is gone
            row(8, "acked", 11, 42, lease=1),
            row(9, "put", 12, 9),
        ],
    )
    found = {row["message"]: row for row in in_micros(lifecycle.messages(events))}
    assert {message: row["outcome"] for message, row in found.items()} == {7: "unknown", 8: "acked", 9: "waiting"}
    assert found[8]["ack_s"] is None and found[8]["busy_s"] == 1
    assert [row["backlog"] for row in in_micros(lifecycle.minutes(events))] == [1]


@pytest.mark.parametrize(
    ("span", "table", "chart"),
    [
        (timedelta(seconds=0), 60, 1),
        (timedelta(minutes=4), 60, 2),
        (timedelta(hours=2), 60, 60),
        (timedelta(days=3), 600, 3600),
        (timedelta(days=90), 3600, 86_400),
        (timedelta(days=4000), 86_400, 30 * 86_400),
    ],
)
def test_long_times_get_long_minutes(span: timedelta, table: int, chart: int) -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)
    assert lifecycle.bucket_seconds(first, first + span) == table
    assert lifecycle.bucket_seconds(first, first + span, chart=True) == chart


class Store:
    """A real store whose queues lead random lives on a simulated clock."""

    def __init__(self, path: Path) -> None:
        self.path, clock, dice = path, SimClock(), random.Random(3)
        with holdfast.open(path, clock=clock, background=False) as hf:
            names = ("orders", "mail")
            queues = [
                hf.queue(name, max_attempts=2, backoff=Backoff(base=1, cap=2), lease=20, flush=Flush.async_())
                for name in names
            ]
            held: list[holdfast.Delivery] = []
            for step in range(400):
                queue = dice.choice(queues)
                queue.put_many([Message(b"x" * dice.randrange(9), delay=dice.choice([0, 0, 5])) for _ in range(3)])
                held += queue.lease(dice.randrange(1, 5))
                for delivery in [each for each in held if dice.random() < 0.5]:
                    held.remove(delivery)
                    dice.choice([delivery.ack] * 6 + [delivery.nack, delivery.release])()
                clock.advance(dice.random() * 3)
                if step in (100, 200):
                    queue.purge()
                if step in (150, 250):
                    queue.seek(queue.log.end - 10)
                if step == 300:
                    queues[0].redrive()
                hf.tick()
            self.stats = {name: hf.queue(name).stats() for name in hf.queues()}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("real") / "data")


@pytest.fixture(scope="module")
def result(spark: SparkSession, store: Store) -> Result:
    return lifecycle.run(spark, str(store.path))


def test_a_run_agrees_with_what_the_queues_say_of_themselves(spark: SparkSession, store: Store, result: Result) -> None:
    rows = {row[0]: dict(zip(result.columns, row, strict=True)) for row in result.rows}
    assert set(rows) == set(store.stats) == {"orders", "mail", "orders.dead", "mail.dead"}
    lives = spark.read.parquet(str(result.facts["messages"]))
    ends = {(row["queue"], row["outcome"]): row["count"] for row in lives.groupBy("queue", "outcome").count().collect()}
    for name, stats in store.stats.items():
        assert rows[name]["open"] == stats.ready + stats.delayed + stats.leased
        assert ends.get((name, "leased"), 0) == stats.leased
        assert rows[name]["retries"] == stats.total_nacked + stats.total_expired
    assert rows["orders"]["dead"] >= 1 and ends["orders.dead", "redriven"] >= 1
    by_queue = spark.read.parquet(str(result.facts["minutes"])).groupBy("queue")
    sums = by_queue.agg(F.max_by("backlog", "minute").alias("open"), F.sum("leased"), F.sum("acked"), F.sum("dead"))
    assert {tuple(row) for row in sums.collect()} == {
        (name, rows[name]["open"], stats.total_leased, stats.total_acked, stats.total_dead)
        for name, stats in store.stats.items()
    }


def test_a_second_run_replaces_the_first_and_the_store_does_not_mind(
    spark: SparkSession, store: Store, result: Result
) -> None:
    place = Path(str(result.facts["report"])).parent
    assert place == store.path / "reports" / "lifecycle"
    assert " received " in (place / "report.html").read_text()
    again = lifecycle.run(spark, str(store.path), queues="ord*,mail", report=False)
    assert {row[0] for row in again.rows} == {"mail", "orders", "orders.dead"}
    assert "report" not in again.facts
    assert {path.name for path in place.iterdir()} == {"events", "messages", "minutes"}
    with holdfast.open(store.path, background=False) as hf:
        assert hf.queues() == sorted(store.stats)


def test_queues_are_chosen_by_names_and_patterns(store: Store) -> None:
    assert chosen_queues(str(store.path), "*.dead, mail") == ["mail", "mail.dead", "orders.dead"]
    with pytest.raises(NotFound, match=r"no queue in .* matches 'nix'; there are: 'mail'"):
        chosen_queues(str(store.path), "nix")


def test_a_run_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    with Folder(str(tmp_path), ("report.html",)) as folder:
        Path(folder.new("report.html")).write_text("first")
    (tmp_path / "mine.txt").write_text("not theirs")
    with pytest.raises(ZeroDivisionError), Folder(str(tmp_path), ("report.html",)) as folder:
        Path(folder.new("report.html")).write_text("second")
        1 / 0  # noqa: B018
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "report.html": "first",
        "mine.txt": "not theirs",
    }


def test_nothing_is_written_over_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "thesis.txt").write_text("ten years")
    with pytest.raises(InvalidArgument, match="not from an earlier run"), Folder(str(tmp_path), ("messages",)):
        pass
    (tmp_path / "LOCK").touch()
    with pytest.raises(InvalidArgument, match="that the store itself uses"):
        Folder(str(tmp_path / "logs" / "orders"), ("messages",))
    with pytest.raises(InvalidArgument, match="not a folder of this machine"):
        Folder("s3://bucket/reports", ("messages",))
