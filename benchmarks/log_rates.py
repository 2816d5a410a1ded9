"""How fast do records go into a log and come out again, beside bare Python and beside others?"""

from collections.abc import Callable
from dataclasses import dataclass

import holdfast
from benchmarks.floor import clockless_floor, read_floor, write_floor
from benchmarks.harness import Line, Workshop, measure_pairs, quiet, timed
from benchmarks.peers import PEERS
from holdfast import Flush, Log

__all__ = ["PeerTable", "compare_peers", "measure_append", "measure_read"]

_BATCH = 100
_READ = 1000


@dataclass(frozen=True, slots=True)
class PeerTable:
    """The lines against the fastest peer, and the best seconds a record of everything that took part."""

    lines: list[Line]
    put: dict[str, float]
    get: dict[str, float]


def measure_append(workshop: Workshop, payloads: list[bytes], rounds: int) -> list[Line]:
    """`append` and `append_many` against the write floor, until the operating system has every byte."""

    def floor() -> float:
        with workshop.borrowed() as path:
            return write_floor(path, payloads)

    one_by_one = Line("append", "append, 100 B, Flush.async_(), one thread", "at most", 2.0)
    in_batches = Line("append_many", f"append_many of {_BATCH}, a record", "at most", 0.9)
    without_time = Line("append_clockless", "append against a floor that takes no time", "at most")
    batches_without = Line("append_many_clockless", "append_many against the same", "at most")

    def clockless() -> float:
        with workshop.borrowed() as path:
            return clockless_floor(path, payloads)

    return [
        measure_pairs(one_by_one, floor, lambda: _append_sample(workshop, payloads), rounds),
        measure_pairs(in_batches, floor, lambda: _append_many_sample(workshop, payloads), rounds),
        measure_pairs(without_time, clockless, lambda: _append_sample(workshop, payloads), rounds),
        measure_pairs(batches_without, clockless, lambda: _append_many_sample(workshop, payloads), rounds),
    ]


def measure_read(workshop: Workshop, payloads: list[bytes], rounds: int) -> list[Line]:
    """`read_many` and block scans against the read floor, over the same records in the page cache."""
    count = len(payloads)
    bare = workshop.place()
    write_floor(bare, payloads)
    with holdfast.open(workshop.place()) as hf:
        log = hf.log("bench", flush=Flush.async_())
        for payload in payloads:
            log.append(payload)
        log.sync()

        def floor() -> float:
            return read_floor(bare, count)

        def sample(read: Callable[[Log], int]) -> Callable[[], float]:
            return lambda: _read_sample(log, read, count)

        lines = [
            Line("read_many", f"tailer.read_many({_READ}), a record", "at most", 1.5),
            Line("read", "for record in tailer, a record", "at most"),
            Line("blocks", "for block in log.blocks(), checked", "at least", 20.0),
            Line("arrow", "block.to_arrow() of each", "at least"),
        ]
        reads = [_read_batches, _read_records, _scan_blocks, _scan_arrow]
        return [measure_pairs(line, floor, sample(read), rounds) for line, read in zip(lines, reads, strict=True)]


def compare_peers(workshop: Workshop, payloads: list[bytes], peer_records: int, rounds: int) -> PeerTable:
    """`append` against whichever peer is the fastest in that round; what the others read is context."""
    shared = Line("peers", "append against the fastest peer", "at least", 10.0)
    fastest = Line("peers_exclusive", "the same with sqlite3 that lets nobody else read", "at least")
    put: dict[str, list[float]] = {}
    get: dict[str, list[float]] = {}
    few = payloads[:peer_records]
    for _ in range(rounds):
        mine = quiet(lambda: _append_sample(workshop, payloads))
        put.setdefault("holdfast", []).append(mine)
        for peer in PEERS:
            with workshop.borrowed() as folder:
                rates = peer.run(folder, few)
            put.setdefault(peer.name, []).append(rates.put)
            get.setdefault(peer.name, []).append(rates.get)
        fastest.add({"floor": min(put[peer.name][-1] for peer in PEERS), "subject": mine})
        shared.add({"floor": min(put[peer.name][-1] for peer in PEERS if not peer.exclusive), "subject": mine})
        fastest.rounds[-1] |= {f"put {name}": times[-1] for name, times in put.items()}
        fastest.rounds[-1] |= {f"get {name}": times[-1] for name, times in get.items()}
    return PeerTable([shared, fastest], {n: min(t) for n, t in put.items()}, {n: min(t) for n, t in get.items()})


def _append_sample(workshop: Workshop, payloads: list[bytes]) -> float:
    with workshop.borrowed() as folder, holdfast.open(folder) as hf:
        log = _begun(hf)

        def work() -> None:
            append = log.append
            for payload in payloads:
                append(payload)
            log.refresh()  # the last block goes to the operating system too, as the floor's does

        return timed(work) / len(payloads)


def _append_many_sample(workshop: Workshop, payloads: list[bytes]) -> float:
    batches = [payloads[start : start + _BATCH] for start in range(0, len(payloads), _BATCH)]
    with workshop.borrowed() as folder, holdfast.open(folder) as hf:
        log = _begun(hf)

        def work() -> None:
            append_many = log.append_many
            for batch in batches:
                append_many(batch)
            log.refresh()

        return timed(work) / len(payloads)


def _begun(hf: holdfast.Store) -> Log:
    """A log whose first segment is there already, as the floor's file is open before its clock starts."""
    log = hf.log("bench", flush=Flush.async_())
    log.append(b"")
    log.sync()
    return log


def _read_sample(log: Log, read: Callable[[Log], int], count: int) -> float:
    found = 0

    def work() -> None:
        nonlocal found
        found = read(log)

    seconds = timed(work)
    assert found == count, f"{found} of {count} came back"
    return seconds / count


def _read_batches(log: Log) -> int:
    found = 0
    tailer = log.tailer()
    while records := tailer.read_many(_READ):
        found += len(records)
    return found


def _read_records(log: Log) -> int:
    found = 0
    for _record in log.tailer():
        found += 1
    return found


def _scan_blocks(log: Log) -> int:
    found = 0
    for block in log.blocks():
        assert len(block.data) and len(block.offsets) > 1
        found += block.count
    return found


def _scan_arrow(log: Log) -> int:
    return sum(block.to_arrow().num_rows for block in log.blocks())
