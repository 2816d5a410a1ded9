"""After a failed write or fdatasync a log goes on by itself, once what it has written is known to be on the disk."""

import errno
from collections.abc import Callable

import pytest

import holdfast
from holdfast import Flush, Roll, Store, WriterStopped
from holdfast.testing import CRASH_MODES, SimClock, SimFiles

Reopen = Callable[..., Store]
MODES = [Flush.sync(), Flush.batch(), Flush.async_()]
WEAK = MODES[1:]
each_mode = pytest.mark.parametrize("flush", MODES, ids=lambda flush: flush.mode)
each_weak_mode = pytest.mark.parametrize("flush", WEAK, ids=lambda flush: flush.mode)


def payloads(store: Store) -> list[bytes]:
    return [record.payload for record in store.log("clicks").read()]


def after_power_cut(files: SimFiles, flush: Flush, mode: str = "dropped") -> list[bytes]:
    after = files.after_crash(mode)  # type: ignore[arg-type]
    store = holdfast.open("data", files=after, clock=SimClock(), background=False)
    return [record.payload for record in store.log("clicks", flush=flush).read()]


@each_mode
@pytest.mark.parametrize("before", [1, 5, 70])
def test_a_log_goes_on_after_a_failed_fdatasync_and_what_it_confirms_then_survives_a_power_cut(
    store: Store, files: SimFiles, clock: SimClock, flush: Flush, before: int
) -> None:
    log = store.log("clicks", flush=flush, index_interval=2, roll=Roll.size(9000))
    expected = [b"%d" % n * 100 for n in range(before)]
    for payload in expected:
        log.append(payload)
        log.sync()
    files.fail("sync", errno.EIO, pattern="*.data")
    with pytest.raises(WriterStopped):
        log.append(b"doubtful")
        log.sync()
    with pytest.raises(WriterStopped, match="resumes automatically"):
        log.append(b"too soon")
    clock.advance(1)
    log.append(b"after")
    log.sync()
    expected += [b"after"] if flush.mode == "sync" else [b"doubtful", b"after"]
    assert payloads(store) == expected
    for mode in CRASH_MODES:
        assert after_power_cut(files, flush, mode) == expected
    assert log.verify().ok
    log.append(b"more")
    store.close()
    assert after_power_cut(files, flush) == [*expected, b"more"]


@each_weak_mode
def test_the_background_recovers_a_log_that_nobody_appends_to(
    store: Store, files: SimFiles, clock: SimClock, flush: Flush
) -> None:
    log = store.log("clicks", flush=flush)
    log.append(b"a")
    log.appender.write_out()
    log.append(b"b")
    files.fail("sync", errno.EIO, pattern="*.data", times=3)
    with pytest.raises(WriterStopped):
        log.sync()
    for _ in range(4):
        clock.advance(1)
        store.tick()
    assert not log.appender.suspended
    log.sync()
    assert after_power_cut(files, flush) == [b"a", b"b"]


@each_weak_mode
def test_closing_after_a_failed_fdatasync_writes_all_that_was_accepted(
    store: Store, files: SimFiles, flush: Flush
) -> None:
    log = store.log("clicks", flush=flush)
    for payload in (b"a", b"b", b"c"):
        log.append(payload)
        log.appender.write_out()
    files.fail("sync", errno.EIO, pattern="*.data")
    with pytest.raises(WriterStopped):
        log.sync()
    store.close()
    assert after_power_cut(files, flush) == [b"a", b"b", b"c"]


def test_as_long_as_the_disk_fails_appends_are_refused_and_nothing_is_lost(
    store: Store, files: SimFiles, clock: SimClock
) -> None:
    log = store.log("clicks", flush=Flush.sync())
    log.append(b"safe")
    files.fail("sync", errno.EIO, pattern="*.data", times=5)
    for _ in range(5):
        with pytest.raises(WriterStopped):
            log.append(b"doubtful")
        assert payloads(store) == [b"safe"]
        clock.advance(1)
    assert log.append(b"after") == 1
    assert after_power_cut(files, Flush.sync()) == [b"safe", b"after"]


@each_mode
def test_a_write_that_could_not_be_undone_is_cut_off_when_the_log_goes_on(
    store: Store, files: SimFiles, clock: SimClock, flush: Flush
) -> None:
    log = store.log("clicks", flush=flush)
    log.append(b"safe")
    log.sync()
    files.capacity = sum(map(len, files.snapshot().values())) + 70  # half a block fits
    files.fail("truncate", errno.EIO, pattern="*.data")
    with pytest.raises(WriterStopped):
        log.append(bytes(200))
        log.appender.write_out()
    files.capacity = None
    clock.advance(1)
    log.append(b"after")
    log.sync()
    found = after_power_cut(files, flush)
    assert found == payloads(store) == [b"safe", *([bytes(200)] if flush.mode != "sync" else []), b"after"]


@each_weak_mode
def test_what_the_page_cache_has_lost_after_a_failed_fdatasync_is_never_taken_for_written(
    store: Store, files: SimFiles, clock: SimClock, reopen: Reopen, flush: Flush
) -> None:
    log = store.log("clicks", flush=flush)
    log.append(b"safe")
    log.sync()
    log.append(b"lost")
    log.appender.write_out()
    files.fail("sync", errno.EIO, pattern="*.data")
    with pytest.raises(WriterStopped):
        log.sync()
    files.evict()
    clock.advance(1)
    with pytest.raises(WriterStopped):
        log.append(b"after")
    with pytest.raises(WriterStopped):
        store.close()
    store.close()
    assert payloads(reopen()) == [b"safe"]
