"""A signal's handler that raises while the disk works is not a failure of the disk, whatever it raises."""

import errno
import os
import signal
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush
from holdfast.base.errors import is_reported, raised_by_handler
from tests.interrupts import HANDLERS, BlockedFiles, Interrupts, LimitExceeded, handled_by

ERRORS = (LimitExceeded, TimeoutError, OSError, KeyboardInterrupt)


@pytest.mark.parametrize("raising", HANDLERS)
@pytest.mark.parametrize("flush", [Flush.sync(), Flush.batch(), Flush.async_()], ids=lambda flush: flush.mode)
def test_a_handler_that_raises_while_a_log_syncs_is_not_a_failed_sync(
    tmp_path: Path, raising: str, flush: Flush
) -> None:
    disk = BlockedFiles()
    with holdfast.open(tmp_path, files=disk, background=False) as store:
        log = store.log("clicks", flush=flush)
        log.append(b"before")
        log.sync()
        disk.blocked = True
        with handled_by(HANDLERS[raising]()), pytest.raises(ERRORS) as raised:
            log.append(b"interrupted")
            log.sync()
        assert not disk.blocked
        assert not isinstance(raised.value, holdfast.HoldfastError)
        log.append(b"after")
        log.sync()
        assert [record.payload for record in log.read()] == [b"before", b"interrupted", b"after"]
    with holdfast.open(tmp_path) as store:
        assert [record.payload for record in store.log("clicks").read()] == [b"before", b"interrupted", b"after"]


@pytest.mark.parametrize("raising", HANDLERS)
def test_what_a_handler_raises_is_told_from_what_the_system_reports(raising: str) -> None:
    with handled_by(HANDLERS[raising]()):
        try:
            signal.raise_signal(signal.SIGALRM)
        except BaseException as error:
            # A handler of C code leaves no frame. What it raises is not an Exception.
            assert raised_by_handler(error) == (raising != "Ctrl-C")
            assert not (isinstance(error, OSError) and is_reported(error))


def test_what_the_system_reports_is_told_from_what_a_handler_raises() -> None:
    with pytest.raises(OSError) as raised:
        os.fdatasync(1 << 30)
    assert raised.value.errno == errno.EBADF
    assert is_reported(raised.value)
    assert not is_reported(TimeoutError())  # as a thread raises it in another: a class, which is made without arguments


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupts inside destructors
@pytest.mark.parametrize("error", [LimitExceeded, TimeoutError, lambda: OSError(errno.ENOSPC, "no room")])
def test_a_handler_that_raises_at_any_place_of_an_append_is_what_its_caller_gets(tmp_path: Path, error: type) -> None:
    with holdfast.open(tmp_path, background=False) as store:
        log = store.log("clicks", flush=Flush.sync())
        at, confirmed = 0, 0

        def append() -> None:
            nonlocal confirmed
            try:
                log.append(b"%d" % at)
                confirmed += 1
            except holdfast.HoldfastError:
                raise
            except ERRORS:
                return

        while True:
            interrupts = Interrupts(at, error=error)
            interrupts.run(append)
            if not interrupts.raised:
                break
            at += 1
        assert at > 50
        append()
        assert confirmed >= 2
        assert log.verify().ok
