"""What does Holdfast keep when it is killed? `holdfast demo` shows it on a folder of its own."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.cli.demo.orders import LOG
from holdfast.cli.demo.queue_story import tell_of_queues
from holdfast.cli.demo.scorecard import scorecard, scorecard_json
from holdfast.cli.demo.shipping import QUEUE
from holdfast.cli.demo.spark_story import tell_of_spark
from holdfast.cli.demo.stage import Stage
from holdfast.cli.demo.story import tell
from holdfast.cli.options import JsonOption
from holdfast.cli.output import show, write_json

__all__ = ["demo"]


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Use this new folder, and leave it there.")
    ] = None,
    records: Annotated[
        int, typer.Option("--records", min=1000, metavar="N", help="How many records are written.")
    ] = 1_000_000,
    orders: Annotated[
        int, typer.Option("--orders", min=1000, metavar="N", help="How many orders go through the queue.")
    ] = 20_000,
    spark: Annotated[bool, typer.Option(help="End in Spark, where it is installed.")] = True,
    pause: Annotated[bool, typer.Option(help="Stop a moment between chapters on a terminal.")] = True,
    as_json: JsonOption = False,
) -> int:
    """Show the whole story: write, kill, recover, work, fail, redrive, and see it in Spark.

    A process writes a million records and is killed in the midst of it; then one that works on a queue is.

    Every figure is measured in this run. The exit code is 1 if anything that was confirmed is missing, or came twice.
    """
    stage = Stage(silent=as_json, pause=pause)
    began = time.perf_counter()
    with _folder(keep) as data:
        figures = tell(data, records, stage)
        tell_of_queues(data, orders, figures, stage)
        if spark:
            tell_of_spark(data, figures, stage, kept=keep is not None)
    seconds = time.perf_counter() - began
    if as_json:
        write_json(scorecard_json(figures, seconds))
    else:
        show("", scorecard(figures, seconds))
        if keep is not None:
            show(f"kept: look at it with  holdfast log stats {LOG} --data {keep}")
            show(f"                 and  holdfast stats {QUEUE} --data {keep}")
    if not figures.ok:
        broken = "; ".join(promise.text for promise in figures.promises if not promise.kept)
        raise HoldfastError(f"the demo found a broken promise, not true was: {broken}")
    return 0


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
            yield Path(folder) / "data"
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InvalidArgument(f"{str(keep)!r} is not empty: choose a new folder, the demo would write into it")
    yield keep
