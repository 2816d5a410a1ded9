"""Numbered texts: many distinct ones take their bytes and eight more each."""

from array import array
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.spark.queue_events import NONE, nullable

__all__ = ["MessageTexts"]

_RECENT = 4096
"""How many texts are recognised if they come again; the others get another number."""
_FULL_BYTES = 32 << 20

Numbers = np.ndarray[Any, Any]


class MessageTexts:
    """Texts by number, ascending in order of their first use."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = array("q", [0])
        self._recent: dict[str, int] = {}
        self._limit = _FULL_BYTES
        self._built: pa.Array | None = None
        """All texts, over the memory of `_data` and `_ends`, which cannot grow meanwhile."""

    def __len__(self) -> int:
        return len(self._ends) - 1

    def code(self, text: str) -> int:
        """Return the number of a text; `NONE` if it is empty."""
        if not text:
            return NONE
        known = self._recent.get(text)
        if known is None:
            if len(self._recent) >= _RECENT:
                self._recent.clear()
            self._built = None
            known = self._recent[text] = len(self)
            # As in `queue_events`: an exception's text may hold anything, and Arrow accepts only UTF-8.
            self._data += text.encode("utf-8", "backslashreplace")
            self._ends.append(len(self._data))
        return known

    def codes(self, texts: list[str], which: Numbers) -> Numbers:
        """Return the numbers here of texts that are given as indices in a list, `NONE` for none."""
        used = np.unique(which)
        used = used[used != NONE]
        if not len(used):
            return which
        table = np.full(len(texts) + 1, NONE, np.int64)  # an index of `NONE` finds the last entry
        table[used] = [self.code(texts[index]) for index in used.tolist()]
        return table[which]

    def texts(self, codes: Numbers) -> pa.Array:
        """Return the texts with these numbers, null where a number is `NONE`."""
        if not len(self) or (codes == NONE).all():
            return pa.nulls(len(codes), pa.string())
        return self._array().take(nullable(codes)).cast(pa.string())

    @property
    def is_full(self) -> bool:
        """Whether there is much text, of which some may not be used any more."""
        return len(self._data) + 8 * len(self._ends) > self._limit

    def keep(self, *used: Numbers) -> None:
        """Leave out the texts whose numbers are in none of these arrays, and change the numbers there."""
        alive = np.zeros(len(self), bool)
        for numbers in used:
            alive[numbers[numbers >= 0]] = True
        kept = self._array().take(pa.array(np.flatnonzero(alive)))
        self._built = None
        renumbered = np.cumsum(alive) - 1
        for numbers in used:
            there = numbers >= 0
            numbers[there] = renumbered[numbers[there]]
        _, ends, data = kept.buffers()
        self._ends = array("q", bytes(ends)[: 8 * (len(kept) + 1)] if ends is not None and len(kept) else [0])
        self._data = bytearray(data or b"")[: self._ends[-1]]
        self._recent.clear()
        self._limit = max(_FULL_BYTES, 2 * (len(self._data) + 8 * len(self._ends)))

    def _array(self) -> pa.Array:
        if self._built is None:
            ends, data = pa.py_buffer(self._ends), pa.py_buffer(self._data)
            self._built = pa.LargeStringArray.from_buffers(len(self), ends, data)
        return self._built
