"""Committed positions of named readers of a log: one small file for each, replaced atomically."""

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.base.checked_json import read_checked, replace_checked
from holdfast.base.errors import InvalidArgument, raised_by_handler
from holdfast.base.files import Files, translate_os_errors
from holdfast.base.names import abbreviate, escape_name, name_of

__all__ = ["QUEUE", "OffsetStore", "Position", "log_ids_in", "lost_positions", "place_of"]

logger = logging.getLogger("holdfast.log")

FOLDER = "tailers"
_SUFFIX = ".json"
_KNOWN = ".known"
"""Suffix of a file that exists from a tailer's first commit until the tailer is removed."""


@dataclass(frozen=True, slots=True)
class Position:
    """A named reader and the next sequence that it will read."""

    name: str
    position: int
    committed_at: int
    survived: int | None = None
    """For queues: the end of the log when it was opened after a crash. Messages that the queue knows beyond that were
    lost, and their sequences may have been assigned again since."""
    owner: str | None = None
    """The server's user that created it; None if a program that opened the store did."""


QUEUE = "queue:"
"""Prefix of the names of queues among the readers."""


_QUEUE_FILE = escape_name(QUEUE)


def place_of(queue: str) -> str:
    """Return the name under which a queue keeps its position."""
    return QUEUE + abbreviate(queue, 200)


class OffsetStore:
    """The saved positions of a log's named readers, in the folder `tailers/` of the log.

    `_guard` is held while a position is written. Threads: any.
    """

    def __init__(
        self, files: Files, log: Path, log_id: bytes, queue_at: Callable[[str], str | None] = lambda place: None
    ) -> None:
        self._files = files
        self._queue_at = queue_at
        """Returns the queue that keeps a position under a name; None if there is none."""
        self._folder = log / FOLDER
        self._log_id = log_id.hex()
        self._guard = threading.Lock()
        self._settled: dict[str, Position] = {}
        """By queue: its position as corrected by `settle`, which is not on disk yet."""
        self._known: set[str] = set()
        """Tailers whose `.known` file this process has seen."""

    def get(self, name: str) -> Position | None:
        """Return the committed position; None if there is none for this log's id, 0 if its file is damaged."""
        with translate_os_errors("reading a tailer's position in", self._folder):
            kept = self._read(self._path(name))
        return None if kept is None else self._settled.get(name, kept)

    def set(self, position: Position) -> None:
        """Commit a position; durable when this returns. The owner of an existing position stays the same."""
        with self._guard, translate_os_errors("saving a tailer's position in", self._path(position.name)):
            self._set(position)

    def _set(self, position: Position) -> None:
        path = self._path(position.name)
        kept = self._read(path)
        same = kept is not None and (kept.position, kept.survived) == (position.position, position.survived)
        if same and position.name.startswith(QUEUE):
            # Only the time is new. The process that wrote the file may have stopped before its name was synced.
            self._files.sync_dir(self._folder)
            self._settled.pop(position.name, None)
            return
        content = {
            "name": position.name,
            "position": position.position,
            "committed_at": position.committed_at,
            "log": self._log_id,
        }
        if position.survived is not None:
            content["survived"] = position.survived
        owner = position.owner if kept is None or kept.owner is None else kept.owner
        if owner is not None:
            content["owner"] = owner
        self._files.make_dirs(self._folder)
        replace_checked(self._files, path, content)
        self._settled.pop(position.name, None)
        self._note_known(position.name)

    def _note_known(self, name: str) -> None:
        """Record that there is a tailer of this name, so that the loss of its position is noticed.

        Not for queues: their own folder is enough.
        """
        if name not in self._known and not name.startswith(QUEUE):
            known = self._path(name).with_suffix(_KNOWN)
            if not self._files.exists(known):
                replace_checked(self._files, known, {"name": name})
            self._known.add(name)

    def exists(self, name: str) -> bool:
        """Return whether there is a file with a position of this name, also a damaged one or one of an earlier log."""
        return self._files.exists(self._path(name))

    def remove(self, name: str) -> bool:
        """Remove a reader, so that retention no longer waits for it; return False if there was none.

        The position of an existing queue is not removed: retention would drop messages that it has not delivered yet.
        """
        path = self._path(name)
        if name.startswith(QUEUE) and (queue := self._queue_at(name)) is not None:
            raise InvalidArgument(
                f"{name!r} is the position of the queue {queue!r}; without it, retention would drop messages that are "
                "not delivered yet: delete the queue, or skip messages with seek"
            )
        self._settled.pop(name, None)
        self._known.discard(name)
        known = path.with_suffix(_KNOWN)
        with translate_os_errors("removing a tailer's position in", path):
            found = [one for one in (known, path) if self._files.exists(one)]
            for one in found:  # the `.known` file first: with it alone the position would be reported as lost
                self._files.remove(one)
            if found:
                self._files.sync_dir(self._folder)
        return bool(found)

    def all(self, *, queues: bool = True) -> list[Position]:
        """Return every named reader. One with a damaged file counts as one that has read nothing.

        Without `queues`, no file of a queue is opened: of ten thousand logs of queues that takes a tenth of the time.
        """
        with translate_os_errors("reading the positions of tailers in", self._folder):
            names = [
                name
                for name in self._files.list(self._folder)
                if name.endswith(_SUFFIX) and (queues or not name.startswith(_QUEUE_FILE))
            ]
            found = [position for name in names if (position := self._read(self._folder / name))]
        return [self._settled.get(position.name, position) for position in found]

    def settle(self, end: int) -> None:
        """Move positions back that a power cut under a weaker flush left beyond the end. Called when a writer opens.

        A queue may also know messages beyond its position, so its position gets the end of the log in `survived`. That
        is kept in memory. `keep_settled` saves it before the first block is written, when sequences are used again.
        """
        for position in self.all():
            settled = position
            if position.position > end:
                logger.warning(
                    "tailer position was beyond the end of the log, moved back: tailer=%s position=%d",
                    position.name,
                    end,
                )
                settled = replace(settled, position=end)
            if position.name.startswith(QUEUE) and (position.survived is None or position.survived > end):
                settled = replace(settled, survived=end)
            if settled.position != position.position:
                self.set(settled)
            elif settled != position:
                self._settled[position.name] = settled

    def keep_settled(self) -> None:
        """Save what `settle` found for queues that were not opened since. Raises OSError."""
        with self._guard:
            for name, position in list(self._settled.items()):
                if self._files.exists(self._path(name)):
                    self._set(position)
                self._settled.pop(name, None)  # also if the queue was deleted meanwhile

    def _path(self, name: str) -> Path:
        return self._folder / (escape_name(name, "tailer name") + _SUFFIX)

    def _read(self, path: Path) -> Position | None:
        try:
            content = read_checked(self._files, path)
            if content["log"] != self._log_id:
                return None  # of an earlier log of that name, which was deleted
            survived, owner = content.get("survived"), content.get("owner")
            return Position(
                str(content["name"]),
                int(content["position"]),
                int(content["committed_at"]),
                None if survived is None else int(survived),
                None if owner is None else str(owner),
            )
        except FileNotFoundError:
            if self._files.exists(path.with_suffix(_KNOWN)):
                logger.error(
                    "tailer position is missing, the tailer starts from the beginning: path=%s",
                    path,
                    extra={"path": str(path)},
                )
            return None
        except (ValueError, KeyError, TypeError) as error:
            if raised_by_handler(error):
                raise
            logger.error(
                "tailer position is damaged, the tailer starts from the beginning; restore the file from a backup, or "
                "seek to the right position and commit: path=%s error=%s",
                path,
                error,
                extra={"path": str(path)},
            )
            return Position(name_of(path.name.removesuffix(_SUFFIX)) or path.name, 0, 0)


def log_ids_in(files: Files, log: Path) -> set[bytes]:
    """Return the log ids in the readable positions of a log's folder."""
    found = set()
    for name in files.list(log / FOLDER):
        if name.endswith(_SUFFIX):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found.add(bytes.fromhex(read_checked(files, log / FOLDER / name)["log"]))
    return found


def lost_positions(files: Files, log: Path) -> list[Path]:
    """Return the paths of position files of this log's tailers that are missing."""
    names = set(files.list(log / FOLDER))
    expected = {name.removesuffix(_KNOWN) + _SUFFIX for name in names if name.endswith(_KNOWN)}
    return [log / FOLDER / name for name in sorted(expected - names)]
