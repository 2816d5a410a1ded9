"""A bucket that counts the requests to it, for metrics and for the cost of a replica."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.base.bucket import Bucket, FoundObject, ListedObject, ObjectMissing

__all__ = ["KINDS", "CountedBucket"]

KINDS = ("get", "put", "list", "delete")
"""The kinds of requests."""


class CountedBucket:
    """Passes each call on. `_guard` is held while a counter changes."""

    def __init__(self, bucket: Bucket) -> None:
        self.url = bucket.url
        self.requests: Counter[str] = Counter()
        """How many requests of each kind were made, also those that failed."""
        self.failures: Counter[str] = Counter()
        """How many of them failed. That an object is missing is an answer."""
        self.sent = 0
        """Bytes that were put."""
        self._bucket = bucket
        self._guard = threading.Lock()

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""
        with self._noted("get"):
            return self._bucket.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""
        with self._noted("get"):
            return self._bucket.get_range(key, start, stop)

    def put(self, key: str, content: bytes) -> None:
        """As `Bucket.put`."""
        with self._noted("put", len(content)):
            self._bucket.put(key, content)

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        """As `Bucket.put_if_absent`."""
        with self._noted("put", len(content)):
            return self._bucket.put_if_absent(key, content)

    def compare_and_swap(self, key: str, content: bytes, etag: str) -> str | None:
        """As `Bucket.compare_and_swap`."""
        with self._noted("put", len(content)):
            return self._bucket.compare_and_swap(key, content, etag)

    def list(self, prefix: str, after: str = "") -> list[ListedObject]:
        """As `Bucket.list`."""
        with self._noted("list"):
            return self._bucket.list(prefix, after) if after else self._bucket.list(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        """As `Bucket.delete`."""
        with self._noted("delete"):
            self._bucket.delete(keys)

    @contextlib.contextmanager
    def _noted(self, kind: str, size: int = 0) -> Iterator[None]:
        with self._guard:
            self.requests[kind] += 1
            self.sent += size
        try:
            yield
        except ObjectMissing:
            raise
        except BaseException:
            with self._guard:
                self.failures[kind] += 1
            raise
