"""The `holdfast demo` command: runs all parts of the demo in a new folder."""

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
from holdfast.cli.demo.log_part import run_log_part
from holdfast.cli.demo.orders import LOG, QUEUE
from holdfast.cli.demo.queue_part import run_queue_part
from holdfast.cli.demo.spark_part import run_spark_part
from holdfast.cli.demo.stage import Stage
from holdfast.cli.options import JsonOption
from holdfast.cli.output import show, write_json

if TYPE_CHECKING:
    from holdfast.cli.demo.server_part import Serving

__all__ = ["demo"]


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Use this new folder, and do not delete it.")
    ] = None,
    records: Annotated[
        int, typer.Option("--records", min=1000, metavar="N", help="Records to write to the log.")
    ] = 1_000_000,
    orders: Annotated[
        int, typer.Option("--orders", min=1000, metavar="N", help="Orders to put into the queue.")
    ] = 20_000,
    serve: Annotated[bool, typer.Option(help="Serve the folder, if holdfast[server] is installed.")] = True,
    spark: Annotated[bool, typer.Option(help="Run a Spark pipeline, if holdfast[spark] is installed.")] = True,
    stay: Annotated[
        bool | None,
        typer.Option(help="Keep serving the page until Ctrl-C.", show_default="on a terminal"),
    ] = None,
    pause: Annotated[bool, typer.Option(help="Pause briefly between chapters on a terminal.")] = True,
    as_json: JsonOption = False,
) -> int:
    """Show and measure what survives kill -9: logs, queues, tables, the server, a backup, and Spark on top.

    A process writes a million records and is killed; then a process with queue workers is killed, and then the server.
    At last a whole machine is lost, and its standby serves.

    Every figure is measured in this run. The exit code is 1 if a confirmed message is missing or was processed twice.
    """
    from holdfast.cli.demo.table_part import run_table_part  # noqa: PLC0415 - other commands need not load tables

    stage = Stage(silent=as_json, pause=pause)
    watched = is_watched(stay) and not as_json
    began = time.perf_counter()
    with _ending_in_order(), _folder(keep) as data:
        run_log_part(data, records, stage)
        run_queue_part(data, orders, stage)
        run_table_part(data, stage)
        with _served(data, stage, watched=watched) if serve else contextlib.nullcontext() as server:
            if spark:
                run_spark_part(data, orders, stage, kept=keep is not None)
            _show_summary(stage, time.perf_counter() - began, keep, as_json=as_json)
            if server is not None and watched:
                show(f"\nThe management page is at {server.url} (user guest, password guest).")
                show("Press Ctrl-C to stop.")
                with contextlib.suppress(KeyboardInterrupt):
                    server.process.wait()
    return 0


def _show_summary(stage: Stage, seconds: float, keep: Path | None, *, as_json: bool) -> None:
    if as_json:
        write_json(stage.summary_json(seconds))
    else:
        show("", stage.summary(seconds))
        if keep is not None:
            show(f"The folder {keep} was kept. Look at it with:")
            show(f"  holdfast serve --data {keep}")
            show(f"  holdfast log stats {LOG} --data {keep}")
            show(f"  holdfast stats {QUEUE} --data {keep}")
    if stage.broken:
        raise HoldfastError(f"the demo found broken guarantees; these did not hold: {'; '.join(stage.broken)}")


def is_watched(stay: bool | None) -> bool:
    """Return `stay` or, if it is None, whether standard input and output are terminals."""
    return stay if stay is not None else sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGHUP and SIGTERM end the demo as Ctrl-C does, so that processes and files are removed."""
    known = [one for one in (signal.SIGHUP, signal.SIGTERM) if signal.getsignal(one) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        known = []

    def end(number: int, _: object) -> None:
        for one in known:
            signal.signal(one, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise SystemExit(128 + number)

    for one in known:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in known:
            signal.signal(one, signal.SIG_DFL)


@contextlib.contextmanager
def _served(data: Path, stage: Stage, *, watched: bool) -> Iterator["Serving | None"]:
    if any(importlib.util.find_spec(name) is None for name in ("argon2", "capnp", "starlette", "uvicorn")):
        stage.chapter("Serve the same folder")
        stage.say('skipped: run pip install "holdfast[server]" first')
        yield None
        return
    from holdfast.cli.demo.failover_part import run_failover_part  # noqa: PLC0415
    from holdfast.cli.demo.server_part import run_server_part, serving  # noqa: PLC0415 - needs holdfast[server]

    with serving(data, watched=watched) as server:
        run_server_part(server, stage)
        run_failover_part(stage)
        yield server


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
            yield Path(folder) / "data"
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InvalidArgument(f"{str(keep)!r} is not empty: choose a new folder for --keep")
    yield keep
