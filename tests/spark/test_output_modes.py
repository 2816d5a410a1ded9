"""Modes of what pipelines write: the folders that they make are for their owner, and Spark looks at the umask."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.spark.pipelines import archive, lifecycle
from tests.spark.test_stream_pipeline import append
from tests.tiers import sample


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("umask", sample([0o022, 0o077], every=1), ids=oct)
def test_a_stream_from_the_command_line_writes_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    data, out, checkpoint = tmp_path / "data", tmp_path / "new" / "out", tmp_path / "checkpoint"
    append(data, (0.1, "aab"), (3.5, "c"))
    command = [sys.executable, "-m", "holdfast", "pipeline", "stream", "--data", str(data), "--log", "orders"]
    command += ["--master", "local[1]", "--out", str(out), "--checkpoint", str(checkpoint), "--available-now"]
    subprocess.run(command, check=True, capture_output=True, umask=umask)
    assert {mode(one) for one in (out, out.parent, checkpoint)} == {0o700}
    made = [path for top in (out, checkpoint) for path in top.rglob("*")]
    assert any(path.suffix == ".parquet" for path in made)
    assert {mode(path) for path in made if path.is_dir()} == {0o777 & ~umask}
    assert {mode(path) for path in made if path.is_file()} == {0o666 & ~umask}


def test_reports_and_lakes_are_for_their_owner_until_their_folder_is_opened(
    spark: SparkSession, tmp_path: Path, umask: None
) -> None:
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue("orders")
        queue.put(b"secret")
        for delivery in queue.lease(1):
            delivery.ack()
    lifecycle.run(spark, str(tmp_path / "data"), out=str(tmp_path / "report"))
    archive.run(spark, str(tmp_path / "data"), lake=str(tmp_path / "lake"))
    assert mode(tmp_path / "report") == mode(tmp_path / "lake") == 0o700
    for name in ("report", "lake"):
        (tmp_path / name).chmod(0o755)  # by who wants others to read it
    lifecycle.run(spark, str(tmp_path / "data"), out=str(tmp_path / "report"))
    archive.run(spark, str(tmp_path / "data"), lake=str(tmp_path / "lake"))
    assert mode(tmp_path / "report") == mode(tmp_path / "lake") == 0o755


def test_in_a_store_that_the_group_may_read_it_may_read_reports(
    spark: SparkSession, tmp_path: Path, umask: None
) -> None:
    with holdfast.open(tmp_path / "data", group_readable=True) as store:
        store.queue("orders").put(b"x")
    lifecycle.run(spark, str(tmp_path / "data"))
    assert mode(tmp_path / "data" / "reports" / "lifecycle") == 0o750
