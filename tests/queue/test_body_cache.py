"""Bodies in memory: bounded, counted, given back when asked to, and not growing with what was read."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Message, Queue, Store
from holdfast.base.errors import InvalidArgument
from holdfast.log.layout import BlockHeader, parse_block_header
from holdfast.queue import body_cache
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import got
from tests.queue.internals import before_publishing, bodies_of, pages_of

ASYNC = Flush.async_()


def backlog(store: Store, count: int, size: int, **settings: object) -> Queue:
    """A queue whose messages are on disk, and nowhere else."""
    queue = store.queue("work", flush=ASYNC, **settings)  # type: ignore[arg-type]
    for start in range(0, count, 500):
        queue.put_many([b"%d-" % n + b"x" * size for n in range(start, min(count, start + 500))])
    queue.sync()
    queue.page_out()
    return queue


def numbers(queue: Queue, count: int) -> list[int]:
    return [int(message.payload.split(b"-")[0]) for message in queue.lease(count)]


def test_what_is_read_is_what_was_put(disk_store: Store) -> None:
    queue = backlog(disk_store, 3000, 10)
    assert numbers(queue, 7) == list(range(7))
    assert numbers(queue, 2000) == list(range(7, 2007))
    queue.void_leases("again")
    assert numbers(queue, 3000) == list(range(3000))


def test_messages_that_were_put_singly_are_found_without_a_walk_to_each(
    disk_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = disk_store.queue("work")
    for number in range(600):  # each is a block of its own, and between two entries of the index are a thousand
        queue.put(b"%d-" % number)
    queue.page_out()
    looked = 0

    def counted(memory: memoryview, at: int, offset: int, limit: int) -> BlockHeader | None:
        nonlocal looked
        looked += 1
        return parse_block_header(memory, at, offset, limit)

    monkeypatch.setattr("holdfast.log.segment.parse_block_header", counted)
    assert numbers(queue, 600) == list(range(600))
    assert looked <= 2 * 600


def test_pages_are_bounded_in_records_and_in_bytes(disk_store: Store) -> None:
    queue = backlog(disk_store, 1000, 10_000)
    numbers(queue, 1000)
    sizes = [sum(map(len, page.payloads)) for page in pages_of(queue).values()]
    assert max(sizes) <= body_cache.PAGE_BYTES
    small = disk_store.queue("small", flush=ASYNC)
    small.put_many([b"x"] * 1000)
    small.sync()
    small.lease(1000)
    assert {len(page.payloads) for page in pages_of(small).values()} <= {256, 1000 % 256}


def test_a_body_larger_than_a_page_is_a_page_of_its_own(disk_store: Store) -> None:
    queue = disk_store.queue("work", flush=ASYNC)
    large = [bytes([n]) * (3 << 20) for n in range(3)]
    queue.put_many(large)
    for _ in range(2):
        assert [message.payload for message in queue.lease(3)] == large
        queue.sync()
        queue.page_out()
        queue.void_leases("again")
    assert [message.payload for message in queue.lease(3)] == large
    assert {len(page.payloads) for page in pages_of(queue).values()} == {1}


def test_no_more_is_cached_than_the_limit_allows(disk_store: Store) -> None:
    queue = backlog(disk_store, 4000, 1000, starvation=None)
    queue.cache_limit = 1 << 20
    for sequence in range(0, 4000, 37):  # here and there, so that no page is passed
        bodies_of(queue).page(sequence * 7 % 4000)
        assert queue.cached_bytes <= (1 << 20) + 300_000
    queue.cache_limit = 0
    assert len(pages_of(queue)) == 1
    assert numbers(queue, 4000) == list(range(4000))


def test_pages_that_are_used_stay_and_the_others_go(disk_store: Store) -> None:
    queue = backlog(disk_store, 4000, 1000)
    queue.cache_limit = 1 << 20
    for sequence in range(0, 4000, 300):
        bodies_of(queue).page(0)
        bodies_of(queue).page(sequence)
    assert 0 in pages_of(queue)
    assert 300 not in pages_of(queue)


def test_the_limit_covers_what_was_just_put(disk_store: Store) -> None:
    queue = disk_store.queue("work", flush=Flush.sync())
    for _ in range(20):
        queue.put_many([b"x" * 100_000] * 10)
    assert queue.cached_bytes > 4 << 20
    queue.cache_limit = 2 << 20
    assert queue.cached_bytes <= 1 << 20
    queue.put_many([b"y" * 100_000] * 40)
    assert queue.cached_bytes <= 1 << 20
    assert len(queue.lease(240)) == 240


def test_paging_out_frees_what_is_on_disk_and_keeps_what_is_not(disk_store: Store) -> None:
    queue = disk_store.queue("work", flush=Flush("async", 1 << 22, 3600 * 10**9))
    queue.put_many([b"%d-" % n + b"x" * 1000 for n in range(3000)])
    queue.sync()
    queue.put(b"3000-not yet")
    numbers(queue, 1000)
    cached = queue.cached_bytes
    assert cached > 3_000_000
    freed = queue.page_out()
    assert freed + queue.cached_bytes == cached
    assert queue.cached_bytes == 0
    assert numbers(queue, 9999) == list(range(1000, 3001))


def test_hits_and_misses_count_each_message_that_is_handed_out(disk_store: Store) -> None:
    queue = disk_store.queue("work", flush=ASYNC)
    queue.put_many([b"x"] * 1000)
    numbers_out = len(queue.lease(400)) + len([got(queue) for _ in range(100)])
    assert (queue.cache_hits, queue.cache_misses) == (numbers_out, 0)
    queue.sync()
    queue.page_out()
    assert len(queue.lease(250)) + len([got(queue) for _ in range(50)]) == 300
    assert (queue.cache_hits, queue.cache_misses) == (500, 300)
    last = queue.lease(200)
    assert (queue.cache_hits, queue.cache_misses) == (500, 500)
    last[-1].nack(delay=0)
    assert got(queue).attempt == 2
    assert (queue.cache_hits, queue.cache_misses) == (501, 500)


def test_counts_begin_with_the_opening(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("work")
        queue.put_many([b"a", b"b"])
        queue.ack(queue.lease(1))
    with holdfast.open(tmp_path) as store:
        queue = store.queue("work")
        queue.lease(1)
        assert (queue.cache_hits, queue.cache_misses) == (0, 1)


def mapped(folder: Path) -> int:
    """Bytes of memory that are pages of segments in this folder."""
    found, is_segment = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line.split()[0].endswith(":"):
            is_segment = str(folder) in line and line.endswith(".data")
        elif is_segment and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system what is mapped")
def test_asking_how_a_queue_does_reads_no_body_and_leaves_nothing_mapped(disk_store: Store) -> None:
    queue = disk_store.queue("work", flush=ASYNC)
    log = queue.log
    for _ in range(4):  # by way of the log: the queue has not seen them, and must catch up
        log.append_many([b"x" * 1000] * 4000)
    log.sync()
    queue.page_out()
    assert queue.stats().ready == 16_000
    assert mapped(disk_store.path) < 1 << 20
    assert queue.cached_bytes == 0
    queue.lease(1)
    assert queue.cached_bytes > 0  # who wants the body gets it, and its neighbours


def test_the_age_of_a_message_is_known_wherever_it_lies(store: Store, clock: SimClock) -> None:
    queue = store.queue("work", flush=ASYNC)
    for _ in range(5):
        queue.put(b"x")
        clock.advance(1)
    for _ in range(2):  # at hand, and then in a segment
        found = []
        for _ in range(5):
            found.append(queue.stats().oldest_age)
            queue.lease(1)
        assert found == pytest.approx([5, 4, 3, 2, 1], abs=0.001)
        queue.void_leases("again")
        queue.sync()
        queue.page_out()


def test_a_draft_that_readers_do_not_find_in_the_segment_yet_stays_at_hand(
    disk_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = disk_store.queue("work", flush=ASYNC)
    found: list[int] = []

    # As another thread may: it is written, and not yet shown.
    def look() -> None:
        queue.log.appender.limit_recent(0)
        found.append(queue.stats().ready)

    before_publishing(queue.log, look, monkeypatch)
    for count in range(1, 4):
        queue.put(b"x")
        queue.log.appender.write_out()
        assert found[-1] == queue.stats().ready == count


def test_priorities_read_all_over_the_log(disk_store: Store) -> None:
    queue = disk_store.queue("work", flush=ASYNC, starvation=None)
    queue.put_many([Message(b"%d" % n, priority=n % 10) for n in range(3000)])
    queue.sync()
    queue.page_out()
    queue.cache_limit = 100_000
    found = [int(message.payload) for _ in range(30) for message in queue.lease(100)]
    assert found == sorted(range(3000), key=lambda n: (-(n % 10), n))


def test_a_limit_is_a_whole_number(disk_store: Store) -> None:
    queue = disk_store.queue("work")
    for wrong in (-1, 1.5, None, True):
        with pytest.raises(InvalidArgument):
            queue.cache_limit = wrong  # type: ignore[assignment]


DRAIN = """
import sys
from collections.abc import Callable
import holdfast
from holdfast import Flush

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

store = holdfast.open(sys.argv[1])
queue = store.queue("work", flush=Flush("async", 4 << 20, 20_000_000), lease=3600)
queue.put_many([b"warm"] * 1000)
queue.ack(queue.lease(1000))
body = b"x" * 1024
base = most = resident()
for _ in range(600):
    queue.put_many([b"%03d" % n + body for n in range(500)])
most = max(most, resident())
queue.sync()
drained = 0
while messages := queue.lease(int(sys.argv[2])):
    drained += len(messages)
    queue.ack(messages)
    if drained % 10_000 < len(messages):
        most = max(most, resident())
print(drained, (most - base) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its memory")
@pytest.mark.parametrize("batch", [100, 1000])
def test_memory_does_not_grow_with_what_is_read(tmp_path: Path, batch: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRAIN, str(tmp_path / "data"), str(batch)],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    drained, grown_mb = map(int, done.stdout.split())
    assert drained == 300_000
    assert grown_mb < 100


def test_in_normal_work_nearly_all_bodies_come_from_memory(disk_store: Store) -> None:
    """Consumers who are some thousand messages behind, and a cache that has room for a tenth of all."""
    queue = disk_store.queue("work", flush=ASYNC)
    queue.cache_limit = 2 << 20
    for _ in range(200):
        queue.put_many([bytes(100)] * 500)
        if queue.stats().ready > 4000:
            queue.ack(queue.lease(500))
    while batch := queue.lease(500):
        queue.ack(batch)
    assert queue.cache_hits + queue.cache_misses == 100_000
    assert queue.cache_hits > 95_000


@pytest.mark.parametrize("hit", [0, 5, 6, 9])
def test_a_damaged_message_is_skipped_alone_wherever_it_is_in_its_block(
    store: Store, files: SimFiles, reopen: Callable[..., Store], hit: int
) -> None:
    queue = store.queue("orders")
    for first in (0, 5):
        queue.put_many([b"message number %d" % number for number in range(first, first + 5)])
    store.close()
    [segment] = [path for path in files.snapshot() if path.startswith("data/logs/orders/2") and path.endswith(".data")]
    content = files.content(segment)
    content[content.index(b"message number %d" % hit)] ^= 0xFF
    queue = reopen().queue("orders")
    left = [number for number in range(10) if number != hit]
    taken = queue.lease(20)
    assert [(message.id, message.payload) for message in taken] == [(n, b"message number %d" % n) for n in left]
    queue.ack(taken)
    assert (queue.stats().ready, queue.stats().leased) == (0, 0)
