"""What must leave a queue leaves it in the background, though nobody ever asks for it."""

from pathlib import Path

import pytest

import holdfast
from holdfast import Flush
from tests.queue.calls import until
from tests.queue.internals import state_of

FLUSHES = {"sync": Flush.sync(), "batch": Flush.batch(interval=0.01)}


@pytest.mark.parametrize("flush", FLUSHES.values(), ids=FLUSHES)
@pytest.mark.parametrize("log", ["mail", "elsewhere"])
def test_a_message_whose_time_is_over_becomes_a_dead_letter(tmp_path: Path, flush: Flush, log: str) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("mail", log=log, ttl=0.01, dead_letter="late", expired="dead-letter", flush=flush)
        late = store.queue("late", flush=flush)
        queue.put(b"first")
        until(lambda: late.log.end == 1)
        queue.put(b"second")  # when nothing waited any more
        until(lambda: late.log.end == 2)


@pytest.mark.parametrize("flush", FLUSHES.values(), ids=FLUSHES)
def test_so_does_one_with_a_time_of_its_own(tmp_path: Path, flush: Flush) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("mail", log="elsewhere", dead_letter="late", expired="dead-letter", flush=flush)
        late = store.queue("late", flush=flush)
        queue.put(b"first", ttl=0.01)
        until(lambda: late.log.end == 1)


def test_so_does_one_that_was_delayed_first(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("mail", dead_letter="late", expired="dead-letter")
        late = store.queue("late")
        queue.put(b"first", delay=0.05, ttl=0.1)
        until(lambda: late.log.end == 1)


def test_a_queue_keeps_to_its_length_though_others_put_into_its_log(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("events", flush=Flush.sync())
        queue = store.queue("last-two", log="events", max_length=2, overflow="drop-head")
        log.append_many([b"1", b"2", b"3", b"4", b"5"])
        until(lambda: state_of(queue).totals.dropped == 3)
