"""Injected object storage: what a replica asks of a bucket, with conditional writes."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.base.errors import NotFound, ReplicaError

__all__ = ["Bucket", "FoundObject", "ListedObject", "ObjectMissing", "ObjectReader"]


class FoundObject(NamedTuple):
    """An object with the version of it that was read."""

    content: bytes
    etag: str
    """Changes with each write; for `compare_and_swap`."""


class ListedObject(NamedTuple):
    """An object in a listing."""

    key: str
    size: int


class ObjectMissing(ReplicaError, NotFound):
    """There is no object of that name."""

    reason = "missing"


class ObjectReader(Protocol):
    """What readers of parts ask of a bucket: some of the methods of `Bucket`. Threads: any."""

    url: str

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""
        ...

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""
        ...


class Bucket(Protocol):
    """The objects below one prefix of a bucket.

    Implementations: those of `holdfast.replica.bucket`, and `holdfast.testing.SimBucket` for tests. Keys are relative
    to the prefix, with `/` between their parts. Threads: all methods may be called from any.

    Every method may raise `ReplicaUnavailable`: then a write may have taken effect, or may not. A conditional write
    that was repeated inside a client library may have taken effect at its first try, and report that its condition
    does not hold: who writes must read to know. Other problems raise `ReplicaError`. No message has credentials.
    """

    url: str
    """Where it is, without credentials, for messages."""

    def get(self, key: str) -> FoundObject:
        """Return an object. Raises `ObjectMissing`."""
        ...

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return these bytes of an object; fewer if it is shorter. Raises `ObjectMissing`."""
        ...

    def put(self, key: str, content: bytes) -> None:
        """Write an object, and replace an existing one. It is there whole or not at all."""
        ...

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        """Write an object unless there is one of that key; return its etag, None if there was one."""
        ...

    def compare_and_swap(self, key: str, content: bytes, etag: str) -> str | None:
        """Replace an object if it still has this etag; return the new etag, None if it was changed or is gone."""
        ...

    def list(self, prefix: str, after: str = "") -> list[ListedObject]:
        """Return the objects whose keys begin with the prefix, which is empty or ends in `/`, sorted by key.

        Only those behind the key `after`.
        """
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that do not exist are ignored."""
        ...
