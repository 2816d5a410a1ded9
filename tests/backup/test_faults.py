"""What if the past of a store is not that of the newest backup beside it, or it changes while one is taken?"""

import errno
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import holdfast
from holdfast.backup.restore import restore_backup
from holdfast.base.files import SystemFiles


def orders_in(backup: Path, data: Path) -> list[bytes]:
    restore_backup(backup, data)
    with holdfast.open(data, read_only=True) as store:
        return [record.payload for record in store.log("orders").read()]


def test_a_store_that_was_restored_to_an_earlier_moment_is_backed_up_as_it_went_on(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    with holdfast.open(tmp_path / "first", background=False) as store:
        log = store.log("orders")
        log.append(b"one")
        early = store.backup(backups)
        log.append(b"two")  # as long as the one that takes its place below
        store.backup(backups)
    restore_backup(backups, tmp_path / "second", at=datetime.fromtimestamp(early.created_at / 1e9 + 1e-5, UTC))
    with holdfast.open(tmp_path / "second", background=False) as store:
        store.log("orders").append(b"TWO")
        last = store.backup(backups)
    assert orders_in(last.path, tmp_path / "third") == [b"one", b"TWO"]


class NoLinks(SystemFiles):
    """A file system on which no file can have a second name."""

    def link(self, source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(target))


def test_a_queue_that_is_deleted_while_a_backup_needs_its_files_does_not_come_back(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", files=NoLinks(), background=False) as store:
        queue = store.queue("orders", dead_letter="dead")
        store.queue("dead").put(b"x")
        lookers: list[threading.Thread] = []

        def progress(done: int, total: int) -> None:
            if not lookers:
                store.delete_queue("dead")
                lookers.append(threading.Thread(target=queue.stats))
                lookers[0].start()

        store.backup(tmp_path / "backups", progress=progress)
        lookers[0].join()
        assert store.queues() == ["orders"]
