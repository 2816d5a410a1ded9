"""The demo's first part: a log in six chapters: write, kill, recover, continue, read, verify."""

import random
import signal
import time
from pathlib import Path

import holdfast
from holdfast.base.units import format_count, format_duration, format_size, plural
from holdfast.cli.demo.children import next_report, running
from holdfast.cli.demo.orders import LOG, count_right, orders
from holdfast.cli.demo.output import Stage
from holdfast.cli.demo.results import Figures
from holdfast.log import Flush

__all__ = ["run_log_part"]

_TAILER = "billing"
_READ_BATCH = 10_000


def run_log_part(data: Path, records: int, stage: Stage) -> Figures:
    """Run the first part in this folder and return the figures."""
    figures = Figures(records=records)
    sync_every = max(1, records // 200)
    died_at = _write_and_kill(data, sync_every, figures, stage)
    _recover(data, figures, stage)
    _continue(data, sync_every, figures, stage)
    _read_with_a_restart(data, figures, stage)
    _read_by_time(data, died_at, figures, stage)
    _verify(data, figures, stage)
    return figures


def _write_and_kill(data: Path, sync_every: int, figures: Figures, stage: Stage) -> int:
    """Run the first two chapters; return a time after which the killed process wrote nothing."""
    records = figures.records
    deadly = round(records * random.uniform(0.4, 0.6))
    stage.chapter(f"A process starts to write {plural(records, 'record')}")
    with running("write", data, records, sync_every) as child:
        next_report(child)
        began = time.perf_counter()
        with stage.progress("confirmed on disk", records, in_bytes=False) as advance:
            while figures.confirmed < deadly and (report := next_report(child)) is not None:
                figures.confirmed = report["confirmed"]
                figures.confirmed_seconds = time.perf_counter() - began
                advance(figures.confirmed)
        # In the middle of the next batch, so that some records are not confirmed yet.
        batch = figures.confirmed_seconds * sync_every / max(figures.confirmed, 1)
        time.sleep(random.uniform(0.3, 0.9) * batch)
        child.send_signal(signal.SIGKILL)
        # Confirmations that were not read before the kill count as well.
        while (report := next_report(child)) is not None:
            figures.confirmed = report["confirmed"]
            figures.confirmed_seconds = time.perf_counter() - began
        code = child.wait()
    stage.say(f"{format_count(figures.confirmed)} confirmed, {_pace(figures.confirmed, figures.confirmed_seconds)}")
    stage.chapter(f"kill -9 {child.pid}")
    stage.say(f"process {child.pid} was killed while it wrote; it had confirmed {format_count(figures.confirmed)}")
    figures.promise("the writing process was killed before it ended", code == -signal.SIGKILL)
    return time.time_ns()


def _recover(data: Path, figures: Figures, stage: Stage) -> None:
    stage.chapter("The store is opened again")
    size_before = _data_bytes(data)
    began = time.perf_counter()
    with holdfast.open(data) as store:
        log = store.log(LOG, flush=Flush.batch())
        figures.recovery_seconds = time.perf_counter() - began
        figures.cut_bytes = size_before - _data_bytes(data)
        figures.found = log.end
        figures.lost = figures.confirmed - count_right(log, 0, figures.confirmed)
        beyond = count_right(log, figures.confirmed, figures.found)
    more = figures.found - figures.confirmed
    stage.say(f"recovered in {format_duration(figures.recovery_seconds)}; torn bytes removed: {figures.cut_bytes}")
    stage.say(
        f"{format_count(figures.found)} records found: all {format_count(figures.confirmed)} confirmed ones and "
        f"{format_count(more)} not yet confirmed"
        if not figures.lost
        else f"{plural(figures.lost, 'confirmed record')} missing or wrong"
    )
    figures.promise("no confirmed record is missing, and each payload is correct", figures.lost == 0)
    figures.promise("records beyond the confirmed ones are intact and in order", beyond == more)


def _continue(data: Path, sync_every: int, figures: Figures, stage: Stage) -> None:
    start, stop = figures.found, figures.records
    stage.chapter(f"The remaining {format_count(stop - start)} are written while a second process reads them")
    with holdfast.open(data) as store:
        log = store.log(LOG, flush=Flush.batch())
        with running("follow", data, start, stop) as child:
            next_report(child)
            began = time.perf_counter()
            with stage.progress("written", stop, in_bytes=False) as advance:
                for first in range(start, stop, sync_every):
                    for payload in orders(first, min(first + sync_every, stop)):
                        log.append(payload)
                    advance(min(first + sync_every, stop))
                log.sync()
            figures.resumed = log.end - start
            figures.resumed_seconds = time.perf_counter() - began
            report = (next_report(child) or {}) if stop > start else {"seen": 0, "right": 0}
    figures.followed = report.get("right", 0)
    figures.follow_delay_ms = report.get("delay_ms")
    stage.say(f"{format_count(figures.resumed)} written, {_pace(figures.resumed, figures.resumed_seconds)}")
    delay = figures.follow_delay_ms
    seen = "" if delay is None else f", with a median delay of {format_duration(delay / 1000)}"
    stage.say(f"the second process read {format_count(figures.followed)} of them{seen}")
    figures.promise("the log ends at the expected record", start + figures.resumed == figures.records)
    figures.promise("the second process read each new record once, in order", figures.followed == stop - start)


def _read_with_a_restart(data: Path, figures: Figures, stage: Stage) -> None:
    stage.chapter(f"The tailer {_TAILER!r} is restarted, and a record is found by its time")
    part = figures.records // 3
    with holdfast.open(data, read_only=True) as store, store.log(LOG).tailer(_TAILER) as tailer:
        first_part = len(tailer.read_many(part))
        tailer.commit()
        figures.committed = tailer.position
        tailer.read_many(1000)  # read but not committed: these are read again
    stage.say(f"read {format_count(first_part)}, committed, read 1,000 more, and stopped without committing those")
    in_order = True
    with holdfast.open(data, read_only=True) as store, store.log(LOG).tailer(_TAILER) as tailer:
        figures.went_on_at = expected = tailer.position
        began = time.perf_counter()
        with stage.progress("read", figures.records, in_bytes=False) as advance:
            while batch := tailer.read_many(_READ_BATCH):
                in_order &= batch[0].sequence == expected and batch[-1].sequence == expected + len(batch) - 1
                expected += len(batch)
                advance(expected)
        figures.read_seconds = time.perf_counter() - began
        figures.read = expected - figures.went_on_at
        tailer.commit()
    stage.say(f"continued at record {format_count(figures.went_on_at)}, its committed position, and read to the end")
    stage.say(f"{format_count(figures.read)} read, {_pace(figures.read, figures.read_seconds)}")
    kept = figures.went_on_at == figures.committed == first_part == part
    figures.promise("the restarted tailer continued exactly at its committed position", kept)
    figures.promise("it then read every record once, in order", in_order and expected == figures.records)


def _read_by_time(data: Path, died_at: int, figures: Figures, stage: Stage) -> None:
    with holdfast.open(data, read_only=True) as store, store.log(LOG).tailer() as tailer:
        began = time.perf_counter()
        tailer.seek_time(died_at)
        record = tailer.read()
        figures.time_seconds = time.perf_counter() - began
    figures.time_sequence = figures.records if record is None else record.sequence
    when = format_duration(figures.time_seconds)
    stage.say(f"the first record after the kill, found by its time in {when}: {format_count(figures.time_sequence)}")
    figures.promise(
        "a seek to the time of the kill finds the first record after it", figures.time_sequence == figures.found
    )


def _verify(data: Path, figures: Figures, stage: Stage) -> None:
    stage.chapter("Every checksum is verified")
    with holdfast.open(data, read_only=True) as store:
        log = store.log(LOG)
        with stage.progress("verified", log.stats().bytes, in_bytes=True) as advance:
            began = time.perf_counter()
            result = log.verify(lambda done, total: advance(done))
            figures.verify_seconds = time.perf_counter() - began
        figures.verified, figures.bytes = result.records, result.bytes
        right = count_right(log, 0, figures.records)
    pace = f"{format_size(result.bytes / max(figures.verify_seconds, 1e-9))}/s"
    stage.say(f"{format_count(result.records)} records, {format_size(result.bytes)}, {pace}")
    figures.promise("every checksum is correct", result.ok and result.records == figures.records)
    figures.promise("every payload, compared byte by byte, is correct", right == figures.records)


def _data_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in data.rglob("*.data"))


def _pace(count: int, seconds: float) -> str:
    return f"{format_count(count / max(seconds, 1e-9))} records/s"
