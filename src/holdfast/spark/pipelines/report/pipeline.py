"""The `report` pipeline: both reports of a store, lifecycle and dead letters, each as one HTML file.

holdfast pipeline report --data data
holdfast pipeline report --data data --queues 'orders*' --out /reports
"""

from typing import Annotated

from pyspark.sql import SparkSession

from holdfast.base.paths import local_path
from holdfast.spark.pipelines import Result, load_pipeline

__all__ = ["run"]

_REPORTS = ("lifecycle", "deadletters")


def run(
    spark: SparkSession,
    data: str,
    *,
    queues: Annotated[str | None, "Names or patterns, separated by commas, as 'orders*,mail'; default: all."] = None,
    out: Annotated[str | None, "A folder for both reports; default: reports in the store."] = None,
) -> Result:
    """Write the lifecycle and dead-letter reports as HTML."""
    rows = []
    for name in _REPORTS:
        place = None if out is None else str(local_path(out.removeprefix("file://"), "a report") / name)
        result = load_pipeline(name)(spark, data, queues=queues, out=place)
        rows.append((name, result.title, result.facts["report"]))
    return Result("the reports are written", ["report", "what it says", "file"], rows)
