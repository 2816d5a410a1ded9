"""The shipped pipelines. Each is a module with a function `run`, to use as it is or to copy and change.

    def run(spark: SparkSession, data: str, *, log: str, out: str = "archive", limit: int | None = None) -> Result:

`spark` is a session that knows `format("holdfast")`, `data` the folder of the store. Every other argument is an option,
by the same name in Python and (with dashes) on the command line:

    holdfast pipeline NAME --data data --log orders --out archive
    holdfast pipeline run NAME --data data --option log=orders --option out=archive

An option is annotated with `str`, `int`, `float`, `bool`, `Path`, `datetime`, `timedelta`, a `Literal` of words, a
`list` of one of these, or one of these `| None`; an option without a default must be given. With
`Annotated[str, "The log to read."]` it has a line of help. What is wrong is raised as a `HoldfastError`, whose text the
command line shows as it is. Rows and facts hold plain values, numbers as numbers and times as times: how they are
written is for the command line to say.

Modules are imported when they are asked for: to see the list, Spark need not be installed.
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
    """False where it ran to its end and found something bad, such as damage: the exit code is then 1."""

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
        ("archive", "archive", "Bring a lake (Parquet, Delta, Iceberg) up to date with a store, each record once."),
        ("replay", "replay", "Put messages of a log, or of its archive, into a queue or a log again, once."),
        ("lifecycle", "lifecycle", "What became of each message: waiting and working times, attempts, failures."),
        ("deadletters", "deadletters", "Why messages died: reasons grouped, with examples and how to go on."),
        ("report", "report.pipeline", "Write the reports of both as HTML to look at."),
        ("load", "load", "Bring Parquet, CSV or JSON files into a log or a queue, in parallel."),
        ("verify", "verify", "Check every checksum of a store, logs and journals, in parallel."),
        ("backfill", "backfill", "Build a new index of a table in parallel, and hand it over as sorted files."),
        ("stream", "stream", "Count the records of a log by key and window as they come, into a queue and Parquet."),
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
