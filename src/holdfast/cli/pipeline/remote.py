"""Runs a pipeline on the server's machine: starts it there, waits for it, and prints its result here."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast.base.errors import HoldfastError
from holdfast.cli.options import UsageError
from holdfast.cli.output import error_console
from holdfast.cli.pipeline.output import show_result
from holdfast.remote.store import RemoteStore
from holdfast.spark.pipelines import Result

__all__ = ["raw_options", "run_on_server", "written_options"]


def run_on_server(remote: RemoteStore, name: str, options: Mapping[str, Any], *, as_json: bool) -> int:
    """Run a pipeline on the server and print its result; return the exit code."""
    run = remote.pipelines.begin(name, options)
    console = error_console()
    if as_json or not console.is_terminal:
        run = remote.pipelines.wait(run["id"])
    else:
        with console.status(f"running {name} at {remote.address}"):
            run = remote.pipelines.wait(run["id"])
    if run.get("error") or run["state"] == "gone":
        raise HoldfastError(f"{name}: {run.get('error') or 'its process ended without a result: see the server log'}")
    columns = list(dict.fromkeys(column for row in run.get("rows") or () for column in row))
    rows = [tuple(row.get(column) for column in columns) for row in run.get("rows") or ()]
    ok = run.get("ok") is not False
    show_result(
        name, Result(run.get("title") or name, columns, rows, dict(run.get("facts") or {}), ok), as_json=as_json
    )
    return 0 if ok else 1


def raw_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Return options from `key=value`, unchecked, for the server to check; a repeated key is a list."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        name = key.strip().replace("-", "_")
        if not equals or not name:
            raise UsageError(f"an option is written key=value, not {pair!r}")
        if name in found:
            before = found[name]
            found[name] = [*(before if isinstance(before, list) else [before]), text]
        else:
            found[name] = text
    return found


def written_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return converted options in a form that JSON can hold."""
    return {name: _written(value) for name, value in arguments.items()}


def _written(value: Any) -> Any:
    match value:
        case list() | tuple():
            return [_written(one) for one in value]
        case datetime():
            return value.isoformat()
        case timedelta():
            return f"{value.total_seconds():g}s"
        case Path():
            return str(value)
    return value
