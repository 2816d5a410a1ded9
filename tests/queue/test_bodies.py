"""Bodies in memory: bounded, counted, given back when asked to, and not growing with what was read."""

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Message, Queue, Store
from holdfast.base.errors import InvalidArgument
from holdfast.queue import bodies
from tests.queue.calls import got

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


def test_pages_are_bounded_in_records_and_in_bytes(disk_store: Store) -> None:
    queue = backlog(disk_store, 1000, 10_000)
    numbers(queue, 1000)
    sizes = [sum(map(len, page.payloads)) for page in queue._bodies._pages.values()]
    assert max(sizes) <= bodies.PAGE_BYTES
    small = disk_store.queue("small", flush=ASYNC)
    small.put_many([b"x"] * 1000)
    small.sync()
    small.lease(1000)
    assert {len(page.payloads) for page in small._bodies._pages.values()} <= {256, 1000 % 256}


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
    assert {len(page.payloads) for page in queue._bodies._pages.values()} == {1}


def test_no_more_is_cached_than_the_limit_allows(disk_store: Store) -> None:
    queue = backlog(disk_store, 4000, 1000, starvation=None)
    queue.cache_limit = 1 << 20
    for sequence in range(0, 4000, 37):  # here and there, so that no page is passed
        queue._bodies.page(sequence * 7 % 4000)
        assert queue.cached_bytes <= (1 << 20) + 300_000
    queue.cache_limit = 0
    assert len(queue._bodies._pages) == 1
    assert numbers(queue, 4000) == list(range(4000))


def test_pages_that_are_used_stay_and_the_others_go(disk_store: Store) -> None:
    queue = backlog(disk_store, 4000, 1000)
    queue.cache_limit = 1 << 20
    for sequence in range(0, 4000, 300):
        queue._bodies.page(0)
        queue._bodies.page(sequence)
    assert 0 in queue._bodies._pages
    assert 300 not in queue._bodies._pages


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
