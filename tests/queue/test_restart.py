"""Does a queue stand where it stood after a restart?"""

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Store


def test_thousands_of_leases_are_all_there_after_a_restart(tmp_path: Path) -> None:
    """Also a regression: a scan's bound was freed while the scan went on, and it ended at some block or other."""
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders", flush=Flush.async_(), lease=3600)
        queue.put_many([b"order"] * 6000)
        for _ in range(3):
            for _ in range(1000):
                queue.lease(2)
            queue.checkpoint()
    with holdfast.open(tmp_path) as store:
        stats = store.queue("orders", flush=Flush.async_()).stats()
        assert (stats.leases, stats.leased, stats.ready, stats.orphans) == (3000, 6000, 0, 0)


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.batch(), Flush.async_()], ids=lambda flush: str(flush.mode))
def test_what_was_appended_before_the_queue_was_opened_is_delivered(flush: Flush, reopen: Callable[..., Store]) -> None:
    with reopen() as store:
        store.queue("orders", log="events", flush=flush).put(b"0")
    store = reopen()
    store.log("events", flush=flush).append_many([b"1", b"2"])
    assert [message.payload for message in store.queue("orders").lease(9)] == [b"0", b"1", b"2"]
