"""A bucket that counts what a replica puts, by the kind of the object."""

from collections import Counter
from collections.abc import Sequence

from holdfast.base.bucket import Bucket, FoundObject, ListedObject

__all__ = ["SIZE", "KindsBucket"]

SIZE = 1000
"""Bytes of a message."""
_CLAIM = ("owner.json", "standbys.json")


class KindsBucket:
    """Passes each call on. Threads: any; a count may be off by what happens at the same moment."""

    def __init__(self, bucket: Bucket) -> None:
        self.url = bucket.url
        self.puts: Counter[str] = Counter()
        """How many puts of the claim, of manifests and of parts."""
        self._bucket = bucket

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""
        return self._bucket.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""
        return self._bucket.get_range(key, start, stop)

    def put(self, key: str, content: bytes) -> None:
        """As `Bucket.put`."""
        self._note(key)
        self._bucket.put(key, content)

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        """As `Bucket.put_if_absent`."""
        self._note(key)
        return self._bucket.put_if_absent(key, content)

    def compare_and_swap(self, key: str, content: bytes, etag: str) -> str | None:
        """As `Bucket.compare_and_swap`."""
        self._note(key)
        return self._bucket.compare_and_swap(key, content, etag)

    def list(self, prefix: str, after: str = "") -> list[ListedObject]:
        """As `Bucket.list`."""
        return self._bucket.list(prefix, after)

    def delete(self, keys: Sequence[str]) -> None:
        """As `Bucket.delete`."""
        self._bucket.delete(keys)

    def _note(self, key: str) -> None:
        self.puts["claim" if key in _CLAIM else "manifest" if key.startswith("manifest/") else "part"] += 1
