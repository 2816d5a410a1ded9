"""Progress bar of Spark jobs by tasks, and of streams by rows; on a terminal only."""

import contextlib
import threading
from collections.abc import Iterator

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

__all__ = ["JobWatch", "StreamWatch", "progress"]

_EVERY_S = 0.2
_OTHER_COLUMNS_WIDTH = 62


class JobWatch:
    """Adds up the tasks of all jobs that were running at a call of `look`; a job between two calls is not counted."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._stages: dict[int, tuple[int, int]] = {}
        """By stage: the finished tasks, and all tasks."""
        self._running: set[int] = set()

    def look(self) -> tuple[int, int]:
        """Return the finished tasks, and all tasks known so far."""
        running: set[int] = set()
        for job in self._tracker.getActiveJobsIds():
            info = self._tracker.getJobInfo(job)
            running.update(info.stageIds if info is not None else ())
        for stage in self._running | running:
            done, total = self._stages.get(stage, (0, 0))
            found = self._tracker.getStageInfo(stage)
            if found is not None:  # Spark drops old stages, and does not know later ones yet
                done, total = found.numCompletedTasks, found.numTasks
            # Skipped stages, whose result an earlier job computed, are not counted.
            self._stages[stage] = (done, total if stage in running else done)
        self._running = running
        return sum(done for done, _ in self._stages.values()), sum(total for _, total in self._stages.values())


class StreamWatch:
    """Adds up the rows of micro-batches of a session's active streams, as far back as Spark keeps their progress."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._batch: dict[str, int] = {}
        """The last batch of each query that was counted."""
        self.rows = 0
        self.pace = 0.0

    def look(self) -> bool:
        """Count new rows; return whether any stream is running."""
        active = self._spark.streams.active
        self.pace = 0.0
        for query in active:
            counted = self._batch.get(str(query.runId), -1)
            for batch in query.recentProgress:
                if batch["batchId"] > counted:
                    self.rows += batch["numInputRows"]
                    counted = batch["batchId"]
            self._batch[str(query.runId)] = counted
            last = query.lastProgress
            if last is not None:
                self.pace += last["processedRowsPerSecond"] or 0.0
        return bool(active)


@contextlib.contextmanager
def progress(
    spark: SparkSession, title: str = "Spark", *, shown: bool = True, console: Console | None = None
) -> Iterator[None]:
    """Show Spark's progress on standard error (or `console`) while the block runs; only on a terminal."""
    console = console or Console(stderr=True)
    if not (shown and console.is_terminal):
        yield
        return
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=max(4, min(30, console.width - _OTHER_COLUMNS_WIDTH))),
        TextColumn("{task.fields[amount]}", style="cyan"),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(Text(title).plain, total=None, amount="")
        over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(spark, bar, task, over), daemon=True, name="holdfast-progress")
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _watch(spark: SparkSession, bar: Progress, task: TaskID, over: threading.Event) -> None:
    # A progress bar must not raise errors: without access to Spark's status (Connect has no context) it only spins.
    with contextlib.suppress(Exception):
        jobs, streams = JobWatch(spark), StreamWatch(spark)
        while not over.wait(_EVERY_S):
            if streams.look():
                pace = f"  {streams.pace:,.0f}/s" if streams.pace else ""
                bar.update(task, total=None, amount=f"{streams.rows:,} rows{pace}")
                continue
            done, total = jobs.look()
            if total:
                bar.update(task, completed=done, total=total, amount=f"{done:,} of {total:,} tasks")
