"""State in memory only, for readers that rebuild a state while another process owns the store."""

import threading
from collections.abc import Sequence
from pathlib import Path

from holdfast.base.files import SystemFiles
from holdfast.state.simulated import SimulatedState, changed
from holdfast.state.state import Layer, Reads, check_reads

__all__ = ["MemoryState"]


class MemoryState(SimulatedState):
    """A `State` that is lost when it is closed."""

    def __init__(self) -> None:
        self.path = Path("memory")
        self.read_only = False
        self._files = SystemFiles()
        self._guard = threading.Lock()
        self._closed = False
        self._stopped = ""
        self.generation = 0
        self._content = {}
        self._commits = 0
        self._unwritten = False

    def _apply(self, reads: Reads, layers: Sequence[Layer], sync: bool) -> None:
        with self._guard:
            check_reads(reads, self.get)
            self._content = changed(self._content, layers)
            self._commits += 1
