"""What is a state? Sorted bytes in families, read at any time and changed in transactions, whole or not at all.

State is a view: whatever it holds can be rebuilt from the logs and journals. It is kept so that opening need not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from holdfast.base.errors import Closed, Conflict
from holdfast.state.families import check_family

__all__ = ["Layer", "Reads", "State", "Transaction", "check_reads"]

Reads = Mapping[tuple[str, bytes], bytes | None]
"""What a transaction saw: by family and key, the value or that there was none."""


@runtime_checkable
class State(Protocol):
    """An open state: `RocksState` on a disk, `FlatState` on a simulated one. Methods may be called from any thread."""

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value of a key, None where there is none."""
        ...

    @property
    def commits(self) -> int:
        """How many transactions were applied since the opening."""
        ...

    def scan(
        self, family: str, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values, ascending, from `start` up to but not with `stop`, as they are at the moment of the call.

        With `reverse` the same ones, descending.

        Read lazily. Deleted keys between `start` and the first live one are passed one by one, and cost 0.2 us each:
        where many are deleted at the front, start from a cursor.
        """
        ...

    def first(self, family: str, start: bytes, stop: bytes, *, since: int = 0) -> tuple[bytes, bytes] | None:
        """The first key from `start` up to but not with `stop`, and its value.

        As they were at some moment after the first `since` commits: who asks for a past that no longer changes need
        not pay for a look at the present.
        """
        ...

    def transaction(self) -> "Transaction":
        """Begin a set of changes."""
        ...

    @property
    def stopped(self) -> str:
        """Why it takes no more commits, after a write that failed; empty where it does."""
        ...

    @property
    def generation(self) -> int:
        """How often it was opened again by `recover`: whoever keeps what was read before must read it again."""
        ...

    def recover(self) -> None:
        """Open it again where a failed write has stopped it, and raise as long as that cannot be done.

        Commits that failed may be in it, whole, or not.
        """
        ...

    def close(self) -> None:
        """Let everything go, scans under way too; idempotent. Any use afterwards raises `Closed`."""
        ...


class Points(dict[str, dict[bytes, bytes | None]]):
    """By family and key the new value, or None to delete. A family comes in when it is first asked for."""

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
    """A set of changes that applies whole or not at all, if what it read is still so. It serves once, in one thread.

    Optimistic: nothing is locked before `commit`, and nothing is changed.
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
        """The value as this transaction sees it: its own changes first. What is read must still be so at `commit`."""
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
        """Delete a key, whether it is there or not."""
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
        """Take over what another one read and changes, behind what this one does; the other is used up."""
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

        Without `sync` it survives the end of the process: for views that can catch up from what they are views of. A
        power cut takes such commits back from the last one on, never one without those after it.

        Raises `Conflict`, and changes nothing, where something that was read has changed since: begin again.
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
    """Raise `Conflict` where something is no longer as it was read."""
    for (family, key), value in reads.items():
        if read(family, key) != value:
            raise Conflict(
                f"the key {key.hex()!r} of {family!r} was changed by another transaction: read it again and try again"
            )
