"""A process that puts objects of 8 MiB, so many bytes a second, until it is killed: what a replica alone would cost."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from holdfast.replica import open_bucket

__all__ = ["main"]

_PART = 8 << 20
_WORKERS = 8


def main(url: str, rate: float) -> None:
    """Put objects to this prefix."""
    bucket, body, began = open_bucket(url), os.urandom(_PART), time.monotonic()

    def put(number: int) -> None:
        time.sleep(max(0.0, began + number * _PART / rate - time.monotonic()))
        bucket.put(f"part-{number}", body)

    with ThreadPoolExecutor(_WORKERS) as pool:
        for _ in pool.map(put, range(1_000_000)):
            pass


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
