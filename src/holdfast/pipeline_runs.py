"""Records of pipeline runs over a store and their results: one small file for each run, next to the logs.

A pipeline reads a store that another process may own, so these files take no lock: each belongs to one run, and is
replaced as a whole.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.base.checked_json import decode_checked, replace_checked
from holdfast.base.clock import Clock, SystemClock
from holdfast.base.errors import HoldfastError, NotFound
from holdfast.base.files import SystemFiles
from holdfast.base.pid import is_alive

__all__ = ["ID_VARIABLE", "Run", "Runs", "new_id", "noted"]

FOLDER = "pipelines"
ID_VARIABLE = "HOLDFAST_RUN"
"""The environment variable with which the process that starts a pipeline sets the id of the run."""
KEPT = 200
"""How many runs are kept."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a pipeline."""

    id: str
    pipeline: str
    started_at: int
    process: int
    options: dict[str, Any] = field(default_factory=dict)
    ended_at: int | None = None
    ok: bool | None = None
    title: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def state(self) -> str:
        """Return `running`, `done`, `failed`, or `gone` if its process ended without a result."""
        if self.ended_at is not None:
            return "failed" if self.error or not self.ok else "done"
        return "running" if is_alive(self.process) else "gone"


class Runs:
    """The runs over one store. Files: `pipelines/*.json`. Threads and processes: any."""

    def __init__(self, store: Path, clock: Clock | None = None) -> None:
        self._folder = store / FOLDER
        self._clock = clock or SystemClock()
        self._files = SystemFiles.of_store(store)

    def begin(self, pipeline: str, options: Mapping[str, Any], *, id: str | None = None) -> Run:
        """Record that a pipeline starts in this process."""
        now = self._clock.time_ns()
        run = Run(id or new_id(now), pipeline, now, os.getpid(), {name: _plain(one) for name, one in options.items()})
        self._files.make_dirs(self._folder)
        self._keep(run)
        for old in sorted(self._folder.glob("*.json"))[:-KEPT]:
            old.unlink(missing_ok=True)
        return run

    def end(self, run: Run, *, ok: bool, error: str = "", outcome: Mapping[str, Any] | None = None) -> None:
        """Record the result of a run."""
        said = outcome or {}
        self._keep(
            replace(
                run,
                ended_at=self._clock.time_ns(),
                ok=ok,
                error=error,
                title=str(said.get("title", "")),
                rows=[dict(row) for row in said.get("rows", ())][:100],
                facts=dict(said.get("facts", {})),
            )
        )

    def all(self, count: int = 50) -> list[Run]:
        """Return the last runs, newest first."""
        found = []
        for path in sorted(self._folder.glob("*.json"), reverse=True)[:count]:
            with contextlib.suppress(OSError, ValueError, TypeError):  # just replaced, or written by a newer version
                found.append(Run(**decode_checked(path.read_bytes())))
        return found

    def get(self, id: str) -> Run:
        """Return one run."""
        for run in self.all(KEPT):
            if run.id == id:
                return run
        raise NotFound(f"there is no pipeline run {id!r}: it never started, or its record was removed")

    def _keep(self, run: Run) -> None:
        content = json.loads(json.dumps(asdict(run), default=str))
        replace_checked(self._files, self._folder / f"{run.id}.json", content)


@contextlib.contextmanager
def noted(store: Path, pipeline: str, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Record a run and its result. The caller puts title, rows and facts into the yielded dictionary.

    If nothing can be written, such as on a read-only copy, the run continues without a record.
    """
    runs = Runs(store)
    run: Run | None = None
    if store.is_dir():
        with contextlib.suppress(OSError):
            run = runs.begin(pipeline, options, id=os.environ.get(ID_VARIABLE))
    outcome: dict[str, Any] = {}
    error = "interrupted"
    try:
        yield outcome
        error = ""
    except HoldfastError as problem:
        error = str(problem)
        raise
    finally:
        if run is not None:
            with contextlib.suppress(OSError):
                runs.end(run, ok=not error and bool(outcome.get("ok", True)), error=error, outcome=outcome)


def new_id(now_ns: int) -> str:
    """Return an id that sorts by time."""
    return f"{now_ns // 1_000_000:014d}-{secrets.token_hex(3)}"


def _plain(value: Any) -> Any:
    return value if isinstance(value, None | bool | int | float | str) else str(value)
