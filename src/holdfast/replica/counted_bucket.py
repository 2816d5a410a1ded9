"""A bucket that counts the requests to it, for metrics and for the cost of a replica."""

import threading
from collections import Counter
from collections.abc import Sequence

from holdfast.base.bucket import Bucket, FoundObject, ListedObject

__all__ = ["CountedBucket"]


class CountedBucket:
    """Passes each call on. `_guard` is held while a counter changes."""

    def __init__(self, bucket: Bucket) -> None:
        self.url = bucket.url
        self.requests: Counter[str] = Counter()
        """How many requests of each kind were made, also those that failed."""
        self.sent = 0
        """Bytes that were put."""
        self._bucket = bucket
        self._guard = threading.Lock()

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""
        self._note("get")
        return self._bucket.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""
        self._note("get")
        return self._bucket.get_range(key, start, stop)

    def put(self, key: str, content: bytes) -> None:
        """As `Bucket.put`."""
        self._note("put", len(content))
        self._bucket.put(key, content)

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        """As `Bucket.put_if_absent`."""
        self._note("put", len(content))
        return self._bucket.put_if_absent(key, content)

    def compare_and_swap(self, key: str, content: bytes, etag: str) -> str | None:
        """As `Bucket.compare_and_swap`."""
        self._note("put", len(content))
        return self._bucket.compare_and_swap(key, content, etag)

    def list(self, prefix: str) -> list[ListedObject]:
        """As `Bucket.list`."""
        self._note("list")
        return self._bucket.list(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        """As `Bucket.delete`."""
        self._note("delete")
        self._bucket.delete(keys)

    def _note(self, kind: str, size: int = 0) -> None:
        with self._guard:
            self.requests[kind] += 1
            self.sent += size
