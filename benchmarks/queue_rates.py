"""How fast does a message go through a queue, from put to ack, beside other queues on the same disk?"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import holdfast
from benchmarks.harness import Line, Workshop, measure_pairs, quiet, timed
from benchmarks.queue_peers import QUEUE_PEERS, PeerQueue, QueuePeer, Setting
from holdfast import Flush, Message, Queue

__all__ = ["QueueRates", "compare_queues", "measure_orders"]

_BATCH = 100
_THREADS = 16
_SCATTER = 50
_FAR_S = 3600.0
Run = Callable[[PeerQueue, list[bytes]], None]


@dataclass(slots=True)
class QueueRates:
    """The lines against the fastest peer, and the best seconds a lifecycle of all, by the way of using them."""

    lines: list[Line] = field(default_factory=list)
    best: dict[str, dict[str, float]] = field(default_factory=dict)


def compare_queues(
    workshop: Workshop, payloads: list[bytes], peer_count: int, durable_count: int, rounds: int
) -> QueueRates:
    """A lifecycle is put, lease and ack. In each round everyone does it, and the fastest peer of the round counts."""
    rates = QueueRates()

    def compare(way: str, mine: Callable[[], float], theirs: Callable[[QueuePeer], float], line: Line) -> None:
        by_hand = Line(f"{way}_by_hand", "    against sqlite3 by hand", "at least")
        for number in range(rounds + 1):
            measured = {"holdfast": quiet(mine)}
            for peer in QUEUE_PEERS:
                measured[peer.name] = quiet(partial(theirs, peer))
            if number == 0:  # the first time pays for imports, page cache and clock speed
                continue
            fastest = min(measured[peer.name] for peer in QUEUE_PEERS if peer.is_library)
            line.add({"floor": fastest, "subject": measured["holdfast"]})
            line.rounds[-1] |= measured
            others = [measured[peer.name] for peer in QUEUE_PEERS if not peer.is_library]
            by_hand.add({"floor": min(others), "subject": measured["holdfast"]})
        rates.best[way] = {name: line.best(name) for name in measured}
        rates.lines += [line, by_hand]

    few, durable = payloads[:peer_count], payloads[:durable_count]
    in_batches = Line("batches", f"put, lease, ack in batches of {_BATCH}, against the fastest peer", "at least", 30.0)
    compare(
        "batches",
        lambda: _my_sample(workshop, payloads, _in_batches),
        lambda peer: _peer_sample(workshop, peer, few, _peer_in_batches),
        in_batches,
    )
    rates.lines.insert(1, _absolute("batches_rate", "  lifecycles a second on one core", 100.0, in_batches))
    compare(
        "filled",
        lambda: _my_sample(workshop, payloads, _filled_first),
        lambda peer: _peer_sample(workshop, peer, few, _peer_filled_first),
        Line("filled", "  in batches, all put before the first lease", "at least"),
    )
    one_by_one = Line("one_by_one", "put, get, ack one by one, against the fastest peer", "at least", 10.0)
    singles = payloads[: len(payloads) // 2]
    compare(
        "one_by_one",
        lambda: _my_sample(workshop, singles, _one_by_one),
        lambda peer: _peer_sample(workshop, peer, few, _peer_one_by_one),
        one_by_one,
    )
    at = next(position for position, line in enumerate(rates.lines) if line is one_by_one)
    rates.lines.insert(at + 1, _absolute("one_by_one_rate", "  lifecycles a second on one core", None, one_by_one))
    for threads in (1, _THREADS):
        each = durable if threads == 1 else durable[: max(1, len(durable) // 4)]
        who = "one thread" if threads == 1 else f"{threads} threads"
        compare(
            f"durable_{threads}",
            partial(_my_threads, workshop, each, threads),
            partial(_peer_threads, workshop, each, threads),
            Line(f"durable_{threads}", f"  durable (sync), {who}, against peers with FULL", "at least"),
        )
    return rates


def measure_orders(workshop: Workshop, payloads: list[bytes], rounds: int) -> list[Line]:
    """Does taking cost more where the messages to be taken do not lie side by side in the log?

    Against a queue in which they do: all of one priority, and none delayed.
    """
    few = payloads[: len(payloads) // 5]

    def by_priority(priorities: int) -> Callable[[], float]:
        messages = [Message(payload, priority=1 + at % priorities) for at, payload in enumerate(few)]
        return lambda: _drain_sample(workshop, messages)

    scattered = [Message(payload, delay=0 if at % _SCATTER == 0 else _FAR_S) for at, payload in enumerate(payloads)]
    beside = by_priority(1)
    cases: list[tuple[str, str, Callable[[], float]]] = [
        ("priorities_2", f"lease({_BATCH}) and ack, 2 priorities in use against one", by_priority(2)),
        ("priorities_9", "  9 priorities in use against one", by_priority(9)),
        ("scattered", f"  one message in {_SCATTER} is ready against all", lambda: _drain_sample(workshop, scattered)),
    ]
    return [measure_pairs(Line(id, title, "at most"), beside, sample, rounds) for id, title, sample in cases]


def _absolute(id: str, title: str, target: float | None, line: Line) -> Line:
    measured = [{"lifecycle_s": one["subject"]} for one in line.rounds]
    values = [1e-3 / one["subject"] for one in line.rounds]
    return Line(id, title, "at least", target, "k/s", rounds=measured, values=values)


def _on_one_core(work: Callable[[], object]) -> float:
    """The seconds that the work took, or would have on one core: what helps from another one is charged."""
    before = time.process_time()
    wall = timed(work)
    return max(wall, time.process_time() - before)


@contextmanager
def _begun(workshop: Workshop, flush: Flush) -> Iterator[Queue]:
    """A queue that has seen a message go through: its files are there, as a peer's tables are."""
    with workshop.borrowed() as folder, holdfast.open(folder) as hf:
        queue = hf.queue("bench", flush=flush)
        queue.put(b"")
        queue.ack(queue.lease(1))
        yield queue


def _my_sample(workshop: Workshop, payloads: list[bytes], work: Callable[[Queue, list[bytes]], None]) -> float:
    with _begun(workshop, Flush.async_()) as queue:

        def whole() -> None:
            work(queue, payloads)
            queue.log.refresh()  # the last block goes to the operating system too, as a peer's last commit has

        seconds = _on_one_core(whole)
        assert queue.stats().total_acked == len(payloads) + 1
        return seconds / len(payloads)


def _in_batches(queue: Queue, payloads: list[bytes]) -> None:
    for start in range(0, len(payloads), _BATCH):
        queue.put_many(payloads[start : start + _BATCH])
        queue.ack(queue.lease(_BATCH))


def _filled_first(queue: Queue, payloads: list[bytes]) -> None:
    for start in range(0, len(payloads), _BATCH):
        queue.put_many(payloads[start : start + _BATCH])
    while deliveries := queue.lease(_BATCH):
        queue.ack(deliveries)


def _one_by_one(queue: Queue, payloads: list[bytes]) -> None:
    for payload in payloads:
        queue.put(payload)
        delivery = queue.get()
        assert delivery is not None
        delivery.ack()


def _peer_sample(workshop: Workshop, peer: QueuePeer, payloads: list[bytes], run: Run) -> float:
    with workshop.borrowed() as folder:
        queue = peer.open(folder, Setting())
        queue.put(b"first")
        queue.done(queue.take())
        seconds = _on_one_core(lambda: run(queue, payloads))
        queue.close()
    return seconds / len(payloads)


def _peer_in_batches(queue: PeerQueue, payloads: list[bytes]) -> None:
    for start in range(0, len(payloads), _BATCH):
        batch = payloads[start : start + _BATCH]
        queue.put_many(batch)
        queue.done_many(queue.take_many(len(batch)))


def _peer_filled_first(queue: PeerQueue, payloads: list[bytes]) -> None:
    for start in range(0, len(payloads), _BATCH):
        queue.put_many(payloads[start : start + _BATCH])
    for start in range(0, len(payloads), _BATCH):
        queue.done_many(queue.take_many(min(_BATCH, len(payloads) - start)))


def _peer_one_by_one(queue: PeerQueue, payloads: list[bytes]) -> None:
    for payload in payloads:
        queue.put(payload)
        queue.done(queue.take())


def _drain_sample(workshop: Workshop, messages: list[Message]) -> float:
    with _begun(workshop, Flush.async_()) as queue:
        for start in range(0, len(messages), _BATCH):
            queue.put_many(messages[start : start + _BATCH])

        assert queue.waiting() == len(messages)  # also takes them in, which is not what is measured
        taken = 0

        def drain() -> None:
            nonlocal taken
            while deliveries := queue.lease(_BATCH):
                queue.ack(deliveries)
                taken += len(deliveries)

        return _on_one_core(drain) / taken


def _my_threads(workshop: Workshop, payloads: list[bytes], threads: int) -> float:
    with _begun(workshop, Flush.sync()) as queue:
        return _in_threads([partial(_one_by_one, queue, payloads)] * threads) / (len(payloads) * threads)


def _peer_threads(workshop: Workshop, payloads: list[bytes], threads: int, peer: QueuePeer) -> float:
    with workshop.borrowed() as folder:
        openings = [
            peer.open(folder, Setting(durable=True, shared=threads > 1))
            for _ in range(threads if peer.opened_by_each_thread else 1)
        ]
        work = [partial(_peer_one_by_one, openings[at % len(openings)], payloads) for at in range(threads)]
        seconds = _in_threads(work)
        for queue in openings:
            queue.close()
    return seconds / (len(payloads) * threads)


def _in_threads(work: Sequence[Callable[[], None]]) -> float:
    if len(work) == 1:
        return timed(work[0])
    go = threading.Barrier(len(work) + 1)
    failed: list[BaseException] = []

    def begin(one: Callable[[], None]) -> None:
        go.wait()
        try:
            one()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=begin, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    go.wait()

    def finish() -> None:
        for thread in threads:
            thread.join()

    seconds = timed(finish)
    assert not failed, failed
    return seconds
