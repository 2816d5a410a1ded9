"""Batches of records from other processes: finished parts in `incoming/`, each batch committed by one manifest.

A part is a separate segment: blocks whose sequences count from 0 and whose times are not set yet. The writer of a batch
commits its parts with one manifest. The process that owns the store adopts it: it assigns sequences and times to the
records and adds them to the log, each batch at most once. `docs/formats.md` describes the files.
"""

import contextlib
import hashlib
import logging
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.base.checked_json import read_checked, replace_checked
from holdfast.base.errors import Corrupt, Locked, raised_by_handler
from holdfast.base.files import Files, Lock, read_file, translate_os_errors, write_all, write_all_parts
from holdfast.log.block import open_block
from holdfast.log.compression import Codec
from holdfast.log.layout import (
    HEADER_SIZE,
    BlockHeader,
    EncodedBlock,
    SegmentHeader,
    frame,
    pack_segment_header,
    parse_block_header,
)
from holdfast.log.pending_block import PendingBlock, seal

__all__ = ["BatchInbox", "Manifest", "Part", "PartWriter", "Plan", "is_part_name", "read_blocks"]

logger = logging.getLogger("holdfast.log")

INCOMING = "incoming"
_PARTS, _DONE, _PLAN, _LOCK = "parts", "done", "adopting.json", "LOCK"
_JSON, _BLOCKS, _BAD = ".json", ".blocks", ".bad"
_PART = re.compile(r"([0-9a-f]{24})-(\d+)-(\d+)-[0-9a-f]+\.part(?:\.blocks)?\Z")
_PAUSE_S = 0.01
ORPHAN_NS = 86_400 * 1_000_000_000
PLACE_BYTES = 8 << 20
"""A part of at least this size becomes a segment; the blocks of a smaller one are copied to the end of the log."""
PART_BYTES = 256 << 20
"""A part ends at about this size."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file of finished blocks."""

    file: str
    records: int
    bytes: int

    @property
    def is_placed(self) -> bool:
        """Whether it becomes a segment without copying."""
        return self.bytes >= PLACE_BYTES


@dataclass(frozen=True, slots=True)
class Manifest:
    """A committed batch: its parts, its target, and the key (query and batch) under which it is adopted once."""

    log: str
    queue: str | None
    """The queue that the log belongs to, created if there is none; None: only the log."""
    query: str
    batch: int
    created: int
    parts: list[Part] = field(default_factory=list)
    once: bool = True
    """Whether the batch may be committed again, so that its key must be kept."""

    @property
    def digest(self) -> str:
        """A digest of the log and the query, for file names."""
        return hashlib.blake2b(f"{self.log}\0{self.query}".encode(), digest_size=12).hexdigest()

    @property
    def file(self) -> str:
        """The name of the manifest file."""
        return f"{self.digest}-{self.batch}{_JSON}"

    @property
    def records(self) -> int:
        """The number of records of the batch."""
        return sum(part.records for part in self.parts)

    @classmethod
    def of(cls, content: dict[str, Any]) -> "Manifest":
        """Return the manifest with this JSON."""
        parts = [Part(**part) for part in content["parts"]]
        if not all(_PART.match(part.file) for part in parts):
            raise ValueError("it names a file that is not a part")
        return cls(**{**content, "parts": parts})


@dataclass(frozen=True, slots=True)
class Plan:
    """An adoption that has begun. It will be finished, after a crash by the next opening of the log."""

    manifest: Manifest
    base: int
    """The sequence of its first record."""
    time: int


class BatchInbox:
    """The folder `incoming/` of a store. Any process may commit batches; only the store's owner adopts them."""

    def __init__(self, files: Files, store: Path) -> None:
        self.files = files
        self.folder = store / INCOMING

    @property
    def parts(self) -> Path:
        """The folder in which parts are written."""
        return self.folder / _PARTS

    def guard(self) -> Lock:
        """Return the lock to hold while a manifest is added or removed; raises `Locked` if another process has it."""
        with translate_os_errors("committing a batch in", self.folder):
            self.files.make_dirs(self.folder)
            return self.files.lock(self.folder / _LOCK)

    @contextlib.contextmanager
    def guarded(self, patience: float) -> Iterator[None]:
        """Hold the guard; wait so many seconds for it. Raises `Locked` then."""
        deadline = time.monotonic() + patience
        while True:
            try:
                guard = self.guard()
                break
            except Locked:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
        try:
            yield
        finally:
            guard.release()

    def is_known(self, manifest: Manifest) -> bool:
        """Return whether this batch, or a later one of the query, was committed before."""
        return self.files.exists(self.folder / manifest.file) or self.last_done(manifest) >= manifest.batch

    def last_done(self, manifest: Manifest) -> int:
        """Return the last batch of the query that was adopted; -1 if there is none."""
        try:
            return int(read_checked(self.files, self._done(manifest))["batch"])
        except FileNotFoundError:
            return -1
        except (ValueError, KeyError, TypeError) as error:
            if raised_by_handler(error):
                raise
            raise Corrupt(
                f"{str(self._done(manifest))!r} is damaged: it is unknown which batches of this query were adopted. "
                "Restore it from a backup"
            ) from error

    def hand_over(self, manifest: Manifest) -> bool:
        """Commit a batch durably; if it is known, delete its parts and return False. Called with the guard held."""
        if self.is_known(manifest):
            kept = self._committed_parts(manifest)
            self.discard([part.file for part in manifest.parts if part.file not in kept])
            return False
        with translate_os_errors("committing a batch in", self.folder):
            if self.refused(manifest):  # it is committed again, with other parts
                self.files.remove(self.folder / (manifest.file + _BAD))
            self.files.sync_dir(self.parts)
            replace_checked(self.files, self.folder / manifest.file, {"format": 1, **asdict(manifest)})
        return True

    def _committed_parts(self, manifest: Manifest) -> set[str]:
        """Return the parts of a batch that is not adopted yet: the same commit may come twice."""
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            return {part.file for part in self._read_manifest(self.folder / manifest.file).parts}
        return set()

    def discard(self, names: Iterable[str]) -> None:
        """Delete parts that no committed batch has."""
        for name in names:
            for file in (name, name + _BLOCKS):
                if self.files.exists(self.parts / file):
                    self.files.remove(self.parts / file)

    def waits(self, manifest: Manifest) -> bool:
        """Return whether the batch is yet to be adopted. Also True while any other adoption is unfinished."""
        return self.files.exists(self.folder / manifest.file) or self.files.exists(self.folder / _PLAN)

    def refused(self, manifest: Manifest) -> bool:
        """Return whether the owner set the batch aside because it could not be read."""
        return self.files.exists(self.folder / (manifest.file + _BAD))

    def anything(self) -> bool:
        """Return whether there is something to adopt."""
        return any(name.endswith(_JSON) for name in self._names())

    def pending(self) -> list[Manifest]:
        """Return the manifests that are not adopted yet, oldest first."""
        found = []
        for name in self._names():
            if name.endswith(_JSON) and name != _PLAN:
                try:
                    found.append(self._read_manifest(self.folder / name))
                except (ValueError, KeyError, TypeError) as error:
                    if raised_by_handler(error):
                        raise
                    self._set_aside(name, f"its manifest is damaged: {error}")
        return sorted(found, key=lambda manifest: (manifest.created, manifest.query, manifest.batch))

    def _names(self) -> list[str]:
        with translate_os_errors("listing the batches in", self.folder):
            return self.files.list(self.folder)

    def plan(self) -> Plan | None:
        """Return the adoption that a crash interrupted, if there is one."""
        try:
            content = read_checked(self.files, self.folder / _PLAN)
            return Plan(Manifest.of(content["manifest"]), int(content["base"]), int(content["time"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            if raised_by_handler(error):
                raise
            raise Corrupt(
                f"{str(self.folder / _PLAN)!r} is damaged: an adoption that has begun cannot be finished. Restore it "
                "from a backup"
            ) from error

    def is_planned(self) -> bool:
        """Return whether an adoption has begun and is not finished."""
        return self.files.exists(self.folder / _PLAN)

    def check(self, manifest: Manifest) -> bool:
        """Return whether the parts can be adopted; otherwise the manifest is set aside.

        The length and the list of blocks of each part are checked. The blocks themselves are verified only in small
        parts, which are copied; a part that becomes a segment is not read.
        """
        for part in manifest.parts:
            try:
                self._check_part(part)
            except (OSError, Corrupt) as error:
                self._set_aside(manifest.file, f"its part {part.file} is incomplete or damaged: {error}")
                return False
        return True

    def _check_part(self, part: Part) -> None:
        path = self.parts / part.file
        blocks = read_blocks(self.files, path)
        with contextlib.closing(self.files.open(path, "r")) as file:
            if file.size() != part.bytes or sum(block.records for block in blocks) != part.records:
                raise Corrupt("its length differs from that in the manifest")
            # A part that is copied is verified first, so that copying cannot fail half-way. A part that becomes a
            # segment is not read here: readers check its checksums.
            raw = memoryview(b"" if part.is_placed else file.read(part.bytes, 0))
        for header in () if part.is_placed else blocks:
            if open_block(raw, header).bad:
                raise Corrupt(f"the block at byte {header.offset} is damaged")

    def begin(self, manifest: Manifest, base: int, time: int) -> Plan:
        """Reserve sequences for the batch in a plan, which is durable when this returns."""
        plan = Plan(manifest, base, time)
        content = {"format": 1, "manifest": asdict(manifest), "base": base, "time": time}
        replace_checked(self.files, self.folder / _PLAN, content)
        return plan

    def finish(self, plan: Plan) -> None:
        """Finish an adoption: save the key of the batch, then delete its manifest and parts, then the plan."""
        manifest = plan.manifest
        if manifest.once and self.last_done(manifest) < manifest.batch:
            self.files.make_dirs(self.folder / _DONE)
            content = {
                "format": 1,
                "log": manifest.log,
                "query": manifest.query,
                "batch": manifest.batch,
                "first": plan.base,
                "records": manifest.records,
                "time": plan.time,
            }
            replace_checked(self.files, self._done(manifest), content)
        self.drop(manifest)
        self.files.remove(self.folder / _PLAN)
        self.files.sync_dir(self.folder)

    def drop(self, manifest: Manifest) -> None:
        """Delete a manifest and the remaining parts."""
        if self.files.exists(self.folder / manifest.file):
            self.files.remove(self.folder / manifest.file)
            self.files.sync_dir(self.folder)
        self._remove_parts(manifest)

    def drop_all(self, manifest: Manifest) -> None:
        """Delete all parts of a batch that will not be committed, also those that its tasks have not finished."""
        for name in self.files.list(self.parts):
            if name.startswith(f"{manifest.digest}-{manifest.batch}-"):
                self.files.remove(self.parts / name)

    def forget(self, manifest: Manifest) -> None:
        """Forget that a batch was adopted: it will not be committed again."""
        path = self._done(manifest)
        if self.files.exists(path):
            self.files.remove(path)

    def sweep(self, now: int) -> int:
        """Delete parts that are not needed any more, and return how many.

        These are parts that no waiting batch names, if their batch was adopted or they are more than a day old.
        """
        names = self.files.list(self.parts)
        if not names:
            return 0
        wanted = {part.file for manifest in self.pending() for part in manifest.parts}
        if plan := self.plan():
            wanted |= {part.file for part in plan.manifest.parts}
        done: dict[str, int] = {}
        for name in self.files.list(self.folder / _DONE):
            with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
                done[name.removesuffix(_JSON)] = read_checked(self.files, self.folder / _DONE / name)["batch"]
        count = 0
        for name in names:
            match = _PART.match(name)
            if match is None or name.removesuffix(_BLOCKS) in wanted:
                continue
            digest, batch, created = match.groups()
            if int(batch) <= done.get(digest, -1) or now - int(created) > ORPHAN_NS:
                self.files.remove(self.parts / name)
                count += 1
        return count

    def _done(self, manifest: Manifest) -> Path:
        return self.folder / _DONE / (manifest.digest + _JSON)

    def _read_manifest(self, path: Path) -> Manifest:
        content = read_checked(self.files, path)
        if content.pop("format") != 1:
            raise ValueError("it was written by a newer version: upgrade this Holdfast")
        return Manifest.of(content)

    def _remove_parts(self, manifest: Manifest) -> None:
        self.discard(part.file for part in manifest.parts)

    def _set_aside(self, name: str, reason: str) -> None:
        path = str(self.folder / name)
        logger.error("batch rejected, renamed to *.bad: path=%s reason=%s", path, reason, extra={"path": path})
        self.files.replace(self.folder / name, self.folder / (name + _BAD))
        self.files.sync_dir(self.folder)


def is_part_name(name: str) -> bool:
    """Return whether this is the name of a part, without the ending of its list of blocks."""
    return _PART.match(name) is not None and not name.endswith(_BLOCKS)


class PartWriter:
    """Writes the parts of one task, from pending blocks or encoded blocks. For one thread."""

    def __init__(self, incoming: BatchInbox, manifest: Manifest, codec: Codec | None, now: int) -> None:
        self._incoming = incoming
        self._files = incoming.files
        self._codec = codec
        self._prefix = f"{manifest.digest}-{manifest.batch}-{now}"
        self._stack = contextlib.ExitStack()
        self._name: str | None = None
        self._headers = b""
        self._records = self._offset = 0
        self.parts: list[Part] = []
        """The finished parts."""

    def write(self, pending_block: PendingBlock) -> None:
        """Add the records of a pending block as a block; its times and first sequence are ignored."""
        self.put(seal(pending_block, 0, self._codec))

    def put(self, sealed: EncodedBlock) -> None:
        """Add a block; its first sequence is ignored."""
        if self._name is None:
            self._begin()
        sealed = sealed.starting_at(self._records)
        parts = frame(sealed, self._offset, self._offset, self._segment_id)
        with translate_os_errors("writing a part into", self._incoming.parts):
            self._offset += write_all_parts(self._file, parts, self._offset)
        self._headers += parts[0]
        self._records += sealed.records
        if self._offset >= PART_BYTES:
            self.finish()

    def finish(self) -> list[Part]:
        """Sync the part being written, and return all parts so far. Their names are synced by `hand_over`."""
        if self._name is not None:
            self._file.sync()
            path = self._incoming.parts / (self._name + _BLOCKS)
            with contextlib.closing(self._files.open(path, "x")) as blocks:
                write_all(blocks, self._headers, 0)
                blocks.sync()
            self._stack.close()
            self.parts.append(Part(self._name, self._records, self._offset))
            self._name = None
        return self.parts

    def close_discarding(self) -> None:
        """Delete all parts, after the task failed."""
        self._stack.close()
        names = [part.file for part in self.parts] + ([self._name] if self._name else [])
        for name in names:
            for file in (name, name + _BLOCKS):
                if self._files.exists(self._incoming.parts / file):
                    self._files.remove(self._incoming.parts / file)

    def _begin(self) -> None:
        with translate_os_errors("writing a part into", self._incoming.parts):
            self._files.make_dirs(self._incoming.parts)
        unique = self._files.random_bytes(8)
        self._name = f"{self._prefix}-{unique.hex()}.part"
        self._file = self._files.open(self._incoming.parts / self._name, "x")
        self._stack.callback(self._file.close)
        self._segment_id = int.from_bytes(unique, "little")
        write_all(self._file, pack_segment_header(SegmentHeader(self._segment_id, bytes(16), 0, 0)), 0)
        self._offset, self._records, self._headers = HEADER_SIZE, 0, b""


def read_blocks(files: Files, part: Path) -> list[BlockHeader]:
    """Return the headers of a part's blocks, from its `.blocks` file."""
    raw = read_file(files, part.with_name(part.name + _BLOCKS))
    return list(_headers(raw, str(part)))


def _headers(raw: bytes, path: str) -> Iterator[BlockHeader]:
    offset = HEADER_SIZE
    for at in range(0, len(raw), HEADER_SIZE):
        header = parse_block_header(raw[at : at + HEADER_SIZE], 0, offset, 1 << 62)
        if header is None:
            raise Corrupt(f"the list of blocks of {path!r} is damaged", path, at)
        yield header
        offset = header.next_offset
