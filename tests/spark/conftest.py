"""What do tests of Spark share? One session a run, a cluster and a Connect server of their own, all of them real."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from holdfast.spark.jvm import java_home
from holdfast.spark.session import session

SPARK_HOME = Path(pyspark.__file__).parent
_PATIENCE_S = 600
_APART = {
    *(
        "test_bad_input.py",
        "test_cluster.py",
        "test_cluster_apart.py",
        "test_connect.py",
        "test_demo.py",
        "test_exactly_once.py",
    ),
    *("test_live.py", "test_output_modes.py", "test_session.py"),
}
"""Those that start processes of their own, and some more: about half of the time that all of them take."""
Script = Callable[..., str]


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests that start Spark go to two workers: a JVM for each of the others would cost more than it brings."""
    for item in items:
        path = item.path.as_posix()
        if path.endswith("tests/cli/test_pipeline.py") or ("tests/spark/" in path and item.path.name in _APART):
            item.add_marker(pytest.mark.xdist_group("spark apart"))
        elif "tests/spark/" in path:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of this run: two cores, two partitions after a shuffle."""
    made = session("local[2]", app="tests")
    made.conf.set("spark.sql.shuffle.partitions", 2)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a standalone cluster: a master and two workers of one core, each a process of its own."""
    with _cluster(tmp_path_factory.mktemp("cluster")) as master:
        yield master


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """A folder that workers and drivers of `cluster_apart` find empty."""
    folder = tmp_path / "owner"
    folder.mkdir()
    return folder


@pytest.fixture
def blind(hidden: Path) -> list[str]:
    """The beginning of a command that cannot see the folder `hidden`: it has a mount namespace of its own."""
    command = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden)]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make mount namespaces")
    return command


@pytest.fixture
def cluster_apart(tmp_path: Path, blind: list[str]) -> Iterator[str]:
    """As `cluster`, of workers that cannot see the folder `hidden`."""
    (tmp_path / "cluster").mkdir()
    with _cluster(tmp_path / "cluster", blind) as master:
        yield master


@contextlib.contextmanager
def _cluster(folder: Path, before: Sequence[str] = ()) -> Iterator[str]:
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        # The pages for people get ports of their own, too: 0 is any.
        said = _start(
            stack,
            folder / "master.log",
            ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        )
        _wait_for(said, "I have been elected leader")
        for number in (1, 2):
            place = [
                "--cores",
                "1",
                "--memory",
                "1g",
                "--host",
                "127.0.0.1",
                "--work-dir",
                str(folder / f"work{number}"),
            ]
            worker = _start(
                stack,
                folder / f"worker{number}.log",
                ["org.apache.spark.deploy.worker.Worker", *place, "--webui-port", "0", master],
                before,
            )
            _wait_for(worker, "Successfully registered with master")
        yield master


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server, in whose Python Holdfast is installed."""
    folder = tmp_path_factory.mktemp("connect")
    port = _free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.ui.enabled": "false",
    }
    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with contextlib.ExitStack() as stack:
        command = ["org.apache.spark.deploy.SparkSubmit", "--class", server, "--master", "local[2]", *settings]
        said = _start(stack, folder / "connect.log", [*command, "spark-internal"])
        _wait_for(said, "Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}"


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs Python code in a process of its own, because a process has one JVM; returns what it printed."""

    def runner(code: str, *args: object, **env: str | None) -> str:
        path = tmp_path / "script.py"
        path.write_text(code)
        wanted = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
        done = subprocess.run(
            [sys.executable, str(path), *map(str, args)],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            env=wanted,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return runner


def _start(stack: contextlib.ExitStack, log: Path, words: list[str], before: Sequence[str] = ()) -> Path:
    """Run a class of Spark; it is gone when the stack is left. What it says is in the file.

    `before` is the beginning of the command.
    """
    env = os.environ | {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(log.parent),
    }
    (log.parent / "log4j2.properties").write_text(_LOG4J)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*before, str(SPARK_HOME / "bin" / "spark-class"), *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=log.parent,
            start_new_session=True,  # so that its executors go with it
        )

    def end() -> None:
        for how in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)

    stack.callback(end)
    return log


def _wait_for(log: Path, words: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not re.search(re.escape(words), log.read_text(errors="replace")):
        assert time.monotonic() < end, f"no {words!r} in: {log.read_text(errors='replace')[-2000:]}"
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


_LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""
