"""The demo's last part: Spark computes the lifecycle of every order, and writes a report."""

import importlib.util
import tempfile
import time
from pathlib import Path

from holdfast.cli.demo.orders import QUEUE
from holdfast.cli.demo.stage import Stage
from holdfast.cli.pipeline.output import result_table

__all__ = ["run_spark_part"]


def run_spark_part(data: Path, orders: int, stage: Stage, *, kept: bool) -> None:
    """Run the pipeline `lifecycle` on this folder. The report is kept, even if the folder is not."""
    stage.chapter("Spark reads the lifecycle of every order from the same files, and draws it")
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pyarrow", "matplotlib")):
        stage.say('skipped: run pip install "holdfast[spark]" first')
        return
    from holdfast.spark.pipelines.lifecycle import run  # noqa: PLC0415 - these need Spark
    from holdfast.spark.session import session  # noqa: PLC0415

    began = time.perf_counter()
    spark = session(app="holdfast demo")
    started = time.perf_counter()
    out = None if kept else tempfile.mkdtemp(prefix="holdfast-report-")
    result = run(spark, str(data.absolute()), out=out)
    seconds = time.perf_counter() - started
    stage.show(result_table(result))
    messages = spark.read.parquet(str(result.facts["messages"])).where(f"queue = '{QUEUE}'")
    outcomes = {row["outcome"]: row["count"] for row in messages.groupBy("outcome").count().collect()}
    spark.stop()
    stage.say(f"Spark took {started - began:.0f} s to start and {seconds:.0f} s for this")
    stage.say(f"the report, with plots: {result.facts['report']}")
    # The dead-lettered order was put again when it was redriven: two messages, one of them acked.
    stage.promise("Spark counts one ack per order, and one dead letter", outcomes == {"acked": orders, "dead": 1})
    stage.note(spark_seconds=seconds, report=result.facts["report"])
