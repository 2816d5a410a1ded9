"""Shuffle partitions of the shipped pipelines: sized by the input, with the session as it was afterwards."""

import threading
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast import Backoff
from holdfast.spark.pipelines import deadletters, lifecycle, verify
from holdfast.spark.shuffles import partitions_for, sized_shuffles

PARTITIONS = "spark.sql.shuffle.partitions"
MANY = 200
"""Spark's own default."""


@pytest.fixture
def default(spark: SparkSession) -> SparkSession:
    """The session with Spark's default of partitions, which a cluster has; another name of it."""
    made = spark.newSession()
    made.conf.set(PARTITIONS, MANY)
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("shuffles") / "data")
    with holdfast.open(path) as store:
        orders = store.queue("orders", max_attempts=2, dead_letter="orders.dead", backoff=Backoff(1, 1))
        orders.put_many([b"order %d" % number for number in range(200)])
        orders.ack(orders.lease(150))
        orders.nack(orders.lease(40), "no such customer")
    return path


def tasks_of(spark: SparkSession, group: str) -> int:
    """How many tasks the jobs of a group had."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    return sum(info.numTasks for stage in stages if (info := tracker.getStageInfo(stage)) is not None)


@pytest.mark.parametrize("pipeline", [lifecycle, deadletters])
def test_reports_over_few_messages_have_few_tasks(
    default: SparkSession, data: str, tmp_path: Path, pipeline: ModuleType
) -> None:
    default.conf.set("spark.sql.adaptive.enabled", "false")  # which would hide it, mostly
    group = pipeline.__name__
    default.sparkContext.setJobGroup(group, group)
    try:
        result = pipeline.run(default, data, out=str(tmp_path / "out"), report=False)
    finally:
        default.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert result.rows
    assert 0 < tasks_of(default, group) < MANY
    assert (default.conf.get(PARTITIONS), default.conf.get("spark.sql.adaptive.enabled")) == (str(MANY), "false")


def test_segments_are_verified_by_a_few_tasks_for_each_core(default: SparkSession, data: str) -> None:
    assert verify.segments(default, data).rdd.getNumPartitions() <= 2 * verify.TASKS_A_CORE


def test_partitions_follow_the_rows() -> None:
    assert [partitions_for(rows) for rows in (0, 1, 250_000, 250_001, 10**8, 10**12)] == [1, 1, 1, 2, 400, 10_000]


def test_the_session_is_as_it_was_when_the_last_of_several_blocks_ends(default: SparkSession) -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with sized_shuffles(default, 3):
            entered.set()
            assert leave.wait(60)

    thread = threading.Thread(target=other)
    with pytest.raises(ZeroDivisionError), sized_shuffles(default, 7):
        assert default.conf.get(PARTITIONS) == "7"
        thread.start()
        assert entered.wait(60)
        raise ZeroDivisionError
    assert default.conf.get(PARTITIONS) == "3"  # the other one is in it
    leave.set()
    thread.join()
    assert default.conf.get(PARTITIONS) == str(MANY)


def test_what_was_not_set_is_not_set_afterwards(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.unset("spark.sql.adaptive.enabled")
    with sized_shuffles(session, 1):
        assert session.conf.get("spark.sql.adaptive.enabled", None) == "true"
    assert session.conf.get("spark.sql.adaptive.enabled", None) is None
