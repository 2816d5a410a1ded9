"""Creates Spark sessions that know `format("holdfast")`: finds a Java, and sends its standard error to a file."""

import atexit
import contextlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import holdfast.spark
from holdfast.base.errors import HoldfastError
from holdfast.base.pid import is_alive
from holdfast.spark.jvm import java_home

__all__ = ["session"]

_MEMORY_MIN, _MEMORY_MAX = 1, 8
_LAST_LINES = 3
_SOCKET_FOLDER_MAX = 60
"""The path of a socket may have 103 characters (Linux: 107), and Spark's names for them have 43 with the slash."""

_EVERYWHERE = {
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",  # as everything else of Holdfast
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",  # holdfast.spark.progress shows it
    # Without these Spark resolves its host name over the network, which may be slow, and listens on all addresses.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def session(master: str | None = None, *, app: str = "holdfast", **conf: object) -> SparkSession:
    """Return the running Spark session, or a new one; either knows `format("holdfast")` then.

    If a session is running, all arguments are ignored. `master` is where a new one runs: `local[*]`,
    `spark://host:7077`, `sc://host:15002` (Spark Connect). The default is the variable SPARK_MASTER, or else all cores
    of this machine. `conf` are settings of Spark, with underscores for dots or as they are:
    `session(**{"spark.driver.memory": "8g"})`; they override the defaults chosen here. Of these, only `spark.sql.*`
    reach a server of Spark Connect.

    Java's standard error goes to the file that the variable HOLDFAST_SPARK_LOG names, or else to a temporary one.
    """
    spark = _running()
    if spark is None:
        where = master or os.environ.get("SPARK_MASTER") or "local[*]"
        wanted = {name.replace("_", ".") if "." not in name else name: _text(value) for name, value in conf.items()}
        _keep_quiet()
        spark = _connect(where, app, wanted) if where.startswith("sc://") else _start(where, app, wanted)
    holdfast.spark.register(spark)
    return spark


def _running() -> SparkSession | None:
    spark = SparkSession.getActiveSession()
    if spark is None and SparkContext._active_spark_context is not None:
        spark = SparkSession.builder.getOrCreate()  # started by another thread
    return spark


def _keep_quiet() -> None:
    """Disable, for this process, the loggers with which PySpark prints a query error as JSON on standard error.

    The error itself is still raised.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _connect(url: str, app: str, conf: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.remote(url).appName(app)
    for name, value in {**_EVERYWHERE, **conf}.items():
        if name.startswith("spark.sql."):  # all other settings were fixed when the server started
            builder = builder.config(name, value)
    return builder.getOrCreate()


def _start(master: str, app: str, conf: dict[str, str]) -> SparkSession:
    chosen = {**_EVERYWHERE, "spark.hadoop.fs.permissions.umask-mode": f"{_umask():03o}"}
    folder = _own_folder()
    if cores := _local_cores(master):
        chosen |= _LOCAL
        if len(folder) <= _SOCKET_FOLDER_MAX:  # a third of the cost of TCP for each task
            chosen["spark.python.unix.domain.socket.enabled"] = "true"
            chosen["spark.python.unix.domain.socket.dir"] = folder
        chosen["spark.sql.shuffle.partitions"] = str(cores)
        chosen["spark.driver.memory"] = f"{_memory_gib()}g"
    chosen |= conf
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # there, spark-submit has started Java already
        os.environ["JAVA_HOME"] = str(java_home())
    settings = SparkConf(loadDefaults=False).setMaster(master).setAppName(app).setAll(list(chosen.items()))
    # Workers run the Python of the driver, which has Holdfast; on a cluster the user's setting applies.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    gateway = _launch(settings, Path(os.environ.get("HOLDFAST_SPARK_LOG") or Path(folder) / "spark.log"))
    SparkContext(conf=settings, gateway=gateway)
    return SparkSession.builder.getOrCreate()


def _umask() -> int:
    """Return the umask of this process. Hadoop ignores it and uses 022, unless a setting says otherwise."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def _own_folder() -> str:
    """Create a folder for sockets and Java's output, deleted when this process exits; return its path.

    Also deletes such folders of this user whose process has ended.
    """
    root = Path(tempfile.gettempdir())
    for left in root.glob("holdfast-spark-*-*"):
        owner = left.name.split("-")[2]
        with contextlib.suppress(OSError, ValueError):
            if left.stat().st_uid == os.getuid() and not is_alive(int(owner)):
                shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"holdfast-spark-{os.getpid()}-", dir=root)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _launch(conf: SparkConf, log: Path) -> JavaGateway:
    """Start Java with its standard error in a file: loggers can be silenced, Java's own warnings cannot.

    Raises `HoldfastError` with the last lines of that file if Java does not start.
    """
    with log.open("ab") as errors:
        try:
            gateway: JavaGateway = launch_gateway(conf, {"stderr": errors})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            raise HoldfastError(f"Spark did not start: {' '.join(said[-_LAST_LINES:]) or error}") from error
    return gateway


def _local_cores(master: str) -> int:
    """Return how many cores a local master uses; 0 for a cluster."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if match is None:
        return 0
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return available if match[1] == "*" else int(match[1] or 1)


def _memory_gib() -> int:
    """Return a quarter of the machine's memory, within limits: locally all of Spark runs in the driver."""
    with contextlib.suppress(ValueError, OSError):
        quarter = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 32
        return max(_MEMORY_MIN, min(_MEMORY_MAX, quarter))
    return _MEMORY_MIN


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
