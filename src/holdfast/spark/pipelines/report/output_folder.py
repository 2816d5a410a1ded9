"""Output folder of a run: written to a hidden folder, then swapped for the output of the last run."""

import shutil
import uuid
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Self

import holdfast
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.spark.pipelines.output_modes import make_private

__all__ = ["Folder", "chosen_queues", "default_folder"]

OWN = ("logs", "journals", "state")
"""Folders of a store in which only the store itself may write."""
_NAMED = 10


def chosen_queues(data: str, queues: str | None) -> list[str]:
    """Return the queues that names and patterns match; all without them. A name that matches none is an error."""
    with holdfast.open(data, read_only=True, background=False) as store:
        known = store.queues()
    if queues is None:
        return known
    found: set[str] = set()
    for word in filter(None, (part.strip() for part in queues.split(","))):
        fitting = [name for name in known if name == word or fnmatchcase(name, word)]
        if not fitting:
            few = ", ".join(map(repr, known[:_NAMED])) or "none"
            raise NotFound(f"no queue in {data!r} matches {word!r}; there are: {few}")
        found.update(fitting)
    return sorted(found)


def default_folder(data: str, name: str) -> str:
    """Return `reports/<name>` in the store's folder, which the store itself does not use."""
    return str(Path(data.removeprefix("file://")) / "reports" / name)


class Folder:
    """A folder in which a run replaces the output of the last run, and nothing else.

    Everything is written into a hidden folder inside it first. Only when all is complete are the old entries moved out
    and the new ones in: a run that fails changes nothing, and one that is killed during the move leaves both, one of
    them hidden. The folder must be one that this machine and Spark's workers can access, as the store's own is.
    """

    def __init__(self, path: str, entries: tuple[str, ...]) -> None:
        if "://" in path.removeprefix("file://"):
            raise InvalidArgument(
                f"{path!r} is not a folder of this machine: write to a local folder, and copy the result"
            )
        self.root = Path(path.removeprefix("file://")).absolute()
        self.entries = entries
        own = {parent.name for parent in (self.root, *self.root.parents) if (parent.parent / "LOCK").exists()}
        if own.intersection(OWN):
            raise InvalidArgument(f"{path!r} is inside a folder that the store itself uses: choose another folder")
        self._staging = self.root / f".new-{uuid.uuid4().hex}"

    def new(self, entry: str) -> str:
        """Return the path of an entry during the run."""
        return str(self._staging / entry)

    def path(self, entry: str) -> str:
        """Return the path of an entry after the run."""
        return str(self.root / entry)

    def __enter__(self) -> Self:
        for entry in self.entries:
            there = self.root / entry
            if there.is_dir() and any(there.iterdir()) and not (there / "_SUCCESS").exists():
                raise InvalidArgument(
                    f"{str(there)!r} is not from an earlier run: move it away, or choose another folder"
                )
        make_private(self.root)
        self._staging.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._swap()
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    def _swap(self) -> None:
        old = self.root / self._staging.name.replace(".new-", ".old-")
        old.mkdir()
        for entry in self.entries:
            there, fresh = self.root / entry, self._staging / entry
            if there.exists():
                there.rename(old / entry)
            if fresh.exists():
                fresh.rename(there)
        shutil.rmtree(old, ignore_errors=True)
