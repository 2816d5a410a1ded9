"""Where and with what was it measured? Enough to judge the figures by, and nothing that names the machine."""

import datetime
import hashlib
import os
import platform
import sqlite3
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["describe", "filesystem_of", "fingerprint"]

_LIBRARIES = (
    "holdfast",
    "fastcrc",
    "rocksdict",
    "pyarrow",
    "persist-queue",
    "litequeue",
    "huey",
    "diskcache",
    "rich",
    "matplotlib",
    "obstore",
)
_ROOT = Path(__file__).resolve().parent.parent


def describe(folder: Path) -> dict[str, Any]:
    """Python, platform, processor, libraries, date and commit; the kind of file system under `folder`."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed_since_commit": bool(_git("status", "--porcelain", "--", "src")),
        "source": fingerprint(),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "filesystem": filesystem_of(folder),
        "libraries": {name: version(name) for name in _LIBRARIES} | {"sqlite": sqlite3.sqlite_version},
    }


def filesystem_of(folder: Path) -> str:
    """The type of the file system that holds the folder, such as ext4; "unknown" where Linux does not tell."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    for line in lines:
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == wanted:
            return source.split()[0]
    return "unknown"


def fingerprint() -> str:
    """Tells apart two states of the library between commits."""
    digest = hashlib.sha256()
    for path in sorted((_ROOT / "src" / "holdfast").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
