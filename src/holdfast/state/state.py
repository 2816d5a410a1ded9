"""The `State` protocol: sorted bytes in column families, read at any time and changed in atomic transactions.

State is derived: all of it can be rebuilt from the logs and journals. It is stored so that opening need not do that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from holdfast.base.errors import Closed, Conflict
from holdfast.state.column_families import ALL_FAMILIES, check_family

__all__ = ["Changeable", "Layer", "Reads", "State", "Transaction", "check_reads"]

Reads = Mapping[tuple[str, bytes], bytes | None]
"""The values that a transaction read, by family and key; None for a missing key."""


class Changeable(Protocol):
    """What a transaction needs of a state."""

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None if there is none."""
        ...

    def apply(self, reads: Reads, layers: "Sequence[Layer]", sync: bool) -> None:
        """Check that these values are unchanged, and apply the layers in their order, in one step. For `Transaction`.

        With `sync`, durable when this returns. Raises `Conflict`, and changes nothing, if a value has changed.
        """
        ...


@runtime_checkable
class State(Changeable, Protocol):
    """An open state: `RocksState` on a disk, `SimulatedState` on a simulated one. Threads: any."""

    @property
    def commits(self) -> int:
        """How many transactions were applied since the opening."""
        ...

    def scan(
        self, family: str, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return keys and values, ascending, from `start` up to but not including `stop`, as of the moment of the call.

        With `reverse` the same ones, descending.

        Read lazily. Deleted keys between `start` and the first live one are skipped one by one, and cost 0.2 us each:
        if many are deleted at the front, start from a cursor.
        """
        ...

    def first(self, family: str, start: bytes, stop: bytes, *, since: int = 0) -> tuple[bytes, bytes] | None:
        """Return the first key from `start` up to but not including `stop`, and its value.

        As of some moment after the first `since` commits: a caller that reads old data which no longer changes need not
        pay for a view of the newest commits.
        """
        ...

    def transaction(self) -> "Transaction":
        """Begin a set of changes: a `Transaction` of this state, if it is open."""
        ...

    @property
    def stopped(self) -> str:
        """Why commits are rejected, after a failed write; empty if they are accepted."""
        ...

    @property
    def generation(self) -> int:
        """How often `recover` reopened it: values that were read and cached before must be read again."""
        ...

    def recover(self) -> None:
        """Reopen the state after a failed write has stopped it; raise as long as that is not possible.

        A failed commit is either in it completely, or not at all.
        """
        ...

    def close(self) -> None:
        """Close it, and end all running scans; idempotent. Any use afterwards raises `Closed`."""
        ...


class Points(dict[str, dict[bytes, bytes | None]]):
    """New values by family and key, None to delete. A family is added on first use."""

    __slots__ = ()

    def __missing__(self, family: str) -> dict[bytes, bytes | None]:
        if family not in ALL_FAMILIES:
            check_family(family)
        fresh = self[family] = {}
        return fresh


class _Ended(Points):
    """The points of a transaction that has ended: they raise, so that `put` needs no check."""

    __slots__ = ()

    def __missing__(self, family: str) -> dict[bytes, bytes | None]:
        raise _ended()


_ENDED = _Ended()


def _ended() -> Closed:
    return Closed("this transaction has ended: begin another one")


@dataclass(slots=True)
class Layer:
    """Changes whose order does not matter, once the ranges are deleted before the points are set."""

    ranges: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    """By family: starts and stops."""
    points: Points = field(default_factory=Points)


class Transaction:
    """A set of changes that is applied atomically, if the values that it read are unchanged. For one thread.

    Optimistic: nothing is locked or changed before `commit`.
    """

    __slots__ = ("_layers", "_open", "_points", "_reads", "_state")

    def __init__(self, state: Changeable) -> None:
        """Begin a transaction. Whether the state is open is checked by reads and by `commit`."""
        self._state = state
        self._reads: dict[tuple[str, bytes], bytes | None] = {}
        layer = Layer()
        self._layers = [layer]
        self._points = layer.points
        """The points of the last layer."""
        self._open = True

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return a value, including this transaction's changes; `commit` checks that it is unchanged in the state."""
        self._check_open()
        for layer in reversed(self._layers):
            points = layer.points.get(family)
            if points is not None and key in points:
                return points[key]
            if any(start <= key < stop for start, stop in layer.ranges.get(family, ())):
                return None
        if (family, key) not in self._reads:
            self._reads[family, key] = self._state.get(family, key)
        return self._reads[family, key]

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Set a key."""
        self._points[family][key] = value

    def delete(self, family: str, key: bytes) -> None:
        """Delete a key, whether it exists or not."""
        self._points[family][key] = None

    def delete_range(self, family: str, start: bytes, stop: bytes) -> None:
        """Delete every key from `start` up to, not including, `stop`; keys that are put afterwards are kept."""
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
        """Apply all changes, durably: they survive a power cut when this returns.

        Without `sync` they survive a kill of the process (in a `SimulatedState` they do not): for data that can be
        rebuilt. A power cut may lose such commits, always the newest ones: never one without those after it.

        Raises `Conflict`, and changes nothing, if a value that was read has changed since: begin again. After
        `WriterStopped` the changes are either applied completely, or not at all.
        """
        if not self._open:
            raise _ended()
        self._open = False
        reads, self._reads = self._reads, {}
        layers, self._layers = self._layers, []
        self._points = _ENDED
        self._state.apply(reads, [layer for layer in layers if layer.points or layer.ranges], sync)

    def _check_open(self) -> None:
        if not self._open:
            raise _ended()


def check_reads(reads: Reads, read: Callable[[str, bytes], bytes | None]) -> None:
    """Raise `Conflict` if a value has changed since it was read."""
    for (family, key), value in reads.items():
        if read(family, key) != value:
            raise Conflict(
                f"the key {key.hex()!r} of {family!r} was changed by another transaction: read it again and try again"
            )
