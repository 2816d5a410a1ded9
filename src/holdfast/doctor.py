"""Health checks of an installation: settings, limits, disk, clock, versions, ports and the store."""

import contextlib
import errno
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import shlex
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from holdfast.backup.manifest import last_backup
from holdfast.base.clock import Clock, SystemClock
from holdfast.base.errors import HoldfastError
from holdfast.base.files import SystemFiles
from holdfast.base.paths import local_path
from holdfast.base.units import format_duration, format_size, plural
from holdfast.log.layout import HEADER_SIZE, parse_segment_header
from holdfast.log.remote_segments import REMOTE
from holdfast.log.segment_files import list_segments
from holdfast.queue_deletion import STAGING
from holdfast.running_server import RunningServer, server_of
from holdfast.state import FAMILIES, TABLE_FAMILIES
from holdfast.state.rocks import RocksState
from holdfast.store_layout import DELETING, JOURNALS, LOCK, LOGS, STATE
from holdfast.table_registry import STATE as TABLE_STATE
from holdfast.table_registry import TABLES
from holdfast.verification import verify_store

__all__ = ["BAD", "OK", "WARN", "Check", "Port", "check_modes", "examine"]

OK, WARN, BAD = "ok", "warn", "bad"
_QUEUE_FILES = 6
"""Open files of a durable queue that is in use."""
_SPARE_FILES = 256
_LITTLE_DISK, _LITTLE_INODES = 1 << 30, 10_000
_SLOW_SYNC_S = 0.05
_LITTLE_MEMORY = 512 << 20
_AHEAD_NS = 60 * 1_000_000_000
_OLD_CHECKPOINT_S = 7 * 86_400
_OLD_BACKUP_S = 7 * 86_400
_LOGS_CHECKED = 200
READ_WHOLE = 256 << 20
"""Of stores with more bytes only the last segments are verified; `holdfast verify` reads everything."""
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs"}
_IN_MEMORY = {"tmpfs", "ramfs"}
_PACKAGES = {
    "serving (holdfast[server])": ("argon2", "starlette", "uvicorn"),
    "event loop": ("uvloop",),
    "Spark (holdfast[spark])": ("pyspark", "pyarrow"),
    "encryption": ("cryptography",),
    "RPC": ("capnp",),
}


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    state: str
    """`ok`, `warn` or `bad`."""
    found: str
    advice: str = ""
    """What to do; empty if there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port that a server listens on, or would."""

    name: str
    host: str
    port: int
    tls: bool = False
    setting: str = ""
    """The setting that chooses the port, if it is known."""


def examine(
    data: str | os.PathLike[str],
    *,
    settings: Callable[[], object] | None = None,
    ports: Sequence[Port] = (),
    running: bool = False,
    clock: Clock | None = None,
    more: Mapping[str, Callable[[], Iterator[Check]]] | None = None,
) -> list[Check]:
    """Run all checks of the store in the folder `data`, which need not exist, and of this machine; return the results.

    A check that raises a HoldfastError, OSError or ValueError is a BAD result. `settings` loads the configuration, and
    raises an error if it is invalid. `running`: this process serves the store, and therefore holds its lock and the
    ports. `more` are checks of the caller, by name.
    """
    folder = local_path(data)
    now = clock or SystemClock()
    parts: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        ("configuration", lambda: _settings(settings)),
        ("open files", lambda: _open_files(folder)),
        ("memory", _memory),
        ("disk", lambda: _disk(folder)),
        ("clock", lambda: _clock(folder, now)),
        ("versions", lambda: _versions(folder)),
        ("store", lambda: _store(folder, running)),
        ("file modes", lambda: check_modes(folder)),
        ("last backup", lambda: _last_backup(folder, now)),
        ("ports", lambda: _ports(ports, running, server_of(folder))),
        *(more or {}).items(),
    ]
    checks: list[Check] = []
    for name, run in parts:
        try:
            checks += run()
        except (HoldfastError, OSError, ValueError) as error:
            checks.append(Check(name, BAD, f"the check failed: {error}", "Repair what the message names."))
    return checks


def _settings(settings: Callable[[], object] | None) -> Iterator[Check]:
    if settings is None:
        return
    try:
        settings()
    except HoldfastError as error:
        yield Check("configuration", BAD, str(error), "Correct it: holdfast serve does not start with it.")
    else:
        yield Check("configuration", OK, "valid")


def _open_files(data: Path) -> Iterator[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    queues = len(SystemFiles().list(data / JOURNALS))
    wanted = queues * _QUEUE_FILES + _SPARE_FILES
    most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    found = f"limit {soft} (hard limit {most}) for {plural(queues, 'queue')}"
    if most < wanted:
        yield Check(
            "open files",
            WARN,
            found,
            f"All queues together need about {wanted}: raise the hard limit (ulimit -Hn, or LimitNOFILE in systemd). "
            "Otherwise idle queues are closed and opened again.",
        )
    else:
        yield Check("open files", OK, found)


def _memory() -> Iterator[Check]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit not in (resource.RLIM_INFINITY, -1):
        total = min(total, limit)
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(path).read_text()))
    if total < _LITTLE_MEMORY:
        yield Check("memory", WARN, f"{format_size(total)} available to this process", "Give it 512 MiB or more.")
    else:
        yield Check("memory", OK, f"{format_size(total)} available to this process")


def _disk(data: Path) -> Iterator[Check]:
    place = next(path for path in (data.absolute(), *data.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(place).free
    yield Check(
        "disk space",
        OK if free >= _LITTLE_DISK else WARN,
        f"{format_size(free)} free",
        "" if free >= _LITTLE_DISK else "Free some space: publishers are blocked below disk_free_limit.",
    )
    inodes = os.statvfs(place)
    if inodes.f_files and inodes.f_favail < _LITTLE_INODES:
        yield Check("disk files", WARN, f"{inodes.f_favail} free inodes", "Delete files: each queue needs about ten.")
    else:
        yield Check("disk files", OK, f"{inodes.f_favail} free inodes" if inodes.f_files else "no limit of inodes")
    kind = _kind_of(place)
    if kind in _NETWORK:
        advice = "Use a local disk: locks and syncs are not reliable on a network file system."
        yield Check("file system", WARN, kind, advice)
    elif kind in _IN_MEMORY:
        yield Check("file system", WARN, kind, "Use a disk: this is memory, and is lost when the machine stops.")
    else:
        yield Check("file system", OK, kind or "unknown")
    yield _sync(place)


def _sync(place: Path) -> Check:
    times = []
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".holdfast-doctor-") as file:
            for _ in range(5):
                file.write(b"x" * 512)
                file.flush()
                started = time.perf_counter()
                os.fsync(file.fileno())
                times.append(time.perf_counter() - started)
    except OSError as error:
        return Check(
            "disk sync", BAD, f"cannot write and sync a file in {str(place)!r}: {error.strerror}",
            "Give this user write permission there, or free some space.",
        )  # fmt: skip
    middle = sorted(times)[len(times) // 2]
    if middle > _SLOW_SYNC_S:
        return Check(
            "disk sync",
            WARN,
            f"a sync takes {format_duration(middle)}",
            "Each confirmed message waits for a sync: use a faster disk, or Flush.batch if new messages may be lost.",
        )
    return Check("disk sync", OK, f"a sync takes {middle * 1000:.2f} ms")


def _kind_of(place: Path) -> str:
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, mount, found, *_ = line.split(" ")
            mount = mount.replace("\\040", " ")
            if (place == Path(mount) or Path(mount) in place.parents) and len(mount) >= len(best):
                best, kind = mount, found
    return kind


def _clock(data: Path, clock: Clock) -> Iterator[Check]:
    now = clock.time_ns()
    year = datetime.fromtimestamp(now / 1e9, UTC).year
    first = clock.monotonic()
    if not 2024 <= year < 2100:
        yield Check("clock", BAD, f"the year is {year}", "Set the machine's clock, preferably by NTP.")
        return
    if clock.monotonic() < first:
        yield Check("clock", BAD, "the monotonic clock went back", "Restart the machine, or report it to its operator.")
        return
    ahead = 0
    for folder in _some_logs(data):
        names = list_segments(SystemFiles(), folder)
        if names:
            with contextlib.suppress(OSError), names[-1].data_path(folder).open("rb") as file:
                header = parse_segment_header(file.read(HEADER_SIZE), str(folder))
                ahead = max(ahead, 0 if header is None else header.created - now)
    if ahead > _AHEAD_NS:
        yield Check(
            "clock",
            WARN,
            f"records are {format_duration(ahead / 1e9)} ahead of the clock",
            "The clock was set back: until it catches up, new records get the time of the last one.",
        )
    else:
        yield Check("clock", OK, f"{datetime.fromtimestamp(now / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC")


def _versions(data: Path) -> Iterator[Check]:
    from holdfast import __version__  # noqa: PLC0415

    yield Check("versions", OK, f"Holdfast {__version__}, Python {platform.python_version()}, {platform.platform()}")
    for what, modules in _PACKAGES.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        found = ", ".join(f"{name} {_version(name)}" for name in modules if name not in missing)
        lacks = f"not installed: {', '.join(missing)}" if missing else ""
        yield Check(what, OK, "; ".join(part for part in (found, lacks) if part))
    if importlib.util.find_spec("pyspark") is not None and shutil.which("java") is None and not _java_home():
        yield Check("Java", WARN, "pyspark is installed, but Java is not found", "Install Java 17, or set JAVA_HOME.")
    newer = []
    for folder in _some_logs(data):
        for name in ("log.json", "queue.json", "table.json", "schema.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if json.loads((folder / name).read_text())["format"] > 1:
                    newer.append(str(folder / name))
    if newer:
        yield Check("formats", BAD, f"{newer[0]} was written by a newer version of Holdfast", "Update Holdfast.")
    else:
        yield Check("formats", OK, "supported by this version")


def _version(module: str) -> str:
    names = {"argon2": "argon2-cffi", "capnp": "pycapnp"}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(names.get(module, module))
    return "?"


def _java_home() -> bool:
    home = os.environ.get("JAVA_HOME")
    return home is not None and (Path(home) / "bin" / "java").exists()


def _store(data: Path, running: bool) -> Iterator[Check]:
    if not data.exists():
        yield Check("store", OK, f"no store at {str(data)!r} yet: it is created by the first write")
        return
    yield _lock(data, running)
    left = len(SystemFiles().list(data / DELETING)) + sum(
        name.startswith("~deleted-") for name in SystemFiles().list(data / TABLES)
    )
    if left and not running:
        yield Check("deletions", WARN, f"{left} unfinished", "Open the store for writing: that finishes them.")
    else:
        yield Check("deletions", OK, "none unfinished")
    if (data / STAGING).exists() and not running:
        found = f"an interrupted backup left {str(data / STAGING)!r}"
        yield Check("backups", WARN, found, "Open the store for writing: that removes it.")
    aside = [path.name for path in data.glob("*state.damaged-*")]
    if aside:
        advice = "They were damaged, and rebuilt. Delete these copies, and check the disk."
        yield Check("states set aside", WARN, ", ".join(aside), advice)
    for name, families in ((STATE, FAMILIES), (TABLE_STATE, TABLE_FAMILIES)):
        if (data / name / "CURRENT").exists():
            yield _state(data / name, families)
    yield _damage(data)
    yield _checkpoints(data)


def _lock(data: Path, running: bool) -> Check:
    text = ""
    with contextlib.suppress(OSError):
        text = (data / LOCK).read_text().strip()
    if SystemFiles().is_locked(data / LOCK):
        return Check("lock", OK, "held by this process" if running else f"held by process {text or '?'}")
    return Check("lock", OK, "free" + (f"; last held by process {text}, which has ended" if text else ""))


def _state(folder: Path, families: Sequence[str]) -> Check:
    try:
        RocksState(folder, read_only=True, families=families).close()
    except HoldfastError as error:
        return Check(
            folder.name, WARN, str(error), "Check the disk. The state is rebuilt when the store is opened for writing."
        )
    return Check(folder.name, OK, "can be opened")


def _damage(data: Path) -> Check:
    size = sum(path.stat().st_size for folder in _some_logs(data) for path in folder.rglob("*.data"))
    is_tiered = any((folder / REMOTE).exists() for folder in _some_logs(data))  # the rest would have to be fetched
    found = verify_store(data, quick=size > READ_WHOLE or is_tiered)
    if not found.ok:
        first = found.problems[0]
        more = f", and {len(found.problems) - 1} more" if len(found.problems) > 1 else ""
        path = "" if first.path in first.text else f" ({first.path})"
        text = f"{first.what}: {first.text}{path}{more}"
        return Check("damage", BAD, text, "Run holdfast verify: it lists all problems, and what to do.")
    objects = f"{plural(found.logs, 'log')}, {plural(found.queues, 'queue')} and {plural(found.tables, 'table')}"
    return Check("damage", OK, f"none in {objects}" + (" (last segments only)" if found.quick else ""))


def _checkpoints(data: Path) -> Check:
    """Check for queues whose journal was written long after their last checkpoint: they open slowly."""
    slow = []
    for folder in SystemFiles().list(data / JOURNALS):
        names = list_segments(SystemFiles(), data / JOURNALS / folder)
        tailer = data / LOGS / folder / "tailers"
        kept = max((path.stat().st_mtime for path in tailer.glob("queue*.json")), default=None)
        with contextlib.suppress(OSError):
            changed = names[-1].data_path(data / JOURNALS / folder).stat().st_mtime if names else 0.0
            if kept is not None and changed - kept > _OLD_CHECKPOINT_S:
                slow.append(folder)
    if slow:
        return Check(
            "checkpoints",
            WARN,
            f"{plural(len(slow), 'queue')} without a checkpoint for a week, for example {slow[0]!r}",
            "Opening them is slow. The log of the process that has the store open says why checkpoints fail.",
        )
    return Check("checkpoints", OK, "none is overdue")


def _some_logs(data: Path) -> list[Path]:
    roots = (data / LOGS, data / JOURNALS, data / TABLES)
    folders = [root / name for root in roots for name in SystemFiles().list(root)[:_LOGS_CHECKED]]
    return [folder for folder in folders if folder.is_dir()]


def check_modes(data: Path) -> Iterator[Check]:
    """Check whether other users of this machine can read the store: not if they cannot enter its folder."""
    if not data.is_dir():
        return
    own = stat.S_IMODE(data.stat().st_mode)
    open_to = [path for path in sorted(data.iterdir()) if path.stat().st_mode & 0o007] if own & 0o001 else []
    if open_to:
        yield Check(
            "file modes",
            WARN,
            f"every user of this machine can read {str(open_to[0])!r}"
            + (f" and {len(open_to) - 1} more" if len(open_to) > 1 else ""),
            "It contains messages and password hashes. Stop the server, and run: "
            f"chmod -R go-rwx {shlex.quote(str(data))}",
        )
    else:
        readers = "its owner and its group" if own & 0o070 else "its owner"
        yield Check("file modes", OK, f"{own:04o}: only {readers} can read the store")


def _last_backup(data: Path, clock: Clock) -> Iterator[Check]:
    if not SystemFiles().list(data / LOGS):
        return
    taken = last_backup(data)
    if taken is None:
        yield Check("last backup", WARN, "no backup of this store is recorded", "See holdfast backup --help.")
        return
    age = (clock.time_ns() - taken.time) / 1e9
    found = f"{format_duration(max(0.0, age))} ago, in {taken.path!r}"
    if age > _OLD_BACKUP_S:
        yield Check("last backup", WARN, found, "Back up the store: see holdfast backup --help.")
    else:
        yield Check("last backup", OK, found)


def _ports(ports: Sequence[Port], running: bool, server: RunningServer | None) -> Iterator[Check]:
    for one in ports:
        what, place = (
            f"port for {one.name}",
            f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}",
        )
        if running or one.port == 0:
            yield Check(what, OK, f"{place} is used by this server" if one.port else "any free port")
            continue
        if server is not None and server.has_port(one.host, one.port):
            yield Check(what, OK, f"{place} is used by the server of this store, process {server.process}")
            continue
        family = socket.AF_INET6 if ":" in one.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((one.host, one.port))
            except OSError as error:
                chosen = f"set {one.setting}" if one.setting else "choose another port in the configuration"
                if error.errno == errno.EADDRINUSE:
                    found, advice = f"{place} is in use by another process", f"Stop that process, or {chosen}."
                else:
                    found, advice = f"cannot listen on {place}: {error.strerror}", f"Set host, or {chosen}."
                yield Check(what, BAD, found, advice)
            else:
                yield Check(what, OK, f"{place} is free")
