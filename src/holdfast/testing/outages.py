"""Outages of a simulated disk: some operations on some kinds of files fail for a while, then the disk works again."""

import errno
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from random import Random
from typing import Literal, get_args

from holdfast.base.clock import NS, Clock, Duration, duration_ns
from holdfast.base.errors import InvalidArgument

__all__ = ["FILE_KINDS", "OPERATIONS", "FileKind", "Operation", "Outage", "kind_of"]

FileKind = Literal[
    "segment", "index", "watermark", "journal", "table", "state", "settings", "positions", "transactions", "incoming",
    "other",
]  # fmt: skip
"""The purpose of a file of a store. See `kind_of`."""
Operation = Literal["write", "sync", "create", "rename", "truncate", "remove", "read"]
"""Operations that can fail: `sync` and `create` include folders, and `read` includes opening, mapping and listing."""

FILE_KINDS: tuple[FileKind, ...] = get_args(FileKind)
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

_OPERATION_OF: dict[str, Operation] = {
    "write": "write",
    "sync": "sync",
    "sync_dir": "sync",
    "create": "create",
    "mkdir": "create",
    "replace": "rename",
    "truncate": "truncate",
    "remove": "remove",
    "rmdir": "remove",
    "read": "read",
    "open": "read",
    "list": "read",
}
_AREAS: dict[str, FileKind] = {
    "logs": "segment",
    "journals": "journal",
    "tables": "table",
    "state": "state",
    "table-state": "state",
    "transactions": "transactions",
    "incoming": "incoming",
}


def kind_of(path: str) -> FileKind:
    """Return the kind of a file or folder of a store, by its path.

    `segment`, `journal`, `table` and `transactions` are the segments (`*.data`) of logs, queues' journals, tables and
    the log of transactions; `index` and `watermark` belong to any of them; `state` are the files in `state/` and
    `table-state/`; `settings` are `log.json`, `queue.json`, `table.json` and the like; `positions` the files in
    `tailers/`. A temporary file has the kind of the file that it replaces, and a folder the kind of its contents.
    """
    parts = PurePosixPath(path).parts
    name = parts[-1] if parts else ""
    if name.endswith(".tmp"):  # `<name>.<process id>.tmp`
        name = name.removesuffix(".tmp").rpartition(".")[0]
    area: FileKind = next((_AREAS[part] for part in parts if part in _AREAS), "other")
    if area in ("other", "state", "incoming"):
        return area
    if "tailers" in parts:
        return "positions"
    if name.endswith(".index"):
        return "index"
    if name == "watermark":
        return "watermark"
    return "settings" if name.endswith(".json") else area


@dataclass(slots=True)
class Outage:
    """Operations that fail until the outage is over; created by `SimFiles.outage`."""

    operations: frozenset[str]
    kinds: frozenset[str]
    error: int
    chance: float
    left: int | None
    """How many more operations fail before it is over; None for any number."""
    clock: Clock | None
    until: float
    random: Random = field(repr=False)
    failed: int = 0
    """How many operations have failed."""

    @property
    def over(self) -> bool:
        """Whether the outage is over."""
        return self.left == 0 or (self.clock is not None and self.clock.monotonic() >= self.until)

    def heal(self) -> None:
        """End the outage."""
        self.left = 0

    def strikes(self, operation: str, path: str) -> bool:
        """Return whether this operation fails, and count it if so. Called by `SimFiles`."""
        if self.over or _OPERATION_OF.get(operation) not in self.operations or kind_of(path) not in self.kinds:
            return False
        if self.chance < 1 and self.random.random() >= self.chance:
            return False
        if self.left is not None:
            self.left -= 1
        self.failed += 1
        return True


def outage(
    operations: Collection[Operation] | None,
    kinds: Collection[FileKind] | None,
    *,
    error: int,
    times: int | None,
    seconds: Duration | None,
    clock: Clock | None,
    chance: float,
    random: Random,
) -> Outage:
    """Validate the arguments, and return an outage."""
    chosen = frozenset(OPERATIONS[:5] if operations is None else operations)
    of = frozenset(FILE_KINDS if kinds is None else kinds)
    for given, known, what in ((chosen, OPERATIONS, "operations"), (of, FILE_KINDS, "kinds of files")):
        if unknown := given - set(known):
            raise InvalidArgument(f"unknown {what} {sorted(unknown)}: use {', '.join(known)}")
    if error not in errno.errorcode:
        raise InvalidArgument(f"error must be a number of the module errno, such as errno.ENOSPC, not {error!r}")
    if times is not None and seconds is not None:
        raise InvalidArgument("an outage needs times or seconds, not both")
    if (seconds is None) != (clock is None):
        raise InvalidArgument("seconds and clock must be given together: use the clock that the store was opened with")
    until = 0.0 if clock is None else clock.monotonic() + duration_ns(seconds or 0, "seconds") / NS
    return Outage(chosen, of, error, chance, times, clock, until, random)
