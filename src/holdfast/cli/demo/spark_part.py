"""The demo's last part: Spark computes the lifecycle of every order, and writes a report."""

import importlib.util
import tempfile
import time
from pathlib import Path

from holdfast.cli.demo.output import Stage
from holdfast.cli.demo.results import Figures
from holdfast.cli.demo.shipping import QUEUE
from holdfast.cli.pipeline.output import result_table

__all__ = ["has_spark", "run_spark_part"]


def has_spark() -> bool:
    """Return whether `holdfast[spark]` is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("pyspark", "pyarrow", "matplotlib"))


def run_spark_part(data: Path, figures: Figures, stage: Stage, *, kept: bool) -> None:
    """Run the pipeline `lifecycle` on this folder. The report is kept, even if the folder is not."""
    stage.chapter("Spark reads the lifecycle of every order from the same files, and draws it")
    if not has_spark():
        stage.say('skipped: run pip install "holdfast[spark]" first')
        return
    from holdfast.spark.pipelines.lifecycle import run  # noqa: PLC0415 - these need Spark
    from holdfast.spark.session import session  # noqa: PLC0415

    began = time.perf_counter()
    spark = session(app="holdfast demo")
    started = time.perf_counter()
    out = None if kept else str(Path(tempfile.mkdtemp(prefix="holdfast-report-")))
    result = run(spark, str(data.absolute()), out=out)
    figures.spark_seconds = time.perf_counter() - started
    stage.show(result_table(result))
    figures.report = str(result.facts["report"])
    messages = spark.read.parquet(str(result.facts["messages"])).where(f"queue = '{QUEUE}'")
    outcomes = {row["outcome"]: row["count"] for row in messages.groupBy("outcome").count().collect()}
    spark.stop()
    stage.say(f"Spark took {started - began:.0f} s to start and {figures.spark_seconds:.0f} s for this")
    stage.say(f"the report, with plots: {figures.report}")
    # The dead-lettered order was put again when it was redriven: two messages, one of them acked.
    figures.promise(
        "Spark counts one ack per order, and one dead letter", outcomes == {"acked": figures.orders, "dead": 1}
    )
