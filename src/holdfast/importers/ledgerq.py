"""Import of messages from LedgerQ: each is imported once, even if the import is interrupted and repeated.

Imported messages are recorded, batch by batch, in a separate log, by LedgerQ's id and time. The record is written after
the messages, so that a crash between the two leaves messages without a record; these are found by their headers, in the
range of the queue's log that the records do not cover. The records outlive the messages, which the log's retention
drops when they are acknowledged.
"""

import contextlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.base.checksum import crc32c
from holdfast.base.clock import NS
from holdfast.base.errors import Corrupt, InvalidArgument, NotFound
from holdfast.base.files import Files
from holdfast.importers.ledgerq_reader import Entry, LedgerQFolder, gunzip, read_ledgerq
from holdfast.log.log import Log
from holdfast.log.record import Headers, HeaderValue, Message
from holdfast.queue.queue import Queue
from holdfast.queue.transfers import DEATH

__all__ = ["ID", "MESSAGE_MAX", "PRIORITIES", "SOURCE", "TIMESTAMP", "ImportResult", "LedgerQImport", "find_dlq"]

SOURCE, ID, TIMESTAMP = "ledgerq-source", "ledgerq-id", "ledgerq-timestamp"
"""Headers of an imported message: its source, and its id and time in LedgerQ."""
ATTEMPTS, REASON = "ledgerq-attempts", "ledgerq-reason"
"""Headers of a message that had failed there and was not dead-lettered: how often, and the last reason."""
PRIORITIES = {0: 0, 1: 4, 2: 9}
"""Priorities for LedgerQ's low, medium and high. Low is the default, in LedgerQ as in Holdfast."""
MESSAGE_MAX = 128 << 20
"""The `max_message` that the logs need: LedgerQ decompresses up to 100 MiB, whatever its limit for a put."""

_IDENTITY = struct.Struct("<Qq")
BATCH = 500
_BATCH_BYTES = 4 << 20
_TELL_EVERY = 100
_DEATH_HEADERS = ("dlq.original_msg_id", "dlq.retry_count", "dlq.failure_reason", "dlq.last_failure")
_FAR = 9_000_000_000 * NS  # in 2255; a later expiry is dropped, because times end in 2262

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class ImportResult:
    """Counts and problems of an import."""

    imported: int = 0
    dead: int = 0
    """Dead letters that were imported."""
    expired: int = 0
    """Messages whose time to live was over."""
    already: int = 0
    """Messages and dead letters that an earlier import had imported."""
    read_before: int = 0
    """Messages that LedgerQ had delivered, and that were not requested."""
    problems: list[str] = field(default_factory=list)
    """Data that could not be read, with the reason."""
    notes: list[str] = field(default_factory=list)
    """Data that cannot be imported."""


def find_dlq(folder: Path) -> Path | None:
    """Return the likely folder of a LedgerQ folder's dead letters: `dlq` next to it, or in it."""
    for candidate in (folder.absolute().parent / "dlq", folder / "dlq"):
        if candidate.is_dir() and candidate.resolve() != folder.resolve():
            with contextlib.suppress(NotFound):
                return read_ledgerq(candidate).folder
    return None


class LedgerQImport:
    """One import of a LedgerQ folder, and its dead letters, into a queue."""

    def __init__(
        self,
        folder: Path,
        queue: Queue,
        notes: Log,
        *,
        source: str | None = None,
        dead_folder: Path | None = None,
        dead_queue: Queue | None = None,
        everything: bool = False,
        files: Files | None = None,
    ) -> None:
        if dead_folder is not None and dead_queue is None:
            raise InvalidArgument(
                f"the queue {queue.name!r} has no dead letter queue, into which {str(dead_folder)!r} can be imported: "
                "open it with dead_letter"
            )
        self._files = files
        self._folder = read_ledgerq(folder, files)
        self._dead_folder = None if dead_folder is None else read_ledgerq(dead_folder, files)
        self._source = str(folder.resolve()) if source is None else source
        self._queue = queue
        self._dead_queue = dead_queue
        self._notes = notes
        self._everything = everything
        self._now = queue.log.clock.time_ns
        self._result = ImportResult()
        self._originals: dict[int, _Original] = {}

    def run(self, progress: Progress = lambda done, total: None) -> ImportResult:
        """Import the messages that are not imported yet; `progress(done, total)` is called in bytes."""
        total = self._folder.total_bytes + (self._dead_folder.total_bytes if self._dead_folder else 0)
        self._survey()
        for number, entry in enumerate(self._bring(self._folder, self._queue, "messages", self._message)):
            if (original := self._originals.get(entry.id)) is not None:
                original.meet(entry)
            if number % _TELL_EVERY == 0:
                progress(self._folder.bytes_read, total)
        self._report(self._folder)
        if self._dead_folder is not None and self._dead_queue is not None:
            dead_folder = read_ledgerq(self._dead_folder.folder, self._files)  # `_survey` has read the first one
            for number, _ in enumerate(self._bring(dead_folder, self._dead_queue, "dead", self._dead_letter)):
                if number % _TELL_EVERY == 0:
                    progress(self._folder.total_bytes + dead_folder.bytes_read, total)
            self._report(dead_folder)
        progress(total, total)
        remembered = sum(dedup.expires > self._now() for dedup in self._folder.dedups)
        if remembered:
            self._result.notes.append(
                f"the deduplication ids that LedgerQ still remembers ({remembered}): it keeps only their digests"
            )
        return self._result

    def _survey(self) -> None:
        """Find the messages that have dead letters, whose original time and checksum are needed for these."""
        for entry in self._dead_folder.entries if self._dead_folder is not None else ():
            if entry.origin is not None:
                self._originals.setdefault(entry.origin, _Original())

    def _bring(
        self, folder: LedgerQFolder, queue: Queue, kind: str, make: Callable[[LedgerQFolder, Entry], Message | None]
    ) -> Iterator[Entry]:
        """Put the message that `make` returns for each new entry; yield every entry before it is processed."""
        target = _Target(queue, self._notes, self._source, kind)
        for entry in folder.entries:
            yield entry
            identity = _IDENTITY.pack(*_named(entry))
            if target.knows(identity):
                self._result.already += 1
            elif (message := make(folder, entry)) is not None:
                target.add(identity, message)
        target.flush()

    def _message(self, folder: LedgerQFolder, entry: Entry) -> Message | None:
        """Return the message of an entry of the queue; None if it is not to be imported."""
        result = self._result
        waits = entry.id >= folder.read_id or entry.id in folder.retries
        if not waits and not (self._everything and entry.id not in self._originals):
            result.read_before += 1
            return None
        left = None if entry.expires is None or entry.expires > _FAR else entry.expires - self._now()
        if left is not None and left <= 0:
            result.expired += 1
            return None
        result.imported += 1
        headers = dict(entry.headers) | self._origin(entry)
        if entry.attempts:
            headers |= {ATTEMPTS: str(entry.attempts), REASON: entry.reason or ""}
        return Message(
            entry.payload,
            headers=headers,
            priority=PRIORITIES.get(entry.priority or 0, 9),
            ttl=None if left is None else left / NS,
        )

    def _dead_letter(self, folder: LedgerQFolder, entry: Entry) -> Message | None:
        """Return a dead letter, so that `Queue.dead_letters` lists it and `Queue.redrive` moves it back."""
        if entry.id < folder.read_id and entry.id not in folder.retries and not self._everything:
            self._result.read_before += 1
            return None
        original = self._originals.get(entry.origin or 0, _Original())
        headers = {name: value for name, value in entry.headers.items() if name not in _DEATH_HEADERS}
        facts: dict[str, object] = {
            "queue": self._queue.name,
            "id": _named(entry)[0],
            "cause": "attempts",
            "reason": entry.reason or "",
            "enqueued-at": entry.timestamp if original.timestamp is None else original.timestamp,
            "attempts": entry.attempts,
        }
        if entry.failed is not None:
            facts["last-failure"] = entry.failed
        self._result.dead += 1
        return Message(
            self._unpacked(folder, entry, original),
            headers=headers | self._origin(entry) | {DEATH + name: str(value) for name, value in facts.items()},
            priority=PRIORITIES.get(entry.priority or 0, 9),
        )

    def _unpacked(self, folder: LedgerQFolder, entry: Entry, original: "_Original") -> bytes:
        """Decompress a dead letter: LedgerQ moves it compressed, and does not record that."""
        payload = entry.payload
        if not entry.still_compressed or crc32c(payload) in original.checksums:
            return payload  # not compressed, or compressed by the sender
        try:
            plain = gunzip(payload)
        except Corrupt:
            return payload
        if crc32c(plain) in original.checksums:
            return plain
        self._result.problems.append(
            f"{folder.folder.name}: the dead letter {entry.id} looks compressed, and its original message is missing: "
            "it was imported without decompression"
        )
        return payload

    def _origin(self, entry: Entry) -> dict[str, HeaderValue]:
        message_id, timestamp = _named(entry)
        return {SOURCE: self._source, ID: str(message_id), TIMESTAMP: str(timestamp)}

    def _report(self, folder: LedgerQFolder) -> None:
        self._result.problems += [f"{folder.folder.name}/{problem}" for problem in folder.problems]


class _Original:
    """Time and checksums, in its queue, of a message that became a dead letter."""

    __slots__ = ("checksums", "timestamp")

    def __init__(self) -> None:
        self.timestamp: int | None = None
        self.checksums: set[int] = set()

    def meet(self, entry: Entry) -> None:
        self.timestamp = entry.timestamp if self.timestamp is None else self.timestamp
        self.checksums.add(crc32c(entry.payload))


class _Target:
    """A queue that receives messages from one source, each once."""

    def __init__(self, queue: Queue, notes: Log, source: str, kind: str) -> None:
        self._queue = queue
        self._notes = notes
        self._key = source.encode("utf-8", "surrogateescape")
        self._kind = kind
        self._known: set[bytes] = set()
        self._messages: list[Message] = []
        self._identities: list[bytes] = []
        self._size = 0
        noted = 0
        for record in notes.read():
            if record.key == self._key and record.headers.get("kind") == kind:
                noted = max(noted, int(record.headers.get("end", 0)))
                self._known.update(_identities(record.payload))
        if notes.damage:  # messages of damaged records are found by their headers, if the queue's log has them
            noted = 0
        for record in queue.log.read(start=noted):
            if record.headers.get(SOURCE) == source and (identity := _identity_of(record.headers)) is not None:
                self._known.add(identity)

    def knows(self, identity: bytes) -> bool:
        return identity in self._known

    def add(self, identity: bytes, message: Message) -> None:
        self._messages.append(message)
        self._identities.append(identity)
        self._size += len(message.payload)
        if len(self._messages) >= BATCH or self._size >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Put the messages first, then their record: messages without a record are found by their headers."""
        if self._messages:
            ids = self._queue.put_many(self._messages)
            self._queue.sync()
            headers = {"kind": self._kind, "queue": self._queue.name, "end": str(ids[-1] + 1)}
            self._notes.append(b"".join(self._identities), self._key, headers)
            self._notes.sync()
            self._messages, self._identities, self._size = [], [], 0


def _named(entry: Entry) -> tuple[int, int]:
    """Return id and time of a message in LedgerQ; for a dead letter, its original id and the time of its death."""
    named = entry.origin if entry.origin is not None and entry.origin < 1 << 64 else entry.id
    return named, entry.timestamp


def _identities(packed: bytes) -> Iterator[bytes]:
    return (packed[at : at + _IDENTITY.size] for at in range(0, len(packed), _IDENTITY.size))


def _identity_of(headers: Headers) -> bytes | None:
    try:
        return _IDENTITY.pack(int(headers[ID]), int(headers[TIMESTAMP]))
    except (KeyError, ValueError, struct.error):
        return None
