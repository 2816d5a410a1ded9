"""The `holdfast demo` command: plays all parts of the demo in a folder of its own."""

import contextlib
import importlib.util
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.cli.demo.log_part import tell
from holdfast.cli.demo.orders import LOG
from holdfast.cli.demo.output import Stage
from holdfast.cli.demo.queue_part import tell_of_queues
from holdfast.cli.demo.results import Figures
from holdfast.cli.demo.shipping import QUEUE
from holdfast.cli.demo.spark_part import tell_of_spark
from holdfast.cli.demo.summary import scorecard, scorecard_json
from holdfast.cli.options import JsonOption
from holdfast.cli.output import show, write_json

if TYPE_CHECKING:
    from holdfast.cli.demo.server_part import Serving

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
    serve: Annotated[bool, typer.Option(help="Serve the folder, where what that needs is installed.")] = True,
    spark: Annotated[bool, typer.Option(help="End in Spark, where it is installed.")] = True,
    stay: Annotated[
        bool | None,
        typer.Option(help="Go on serving the page until Ctrl-C.", show_default="on a terminal"),
    ] = None,
    pause: Annotated[bool, typer.Option(help="Stop a moment between chapters on a terminal.")] = True,
    as_json: JsonOption = False,
) -> int:
    """Show the whole story: write, kill, recover, work, fail, redrive, serve, back up, and see it in Spark.

    A process writes a million records and is killed in the midst of it; then one that works on a queue is.

    Every figure is measured in this run. The exit code is 1 if anything that was confirmed is missing, or came twice.
    """
    from holdfast.cli.demo.table_part import tell_of_tables  # noqa: PLC0415 - other commands need not load tables

    stage = Stage(silent=as_json, pause=pause)
    watched = is_watched(stay) and not as_json
    began = time.perf_counter()
    with _ending_in_order(), _folder(keep) as data:
        figures = tell(data, records, stage)
        tell_of_queues(data, orders, figures, stage)
        tell_of_tables(data, figures, stage)
        with _served(data, figures, stage, watched=watched) if serve else contextlib.nullcontext() as server:
            if spark:
                tell_of_spark(data, figures, stage, kept=keep is not None)
            _tell_the_end(figures, time.perf_counter() - began, keep, as_json=as_json)
            if server is not None and watched:
                show(f"\nthe page, with all that happened: {server.url}  (guest, password guest)")
                show("Ctrl-C ends it")
                with contextlib.suppress(KeyboardInterrupt):
                    server.process.wait()
    return 0


def _tell_the_end(figures: Figures, seconds: float, keep: Path | None, *, as_json: bool) -> None:
    if as_json:
        write_json(scorecard_json(figures, seconds))
    else:
        show("", scorecard(figures, seconds))
        if keep is not None:
            show(f"kept: look at it with  holdfast serve --data {keep}")
            show(f"                 and  holdfast log stats {LOG} --data {keep}")
            show(f"                 and  holdfast stats {QUEUE} --data {keep}")
    if not figures.ok:
        broken = "; ".join(promise.text for promise in figures.promises if not promise.kept)
        raise HoldfastError(f"the demo found a broken promise, not true was: {broken}")


def is_watched(stay: bool | None) -> bool:
    """Return `stay` or, if it is None, whether standard input and output are terminals."""
    return stay if stay is not None else sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGHUP and SIGTERM end the demo as Ctrl-C does, so that nothing is left behind."""
    known = [one for one in (signal.SIGHUP, signal.SIGTERM) if signal.getsignal(one) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():  # only that one can be told
        known = []

    def end(number: int, _: object) -> None:
        for one in known:
            signal.signal(one, signal.SIG_IGN)  # the second one must not cut short what the first one began
        raise SystemExit(128 + number)

    for one in known:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in known:
            signal.signal(one, signal.SIG_DFL)


@contextlib.contextmanager
def _served(data: Path, figures: Figures, stage: Stage, *, watched: bool) -> Iterator["Serving | None"]:
    if any(importlib.util.find_spec(name) is None for name in ("argon2", "capnp", "starlette", "uvicorn")):
        stage.chapter("The same folder is served")
        stage.say('left out: it needs what pip install "holdfast[server]" brings')
        yield None
        return
    from holdfast.cli.demo.server_part import serving, tell_of_serving  # noqa: PLC0415 - nor all of the server

    with serving(data, watched=watched) as server:
        tell_of_serving(data, server, figures, stage)
        yield server


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
            yield Path(folder) / "data"
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InvalidArgument(f"{str(keep)!r} is not empty: choose a new folder, the demo would write into it")
    yield keep
