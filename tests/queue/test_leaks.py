"""Does anything stay behind? When every message is done, the state holds the queue's position and nothing else."""

import random
import time
from pathlib import Path

import holdfast
from holdfast import Backoff, Flush, Message, Queue
from holdfast.state import FAMILIES, RocksState
from tests.queue.internals import state_of

MESSAGES = 100_000


def put_all(queue: Queue, rng: random.Random) -> None:
    for number in range(MESSAGES // 100):
        batch: list[bytes | Message] = [b"plain"] * 97
        batch.append(Message(b"urgent", priority=rng.randrange(1, 10)))
        batch.append(Message(b"later", delay=rng.random() / 2))
        batch.append(Message(b"once", dedup=f"{number}", ttl=60))
        rng.shuffle(batch)
        queue.put_many(batch)


def left(queue: Queue) -> int:
    """How many are not done, all counted in one look: a lease may run out between two."""
    figures = queue.stats()
    return figures.ready + figures.delayed + figures.leased


def work_off(queue: Queue, rng: random.Random) -> int:
    """Ack everything, some of it after a detour; how many acks there were."""
    acked = 0
    while left(queue):
        batch = queue.lease(rng.choice((1, 7, 500)), wait=0.1)
        fates = rng.choices(("ack", "nack", "release", "extend", "expire"), (900, 5, 5, 5, 5), k=len(batch))
        for fate, message in zip(fates, batch, strict=True):
            if fate == "nack":
                message.nack("not now", delay=rng.choice((0, None, 0.05)))
            elif fate == "release":
                message.release()
        kept = [message for fate, message in zip(fates, batch, strict=True) if fate in ("ack", "extend")]
        if kept and "extend" in fates:
            kept[0].extend(5)
        left_behind = [message for fate, message in zip(fates, batch, strict=True) if fate == "expire"]
        queue.ack(kept)
        acked += len(kept)
        if left_behind:
            left_behind[0].extend(0.05)  # it runs out, and comes back by itself
    return acked


def test_when_every_message_is_done_nothing_is_left_but_positions(tmp_path: Path) -> None:
    rng = random.Random(1)
    with holdfast.open(tmp_path) as store:
        queue = store.queue(
            "orders", flush=Flush.async_(), dedup_window=0.5, max_attempts=None, backoff=Backoff(base=0.01, cap=0.1)
        )
        put_all(queue, rng)
        queue.checkpoint()  # with everything in it
        assert work_off(queue, rng) == MESSAGES
        time.sleep(0.6)  # until the last dedup id is over
        queue.put(b"one more, so that the window is looked at", dedup="last")
        queue.ack(queue.lease())
        time.sleep(0.6)
        queue.checkpoint()
        queue_state = state_of(queue)
        queue_state.check()
        assert (queue_state.ready.count, queue_state.delayed.count, queue_state.leases.count) == (0, 0, 0)
        assert (len(queue_state.failures), queue_state.dedup.count, len(queue_state.moving)) == (0, 0, 0)
        assert queue_state.floor() == store.log("orders").end
    state = RocksState(tmp_path / "state")
    left = {family: sum(1 for _ in state.scan(family)) for family in FAMILIES}
    state.close()
    assert left == dict.fromkeys(FAMILIES, 0) | {"positions": 1}
