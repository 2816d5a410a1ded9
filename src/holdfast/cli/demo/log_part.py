"""The demo's first part: a log in six chapters: write, kill, recover, continue, read, verify."""

import random
import signal
import time
from pathlib import Path

import holdfast
from holdfast.base.units import format_count, format_duration, format_size, plural
from holdfast.cli.demo.children import next_report, running
from holdfast.cli.demo.orders import LOG, count_right, orders
from holdfast.cli.demo.stage import Stage, pace
from holdfast.log import Flush

__all__ = ["run_log_part"]

_TAILER = "billing"
_READ_BATCH = 10_000


def run_log_part(data: Path, records: int, stage: Stage) -> None:
    """Run the first part in this folder."""
    stage.note(records=records)
    sync_every = max(1, records // 200)
    confirmed = _write_and_kill(data, records, sync_every, stage)
    died_at = time.time_ns()
    found = _recover(data, confirmed, stage)
    _continue(data, found, records, sync_every, stage)
    _read_with_a_restart(data, records, stage)
    _read_by_time(data, died_at, found, stage)
    _verify(data, records, stage)


def _write_and_kill(data: Path, records: int, sync_every: int, stage: Stage) -> int:
    """Run the first two chapters; return how many records the killed process had confirmed to be on disk."""
    confirmed, seconds = 0, 0.0
    deadly = round(records * random.uniform(0.4, 0.6))
    stage.chapter(f"A process starts to write {plural(records, 'record')}")
    with running("write", data, records, sync_every) as child:
        next_report(child)
        began = time.perf_counter()
        with stage.progress("confirmed on disk", records) as advance:
            while confirmed < deadly and (report := next_report(child)) is not None:
                confirmed, seconds = report["confirmed"], time.perf_counter() - began
                advance(confirmed)
        # In the middle of the next batch, so that some records are not confirmed yet.
        batch = seconds * sync_every / max(confirmed, 1)
        time.sleep(random.uniform(0.3, 0.9) * batch)
        child.send_signal(signal.SIGKILL)
        # Confirmations that were not read before the kill count as well.
        while (report := next_report(child)) is not None:
            confirmed, seconds = report["confirmed"], time.perf_counter() - began
        code = child.wait()
    stage.say(f"{format_count(confirmed)} confirmed, {pace(confirmed, seconds)}")
    stage.chapter(f"kill -9 {child.pid}")
    stage.say(f"process {child.pid} was killed while it wrote; it had confirmed {format_count(confirmed)}")
    stage.promise("the writing process was killed before it ended", code == -signal.SIGKILL)
    stage.note(confirmed=confirmed, confirmed_seconds=seconds)
    stage.line("confirmed before kill -9", format_count(confirmed), pace(confirmed, seconds))
    return confirmed


def _recover(data: Path, confirmed: int, stage: Stage) -> int:
    """Open the store again; return how many records it has."""
    stage.chapter("The store is opened again")
    size_before = _data_bytes(data)
    began = time.perf_counter()
    with holdfast.open(data) as store:
        log = store.log(LOG, flush=Flush.batch())
        seconds = time.perf_counter() - began
        cut_bytes = size_before - _data_bytes(data)
        found = log.end
        lost = confirmed - count_right(log, 0, confirmed)
        beyond = count_right(log, confirmed, found)
    more = found - confirmed
    stage.say(f"recovered in {format_duration(seconds)}; torn bytes removed: {cut_bytes}")
    stage.say(
        f"{format_count(found)} records found: all {format_count(confirmed)} confirmed ones and "
        f"{format_count(more)} not yet confirmed"
        if not lost
        else f"{plural(lost, 'confirmed record')} missing or wrong"
    )
    stage.promise("no confirmed record is missing, and each payload is correct", lost == 0)
    stage.promise("records beyond the confirmed ones are intact and in order", beyond == more)
    stage.note(found=found, lost=lost, cut_bytes=cut_bytes, recovery_seconds=seconds)
    stage.line("found after kill -9", format_count(found))
    stage.line("confirmed and lost", format_count(lost), lost=lost)
    stage.line("recovery time", format_duration(seconds), f"{cut_bytes} torn bytes removed")
    return found


def _continue(data: Path, start: int, stop: int, sync_every: int, stage: Stage) -> None:
    stage.chapter(f"The remaining {format_count(stop - start)} are written while a second process reads them")
    with holdfast.open(data) as store:
        log = store.log(LOG, flush=Flush.batch())
        with running("follow", data, start, stop) as child:
            next_report(child)
            began = time.perf_counter()
            with stage.progress("written", stop) as advance:
                for first in range(start, stop, sync_every):
                    for payload in orders(first, min(first + sync_every, stop)):
                        log.append(payload)
                    advance(min(first + sync_every, stop))
                log.sync()
            resumed, seconds = log.end - start, time.perf_counter() - began
            report = (next_report(child) or {}) if stop > start else {"right": 0}
    followed, delay = report.get("right", 0), report.get("delay_ms")
    median = "" if delay is None else f"median delay {format_duration(delay / 1000)}"
    stage.say(f"{format_count(resumed)} written, {pace(resumed, seconds)}")
    stage.say(f"the second process read {format_count(followed)} of them" + (f"; {median}" if median else ""))
    stage.promise("the log ends at the expected record", start + resumed == stop)
    stage.promise("the second process read each new record once, in order", followed == stop - start)
    stage.note(resumed=resumed, resumed_seconds=seconds, followed=followed, follow_delay_ms=delay)
    stage.line("written after recovery", format_count(resumed), pace(resumed, seconds))
    stage.line("read by another process", format_count(followed), median)


def _read_with_a_restart(data: Path, records: int, stage: Stage) -> None:
    stage.chapter(f"The tailer {_TAILER!r} is restarted, and a record is found by its time")
    with holdfast.open(data, read_only=True) as store, store.log(LOG).tailer(_TAILER) as tailer:
        first_part = len(tailer.read_many(records // 3))
        tailer.commit()
        committed = tailer.position
        tailer.read_many(1000)  # read but not committed: these are read again
    stage.say(f"read {format_count(first_part)}, committed, read 1,000 more, and stopped without committing those")
    in_order = True
    with holdfast.open(data, read_only=True) as store, store.log(LOG).tailer(_TAILER) as tailer:
        went_on_at = expected = tailer.position
        began = time.perf_counter()
        with stage.progress("read", records) as advance:
            while batch := tailer.read_many(_READ_BATCH):
                in_order &= batch[0].sequence == expected and batch[-1].sequence == expected + len(batch) - 1
                expected += len(batch)
                advance(expected)
        seconds = time.perf_counter() - began
        tailer.commit()
    read = expected - went_on_at
    stage.say(f"continued at record {format_count(went_on_at)}, its committed position, and read to the end")
    stage.say(f"{format_count(read)} read, {pace(read, seconds)}")
    kept = went_on_at == committed == first_part == records // 3
    stage.promise("the restarted tailer continued exactly at its committed position", kept)
    stage.promise("it then read every record once, in order", in_order and expected == records)
    stage.note(committed=committed, went_on_at=went_on_at, read=read, read_seconds=seconds)
    stage.line("read by a named tailer", format_count(read), pace(read, seconds))


def _read_by_time(data: Path, died_at: int, found: int, stage: Stage) -> None:
    with holdfast.open(data, read_only=True) as store, store.log(LOG).tailer() as tailer:
        began = time.perf_counter()
        tailer.seek_time(died_at)
        record = tailer.read()
        seconds = time.perf_counter() - began
        sequence = tailer.position if record is None else record.sequence
    stage.say(f"the first record after the kill, found by its time in {format_duration(seconds)}: {sequence:,}")
    stage.promise("a seek to the time of the kill finds the first record after it", sequence == found)
    stage.note(time_sequence=sequence, time_seconds=seconds)
    stage.line("found by time", format_duration(seconds), f"record {format_count(sequence)}")


def _verify(data: Path, records: int, stage: Stage) -> None:
    stage.chapter("Every checksum is verified")
    with holdfast.open(data, read_only=True) as store:
        log = store.log(LOG)
        with stage.progress("verified", log.stats().bytes, in_bytes=True) as advance:
            began = time.perf_counter()
            result = log.verify(lambda done, total: advance(done))
            seconds = time.perf_counter() - began
        right = count_right(log, 0, records)
    verified, size = format_count(result.records), format_size(result.bytes)
    stage.say(f"{verified} records, {size}, {format_size(result.bytes / max(seconds, 1e-9))}/s")
    stage.promise("every checksum is correct", result.ok and result.records == records)
    stage.promise("every payload, compared byte by byte, is correct", right == records)
    stage.note(verified=result.records, bytes=result.bytes, verify_seconds=seconds)
    stage.line("checksums verified", verified, f"{size} in {format_duration(seconds)}")


def _data_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in data.rglob("*.data"))
