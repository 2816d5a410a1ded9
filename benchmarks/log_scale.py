"""Does a log stay fast when it must be safe, and when it grows? Group commit, opening and memory."""

import threading
from pathlib import Path

import holdfast
from benchmarks.floor import sync_floor
from benchmarks.harness import Line, Workshop, measure_pairs, timed
from benchmarks.memory import measure_reading
from holdfast import Flush, Roll

__all__ = ["measure_open", "measure_read_memory", "measure_sync"]

_THREADS = 16
_LOG = "bench"
_MIB = 1 << 20


def measure_sync(workshop: Workshop, payloads: list[bytes], rounds: int) -> list[Line]:
    """Threads that share an fdatasync against one that makes its own for each record."""

    def floor() -> float:
        with workshop.borrowed() as path:
            return sync_floor(path, payloads)

    many = Line("sync_16", f"append, Flush.sync(), {_THREADS} threads", "at least", 3.0)
    one = Line("sync_1", "append, Flush.sync(), one thread", "at least")
    return [
        measure_pairs(many, floor, lambda: _sync_sample(workshop, payloads, _THREADS), rounds),
        measure_pairs(one, floor, lambda: _sync_sample(workshop, payloads, 1), rounds),
    ]


def measure_open(workshop: Workshop, small_mib: int, large_mib: int, rounds: int) -> tuple[list[Line], Path]:
    """Opening, reading the last record and closing, large against small; also gives the large store back.

    All in this process: a fresh one would add the same import to both and hide the difference.
    """
    small = _make_store(workshop, small_mib, Roll.size(256 * _MIB))
    large = _make_store(workshop, large_mib, Roll.size(256 * _MIB))
    whole = _make_store(workshop, large_mib, Roll.size(2 * large_mib * _MIB))
    rolled = Line("open", f"open {large_mib} MiB against {small_mib} MiB", "at most", 2.0)
    single = Line("open_single", "the same, all in one segment", "at most", 2.0)
    lines = [
        measure_pairs(rolled, lambda: _open_sample(small), lambda: _open_sample(large), rounds),
        measure_pairs(single, lambda: _open_sample(small), lambda: _open_sample(whole), rounds),
    ]
    return lines, large


def measure_read_memory(store: Path, size_mib: int) -> list[Line]:
    """What reading a whole log through adds to the memory of a process."""
    found = measure_reading(store, _LOG)
    measured = {"records": float(found.records), "own_mib": found.own_mib, "private_mib": found.private_mib}
    return [
        Line(
            "memory",
            f"private memory that reading {size_mib} MiB adds",
            "at most",
            64.0,
            "MiB",
            rounds=[measured],
            values=[found.own_mib],
        ),
        Line(
            "memory_mapped",
            "the same with the mapped segment's pages",
            "at most",
            64.0,
            "MiB",
            rounds=[measured],
            values=[found.private_mib],
        ),
    ]


def _sync_sample(workshop: Workshop, payloads: list[bytes], threads: int) -> float:
    with workshop.borrowed() as folder, holdfast.open(folder) as hf:
        log = hf.log(_LOG, flush=Flush.sync())
        log.append(b"")
        go = threading.Barrier(threads + 1)

        def work() -> None:
            go.wait()
            for payload in payloads:
                log.append(payload)

        writers = [threading.Thread(target=work) for _ in range(threads)]
        for writer in writers:
            writer.start()
        go.wait()

        def finish() -> None:
            for writer in writers:
                writer.join()

        return timed(finish) / (len(payloads) * threads)


def _open_sample(store: Path) -> float:
    def work() -> None:
        with holdfast.open(store) as hf:
            log = hf.log(_LOG)
            tailer = log.tailer()
            tailer.seek(log.end - 1)
            record = tailer.read()
            assert record is not None and record.sequence == log.end - 1

    return timed(work)


def _make_store(workshop: Workshop, size_mib: int, roll: Roll) -> Path:
    """A store with a log of that many bytes on disk, closed cleanly.

    It stops just short of the size: a little more would begin a new segment, and opening depends on how long the last
    one is.
    """
    path = workshop.place()
    batch = [bytes([number]) * 100 for number in range(100)]
    with holdfast.open(path) as hf:
        log = hf.log(_LOG, flush=Flush.async_(), roll=roll)
        while log.stats().bytes < 0.995 * size_mib * _MIB:
            for _ in range(200):
                log.append_many(batch)
    return path
