"""API routes for Spark pipelines: list them, start runs as separate processes, and report their progress."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, cast

from holdfast.base.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.base.units import iso_time
from holdfast.pipeline_runs import ID_VARIABLE, Run, Runs, new_id
from holdfast.spark.pipelines import PIPELINES
from holdfast.web.api.pipeline_options import OPTIONS, checked_master, checked_options
from holdfast.web.api.response_types import Pipelines, RunJson, RunOffset, StartedRun
from holdfast.web.context import ServerContext
from holdfast.web.request_schema import TEXT, body, said
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["pipeline_routes"]

pipeline_routes = Routes("pipelines")
_ALL = "/api/holdfast/pipelines"
_DESCRIBE_S = 60
_PATIENCE_S = 0.3
_LAST_BYTES = 1 << 16
"""Length of the end of a process's output in which its last line is searched."""


@pipeline_routes.get(
    _ALL,
    needs=Needs.MONITORING,
    says="List the pipelines and their last runs.",
    query={"count": "Number of runs, 50 by default."},
)
def pipelines(call: Call) -> Pipelines:
    """Return the pipelines and the last runs."""
    options, pending = _describing.options()
    return {
        "pipelines": [
            {"name": name, "description": one.description, "options": options.get(name, [])}
            for name, one in PIPELINES.items()
            if name in OPTIONS
        ],
        "options_pending": pending,
        "runs": [_run_json(call.site, run) for run in Runs(call.site.store.path).all(call.number("count", 50))],
    }


@pipeline_routes.get(_ALL + "/runs/{id}", needs=Needs.MONITORING, says="Show one run of a pipeline.")
def one_run(call: Call) -> RunJson:
    """Return the status of a run."""
    return _run_json(call.site, Runs(call.site.store.path).get(call.path["id"]))


@pipeline_routes.post(
    _ALL + "/{name}/runs",
    needs=Needs.OPERATOR,
    says="Start a run of a pipeline on the server's machine.",
    takes=body(options={"type": "object"}, master=said(TEXT, "The Spark master, such as local[2].")),
    status=202,
)
def start(call: Call) -> Reply[StartedRun]:
    """Start a run in a process of its own; return its id without waiting for it (202).

    The run continues when the server stops.
    """
    name = call.path["name"]
    if name not in PIPELINES:
        raise NotFound(f"there is no pipeline {name!r}; there are: {', '.join(OPTIONS)}")
    if name not in OPTIONS:
        raise InvalidArgument(
            f"a server cannot run {name!r}, which opens the store for writing: stop the server and run "
            f"`holdfast pipeline {name} --data ...`"
        )
    store = call.site.store.path.absolute()
    command = [sys.executable, "-m", "holdfast", "pipeline", "run", name, "--data", str(store), "--json"]
    for option, value in checked_options(name, call.field("options", dict, {}), call.site.paths):
        command += ["--option", f"{option}={value}"]
    if master := checked_master(call.field("master", str, "")):
        command += ["--master", master]
    runs = Runs(store, call.site.clock)
    # Recorded before the process starts, so that the run can be found by its id. The process then updates the record.
    run = runs.begin(name, call.field("options", dict, {}), id=new_id(call.site.clock.time_ns()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    # Not a pipe: a stream writes for days, and continues when this server has stopped.
    said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the thread that waits for the process
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={**environment, ID_VARIABLE: run.id},
            cwd=store,
            start_new_session=True,
        )
    except BaseException as error:
        said.close()
        runs.end(run, ok=False, error=f"its process could not be started: {error}")
        raise
    threading.Thread(target=_record_end, args=(store, run, process, said), name="holdfast-run", daemon=True).start()
    return Reply({"id": run.id, "pipeline": name, "state": "running", "started_at": run.started_at}, 202)


def _record_end(store: Path, begun: Run, process: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
    """Wait for the process to end; record the end of one that ended before it could record anything."""
    code = process.wait()
    with said:
        said.seek(max(0, said.seek(0, os.SEEK_END) - _LAST_BYTES))
        last = said.read()
    runs = Runs(store)
    try:
        run = runs.get(begun.id)
    except NotFound:  # so many have run since that its record was deleted
        return
    if run.ended_at is None:
        text = last.decode("utf-8", "replace").strip().splitlines()
        runs.end(run, ok=False, error=text[-1] if text else f"the process ended with exit code {code}")


class _Describing:
    """Caches the options of each pipeline.

    Another process reports them, which takes some seconds: the broker's process should not load all of Spark.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._found: dict[str, Any] = {}

    def options(self) -> tuple[dict[str, Any], bool]:
        """Return the options that are known by now, after at most 0.3 s, and whether more will follow."""
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._ask, name="holdfast-describe", daemon=True)
                self._thread.start()
        self._thread.join(_PATIENCE_S)
        return dict(self._found), self._thread.is_alive()

    def _ask(self) -> None:
        command = [sys.executable, "-m", "holdfast", "pipeline", "list", "--options"]
        with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):  # then Spark is not installed
            done = subprocess.run(command, capture_output=True, timeout=_DESCRIBE_S, check=True)
            self._found = {one["name"]: one["options"] for one in json.loads(done.stdout)["pipelines"]}


_describing = _Describing()


def _run_json(site: ServerContext, run: Run) -> RunJson:
    form = {
        **asdict(run),
        "state": run.state,
        "started_time": iso_time(run.started_at),
        "ended_time": iso_time(run.ended_at),
        "offsets": _offsets(site, run),
    }
    return cast("RunJson", form)


def _offsets(site: ServerContext, run: Run) -> list[RunOffset]:
    """Return the offsets of a stream, from its checkpoint, and the ends of its logs."""
    checkpoint = run.options.get("checkpoint")
    if not isinstance(checkpoint, str) or "://" in checkpoint:
        return []
    found: list[RunOffset] = []
    for folder in sorted((site.store.path / checkpoint).glob("**/offsets")):
        batches = sorted((int(path.name) for path in folder.iterdir() if path.name.isdigit()), reverse=True)
        if not batches:
            continue
        lines = (folder / str(batches[0])).read_text(errors="replace").splitlines()
        with contextlib.suppress(ValueError, IndexError, AttributeError):
            for label, position in json.loads(lines[2]).items():
                place = position.get("0")  # as the source stores it: one number for the one partition of a log
                end = _end(site, label)
                lag = end - place if end is not None and isinstance(place, int) else None
                found.append(
                    {
                        "query": folder.parent.name,
                        "log": label,
                        "batch": batches[0],
                        "offset": place,
                        "end": end,
                        "lag": lag,
                    }
                )
    return found


def _end(site: ServerContext, log: str) -> int | None:
    opened = site.store.open_log(log)
    if opened is not None:
        return opened.end
    import holdfast  # noqa: PLC0415 - only where the log is not open

    with contextlib.suppress(HoldfastError), holdfast.open(site.store.path, read_only=True) as view:
        return view.log(log).readable()[1]
    return None
