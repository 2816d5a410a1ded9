"""What does a process see that just began? Fills, opens and weighs a queue, each in a process of its own."""

import gc
import json
import logging
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import holdfast
from benchmarks.harness import payloads_of
from benchmarks.memory import private_memory
from holdfast import Flush, Message

__all__ = ["QUEUE", "crash_while_filling", "in_child"]

QUEUE = "bench"
_PUT = 1000
"""Messages a put_many: 100 kB, which is a block."""
_LEASE = 100
_LEFT = 10
"""Of each lease, so many messages are never acked before the crash."""
_HELD_S = 3600.0
_ROOT = Path(__file__).resolve().parent.parent


def in_child(work: str, store: Path, *arguments: object) -> dict[str, float]:
    """Do one of the works below in a fresh process, and give what it found."""
    done = subprocess.run(_command(work, store, *arguments), cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def crash_while_filling(store: Path, count: int, kind: str) -> None:
    """Let a process put messages and work on some until so many are ready, and kill it there and then."""
    with subprocess.Popen(_command("crash", store, count, kind), cwd=_ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = child.stdout.readline()
        child.kill()
        assert said, "the process ended before it could be killed"


def _command(work: str, store: Path, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.queue_child", work, str(store.resolve()), *map(str, arguments)]


def _fill(store: str, count: str, kind: str) -> dict[str, float]:
    """Put messages, `plain` ones or each with a `mixed` priority, and close."""
    with holdfast.open(store) as hf:
        queue = hf.queue(QUEUE, flush=Flush.async_())
        for batch in _batches(int(count), kind):
            queue.put_many(batch)
        return {"ready": queue.stats().ready}


def _crash(store: str, count: str, kind: str) -> dict[str, float]:
    """Put a thousand, lease a hundred and ack ninety, again and again, until so many are ready; then wait for the end.

    What is never acked stays leased, as in a process whose workers were busy when it died.
    """
    hf = holdfast.open(store)
    queue = hf.queue(QUEUE, flush=Flush.async_())
    for batch in _batches(int(count) * _PUT // (_PUT - _LEASE), kind):
        queue.put_many(batch)
        queue.ack(queue.lease(_LEASE, lease=_HELD_S)[_LEFT:])
    print("ready", flush=True)
    time.sleep(_HELD_S)
    return {}


def _open(store: str) -> dict[str, float]:
    """The seconds from nothing to the first messages in hand."""
    start = time.perf_counter()
    hf = holdfast.open(store)
    opened = time.perf_counter()
    queue = hf.queue(QUEUE, flush=Flush.async_())
    loaded = time.perf_counter()
    deliveries = queue.lease(_LEASE)
    leased = time.perf_counter()
    assert len(deliveries) == _LEASE
    ready = queue.stats().ready + _LEASE
    queue.release(deliveries)
    hf.close()
    closed = time.perf_counter()
    return {
        "whole_s": leased - start,
        "store_s": opened - start,
        "queue_s": loaded - opened,
        "lease_s": leased - loaded,
        "close_s": closed - leased,
        "ready": ready,
    }


def _weigh(store: str) -> dict[str, float]:
    """The memory of a process that has opened the queue and worked a little."""
    with holdfast.open(store) as hf:
        queue = hf.queue(QUEUE, flush=Flush.async_())
        for _ in range(10):
            deliveries = queue.lease(_LEASE)
            assert deliveries
            queue.ack(deliveries)
        gc.collect()
        private_memory()
        own, private = private_memory()
        return {"ready": queue.stats().ready, "own_bytes": own, "private_bytes": private}


def _batches(count: int, kind: str) -> Iterator[list[bytes | Message]]:
    assert kind in ("plain", "mixed")
    source = random.Random(2)
    pool = payloads_of(_PUT)
    for start in range(0, count, _PUT):
        payloads = pool[: count - start]
        if kind == "plain":
            yield list(payloads)
        else:
            yield [Message(payload, priority=source.randrange(10)) for payload in payloads]


_WORKS: dict[str, Callable[..., dict[str, float]]] = {"fill": _fill, "crash": _crash, "open": _open, "weigh": _weigh}


if __name__ == "__main__":
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # that the state is gone is what is measured
    _work, *_arguments = sys.argv[1:]
    print(json.dumps(_WORKS[_work](*_arguments)))
