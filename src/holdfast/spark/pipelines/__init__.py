"""The shipped pipelines. Each is a module with a function `run`, to use as it is or to copy and change.

    def run(spark: SparkSession, data: str, *, log: str, out: str = "archive", limit: int | None = None) -> Result:

`spark` is a session that knows `format("holdfast")`, `data` the folder of the store. Every other argument is an option,
by the same name in Python and (with dashes) on the command line:

    holdfast pipeline NAME --data data --log orders --out archive
    holdfast pipeline run NAME --data data --option log=orders --option out=archive

An option is annotated with `str`, `int`, `float`, `bool`, `Path`, `datetime`, `timedelta`, a `Literal` of words, a
`list` of one of these, or one of these `| None`; an option without a default must be given. With
`Annotated[str, "The log to read."]` it has a line of help. Errors are raised as `HoldfastError`, whose text the
command line shows unchanged. Rows and facts hold plain values, numbers as numbers and times as times: the command line
formats them.

Modules are imported on demand: listing the pipelines does not need Spark.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.base.errors import NotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PIPELINES", "Pipeline", "Result", "load_pipeline"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a pipeline: a small table, and facts such as paths and counts."""

    title: str
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    ok: bool = True
    """False if it ran to its end and found something bad, such as damage: the exit code is then 1."""

    @classmethod
    def of(cls, title: str, frame: "DataFrame", **facts: object) -> "Result":
        """Return a result with the rows of a DataFrame that is small enough to be shown."""
        return cls(title, frame.columns, [tuple(row) for row in frame.collect()], facts)


class Pipeline(NamedTuple):
    """The module of a pipeline, and its description in one line."""

    module: str
    description: str


PIPELINES: dict[str, Pipeline] = {
    name: Pipeline(f"holdfast.spark.pipelines.{module}", description)
    for name, module, description in (
        ("archive", "archive", "Archive logs and lifecycles to a lake (Parquet, Delta, Iceberg), each record once."),
        ("replay", "replay", "Replay messages of a log, or of its archive, into a queue or a log, once."),
        (
            "lifecycle",
            "lifecycle",
            "Report the lifecycle of messages: waiting and processing times, attempts, failures.",
        ),
        ("deadletters", "deadletters", "Report failed and dead-lettered messages: reasons grouped, with examples."),
        ("report", "report.pipeline", "Write the lifecycle and dead-letter reports as HTML."),
        ("load", "load", "Load Parquet, ORC, CSV or JSON files into a log or a queue, in parallel."),
        ("verify", "verify", "Check every checksum of a store, logs and journals, in parallel."),
        ("backfill", "backfill", "Build a new index of a table in parallel, from its log."),
        ("stream", "stream", "Count the records of a log by key and window as they arrive, into a queue and Parquet."),
    )
}
"""Every shipped pipeline by its name."""


def load_pipeline(name: str) -> Callable[..., Result]:
    """Return the `run` of a pipeline."""
    known = PIPELINES.get(name)
    if known is None:
        raise NotFound(f"there is no pipeline {name!r}; there are: {', '.join(PIPELINES)}")
    run: Callable[..., Result] = importlib.import_module(known.module).run
    return run
