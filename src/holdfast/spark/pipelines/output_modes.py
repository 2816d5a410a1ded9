"""Folders for the output of pipelines: new ones are private to their owner, existing ones keep their mode."""

from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.base.files import SystemFiles, translate_os_errors
from holdfast.store import LOCK

__all__ = ["make_output", "make_private"]


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
