"""Does a queue stand where it stood after a restart?"""

from pathlib import Path

import holdfast
from holdfast import Flush


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
