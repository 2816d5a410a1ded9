"""A process that owns a store, ships it, and says what it has confirmed; killed by the test."""

import contextlib
import sys

import holdfast
from holdfast import ReplicaFenced

if __name__ == "__main__":
    data, url = sys.argv[1:]
    with holdfast.open(data, replica=url) as store:
        queue, log = store.queue("work"), store.log("events")
        number = 0
        while True:
            status = store.replica.status()
            with contextlib.suppress(ReplicaFenced):
                with store.transaction():
                    queue.put(b"%d" % number)
                    store.queue("copy").put(b"%d" % number)
                log.append(b"%d" % number)
                status = store.replica.status()
            print(number, status.moment or "-", status.role, flush=True)
            number += 1
