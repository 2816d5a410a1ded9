"""How far has each named reader come? One small file a reader, replaced atomically by the process it lives in."""

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.base.errors import InvalidArgument
from holdfast.base.files import Files, errors_as_ours, read_file, replace_file
from holdfast.base.names import folder_of, name_of, shortened

__all__ = ["QUEUE", "Position", "Positions", "place_of"]

logger = logging.getLogger("holdfast.log")

FOLDER = "tailers"
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Position:
    """A named reader and the next sequence it wants."""

    name: str
    position: int
    committed_at: int
    survived: int | None = None
    """For queues: where the log ended when it was opened since; what the queue knows beyond died with a crash, and its
    sequences may have been given again by now."""


QUEUE = "queue:"
"""The names of queues among the readers begin with this."""


def place_of(queue: str) -> str:
    """The name under which a queue keeps its place."""
    return QUEUE + shortened(queue, 200)


class Positions:
    """The kept positions of a log's named tailers, in `tailers/` of its folder."""

    def __init__(
        self, files: Files, log: Path, log_id: bytes, queue_at: Callable[[str], str | None] = lambda place: None
    ) -> None:
        self._files = files
        self._queue_at = queue_at
        """The queue that keeps a place, while there is one."""
        self._folder = log / FOLDER
        self._log_id = log_id.hex()
        self._guard = threading.Lock()
        self._settled: dict[str, Position] = {}
        """By queue: its position with what `settle` found, which is not on disk yet."""

    def get(self, name: str) -> Position | None:
        """The kept position, None if there is none for this very log."""
        kept = self._read(self._path(name))
        return None if kept is None else self._settled.get(name, kept)

    def set(self, position: Position) -> None:
        """Keep it; durable when this returns."""
        with self._guard, errors_as_ours("keeping a tailer's position in", self._path(position.name)):
            self._set(position)

    def _set(self, position: Position) -> None:
        path = self._path(position.name)
        if position.name.startswith(QUEUE):
            kept = self._read(path)
            if kept is not None and (kept.position, kept.survived) == (position.position, position.survived):
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
        self._files.make_dirs(self._folder)
        replace_file(self._files, path, json.dumps(content).encode() + b"\n")
        self._settled.pop(position.name, None)

    def exists(self, name: str) -> bool:
        """Whether a reader of this name ever kept a position here."""
        return self._files.exists(self._path(name))

    def remove(self, name: str) -> bool:
        """Forget a reader, so that it holds nothing back any more; False if there was none.

        Not where a queue stands: retention would take what it has not delivered yet.
        """
        path = self._path(name)
        if name.startswith(QUEUE) and (queue := self._queue_at(name)) is not None:
            raise InvalidArgument(
                f"the queue {queue!r} stands at {name!r}, and what it has not delivered would go with it: "
                "delete the queue, or let it pass over messages with seek"
            )
        self._settled.pop(name, None)
        if not self._files.exists(path):
            return False
        with errors_as_ours("forgetting a tailer's position in", path):
            self._files.remove(path)
            self._files.sync_dir(self._folder)
        return True

    def all(self) -> list[Position]:
        """Every named reader. One whose file is not legible counts as one that has read nothing."""
        names = [name for name in self._files.list(self._folder) if name.endswith(_SUFFIX)]
        found = [position for name in names if (position := self._read(self._folder / name))]
        return [self._settled.get(position.name, position) for position in found]

    def settle(self, end: int) -> None:
        """When a writer opens: take back positions beyond the end, which a power cut under a weaker flush can leave.

        A queue may know of messages beyond its position, too, so it is told where the log ended. That is remembered,
        and need not be on disk before a sequence is given again: until then the log ends where it ends.
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
        """Keep what `settle` found of queues that were not opened since. Raises OSError."""
        with self._guard:
            for name, position in list(self._settled.items()):
                if self._files.exists(self._path(name)):
                    self._set(position)
                self._settled.pop(name, None)  # else the queue was deleted meanwhile

    def _path(self, name: str) -> Path:
        return self._folder / (folder_of(name, "tailer name") + _SUFFIX)

    def _read(self, path: Path) -> Position | None:
        try:
            content = json.loads(read_file(self._files, path))
            if content["log"] != self._log_id:
                return None  # kept for a log of that name that was deleted since
            survived = content.get("survived")
            return Position(
                str(content["name"]),
                int(content["position"]),
                int(content["committed_at"]),
                None if survived is None else int(survived),
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            logger.warning("%s is not legible: its tailer starts again", path, extra={"path": str(path)})
            return Position(name_of(path.name.removesuffix(_SUFFIX)) or path.name, 0, 0)
