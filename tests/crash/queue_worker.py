"""A process that puts and works off messages until it is killed, telling on its standard output what it knows.

python -m tests.crash.queue_worker FOLDER SEED < NUMBERS

It puts messages of these numbers with eight threads and consumes with eight others. A put whose confirmation was lost
with the process is done again by the next one, so each has a dedup id. Lines: `P n` after message n was
confirmed, `g n` when it was delivered, `a n` before its ack, `A n` after its ack was confirmed, `n n` after a nack.
"""

import itertools
import os
import random
import sys
import threading

import holdfast
from holdfast import Backoff, Delivery, HoldfastError, Message

PRODUCERS = CONSUMERS = 8


def tell(kind: bytes, numbers: list[int]) -> None:
    """One write a line: a kill leaves whole lines, but for the last."""
    for start in range(0, len(numbers), 200):
        os.write(1, kind + b" " + b" ".join(b"%d" % number for number in numbers[start : start + 200]) + b"\n")


def numbers_of(deliveries: list[Delivery]) -> list[int]:
    """Each message says its number."""
    return [int(delivery.payload) for delivery in deliveries]


def main(folder: str, missing: list[int], seed: int) -> None:
    """Work until everything is done; then say so."""
    queue = holdfast.open(folder).queue(
        "orders", lease=1, max_attempts=None, backoff=Backoff(base=0.001, cap=0.05), starvation=0.5
    )
    os.write(1, b"open\n")
    counter = itertools.count()
    putting = threading.Semaphore(0)

    def produce(rng: random.Random) -> None:
        while (start := next(counter) * 50) < len(missing):
            batch = missing[start : start + 50]
            if rng.random() < 0.1:
                for number in batch[:5]:
                    delay, priority = rng.choice((None, 0.01)), rng.choice((0, 0, 5))
                    queue.put(b"%d" % number, dedup=f"{number}", delay=delay, priority=priority)
                    tell(b"P", [number])
                batch = batch[5:]
            if batch:
                queue.put_many([Message(b"%d" % number, dedup=f"{number}") for number in batch])
                tell(b"P", batch)
        putting.release()

    def consume(rng: random.Random) -> None:
        while True:
            try:
                deliveries = queue.lease(rng.choice((1, 50, 200)), wait=0.2)
                if not deliveries:
                    continue
                tell(b"g", numbers_of(deliveries))
                fate = rng.random()
                if fate < 0.02:
                    continue  # forgotten: its lease runs out
                if fate < 0.06:
                    queue.nack(deliveries, "not now")
                    continue
                if fate < 0.1:
                    part = deliveries[::3]
                    queue.nack(part, "not now", delay=0)
                    deliveries = [delivery for delivery in deliveries if delivery not in part]
                tell(b"a", numbers_of(deliveries))
                if len(deliveries) == 1:
                    if deliveries[0].ack():
                        tell(b"A", numbers_of(deliveries))
                    continue
                lost: set[int] = set()
                try:
                    queue.ack(deliveries)
                except holdfast.LeaseLost as error:
                    lost = set(error.ids)
                tell(b"A", numbers_of([delivery for delivery in deliveries if delivery.id not in lost]))
            except holdfast.LeaseLost:
                continue
            except HoldfastError as error:
                os.write(1, f"! {error!r}\n".encode())
                os._exit(3)

    for number in range(PRODUCERS):
        threading.Thread(target=produce, args=(random.Random(seed + number),), daemon=True).start()
    for number in range(CONSUMERS):
        threading.Thread(target=consume, args=(random.Random(seed - 1 - number),), daemon=True).start()
    for _ in range(PRODUCERS):
        putting.acquire()
    os.write(1, b"put\n")
    while (stats := queue.stats()).ready + stats.delayed + stats.leased:
        threading.Event().wait(0.02)
    queue.sync()  # the last acks are decided, and may not yet be on disk
    os.write(1, b"done\n")
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], [int(number) for number in sys.stdin.read().split()], int(sys.argv[2]))
