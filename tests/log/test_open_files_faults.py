"""Logs that are cut, cleared or stopped at the worst moment."""

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, StorageError, Store, WriterStopped
from holdfast.base.files import File, Mode, SystemFiles
from holdfast.base.open_files import OPEN_FILES
from holdfast.log.snapshot import LogSnapshot, snapshot_logs
from tests.interrupts import Interrupted, Interrupts
from tests.log.internals import PlainFile


@pytest.fixture(autouse=True)
def one_awake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One log at a time has its files open; those of other tests have nothing to do with it."""
    OPEN_FILES.forget()
    monkeypatch.setattr(OPEN_FILES, "most", 1)
    yield
    OPEN_FILES.forget()


def test_a_cut_of_a_log_that_is_just_being_cleared_goes_on_with_its_sequences(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, background=False) as store:
        log = store.log("events", flush=Flush.sync())
        log.append_many([b"1", b"2", b"3"])
        [cut], _ = snapshot_logs([log])
        cut.unpin()  # who clears it had looked before it was pinned
        log.append(b"4")
        log.clear(force=True)
        cut.settle()
        assert cut.mark is not None
        assert cut.end == 4


class Unreliable(SystemFiles):
    """A disk on which, from some moment on, nothing that is in a segment can be synced."""

    broken = False

    def open(self, path: Path, mode: Mode) -> File:
        outer = self

        class OnIt(PlainFile):
            __slots__ = ()

            def sync(self) -> None:
                if outer.broken and path.suffix == ".data":
                    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

        flags = {"r": os.O_RDONLY, "w": os.O_RDWR, "x": os.O_RDWR | os.O_CREAT | os.O_EXCL}
        return OnIt(os.open(path, flags[mode] | os.O_CLOEXEC, 0o644))


def test_a_sync_that_fails_while_a_log_is_cleared_stops_it_though_its_files_are_closed_meanwhile(
    tmp_path: Path,
) -> None:
    files = Unreliable()
    store = holdfast.open(tmp_path, files=files, background=False)
    log, other = store.log("events", flush=Flush.sync()), store.log("other", flush=Flush.sync())
    for _ in range(20):  # so that zeros are written ahead, which clearing takes away
        log.append(b"small")
    files.broken = True
    with pytest.raises(StorageError):
        log.clear(force=True)
    files.broken = False
    other.append(b"now that one rests")
    with pytest.raises(WriterStopped):
        log.append(b"not known to be safe")
    store.ending.detach_after_fork()


def test_an_interrupted_cut_leaves_neither_a_pin_nor_a_lock(store: Store) -> None:
    logs = [store.log(name, flush=Flush.async_()) for name in ("a", "b")]
    cuts: list[LogSnapshot] = []

    def cut() -> None:
        try:  # noqa: SIM105 - `suppress` would be interrupted too
            cuts.extend(snapshot_logs(logs)[0])
        except Interrupted:
            pass

    with ThreadPoolExecutor(1) as other:
        for place in range(1000):
            interrupts = Interrupts(place)
            interrupts.run(cut)
            while cuts:
                cuts.pop().unpin()
            assert not any(log.retention.pinned for log in logs), interrupts.where
            for log in logs:
                assert other.submit(log.append, b"x").result(60) == place, interrupts.where
            if not interrupts.raised:
                break
    assert place > 20
