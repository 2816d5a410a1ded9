"""A process that owns a store or stands by for it, puts numbers, and says what it has confirmed and when.

Times are those of the system's monotonic clock, which all processes of a machine share.
"""

import json
import sys
import time
from typing import Any

import holdfast
from holdfast import ReplicaFenced
from holdfast.replica import Standby
from holdfast.replica.standby import is_owner


def say(kind: str, **what: Any) -> None:
    print(json.dumps({"kind": kind, **what}), flush=True)


def main(data: str, url: str, ttl: float, role: str) -> None:
    if role == "owner" or is_owner(url, data):
        store = holdfast.open(data, replica=url, replica_ttl=ttl)
    else:
        with Standby(url, data, ttl=ttl) as standby:
            say("standby")
            assert standby.follow()
            store = standby.open()
    with store:
        queue, replica = store.queue("work"), store.replica
        found = [message.payload.decode() for message in queue.peek(1_000_000)]
        say("opened", epoch=replica.ownership.epoch, found=found)
        number = 0
        while (lost := replica.lost) is None:
            number += 1
            name = f"{replica.ownership.epoch}-{number}"
            try:
                queue.put(name.encode())
            except ReplicaFenced:  # its claim has run out, or another process has the next epoch
                time.sleep(0.05)
                continue
            put_at, asked_at = time.time_ns(), time.monotonic_ns()  # before the question: a pause may come behind it
            if replica.may_confirm:
                status = replica.status()
                shipped_at = status.shipped_at if replica.may_confirm else None
                say(
                    "confirmed",
                    name=name,
                    epoch=replica.ownership.epoch,
                    at=asked_at,
                    put_at=put_at,
                    shipped_at=shipped_at,
                )
            time.sleep(0.005)
        say("fenced", why=lost)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])
