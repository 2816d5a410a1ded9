"""What tests look at behind a queue's public face: in one place, so that it can be renamed in one place."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import pytest

import holdfast
from holdfast import Delivery, Queue, Roll, Store
from holdfast.base.clock import Clock
from holdfast.log.log import Log
from holdfast.log.writer import SegmentWriter
from holdfast.queue import (
    attempts,
    body_cache,
    checkpoint,
    checkpoint_store,
    dedup,
    delayed,
    dispatcher,
    journal,
    queue_core,
    ranges,
    transfers,
)
from holdfast.queue.async_lease import AsyncLeases
from holdfast.queue.body_cache import BodyCache, Page
from holdfast.queue.dedup import Dedup
from holdfast.queue.delayed import Delayed
from holdfast.queue.journal import Journal
from holdfast.queue.lease import Leases
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.queue_state import QueueState
from holdfast.queue.waiters import WaitQueue
from holdfast.state import State
from holdfast.testing import SimFiles
from tests.log.internals import writer_of
from tests.queue.model import BATCH

STATE = "data/state"


def core_of(queue: Queue) -> QueueCore:
    """What the parts of a queue share."""
    return queue._core


def state_of(queue: Queue) -> QueueState:
    return core_of(queue).state


def journal_of(queue: Queue) -> Journal:
    return core_of(queue).journal


def bodies_of(queue: Queue) -> BodyCache:
    return core_of(queue).bodies


def pages_of(queue: Queue) -> dict[int, Page]:
    return core_of(queue).bodies._pages


def waiters_of(queue: Queue) -> WaitQueue:
    return core_of(queue).waiters


def cut_off(queue: Queue) -> None:
    """Leave a change of the state unfinished, as a signal does."""
    core_of(queue).section.open = True


def resident_chunks(queue: Queue) -> int:
    """How many chunks of the ready messages are in memory."""
    return sum(chunk.starts is not None for chunk in state_of(queue).ready.plain._chunks)


def note_transfers(queue: Queue, note: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call `note` with each transfer to another queue."""

    def noting(find: Callable[[str], Queue | None]) -> Callable[[str], Queue | None]:
        def noted(name: str) -> Queue | None:
            note()
            return find(name)

        return noted

    find_targets_with(queue, noting, monkeypatch)


def find_targets_with(
    queue: Queue,
    wrap: Callable[[Callable[[str], Queue | None]], Callable[[str], Queue | None]],
    patch: pytest.MonkeyPatch,
) -> None:
    """Replace the function that finds the targets of transfers."""
    patch.setattr(queue.transfers, "_find_queue", wrap(queue.transfers._find_queue))


def serve_unloaded_state(patch: pytest.MonkeyPatch) -> None:
    """As it was once: the mark is cleared first, and what a load that fails leaves behind is served."""

    def reload(self: QueueCore) -> None:
        self.journal.reread()
        self.state = self._loader.new_state(self.checkpoints.state)
        self.load()

    patch.setattr(QueueCore, "reload", reload)


def before_publishing(log: Log, call: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call this whenever the log has written a block, and readers do not find it yet."""
    publish, own = SegmentWriter._publish, writer_of(log)

    def call_and_publish(writer: SegmentWriter, *, tell: bool = True) -> None:
        if writer is own:
            call()
        publish(writer, tell=tell)

    monkeypatch.setattr(SegmentWriter, "_publish", call_and_publish)


def rows_of_delayed(waiting: Delayed) -> State:
    return waiting._state


def recent_ids(ids: Dedup) -> list[bytes]:
    return list(ids._recent)


def ordered_leases(leases: Leases) -> int:
    """How many entries the order of expiry has."""
    return len(leases.order)


def at_work(polls: AsyncLeases) -> set[asyncio.Future[None]]:
    """What runs in the background for waiting polls."""
    return polls.at_work


def is_dealing(polls: AsyncLeases) -> bool:
    return polls.deals


def take_only_poll(polls: AsyncLeases) -> "asyncio.Future[list[Delivery]]":
    """Take the only waiting poll from the line, and return its answer."""
    (poll,) = polls._line
    polls._line.clear()
    return poll.answer


def described(queue: Queue) -> dict[str, object]:
    """Where everything stands."""
    found = state_of(queue).describe()
    if queue.log.start > 0:
        # A queue that is rebuilt cannot count what a purge dropped once retention has let go of it.
        found["totals"].pop("dropped")  # type: ignore[attr-defined]
    return found


def open_sim(files: SimFiles, clock: Clock, *, read_only: bool = False) -> Store:
    return holdfast.open("data", files=files, clock=clock, background=False, read_only=read_only)


def without_state(files: SimFiles, seed: int) -> SimFiles:
    """The same disk with `state/` deleted. The seed must be a new one each time: ids come from it."""
    return SimFiles.holding(
        {path: content for path, content in files.snapshot().items() if not path.startswith(STATE)}, seed
    )


@contextmanager
def tiny_limits() -> Iterator[None]:
    """Everything that is bounded spills at once: what takes millions of messages elsewhere happens with a dozen."""
    with ExitStack() as stack:
        for module, name, value in (
            (ranges, "CHUNK_RANGES", 3),
            (delayed, "NEAR_MAX", 4),
            (delayed, "NEAR_KEEP", 2),
            (delayed, "BUCKET_BITS", 1),
            (dedup, "MEMORY_MAX", 2),
            (attempts, "MEMORY_MAX", 2),
            (checkpoint, "RESIDENT_CHUNKS", 2),
            (checkpoint_store, "CHECKPOINT_VALUES", 12),
            (checkpoint_store, "CHECKPOINT_BYTES", 2000),
            (dispatcher, "PENDING_MAX", 3),
            (queue_core, "EVENTS_MAX", 2),
            (journal, "PENDING_MAX", 3),
            (journal, "PART_BYTES", 300),
            (transfers, "BATCH", BATCH),
            (body_cache, "PAGE_RECORDS", 3),
            (body_cache, "SPENT_PAGES", 2),
            (holdfast.queue_registry, "JOURNAL_ROLL", Roll.count(6)),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield
