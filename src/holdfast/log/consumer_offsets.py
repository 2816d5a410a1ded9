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
"""Ends the name of a file that is there from a tailer's first commit until it is forgotten."""


@dataclass(frozen=True, slots=True)
class Position:
    """A named reader and the next sequence it wants."""

    name: str
    position: int
    committed_at: int
    survived: int | None = None
    """For queues: where the log ended when it was opened since; what the queue knows beyond died with a crash, and its
    sequences may have been given again by now."""
    owner: str | None = None
    """The user of a server who made it; None where a program with the store did."""


QUEUE = "queue:"
"""The names of queues among the readers begin with this."""


def place_of(queue: str) -> str:
    """Return the name under which a queue keeps its position."""
    return QUEUE + abbreviate(queue, 200)


class OffsetStore:
    """The kept positions of a log's named tailers, in `tailers/` of its folder."""

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
        """By queue: its position with what `settle` found, which is not on disk yet."""
        self._known: set[str] = set()
        """Tailers of which this process has seen the `.known` file."""

    def get(self, name: str) -> Position | None:
        """Return the committed position; None if there is none for this log's id, 0 if its file is illegible."""
        with translate_os_errors("reading a tailer's position in", self._folder):
            kept = self._read(self._path(name))
        return None if kept is None else self._settled.get(name, kept)

    def set(self, position: Position) -> None:
        """Commit a position; durable when this returns. The owner of an existing position stays the same."""
        with self._guard, translate_os_errors("keeping a tailer's position in", self._path(position.name)):
            self._set(position)

    def _set(self, position: Position) -> None:
        path = self._path(position.name)
        kept = self._read(path)
        same = kept is not None and (kept.position, kept.survived) == (position.position, position.survived)
        if same and position.name.startswith(QUEUE):
            # Nothing is new but the time. Who wrote it may have ended before the name was on disk.
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
        """Note that there is a tailer of this name, so that the loss of its position is noticed.

        Not for queues: their own folder says so.
        """
        if name not in self._known and not name.startswith(QUEUE):
            known = self._path(name).with_suffix(_KNOWN)
            if not self._files.exists(known):
                replace_checked(self._files, known, {"name": name})
            self._known.add(name)

    def exists(self, name: str) -> bool:
        """Return whether there is a file with a position of this name, also of an earlier log or an illegible one."""
        return self._files.exists(self._path(name))

    def remove(self, name: str) -> bool:
        """Remove a reader, so that it holds nothing back any more; return False if there was none.

        The position of an existing queue is not removed: retention would drop what it has not delivered yet.
        """
        path = self._path(name)
        if name.startswith(QUEUE) and (queue := self._queue_at(name)) is not None:
            raise InvalidArgument(
                f"the queue {queue!r} stands at {name!r}, and what it has not delivered would go with it: "
                "delete the queue, or let it pass over messages with seek"
            )
        self._settled.pop(name, None)
        self._known.discard(name)
        known = path.with_suffix(_KNOWN)
        with translate_os_errors("forgetting a tailer's position in", path):
            found = [one for one in (known, path) if self._files.exists(one)]
            for one in found:  # the note first: without it nobody misses the position
                self._files.remove(one)
            if found:
                self._files.sync_dir(self._folder)
        return bool(found)

    def all(self) -> list[Position]:
        """Return every named reader. One with an illegible file counts as one that has read nothing."""
        with translate_os_errors("reading the positions of tailers in", self._folder):
            names = [name for name in self._files.list(self._folder) if name.endswith(_SUFFIX)]
            found = [position for name in names if (position := self._read(self._folder / name))]
        return [self._settled.get(position.name, position) for position in found]

    def settle(self, end: int) -> None:
        """Move positions back that a power cut under a weaker flush left beyond the end. Called when a writer opens.

        A queue may also know of messages beyond its position, so it is informed where the log ended. That is kept in
        memory. `keep_settled` saves it before the first block is written, which is when sequences are used again.
        """
        for position in self.all():
            settled = position
            if position.position > end:
                logger.warning("the tailer %s had read beyond what survived: set back to %d", position.name, end)
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
                self._settled.pop(name, None)  # else the queue was deleted meanwhile

    def _path(self, name: str) -> Path:
        return self._folder / (escape_name(name, "tailer name") + _SUFFIX)

    def _read(self, path: Path) -> Position | None:
        try:
            content = read_checked(self._files, path)
            if content["log"] != self._log_id:
                return None  # kept for a log of that name that was deleted since
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
                logger.error("%s is gone: its tailer starts again from the beginning", path, extra={"path": str(path)})
            return None
        except (ValueError, KeyError, TypeError) as error:
            if raised_by_handler(error):
                raise
            logger.error(
                "%s is not legible (%s): its tailer starts again from the beginning. Put the file back from a backup, "
                "or seek to where it should go on and commit",
                path,
                error,
                extra={"path": str(path)},
            )
            return Position(name_of(path.name.removesuffix(_SUFFIX)) or path.name, 0, 0)


def log_ids_in(files: Files, log: Path) -> set[bytes]:
    """Return the ids of the logs that the legible positions in a log's folder were kept for."""
    found = set()
    for name in files.list(log / FOLDER):
        if name.endswith(_SUFFIX):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found.add(bytes.fromhex(read_checked(files, log / FOLDER / name)["log"]))
    return found


def lost_positions(files: Files, log: Path) -> list[Path]:
    """Return the files of positions that tailers of this log kept, and that are gone."""
    names = set(files.list(log / FOLDER))
    expected = {name.removesuffix(_KNOWN) + _SUFFIX for name in names if name.endswith(_KNOWN)}
    return [log / FOLDER / name for name in sorted(expected - names)]
