"""The `State` protocol: sorted bytes in column families, read at any time and changed in atomic transactions.

State is a view: whatever it holds can be rebuilt from the logs and journals. It is kept so that opening need not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from holdfast.base.errors import Closed, Conflict
from holdfast.state.column_families import check_family

__all__ = ["Layer", "Reads", "State", "Transaction", "check_reads"]

Reads = Mapping[tuple[str, bytes], bytes | None]
"""What a transaction read: by family and key, the value, None if there was none."""


@runtime_checkable
class State(Protocol):
    """An open state: `RocksState` on a disk, `SimulatedState` on a simulated one. Methods may be called from any
    thread."""

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None where there is none."""
        ...

    @property
    def commits(self) -> int:
        """Return how many transactions were applied since the opening."""
        ...

    def scan(
        self, family: str, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return keys and values, ascending, from `start` up to but not including `stop`, as of the moment of the call.

        With `reverse` the same ones, descending.

        Read lazily. Deleted keys between `start` and the first live one are passed one by one, and cost 0.2 us each:
        where many are deleted at the front, start from a cursor.
        """
        ...

    def first(self, family: str, start: bytes, stop: bytes, *, since: int = 0) -> tuple[bytes, bytes] | None:
        """Return the first key from `start` up to but not including `stop`, and its value.

        As of some moment after the first `since` commits: a caller that reads a past which no longer changes need not
        pay for a view of the present.
        """
        ...

    def transaction(self) -> "Transaction":
        """Begin a set of changes."""
        ...

    @property
    def stopped(self) -> str:
        """Return why commits are refused, after a write that failed; empty where they are not."""
        ...

    @property
    def generation(self) -> int:
        """Return how often `recover` reopened it: what was read and cached before must be read again."""
        ...

    def recover(self) -> None:
        """Reopen the state after a failed write has stopped it; raise as long as that is not possible.

        Commits that failed may be in it, completely, or not.
        """
        ...

    def close(self) -> None:
        """Close it, with all running scans; idempotent. Any use afterwards raises `Closed`."""
        ...


class Points(dict[str, dict[bytes, bytes | None]]):
    """New values by family and key, None to delete. A family is added when it is first asked for."""

    __slots__ = ()

    def __missing__(self, family: str) -> dict[bytes, bytes | None]:
        check_family(family)
        fresh = self[family] = {}
        return fresh


class _Ended(Points):
    """The points of a transaction that was committed: `put` needs no check of its own to refuse."""

    __slots__ = ()

    def __missing__(self, family: str) -> dict[bytes, bytes | None]:
        raise _ended()


_ENDED = _Ended()


def _ended() -> Closed:
    return Closed("this transaction was committed or refused: begin another one")


@dataclass(slots=True)
class Layer:
    """Changes whose order does not matter, once the ranges are deleted before the points are set."""

    ranges: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    """By family where each starts and stops."""
    points: Points = field(default_factory=Points)


class Transaction:
    """A set of changes that is applied atomically, if what it read has not changed. For one use, in one thread.

    Optimistic: nothing is locked or changed before `commit`.
    """

    __slots__ = ("_apply", "_layers", "_open", "_points", "_read", "_reads")

    def __init__(
        self,
        read: Callable[[str, bytes], bytes | None],
        apply: Callable[[Reads, Sequence[Layer], bool], None],
    ) -> None:
        """`apply` is the state's: under its lock it checks the reads, then applies the layers in order, and syncs."""
        self._read = read
        self._apply = apply
        self._reads: dict[tuple[str, bytes], bytes | None] = {}
        layer = Layer()
        self._layers = [layer]
        self._points = layer.points
        """Of the last layer."""
        self._open = True

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value as this transaction sees it, its own changes first; `commit` checks that it is unchanged."""
        self._check_open()
        for layer in reversed(self._layers):
            points = layer.points.get(family)
            if points is not None and key in points:
                return points[key]
            if any(start <= key < stop for start, stop in layer.ranges.get(family, ())):
                return None
        if (family, key) not in self._reads:
            self._reads[family, key] = self._read(family, key)
        return self._reads[family, key]

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Set a key."""
        self._points[family][key] = value

    def delete(self, family: str, key: bytes) -> None:
        """Delete a key, whether it exists or not."""
        self._points[family][key] = None

    def delete_range(self, family: str, start: bytes, stop: bytes) -> None:
        """Delete every key from `start` up to but not with `stop`; what is put there afterwards stays."""
        self._check_open()
        check_family(family)
        if start >= stop:
            return
        if self._points.get(family):
            layer = Layer()
            self._layers.append(layer)
            self._points = layer.points
        self._layers[-1].ranges.setdefault(family, []).append((start, stop))

    def absorb(self, other: "Transaction") -> None:
        """Append the reads and changes of another transaction to this one; the other cannot be used any more."""
        self._check_open()
        other._check_open()
        other._open = False
        for place, value in other._reads.items():
            self._reads.setdefault(place, value)
        self._layers += other._layers
        other._points = _ENDED
        self._points = self._layers[-1].points

    def commit(self, *, sync: bool = True) -> None:
        """Apply all of it, durably: it survives a power cut when this returns.

        Without `sync` it survives a kill of the process (in a `SimulatedState` it does not): for views that can catch
        up from what they are views of. A power cut takes such commits back from the last one on, never one without
        those after it.

        Raises `Conflict`, and changes nothing, where something that was read has changed since: begin again. After
        `WriterStopped` it may have been applied, completely, or not.
        """
        self._check_open()
        self._open = False
        reads, self._reads = self._reads, {}
        layers, self._layers = self._layers, []
        self._points = _ENDED
        self._apply(reads, [layer for layer in layers if layer.points or layer.ranges], sync)

    def _check_open(self) -> None:
        if not self._open:
            raise _ended()


def check_reads(reads: Reads, read: Callable[[str, bytes], bytes | None]) -> None:
    """Raise `Conflict` where something has changed since it was read."""
    for (family, key), value in reads.items():
        if read(family, key) != value:
            raise Conflict(
                f"the key {key.hex()!r} of {family!r} was changed by another transaction: read it again and try again"
            )
