"""What tests look at behind a queue's public face: in one place, so that it can be renamed in one place."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import holdfast
from holdfast import Queue, Roll, Store
from holdfast.base.clock import Clock
from holdfast.queue import (
    attempts,
    body_cache,
    checkpoint,
    dedup,
    delayed,
    dispatcher,
    journal,
    queue_core,
    ranges,
    transfers,
)
from holdfast.queue.journal import Journal
from holdfast.queue.queue_state import QueueState
from holdfast.testing import SimFiles
from tests.queue.model import BATCH

STATE = "data/state"


def standing_of(queue: Queue) -> QueueState:
    return queue.queue_state


def journal_of(queue: Queue) -> Journal:
    return queue._journal


def described(queue: Queue) -> dict[str, object]:
    """Where everything stands."""
    found = queue.queue_state.describe()
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
            (queue_core, "CHECKPOINT_VALUES", 12),
            (transfers, "CHECKPOINT_VALUES", 12),
            (queue_core, "PENDING_MAX", 3),
            (dispatcher, "PENDING_MAX", 3),
            (dispatcher, "EVENTS_MAX", 2),
            (journal, "PENDING_MAX", 3),
            (journal, "_PART_BYTES", 300),
            (transfers, "CHECKPOINT_BYTES", 2000),
            (transfers, "_BATCH", BATCH),
            (body_cache, "PAGE_RECORDS", 3),
            (body_cache, "SPENT_PAGES", 2),
            (holdfast.store, "_JOURNAL_ROLL", Roll.count(6)),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield
