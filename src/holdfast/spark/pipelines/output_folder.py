"""Output folders of pipelines: never those of a store, private if they are new, and replaced only as a whole."""

import shutil
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.base.files import SystemFiles, translate_os_errors
from holdfast.spark.options import matching_names
from holdfast.spark.store_access import StoreAccess
from holdfast.store_layout import LOCK

__all__ = ["Folder", "chosen_queues", "default_folder", "local_folder", "make_output", "make_private"]

_OF_STORE = {"logs", "journals", "state", "incoming"}
"""Folders of a store in which only the store itself may write."""


def chosen_queues(data: str, queues: str | None) -> list[str]:
    """Return the queues that names and patterns match; all without them. A name that matches none is an error."""
    with StoreAccess.of(data).open() as store:
        known = store.queues()
    if not known:
        raise NotFound(f"there are no queues in {data!r}: put a message into one first")
    if queues is None:
        return known
    return matching_names(f"queue in {data!r}", known, filter(None, (part.strip() for part in queues.split(","))))


def default_folder(data: str, name: str) -> str:
    """Return `reports/<name>` in the store's folder, which the store itself does not use."""
    if StoreAccess.of(data).url:
        raise InvalidArgument(f"a report cannot be written to {data!r}: choose a folder with the option 'out'")
    return str(Path(data.removeprefix("file://")) / "reports" / name)


def local_folder(path: str) -> Path:
    """Return the folder of this machine that a path or a `file:` URL names; raise an error if a store writes there."""
    if "://" in path.removeprefix("file://"):
        raise InvalidArgument(f"{path!r} is not a folder of this machine: choose a local or mounted folder")
    folder = Path(path.removeprefix("file://")).absolute()
    if not _OF_STORE.isdisjoint(part.name for part in (folder, *folder.parents) if (part.parent / LOCK).exists()):
        raise InvalidArgument(f"{path!r} is inside a folder that the store itself uses: choose another folder")
    return folder


def make_private(folder: Path) -> None:
    """Make a folder with mode 0700, and missing folders above it. Existing folders are not changed.

    In a store that its group may read it is 0750. Files in it have the modes of the umask; a `chmod` of this one folder
    gives other users access.
    """
    folder = folder.absolute()
    store = next((parent for parent in folder.parents if (parent / LOCK).exists()), None)
    files = SystemFiles() if store is None else SystemFiles.of_store(store)
    with translate_os_errors("making", folder):
        files.make_dirs(folder)


def make_output(spark: SparkSession, path: str) -> None:
    """Make the folder of a path that Spark writes to private, if it is on this machine.

    A `file:` path counts as such. A path without a scheme does if Spark's default file system is local, and never with
    Spark Connect: the server may be another user's or on another machine, and creates the folder itself.
    """
    if path.startswith("file:"):
        make_private(Path("/" + path.removeprefix("file:").lstrip("/")))
    elif "://" not in path and _writes_here(spark):
        make_private(Path(path))


def _writes_here(spark: SparkSession) -> bool:
    """Whether a path without a scheme is one of this machine."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return False
    default = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")
    return str(default).startswith("file:")


class Folder:
    """A folder in which a run replaces the output of the last run, and nothing else.

    Everything is written into a hidden folder inside it first. Only when all is complete are the old entries moved out
    and the new ones in: a run that fails changes nothing, and one that is killed during the move leaves both, one of
    them hidden. The folder must be one that this machine and Spark's workers can access, as the store's own is.
    """

    def __init__(self, path: str, entries: tuple[str, ...]) -> None:
        self.root = local_folder(path)
        self.entries = entries
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
