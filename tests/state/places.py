"""Where does a state of each kind live in a test?"""

from collections.abc import Mapping
from pathlib import Path

from holdfast.base.files import SystemFiles
from holdfast.state import RocksState, SimulatedState, State
from holdfast.testing import SimFiles

KINDS = ("rocks", "flat", "flat on a real disk")


class Place:
    """A folder, real or not, with one state in it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.files = SimFiles() if kind == "flat" else SystemFiles()
        self._opened: list[State] = []

    def open(self, *, read_only: bool = False) -> State:
        state: State
        if self.kind == "rocks":
            state = RocksState(self.folder, read_only=read_only)
        else:
            state = SimulatedState(self.files, self.folder / "flat", read_only=read_only)
        self._opened.append(state)
        return state

    def close(self) -> None:
        for state in self._opened:
            state.close()


def put(state: State, family: str, values: Mapping[bytes, bytes]) -> None:
    """Commit some keys."""
    transaction = state.transaction()
    for key, value in values.items():
        transaction.put(family, key, value)
    transaction.commit()


def content(state: State, family: str) -> dict[bytes, bytes]:
    """Everything in a family."""
    return dict(state.scan(family))
